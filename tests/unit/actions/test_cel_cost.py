"""What CEL expressions may cost, by the sizes of what a message hands to them (D44)."""

from __future__ import annotations

import pytest

from actions.script.cel import CelError, compile_expression
from actions.script.cel_cost import COST_MAX, ROUNDS_MAX, Estimate, longest, weigh

pytest.importorskip("cel_expr_python")


def test_costly_message_is_an_error_before_it_costs() -> None:
    """9,000 rounds over a text of a megabyte took 117 s; it is told instead, by the sizes alone."""
    expression = compile_expression("json.l.all(x, json.s.contains('ab') == false)")
    with pytest.raises(CelError, match="steps for this message"):
        expression.decide({"json": {"l": [1] * 1000, "s": "a" * 30_000}})
    assert expression.decide({"json": {"l": [1] * 9000, "s": "a" * 100}})


@pytest.mark.parametrize(
    "text", ["json.l.map(x, x + 1).size() > 0", "json.o.exists(o, o.l.filter(x, x > 1).size() > 1)"]
)
def test_list_that_is_gathered_counts_as_often_as_it_is_copied(text: str) -> None:
    """9,000 elements took 2 s; many short lists are no trouble."""
    expression = compile_expression(text)
    with pytest.raises(CelError, match="steps for this message"):
        expression.decide({"json": {"l": list(range(9_000)), "o": [{"l": list(range(9_000))}]}})
    assert expression.decide({"json": {"l": list(range(3_000)), "o": [{"l": [1, 2, 3]} for _ in range(1_000)]}})


def test_elements_are_counted_and_not_their_characters() -> None:
    """Of what `split` makes of a text, there may be as many as it has characters."""
    expression = compile_expression("json.l.map(x, x.trim()).size() == 90 && json.t.split(',').map(x, x).size() == 3")
    assert expression.decide({"json": {"l": ["a" * 400] * 90, "t": "a,b,c"}})
    with pytest.raises(CelError, match="steps for this message"):
        expression.decide({"json": {"l": ["a"] * 90, "t": "a," * 4_500}})


@pytest.mark.parametrize(
    "pattern", ["((a?b?){10}c?){90}d", "((?:a?b?){2,10}[c{9}]?){90,}d", r"\\Q(a\\E((a?b?){10}\\{?){90}"]
)
def test_costly_pattern_is_an_error_before_it_costs(pattern: str) -> None:
    """What a pattern repeats counts as often as it is repeated: these took 4 s for a text of 100,000 characters."""
    expression = compile_expression(f"json.s.matches('{pattern}')")
    with pytest.raises(CelError, match="steps for this message"):
        expression.decide({"json": {"s": "ab" * 4_000}})
    assert not expression.decide({"json": {"s": "ab" * 1_000}})


@pytest.mark.parametrize(
    "text",
    [
        "json.l.all(x, json.s.contains('ab'))",
        "json.s.contains(json.t)",
        "[json.s].map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a) == []",
        "json.l.all(a, json.l.all(b, a == b))",
    ],
)
def test_what_grows_faster_than_the_message_has_a_limit(text: str) -> None:
    """There is a size from which on it is refused, and the estimate does not shrink below it."""
    expression = compile_expression(text)
    assert expression.weight_max is not None
    estimates = [Estimate(dict.fromkeys(expression.paths, 1 << bits)).of(expression.tree) for bits in range(24)]
    assert estimates == sorted(estimates)
    assert estimates[-1] > COST_MAX


@pytest.mark.parametrize(
    "text",
    [
        "json.a > 1 && json.b in ['x', 'y']",
        "json.l.exists(i, i.p > json.q)",
        "json.s.matches('a+b')",
        r"json.s.matches('^[0-9a-f]{4}$')",
    ],
)
def test_plain_filter_is_not_weighed(text: str) -> None:
    """What reads its message once costs no estimate."""
    assert compile_expression(text).weight_max is None


def test_join_of_a_body_with_itself_is_affordable() -> None:
    """Nested loops over a list of lists see each element once."""
    orders = [{"limit": 5, "lines": [{"price": 1}, {"price": 2}]} for _ in range(200)]
    expression = compile_expression("json.orders.exists(o, o.lines.exists(l, l.price > o.limit))")
    assert not expression.decide({"json": {"orders": orders}})


def test_weight_counts_values_and_characters() -> None:
    """Of names, too."""
    assert weigh({"ab": [1, "xyz", None]}) == 1 + 3 + 1 + 1 + 4 + 1
    assert ROUNDS_MAX == 10_000


def test_longest_is_of_lists_and_objects_at_any_depth() -> None:
    """Characters count where a text becomes a list."""
    value = {"a": [{"b": [1, 2, 3]}], "c": "text"}
    assert (longest(value), longest(value, texts=True), longest(7)) == (3, 4, 0)
