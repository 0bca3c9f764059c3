"""JSON that keeps what it was given (W21)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actions.json_action import JsonAction
from actions.transform.exact_json import JsonNumber, decode_exact, encode, text_of
from pyddmq.actions import Action, Job, Status
from pyddmq.testing.actions import try_pipeline

TEXTS = [
    b'{"b":1,"a":2}',
    b'{"n":9223372036854775808}',
    b'{"n":-9223372036854775809,"m":123456789012345678901234567890}',
    b'{"n":1e400}',
    b'{"n":0.1,"m":0.10,"o":1.50e2,"p":-0.0,"q":1E5}',
    b'{"n":12345678.123456789012345678}',
    '{"é":"ü"}'.encode(),
    b'{"a":[],"b":{},"c":null,"d":true}',
]


@pytest.mark.parametrize("text", TEXTS)
def test_written_as_it_was_read(text: bytes) -> None:
    """Key order, large integers, decimals and numbers beyond a float's range come out as they stood there."""
    assert encode(decode_exact(text)) == text


def test_last_of_a_repeated_name_counts_in_the_place_of_the_first() -> None:
    """As DDMQ takes it; a parsed object has each name once."""
    assert encode(decode_exact(b'{"a":1,"b":2,"a":3}')) == b'{"a":3,"b":2}'


def test_number_that_keeps_its_text_is_a_float() -> None:
    """Arithmetic and comparison see a float; one with Python's own text is a plain one."""
    data = decode_exact(b'{"a":1.10,"b":1.1}')
    assert data["a"] == 1.1
    assert isinstance(data["a"], JsonNumber)
    assert type(data["b"]) is float


def test_json_takes_a_number_beyond_a_float() -> None:
    """It is no reason for the dead letters, in pipelines that write nothing either."""
    assert JsonAction().parse(b'{"a": 1e400, "b": 2}')["b"] == 2


@pytest.mark.parametrize(
    ("value", "text"), [("a b", "a b"), (3, "3"), (None, "null"), ([1, "x"], '[1,"x"]'), (True, "true")]
)
def test_text_of_a_value(value: object, text: str) -> None:
    """A text as it is, everything else as JSON."""
    assert text_of(value) == text


def test_what_json_cannot_hold_is_a_type_error() -> None:
    """Of a script's making."""
    with pytest.raises(TypeError, match="object cannot be represented in JSON"):
        encode({"a": object()})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.text(), below, max_size=4),
    max_leaves=12,
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_whatever_is_written_is_read_back(data: dict[str, Any]) -> None:
    """And a second time it is the same bytes."""
    text = msgspec.json.encode(data)
    read = decode_exact(text)
    assert read == data
    assert decode_exact(encode(read)) == data
    assert encode(decode_exact(encode(read))) == encode(read)


class Changes(Action):
    """An action of a user, which may change anything where it is."""

    needs_json = True

    def act(self, job: Job) -> Status:
        return Status.CONTINUE


ODD = b'{"a": 1.10, "b": 1e400, "c": 0.12345678901234567890, "d": "\\u00e9", "a": 2}'


@pytest.mark.parametrize(
    ("actions", "body"),
    [
        (["Json"], ODD),
        (["Json", "QueryParams"], ODD),
        (["Json", "Filter"], ODD),
        (["Json", "Changes"], '{"a":2,"b":1e400,"c":0.12345678901234567890,"d":"é"}'.encode()),
        (["Json", "Transit"], '{"a":2,"b":1e400,"c":0.12345678901234567890,"d":"é","e":2}'.encode()),
    ],
)
def test_body_that_no_action_changed_is_pushed_to_the_byte(actions: list[str], body: bytes) -> None:
    """And one that may be changed keeps its numbers' text."""
    options = {
        "Transit": {"fields": {"$": "$", "$.e": "$.a"}},
        "QueryParams": {"fields": {"price": "$.c"}},
        "Filter": {"expression": "true"},
    }
    trial = try_pipeline(
        json.dumps(
            {
                "topics": {"t": {}},
                "groups": [
                    {
                        "group": "g",
                        "topics": [
                            {
                                "topic": "t",
                                "actions": [*actions, "Async", "AsyncHttp"],
                                "urls": ["http://h/"],
                                "options": {name: options[name] for name in actions if name in options},
                            }
                        ],
                    }
                ],
            }
        ),
        "g",
        "t",
        ODD,
        actions={"Changes": Changes},
    )
    assert trial.last.preview[-1].encode() == body
