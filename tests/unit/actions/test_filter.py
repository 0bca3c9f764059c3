"""Filter in a pipeline: what goes on, what is filtered, and what becomes of what cannot be decided."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.actions.gathering import Ends, events, reasons, world

pytest.importorskip("cel_expr_python")


def filtering(expression: str, *before: str, **options: Any) -> Any:
    """Make a group that filters by an expression."""
    return world(*before, "Filter", options={"Filter": {"expression": expression, **options}})


def test_true_goes_on_and_false_is_counted_and_consumed() -> None:
    """Nothing of it is retried, and its offset is finished."""
    made = filtering("json.n > 1 && json.c in ['a', 'b']", "Json")
    for body in ({"n": 1, "c": "a"}, {"n": 2, "c": "a"}, {"n": 3, "c": "x"}):
        made.publish(None, body=body)
    assert [data["n"] for data, _ in Ends.ended] == [2]
    assert events(made, "Filter", "filtered") == 2
    assert reasons(made) == []
    assert made.group_queue().tracker.watermark == 3


@pytest.mark.parametrize(
    ("expression", "passes"),
    [
        ("key == 'k' && tag == 'red' && properties.p == '1'", True),
        ("topic == 't' && group == 'g' && queue == 0 && qid == 'c_b_0' && offset == 0 && attempts == 0", True),
        ("size == 7 && age < duration('1s') && born <= now", True),
        ("'q' in properties", False),
        ("json.a == 1", True),
    ],
)
def test_what_an_expression_may_name(expression: str, passes: bool) -> None:
    """The body is parsed for it alone where no Json stands before."""
    made = filtering(expression)
    made.publish("k", body=b'{"a":1}', tag="red", properties=[("p", "1")])
    assert [data for data, _ in Ends.ended] == [b'{"a":1}'] * passes
    assert events(made, "Filter", "filtered") == (not passes)


@pytest.mark.parametrize("kind", ["bytes", "bytearray", "memoryview"])
def test_raw_body_of_any_kind_is_parsed(kind: str) -> None:
    """An action before may have made it."""
    function = f"tests.unit.actions.script_functions:as_{kind}"
    options = {"Python": {"function": function}, "Filter": {"expression": "json.a == 1"}}
    made = world("Python", "Filter", options=options)
    made.publish(None, body=b'{"a":1}')
    assert len(Ends.ended) == 1


@pytest.mark.parametrize("on_error", ["fail", "skip", "pass"])
@pytest.mark.parametrize("body", [b"{}", b"no json", b'{"a":"x"}'])
def test_error_is_counted_and_ends_as_the_group_chose(on_error: str, body: bytes) -> None:
    """W16: a missing field is never taken for filtered."""
    made = filtering("json.a > 1", onError=on_error)
    made.publish(None, body=body)
    letters = reasons(made)
    assert len(Ends.ended) == (on_error == "pass")
    assert len(letters) == (on_error == "fail")
    assert all("Filter: " in each for each in letters)
    assert events(made, "Filter", "error") == (4 if on_error == "fail" else 1)
    assert events(made, "Filter", "filtered") == 0
    counted = {"skip": "skipped", "pass": "passed"}.get(on_error)
    assert counted is None or events(made, "Filter", counted) == 1
    assert made.group_queue().tracker.watermark == 1


def test_retry_decides_by_attempts() -> None:
    """What is handed in is of this attempt."""
    made = filtering("attempts < 1 ? json.a : attempts == 1", "Json")
    made.publish(None, body={})
    made.advance(60)
    assert len(Ends.ended) == 1
    assert events(made, "Filter", "error") == 1
