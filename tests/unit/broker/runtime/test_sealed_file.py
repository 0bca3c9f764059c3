"""JSON with its checksum: what was sealed is read, and nothing else."""

from __future__ import annotations

import json

import pytest

from broker.runtime.file_writes import AT_ONCE, TURN
from broker.runtime.sealed_file import encoding, sealed, unsealed
from broker.runtime.steps import StepsEnd, step


def test_what_was_sealed_is_read() -> None:
    """The same values, whatever their order in the text."""
    data = {"b": [1, -2, None], "a": {"é": "x"}}
    assert unsealed(sealed(data)) == data


@pytest.mark.parametrize(
    "data",
    [
        {"ranges": [[number, number + 1] for number in range(5 * AT_ONCE)], "a": None},
        {"levels": {"16": [7, *([number, number + 1] for number in range(5 * AT_ONCE))], "2": [3]}, "end": 1},
        {"table": {f"n{number}": {"é": [number]} for number in range(5 * AT_ONCE)}},
        list(range(5 * AT_ONCE)),
    ],
)
def test_what_is_long_is_encoded_some_entries_at_a_time(data: object) -> None:
    """Wherever it is: a million ranges that are written every few seconds hold nobody up."""
    for sort_keys in (False, True):
        steps, turns = encoding(data, sort_keys=sort_keys), 0
        while not isinstance(made := step(steps), StepsEnd):
            assert made is TURN
            turns += 1
        assert turns >= 5
        assert made.result == json.dumps(data, separators=(",", ":"), sort_keys=sort_keys)


def test_any_other_byte_is_damage() -> None:
    """Or another value that is JSON, too."""
    raw = sealed({"number": 12})
    for place in range(len(raw) - 1):
        with pytest.raises(ValueError, match="checksum"):
            unsealed(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b"null", b"[" * 100_000, b'{"data":1}', b"\xff"])
def test_what_is_no_such_json_is_damage(raw: bytes) -> None:
    """However deep it is nested."""
    with pytest.raises(ValueError, match="checksum"):
        unsealed(raw)
