"""CEL expressions: what is refused at load and where, and what cannot be decided (D44)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actions.script.cel import TEXT_MAX, CelError, compile_expression
from conf.places import ConfigTextError
from tests.fuzz import expressions

pytest.importorskip("cel_expr_python")


@pytest.mark.parametrize(
    ("text", "said", "line", "column"),
    [
        ("json.a > 3 &&\n  foo == 2", "undeclared reference to 'foo'; use json, key", 2, 3),
        ("jsom == 1", "did you mean json?", 1, 1),
        ("1 +", "mismatched input '<EOF>'", 1, 4),
        ("'é' == x", "undeclared reference to 'x'", 1, 8),
        ("json.s.matches('(a')", "missing ): (a", 1, 16),
        ("json.s.matches(json.p)", "must be a literal", 1, 15),
        ("json.s.replace('a', 'b') == ''", "replace is not supported", 1, 15),
        ("key + 1 == 'a'", "no matching overload", 1, 5),
    ],
)
def test_wrong_expression_is_told_with_its_place(text: str, said: str, line: int, column: int) -> None:
    """Line and column of the first mistake, from 1, in characters."""
    with pytest.raises(ConfigTextError) as refused:
        compile_expression(text)
    assert said in str(refused.value)
    assert (refused.value.line, refused.value.column) == (line, column)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 + 1", "returns int"),
        ("[" * 40 + "1" + "]" * 40, "nested deeper than 32 levels"),
        ("true" + " && true" * TEXT_MAX, "the maximum is 8192"),
        ("[1]" + ".map(a, a)" * 9 + " == [1]", "more than 8 loops"),
    ],
)
def test_expression_without_bounds_is_refused(text: str, said: str) -> None:
    """Depth, length and loops are bounded at load."""
    with pytest.raises(ValueError, match=said):
        compile_expression(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("json.a.b > 1 && json['x y'] == 2", {"json": {"a": {"b": None}, "x y": None}}),
        ("has(json.a) && json.?b.c.orValue(1) == 1", {"json": {"a": None, "b": {"c": None}}}),
        ("'a' in json && json.b == 1", {"json": None}),
        ("json.l.exists(i, i.p > json.q)", {"json": {"l": None, "q": None}}),
        ("[1].all(json, json > 0) && properties.p == key", {"properties": {"p": None}, "key": None}),
        ("json.a[0].b == 1 && json.a.b == 2", {"json": {"a": None}}),
    ],
)
def test_only_what_is_named_is_handed_in(text: str, wanted: dict[str, Any]) -> None:
    """Fields of a body cost for each, and nobody reads the others."""
    assert compile_expression(text).wanted == wanted


@pytest.mark.parametrize(
    ("text", "json", "answer"),
    [
        ("json.a == 2 && json.b", {"a": 2.0, "b": True}, True),
        ("json.l.exists(i, i.p > json.q)", {"l": [{"p": 1}, {"p": 3}], "q": 2}, True),
        ("json.s.contains('b') && json.s.matches('^a.c$') && json.s.lowerAscii().startsWith('ab')", {"s": "abc"}, True),
        ("timestamp(json.t) < timestamp('2024-01-01T00:00:00Z')", {"t": "2023-06-01T00:00:00+02:00"}, True),
        ("json.?a.b.orValue(7) == 7", {}, True),
        ("size(json.l) == 2 && 3 in json.l", {"l": [1, 2]}, False),
    ],
)
def test_expression_decides(text: str, json: dict[str, Any], answer: bool) -> None:
    """By numbers, lists, texts, times and what may be missing."""
    assert compile_expression(text).decide({"json": json}) is answer


@pytest.mark.parametrize(
    ("text", "json", "said"),
    [
        ("json.a == 1", {}, "Key not found"),
        ("json.a.b == 1", {"a": 5}, "SELECT"),
        ("json.a > 1", {"a": "x"}, "No matching overload"),
        ("json.a > 1", {"a": 2**70}, "out of range"),
        ("json.a", {"a": "true"}, "not true or false"),
        ("json.a", {"a": 1}, "not true or false"),
        ("json.a == 'A'", {"a": "\ud800"}, "null is not valid"),
        ("1 / json.a == 1", {"a": 0}, "divide by zero"),
        ("json.l.all(a, json.l.all(b, json.l.all(c, a + b + c >= 0)))", {"l": list(range(100))}, "budget"),
    ],
)
def test_what_cannot_be_decided_is_an_error(text: str, json: dict[str, Any], said: str) -> None:
    """A missing field, another type, too many rounds: never a crash, and never a plain false."""
    with pytest.raises(CelError, match=said):
        compile_expression(text).decide({"json": json})


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_no_expression_crashes(data: st.DataObject) -> None:
    """Any text of the grammar's words is refused in a sentence or decides about any body; see the fuzz target."""
    words = data.draw(st.lists(st.sampled_from(expressions.WORDS), max_size=14))
    expressions.expression(" ".join(words).encode())
