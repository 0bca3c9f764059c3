"""Batches in RocketMQ's encoding: what its clients send as one request (MessageBatch, MessageDecoder).

One member, all integers big-endian and signed; nothing is before, between or behind members:

====== ==== ===================================================
offset size field
====== ==== ===================================================
0      4    total size of the member
4      4    magic, written as 0 and not looked at
8      4    CRC-32 of the body, written as 0 and not looked at
12     4    flag, the producer's own number
16     4    body length n
20     n    body
20+n   2    length of the property block p
22+n   p    property block, see `broker.format.properties`
====== ==== ===================================================

RocketMQ's rules hold at both ends, so that bytes from elsewhere are no way around them: at least one member; one topic,
which is not a retry topic; one value of WAIT; no delay and no half message; no empty body; the encoded batch is not
larger than a message may be. Members without UNIQ_KEY get one. A refusal names the member, counted from 1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from broker.errors import MessageRefused
from broker.format.properties import PROPERTIES_BYTES_MAX, check_given, find_property
from broker.queues.topics import RETRY_PREFIX, check_name
from broker.runtime.seams import Buffer

BATCH_BYTES_MAX = 4 << 20
"""RocketMQ's default limit of a message, which a whole encoded batch keeps to."""

_HEAD = struct.Struct(">iiiii")
_LENGTH = struct.Struct(">h")
MEMBER_OVERHEAD_BYTES = _HEAD.size + _LENGTH.size
_FLAGS = range(-(1 << 31), 1 << 31)

_DELAYS = (b"DELAY", b"TIMER_DELIVER_MS", b"TIMER_DELAY_MS", b"TIMER_DELAY_SEC")
_TRANSACTION = b"TRAN_MSG"


class BatchMessage(NamedTuple):
    """A message to encode.

    Attributes:
        topic: The same for all of a batch.
        body: One byte or more; RocketMQ's clients never compress the bodies of a batch.
        properties: Name to value, in the order in which they are encoded; TAGS, KEYS, WAIT and UNIQ_KEY among them.
        flag: The producer's own number, an i32.
    """

    topic: str
    body: Buffer
    properties: Mapping[str, str] = {}
    flag: int = 0


class BatchMember(NamedTuple):
    """A decoded member; its body is a slice of the encoded bytes.

    Attributes:
        body: One byte or more.
        properties: The property block, with its closing 0x02, whether it came with one or not; b"" for none.
        unique_key: Its UNIQ_KEY, b"" when it has none.
        flag: The producer's own number.
    """

    body: memoryview
    properties: bytes
    unique_key: bytes
    flag: int


def encode_batch(
    messages: Sequence[BatchMessage], *, unique_keys: Iterable[bytes], bytes_max: int = BATCH_BYTES_MAX
) -> bytes:
    """Encode messages as RocketMQ's client does.

    Args:
        messages: In their order; at least one.
        unique_keys: Keys for messages that bring none (`broker.format.unique_key.UniqueKeys.take`), as many as
            messages; one is taken for each message, so that no two share one.
        bytes_max: Largest size of the result.

    Raises:
        MessageRefused: A rule of the module is broken.
    """
    if not messages:
        raise MessageRefused("the batch is empty; send at least one message")
    first = messages[0]
    parts: list[bytes] = []
    for place, (message, unique_key) in enumerate(zip(messages, unique_keys, strict=True)):
        try:
            _check_same(first, message)
            member = _encoded(message, unique_key)
            _member(memoryview(member), 0, len(member))
        except MessageRefused as error:
            raise _refusal(place, error.text) from error
        parts.append(member)
    encoded = b"".join(parts)
    _check_size(encoded, bytes_max)
    return encoded


def decode_batch(encoded: Buffer, *, bytes_max: int = BATCH_BYTES_MAX) -> list[BatchMember]:
    """Decode what RocketMQ's client, or `encode_batch`, encoded; the topic is not in it.

    Raises:
        MessageRefused: The bytes are not a batch, or violate a rule of the module.
    """
    view = memoryview(encoded)
    if not view:
        raise MessageRefused("the batch is empty; send at least one message")
    _check_size(view, bytes_max)
    members: list[BatchMember] = []
    at = 0
    while at < len(view):
        try:
            member, at = _member(view, at, len(view))
            if members and _waits(member.properties) != _waits(members[0].properties):
                raise _WAIT_DIFFERS
        except MessageRefused as error:
            raise _refusal(len(members), error.text) from error
        members.append(member)
    return members


def check_batch_topic(topic: str) -> None:
    """Check the topic of a batch.

    Raises:
        MessageRefused: It is no topic's name, or a retry topic's.
    """
    check_name(topic)
    if topic.startswith(RETRY_PREFIX):
        raise MessageRefused(f"{topic} is a retry topic, and its messages cannot be in a batch; send them one by one")


def check_plain(block: bytes) -> None:
    """Check that a property block asks for no delay and for no transaction.

    Raises:
        MessageRefused: It does.
    """
    for name in _DELAYS:
        value = find_property(block, name)
        # A level of 0 is none; of a timer property the presence counts.
        if value is not None and not (name == b"DELAY" and _is_no_level(value)):
            raise MessageRefused(
                f"{name.decode()} requests a delay, which is not allowed in a batch; send the message alone"
            )
    if (find_property(block, b"TRAN_MSG") or b"").lower() == b"true":
        raise MessageRefused("TRAN_MSG makes it a half message, which is not allowed in a batch; send it alone")


_WAIT_DIFFERS = MessageRefused("its WAIT differs from that of the first; all members of a batch must have the same")


def _refusal(place: int, text: str) -> MessageRefused:
    return MessageRefused(f"member {place + 1} of the batch: {text}")


def _check_size(encoded: Buffer, bytes_max: int) -> None:
    if len(encoded) > bytes_max:
        raise MessageRefused(
            f"the encoded batch has {len(encoded)} bytes; the limit is {bytes_max}; send smaller batches"
        )


def _check_same(first: BatchMessage, message: BatchMessage) -> None:
    check_batch_topic(message.topic)
    if message.topic != first.topic:
        raise MessageRefused(f"its topic is {message.topic}, that of the first is {first.topic}; a batch has one topic")
    if _says_wait(message.properties.get("WAIT")) != _says_wait(first.properties.get("WAIT")):
        raise _WAIT_DIFFERS
    if message.flag not in _FLAGS:
        raise MessageRefused(f"its flag {message.flag} does not fit into 32 bits with a sign")


def _encoded(message: BatchMessage, unique_key: bytes) -> bytes:
    pairs = dict(message.properties)
    if not pairs.get("UNIQ_KEY"):
        pairs["UNIQ_KEY"] = unique_key.decode("ascii")
    # Not `encode_properties`, which leaves empty values out: RocketMQ writes them.
    for name, value in pairs.items():
        if not name or {"\x01", "\x02"}.intersection(name + value):
            raise MessageRefused(f"property {name!r} has no name, or contains 0x01 or 0x02, which separate properties")
    try:
        block = "".join([f"{name}\x01{value}\x02" for name, value in pairs.items()]).encode()
    except UnicodeEncodeError as error:
        raise MessageRefused(f"its properties are not valid text: {error.reason}") from error
    _check_block_size(len(block))
    body = bytes(message.body)
    size = MEMBER_OVERHEAD_BYTES + len(body) + len(block)
    return b"".join((_HEAD.pack(size, 0, 0, message.flag, len(body)), body, _LENGTH.pack(len(block)), block))


def _check_block_size(size: int) -> None:
    if size > PROPERTIES_BYTES_MAX:
        raise MessageRefused(f"its properties have {size} bytes; the limit is {PROPERTIES_BYTES_MAX}")


def _member(view: memoryview, start: int, end: int) -> tuple[BatchMember, int]:
    """Decode and check the member at `start`; returns where the next one begins."""
    if end - start < MEMBER_OVERHEAD_BYTES:
        raise MessageRefused(f"{end - start} bytes are left, a member has {MEMBER_OVERHEAD_BYTES} or more")
    size, _, _, flag, body_bytes = _HEAD.unpack_from(view, start)
    body_at = start + _HEAD.size
    block_at = body_at + body_bytes + _LENGTH.size
    # A negative length would pass the bound on `block_at`.
    if body_bytes < 0 or block_at > end:
        raise MessageRefused(f"a body of {body_bytes} bytes does not fit into the {end - start} bytes that are left")
    block_bytes = _LENGTH.unpack_from(view, block_at - _LENGTH.size)[0]
    # Three lengths say the same twice; a client that gets one wrong is refused, not repaired.
    if block_bytes < 0 or size != block_at - start + block_bytes or start + size > end:
        raise MessageRefused(
            f"its lengths are inconsistent: {size} in total, body {body_bytes}, properties {block_bytes}, "
            f"{end - start} left"
        )
    if not body_bytes:
        raise MessageRefused("its body is empty; it needs one byte or more")
    block = bytes(view[block_at : block_at + block_bytes])
    if block and not block.endswith(b"\x02"):
        block += b"\x02"
        _check_block_size(len(block))
    _check_block(block)
    body = view[body_at : block_at - _LENGTH.size]
    return BatchMember(body, block, find_property(block, b"UNIQ_KEY") or b"", flag), start + size


def _check_block(block: bytes) -> None:
    """Refuse what would read as something else in a record: torn pairs, the broker's own names, other than UTF-8."""
    names: set[bytes] = set()
    for pair in block.split(b"\x02")[:-1]:
        name, separator, value = pair.partition(b"\x01")
        if not name or not separator or b"\x01" in value:
            raise MessageRefused("its properties are not pairs of name, 0x01, value, 0x02")
        if name != _TRANSACTION:
            # That one may say false, which `check_plain` sees to.
            check_given(name)
        if name in names or (name == b"UNIQ_KEY" and not value):
            # Readers would not agree on which of two counts.
            raise MessageRefused(f"property {name.decode('utf-8', 'replace')!r} is repeated, or is an empty UNIQ_KEY")
        names.add(name)
    try:
        block.decode()
    except UnicodeDecodeError as error:
        raise MessageRefused(f"its properties are not UTF-8: {error.reason}") from error
    check_plain(block)


def _is_no_level(value: bytes) -> bool:
    try:
        return int(value) <= 0
    except ValueError:
        return False


def _waits(block: bytes) -> bool:
    value = find_property(block, b"WAIT")
    return _says_wait(None if value is None else value.decode("utf-8", "replace"))


def _says_wait(value: str | None) -> bool:
    """Java's Boolean.parseBoolean; absent and empty mean that the producer waits (Message.isWaitStoreMsgOK)."""
    return not value or value.lower() == "true"
