"""Numbers of messages, and the checkpoint of what is known of them, byte for byte."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.deduplication.deduplication import CheckpointDamaged, decode, encode
from broker.deduplication.numbers import Numbered, are_in_order, first_number, parse_key
from pyddmq.client.ordered_sends import Numbers
from tests.integration.keyed_tools import FIRST, NAME, key, keys, window

OTHER = NAME[:-1] + b"9"


def test_key_says_who_and_which() -> None:
    """Twenty digits and twelve; the first number stands in the name."""
    assert parse_key(key(5)) == Numbered(NAME, FIRST + 5)
    assert first_number(NAME) == FIRST


@pytest.mark.parametrize(
    "wrong", [b"", key(0)[:-1], key(0) + b"0", key(0).lower(), b"0A" + key(0)[2:], key(0)[:-1] + b"G", NAME + b"0" * 12]
)
def test_key_of_another_form_is_none(wrong: bytes) -> None:
    """Length, digits, mark, and a number that is not below the first."""
    assert parse_key(wrong) is None


@given(st.integers(0, 1 << 18), st.integers(1, 40), st.integers(0, 39), st.sampled_from([0, 1, 5]))
def test_keys_in_order_are_told_from_others(first: int, count: int, at: int, skipped: int) -> None:
    """Also where the last four digits begin anew."""
    given_keys = keys(first, count)
    numbered = parse_key(given_keys[0])
    assert numbered is not None
    assert are_in_order(given_keys, numbered)
    if 0 < at < count:
        wrong = [*given_keys[:at], key(first + at + 1 + skipped), *given_keys[at + 1 :]]
        assert not are_in_order(wrong, numbered)
        assert not are_in_order([*given_keys[:at], key(first + at, OTHER), *given_keys[at + 1 :]], numbered)
    assert are_in_order(keys(65_530, 10), Numbered(NAME, FIRST + 65_530))


def test_numbers_of_the_client_are_those_of_the_broker() -> None:
    """Its first key is the first of its name, and the next ones follow; two clients have two names."""
    numbers = Numbers()
    made = [each.encode() for each in numbers.keys(3)]
    first = parse_key(made[0])
    assert first is not None
    assert first.number == first_number(first.name)
    assert are_in_order(made, first)
    numbers.take(3)
    following = parse_key(numbers.keys(1)[0].encode())
    assert following == Numbered(first.name, first.number + 3)
    assert Numbers().name != numbers.name


def test_checkpoint_has_what_is_below_an_offset() -> None:
    """Producers in their order; what is not visible yet is left out."""
    known, _ = window()
    known.stored(NAME, FIRST, [100, 200, 300], 7)
    known.stored(OTHER, first_number(OTHER), [400], 8)
    end, producers = decode(encode(known.producers, 250))
    found = {name: (each.low, each.places, each.last_ms) for name, each in producers}
    assert (end, found) == (250, {NAME: (FIRST, array("q", [100, 200]), 7)})
    _, producers = decode(encode(known.producers, 1000))
    assert [name for name, _ in producers] == [NAME, OTHER]


@given(st.data())
def test_damaged_checkpoint_is_told(data: st.DataObject) -> None:
    """Any flipped bit, any cut, anything behind it."""
    known, _ = window()
    known.stored(NAME, FIRST, [100, 200], 7)
    raw = encode(known.producers, 250)
    way = data.draw(st.sampled_from(["flip", "cut", "more", "other"]))
    if way == "flip":
        at = data.draw(st.integers(0, len(raw) - 1))
        raw = raw[:at] + bytes([raw[at] ^ 1 << data.draw(st.integers(0, 7))]) + raw[at + 1 :]
    elif way == "cut":
        raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
    elif way == "more":
        raw += b"x"
    else:
        raw = data.draw(st.binary(max_size=100))
    with pytest.raises(CheckpointDamaged):
        list(decode(raw)[1])
