"""Records of the waiting topic: read as they were written, damaged and newer ones told apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.kafka.waiting.records import (
    Damaged,
    EndedMessage,
    Identity,
    NewerRecord,
    PartitionStatus,
    WaitingHalf,
    WaitingRecord,
    WaitingRequest,
    decode,
    decode_answer,
    encode,
    encode_answer,
    encode_status,
    parse_key,
)

MOMENTS = st.integers(0, 1 << 60)
HALVES = st.builds(WaitingHalf, deliver_at_ms=MOMENTS, delay_ms=MOMENTS, immunity_ms=st.integers(-1, 1 << 60))
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple)


@given(
    st.builds(
        WaitingRecord,
        due_ms=MOMENTS,
        partition=st.none() | st.integers(0, 99),
        key=st.none() | st.binary(max_size=9),
        body=st.binary(max_size=99),
        headers=HEADERS,
        at_ms=MOMENTS,
        half=st.none() | HALVES,
        level=st.integers(0, 99),
    )
)
def test_message_is_read_as_it_was_written(message: WaitingRecord) -> None:
    """Binary keys, null and repeated headers, any body."""
    assert decode(encode(message)) == message


@given(st.text(max_size=9), st.text(max_size=9), st.text(max_size=9))
def test_key_says_whose_it_is(topic: str, principal: str, name: str) -> None:
    """Whatever characters are in it; a request's key is another one, of the same partition."""
    identity = Identity(topic, principal, name)
    assert parse_key(identity.key("n")) == (identity, False)
    assert parse_key(identity.key("n", "r")) == (identity, True)
    assert identity.partition(7) == Identity(topic, principal, name).partition(7)


def test_small_records_are_read_as_they_were_written() -> None:
    """Ends, requests, answers and statuses."""
    for content in (EndedMessage("delivered", 5), WaitingRequest("r", 9)):
        assert decode(encode(content)) == content
    assert decode_answer(encode_answer("r", "cancelled")) == ("r", "cancelled")
    status = PartitionStatus(1, "n", "serving", 5, 2, 0, 9, [("t", "p", 2)], ["trouble"])
    assert decode_answer(encode_status(status)) == status
    assert decode_answer(b"what") is None


def test_damage_is_not_a_newer_version() -> None:
    """What no version wrote is skipped, what a newer one wrote stops its partition."""
    value = encode(EndedMessage("delivered", 5))
    for damaged in (b"", b"\x01", value[:9], b"\x01\x00\x00\x00\x02{}", value[:5] + b"x" + value[6:]):
        with pytest.raises(Damaged):
            decode(damaged)
    with pytest.raises(NewerRecord):
        decode(b"\x02" + value[1:])
    for key in (None, b"", b"{}", b'["a"]'):
        with pytest.raises(Damaged):
            parse_key(key)
