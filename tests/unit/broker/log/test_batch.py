"""RocketMQ's encoding of batches: its own bytes, round trips, and a refusal for each broken rule."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.errors import MessageRefused
from broker.format.properties import OWN_PROPERTIES, parse_properties
from broker.log.batch import BATCH_BYTES_MAX, BatchMessage, decode_batch, encode_batch
from tests.golden.batches import BATCHES, golden_batches

GOLDEN = golden_batches()
MEMBER = BatchMessage("t", b"x", {"UNIQ_KEY": "K1"})


def keys(messages: list[BatchMessage]) -> Iterator[bytes]:
    """As many unique keys as messages."""
    return (b"%032X" % number for number, _ in zip(count(), messages, strict=False))


def encoded(*messages: BatchMessage, bytes_max: int = BATCH_BYTES_MAX) -> bytes:
    """Encode with keys of our own."""
    return encode_batch(messages, unique_keys=keys([*messages]), bytes_max=bytes_max)


def refusal(*messages: BatchMessage, bytes_max: int = BATCH_BYTES_MAX) -> str:
    """What encoding says of messages that are refused."""
    with pytest.raises(MessageRefused) as caught:
        encoded(*messages, bytes_max=bytes_max)
    assert caught.value.code == 11
    return caught.value.text


def refusal_of_bytes(data: bytes, bytes_max: int = BATCH_BYTES_MAX) -> str:
    """What decoding says of bytes that are refused."""
    with pytest.raises(MessageRefused) as caught:
        decode_batch(data, bytes_max=bytes_max)
    return caught.value.text


def member(body: bytes = b"x", block: bytes = b"", *, size: int | None = None, body_bytes: int | None = None) -> bytes:
    """Encode a member by hand, with lengths that may lie."""
    numbers = (22 + len(body) + len(block) if size is None else size, 0, 0, 0)
    head = b"".join(number.to_bytes(4, "big", signed=True) for number in numbers)
    length = len(body) if body_bytes is None else body_bytes
    return head + length.to_bytes(4, "big", signed=True) + body + len(block).to_bytes(2, "big") + block


def test_golden_cases_are_those_of_the_values() -> None:
    """No case of the file is without its values."""
    assert GOLDEN.keys() == BATCHES.keys()


@pytest.mark.parametrize("case", [case for case, data in GOLDEN.items() if data is not None])
def test_batch_is_encoded_and_decoded_as_by_rocketmq(case: str) -> None:
    """The bytes are RocketMQ's own, and its bytes are understood."""
    data = GOLDEN[case]
    assert data is not None
    messages = BATCHES[case]
    assert encoded(*messages) == data
    members = decode_batch(data)
    assert [(bytes(each.body), each.flag, each.unique_key.decode()) for each in members] == [
        (message.body, message.flag, message.properties["UNIQ_KEY"]) for message in messages
    ]
    assert [parse_properties(each.properties) for each in members] == [
        {name: value for name, value in message.properties.items() if value} for message in messages
    ]


@pytest.mark.parametrize("case", [case for case, data in GOLDEN.items() if data is None])
def test_what_rocketmq_refuses_is_refused(case: str) -> None:
    """Each of RocketMQ's own refusals is one here."""
    assert refusal(*BATCHES[case])


TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
NAMES = TEXT.filter(
    lambda name: (
        not name.startswith(("__", "TIMER_"))
        and name not in ("DELAY", "WAIT", "UNIQ_KEY")
        and name.encode() not in OWN_PROPERTIES
    )
)
MESSAGES = st.builds(
    BatchMessage,
    topic=st.just("t"),
    body=st.binary(min_size=1, max_size=60),
    properties=st.dictionaries(NAMES, TEXT, max_size=4),
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
)


@given(messages=st.lists(MESSAGES, min_size=1, max_size=8))
@example(messages=[BatchMessage("t", b"x", {"TAGS": "a", "name": "value"}, 0)])
def test_batch_comes_back_as_it_was(messages: list[BatchMessage]) -> None:
    """Bodies, flags and properties survive, and every member has a unique key of its own."""
    members = decode_batch(encoded(*messages))
    assert [(bytes(each.body), each.flag) for each in members] == [(each.body, each.flag) for each in messages]
    assert [each.unique_key for each in members] == [*keys(messages)]
    for each, message in zip(members, messages, strict=True):
        found = parse_properties(each.properties)
        assert found.pop("UNIQ_KEY").encode() == each.unique_key
        assert found == message.properties


@given(data=st.binary(max_size=120), at=st.integers(0, 200), bit=st.integers(0, 7))
def test_any_bytes_are_a_batch_or_refused(data: bytes, at: int, bit: int) -> None:
    """Garbage, and a batch with a flipped bit, are refused or decode to members that encode to the same bytes."""
    good = bytearray(encoded(MEMBER, BatchMessage("t", b"some body", {"a": "b", "UNIQ_KEY": "K2"})))
    good[at % len(good)] ^= 1 << bit
    for each in (data, bytes(good)):
        try:
            members = decode_batch(each)
        except MessageRefused:
            continue
        again = b"".join(member(bytes(found.body), found.properties) for found in members)
        assert len(again) >= len(each)
        assert [found.body for found in decode_batch(again)] == [found.body for found in members]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (BatchMessage("t", b""), "its body is empty"),
        (BatchMessage("u", b"x"), "its topic is u, that of the first is t"),
        (BatchMessage("%RETRY%g", b"x"), "retry topic"),
        (BatchMessage("no topic", b"x"), "topic name 'no topic' is not allowed"),
        (BatchMessage("t", b"x", {"WAIT": "false"}), "its WAIT differs"),
        (BatchMessage("t", b"x", {"DELAY": "1"}), "DELAY requests a delay"),
        (BatchMessage("t", b"x", {"TIMER_DELAY_SEC": "1"}), "TIMER_DELAY_SEC requests a delay"),
        (BatchMessage("t", b"x", {"TRAN_MSG": "true"}), "TRAN_MSG makes it a half message"),
        (BatchMessage("t", b"x", {"a": "b\x02c"}), "contains 0x01 or 0x02"),
        (BatchMessage("t", b"x", {"": "b"}), "has no name"),
        (BatchMessage("t", b"x", {"a": "\ud800"}), "not valid text"),
        (BatchMessage("t", b"x", {"__CRC32#": "1"}), "reserved by the broker"),
        (BatchMessage("t", b"x", {"__PYDDMQ_BATCH": "1"}), "reserved by the broker"),
        (BatchMessage("t", b"x", {"a": "b" * 40_000}), "the limit is 32767"),
        (BatchMessage("t", b"x", {}, 1 << 31), "does not fit into 32 bits"),
    ],
)
def test_refusal_names_the_member(message: BatchMessage, text: str) -> None:
    """A broken rule is told with the number of the member that breaks it."""
    said = refusal(MEMBER, message, MEMBER)
    assert said.startswith("member 2 of the batch: ")
    assert text in said


def test_batch_above_the_limit_is_refused_with_its_size() -> None:
    """A batch as large as a message may be is taken, one byte more is not, at both ends."""
    data = encoded(MEMBER, MEMBER)
    assert encoded(MEMBER, MEMBER, bytes_max=len(data)) == data
    assert len(decode_batch(data, bytes_max=len(data))) == 2
    said = f"the encoded batch has {len(data)} bytes; the limit is {len(data) - 1}"
    assert said in refusal(MEMBER, MEMBER, bytes_max=len(data) - 1)
    assert said in refusal_of_bytes(data, bytes_max=len(data) - 1)


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (b"\x00" * 21, "21 bytes are left, a member has 22 or more"),
        (member(size=99), "its lengths are inconsistent: 99 in total, body 1, properties 0, 23 left"),
        (member(size=-1), "its lengths are inconsistent"),
        (member(body_bytes=-5), "a body of -5 bytes"),
        (member(body_bytes=1 << 30), "a body of 1073741824 bytes does not fit"),
        (member(b""), "its body is empty"),
        (member(block=b"a\x01b\x02c"), "not pairs"),
        (member(block=b"\x01b\x02"), "not pairs"),
        (member(block=b"a\x01\xff\x02"), "not UTF-8"),
        (member(block=b"DELAY\x010\x02DELAY\x013\x02"), "'DELAY' is repeated"),
        (member(block=b"UNIQ_KEY\x01\x02"), "an empty UNIQ_KEY"),
        (member(block=b"DELAY\x012"), "DELAY requests a delay"),
        (member(block=b"TIMER_DELIVER_MS\x011\x02"), "TIMER_DELIVER_MS requests a delay"),
        (member(block=b"TRAN_MSG\x01True\x02"), "half message"),
        (member(block=b"WAIT\x01false\x02"), "its WAIT differs"),
        (member(block=b"__CRC32#\x010000000000\x02"), "reserved by the broker"),
    ],
)
def test_decoding_refuses_what_encoding_does(second: bytes, text: str) -> None:
    """Bytes from elsewhere are no way around the rules; the member is named."""
    said = refusal_of_bytes(member() + second)
    assert said.startswith("member 2 of the batch: ")
    assert text in said


def test_empty_batch_is_refused() -> None:
    """There is no batch of nothing."""
    assert "empty" in refusal()
    assert "empty" in refusal_of_bytes(b"")


def test_block_without_its_last_separator_is_taken() -> None:
    """Older clients leave the last 0x02 out."""
    [found] = decode_batch(member(block=b"a\x01b"))
    assert found.properties == b"a\x01b\x02"
