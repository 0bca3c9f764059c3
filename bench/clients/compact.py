"""Just enough TCompactProtocol for the benchmark's clients, written for speed and apart from the product's codec.

`publish_frame` and `pull_frame` return whole frames with their length; `scan_pull_reply` finds what a client needs to
acknowledge. Replies that are not what was expected raise `UnexpectedReply`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

_LENGTH = struct.Struct(">I")
_SEQID = 1
_STRING, _I32, _I64, _STRUCT, _LIST, _MAP = 8, 5, 6, 12, 9, 11


class UnexpectedReply(Exception):
    """The server answered something that a healthy run does not contain."""


class Message(NamedTuple):
    """What a producer sends; properties as pairs; `deliver_at_ms` above 0 of a timer."""

    topic: bytes
    key: bytes
    body: bytes
    tags: bytes
    properties: Sequence[tuple[bytes, bytes]]
    deliver_at_ms: int = 0


class Pulled(NamedTuple):
    """A pull reply: its context, and offset and body of each message (bodies are slices)."""

    topic: bytes
    qid: bytes
    offsets: list[int]
    bodies: list[memoryview]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _zigzag(value: int) -> bytes:
    return _varint((value << 1) ^ (value >> 63))


def _binary(value: bytes) -> bytes:
    return _varint(len(value)) + value


def _list_of(kind: int, count: int) -> bytes:
    return bytes((count << 4 | kind,)) if count < 15 else bytes((0xF0 | kind,)) + _varint(count)


def _frame(method: bytes, arguments: bytes) -> bytes:
    content = b"\x82\x21" + _varint(_SEQID) + _binary(method) + arguments
    return _LENGTH.pack(len(content)) + content


def _message(message: Message) -> bytes:
    """Encode the producer's Message: fields 1 topic, 2 key, 5 tags, 7 body, 9 properties, 102 deliverAtMs."""
    parts = [
        b"\x18" + _binary(message.topic),
        b"\x18" + _binary(message.key),
        b"\x38" + _binary(message.tags),
        b"\x28" + _binary(message.body),
    ]
    if message.properties:
        parts.append(b"\x2b" + _varint(len(message.properties)) + b"\x88")
        parts += [_binary(name) + _binary(value) for name, value in message.properties]
    if message.deliver_at_ms:
        parts.append(bytes((_I64,)) + _zigzag(102) + _zigzag(message.deliver_at_ms))
    return b"".join(parts) + b"\0"


def publish_frame(messages: Sequence[Message], timeout_ms: int = 5_000) -> bytes:
    """Return a sendSync of one message, or a sendBatchSync of several."""
    if len(messages) == 1:
        return _frame(b"sendSync", b"\x1c" + _message(messages[0]) + b"\x16" + _zigzag(timeout_ms) + b"\0")
    members = b"".join(map(_message, messages))
    return _frame(b"sendBatchSync", b"\x19" + _list_of(_STRUCT, len(messages)) + members + b"\0")


def pull_frame(group: bytes, count: int, linger_ms: int, acks: Sequence[Pulled] = ()) -> bytes:
    """Return a pull of up to `count` messages that carries the offsets of `acks` as successes."""
    result = b""
    for ack in reversed(acks):
        result = _result(group, ack, result)
    request = (
        b"\x18" + _binary(group) + b"\x95" + _zigzag(count) + b"\x15" + _zigzag(linger_ms)
        # 50 is more than 15 above 11: the long form of a field header.
        + (b"\x0c" + _zigzag(50) + result if result else b"")
        + b"\0"
    )  # fmt: skip
    return _frame(b"pull", b"\x1c" + request + b"\0")


def submit_frame(group: bytes, acks: Sequence[Pulled]) -> bytes:
    """Return a submit of the offsets of `acks` (at least one) as successes."""
    result = b""
    for ack in reversed(acks):
        result = _result(group, ack, result)
    return _frame(b"submit", b"\x1c" + result + b"\0")


def _result(group: bytes, ack: Pulled, following: bytes) -> bytes:
    context = b"\x18" + _binary(group) + b"\x18" + _binary(ack.topic) + b"\x18" + _binary(ack.qid) + b"\0"
    offsets = _list_of(_I64, len(ack.offsets)) + b"".join(map(_zigzag, ack.offsets))
    chain = b"\x6c" + following if following else b""
    return b"\x1c" + context + b"\x29" + offsets + b"\x19" + _list_of(_I64, 0) + chain + b"\0"


def _read_varint(frame: bytes, pos: int) -> tuple[int, int]:
    value = frame[pos]
    pos += 1
    if value < 0x80:
        return value, pos
    value &= 0x7F
    shift = 7
    while True:
        byte = frame[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7


def _reply_start(frame: bytes) -> int:
    """Return the position of the reply's struct; `frame` is without its length."""
    if frame[0] != 0x82 or frame[1] >> 5 != 2:
        raise UnexpectedReply(f"no reply: {frame[:200]!r}")
    _, pos = _read_varint(frame, 2)
    size, pos = _read_varint(frame, pos)
    return pos + size


def check_publish_reply(frame: bytes) -> None:
    """Raise UnexpectedReply unless the Result's code is 0."""
    pos = _reply_start(frame)
    # Field 0 in its long form (its id is no step up from 0), then Result's field 1, an i32.
    if frame[pos : pos + 2] != b"\x0c\x00" or frame[pos + 2] != 0x15 or frame[pos + 3] != 0:
        raise UnexpectedReply(f"publish refused: {frame[:300]!r}")


def check_submit_reply(frame: bytes) -> None:
    """Raise UnexpectedReply unless the answer is true."""
    pos = _reply_start(frame)
    if frame[pos : pos + 2] != b"\x01\x00":
        raise UnexpectedReply(f"submit refused: {frame[:300]!r}")


def scan_pull_reply(frame: bytes) -> Pulled | None:
    """Return what was pulled, None for an empty reply.

    Raises:
        UnexpectedReply: A PullException or anything else.
    """
    pos = _reply_start(frame)
    if frame[pos : pos + 2] != b"\x0c\x00":
        raise UnexpectedReply(f"pull refused: {frame[:300]!r}")
    pos += 3
    names = [b"", b"", b"", b""]
    field = 0
    while frame[pos]:
        field += frame[pos] >> 4
        size, pos = _read_varint(frame, pos + 1)
        names[field] = frame[pos : pos + size]
        pos += size
    header = frame[pos + 2]
    count, pos = _read_varint(frame, pos + 3) if header >> 4 == 15 else (header >> 4, pos + 3)
    if not count:
        return None
    view = memoryview(frame)
    pulled = Pulled(names[2], names[3], [], [])
    for _ in range(count):
        pos = _scan_message(frame, view, pos, pulled)
    return pulled


def _scan_message(frame: bytes, view: memoryview, pos: int, into: Pulled) -> int:
    field = 0
    while header := frame[pos]:
        field += header >> 4
        kind = header & 15
        if kind == _STRING:
            size, pos = _read_varint(frame, pos + 1)
            if field == 2:
                into.bodies.append(view[pos : pos + size])
            pos += size
        elif header == _I64:
            # In the long form stands the number of the delivery, which is of no use here.
            field, pos = _read_varint(frame, pos + 1)
            _, pos = _read_varint(frame, pos)
            field >>= 1
        elif kind == _I64:
            value, pos = _read_varint(frame, pos + 1)
            into.offsets.append((value >> 1) ^ -(value & 1))
        elif kind == _MAP:
            pairs, pos = _read_varint(frame, pos + 1)
            pos += 1 if pairs else 0
            for _ in range(2 * pairs):
                size, pos = _read_varint(frame, pos)
                pos += size
        else:
            raise UnexpectedReply(f"field {field} of kind {kind} in a message")
    return pos + 1
