"""The reply of pull, assembled from the records' own bytes.

Bodies, keys, tags and properties go from the record into the reply as slices; nothing is decoded. Requiredness as
DDMQ's Java server writes it (R, 1.1.10): a message without key or tag has no such field, offset and value are always
there, properties only when the sender gave some.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

from broker.format.properties import PRIVATE_PREFIX, SYSTEM_PROPERTIES
from broker.format.record import Located, strip_own
from broker.runtime.accelerators import accelerated
from proxy.wire.call import COMPACT, REPLY, Call, encode_varint, message_head, zigzag

_LENGTH = struct.Struct(">I").pack
_I32 = struct.Struct(">i").pack
_BINARY_STRING = struct.Struct(">BhI").pack
_BINARY_I64_FIELD = struct.Struct(">Bhq").pack
_BINARY_MAP_HEAD = struct.Struct(">BhBBI").pack

_NO_TIMES: list[tuple[int, int]] = []
_Parts = tuple[bytes | None, bytes | None, list[tuple[bytes, bytes]]]


def take_apart(block: bytes) -> _Parts:
    """Return KEYS or None, TAGS or None, and the user's properties in their order, of a record's property block.

    A pair with an empty name or value counts as absent, as RocketMQ's own reader has it. Of two equal names both are
    sent; who reads the map has the later one, as RocketMQ does. Broken UTF-8, which only another program can have
    stored, is replaced so that clients can decode the reply.
    """
    block = strip_own(block)
    if not block.isascii():
        block = block.decode("utf-8", "replace").encode()
    key = tags = None
    pairs: list[tuple[bytes, bytes]] = []
    for token in block.split(b"\x02"):
        name, _, value = token.partition(b"\x01")
        if not value:
            continue
        if name == b"KEYS":
            key = value
        elif name == b"TAGS":
            tags = value
        elif name and name not in SYSTEM_PROPERTIES and not name.startswith(PRIVATE_PREFIX):
            pairs.append((name, value))
    return key, tags, pairs


def encode_pull_reply(  # noqa: PLR0917 - it runs for every pull
    call: Call, group: str, topic: str, qid: str, messages: list[tuple[int, Located]], delivery: int = 0
) -> bytes:
    """Encode the reply of a pull that found messages.

    Args:
        call: The call that is answered.
        group: Consumer group.
        topic: Topic of every message.
        qid: Queue of every message.
        messages: Per message its queue offset and where its record is, as `Store.locate` found it.
        delivery: Number of the delivery, in each message; 0: none.

    Returns:
        The frame with its length.
    """
    protocol, method, seqid, _, _ = call
    binary = protocol != COMPACT
    before, after = _around_seqid(protocol, method, group, topic, qid)
    close = _close(delivery, binary) if delivery else b"\x00"
    frame = usual_reply(before, seqid, after, messages, binary, close, _NO_TIMES)
    if frame is not None:
        return frame
    if binary:
        body = _binary(before + _I32(seqid), after, messages, close, ())
    else:
        body = _compact(before + encode_varint(seqid & 0xFFFF_FFFF), after, messages, close, ())
    return _LENGTH(len(body)) + body


def encode_messages(
    protocol: int, prefix: bytes, messages: Sequence[tuple[int, Located]], times: Sequence[tuple[int, int]]
) -> memoryview:
    """Encode a list of messages behind what a reply has in front of its count, and the end of the struct around it.

    Args:
        protocol: COMPACT or BINARY.
        prefix: All up to the list, with its field's header; in the binary protocol also the type of its elements.
        messages: As `encode_pull_reply` gets them.
        times: Of each message when it was stored and when it was made, ms; empty: they are left out.
    """
    binary = protocol != COMPACT
    frame = usual_reply(b"", 0, prefix, list(messages), binary, b"\x00", list(times))
    if frame is not None:
        # Without the length of a frame, and without the end of the struct around that one.
        return memoryview(frame)[4:-1]
    return memoryview((_binary if binary else _compact)(b"", prefix, messages, b"\x00", times))[:-1]


def _close(delivery: int, binary: bool) -> bytes:
    """Return the end of each message: the number of its delivery, field 103."""
    if binary:
        return _BINARY_I64_FIELD(10, 103, delivery) + b"\x00"
    return b"\x06\xce\x01" + encode_varint(delivery << 1) + b"\x00"


def _usual_none(  # noqa: PLR0917 - what compiled functions take by name costs more
    before: bytes,
    seqid: int,
    after: bytes,
    messages: list[tuple[int, Located]],
    binary: bool,
    close: bytes,
    times: list[tuple[int, int]],
) -> bytes | None:
    """Leave all to the general way; `proxy.wire.pull_accelerator` does more.

    Args:
        before: The part before the reply's sequence number; empty without one.
        seqid: The sequence number.
        after: What is between it and the messages.
        messages: As `encode_pull_reply` gets them.
        binary: In which protocol.
        close: What ends each message.
        times: Of each message when it was stored and made, or nothing at all.

    Returns:
        The frame with its length, as the general way makes it, or None.
    """
    return None


usual_reply = accelerated("proxy.wire.pull_accelerator", "reply", _usual_none)


def _compact(
    head: bytes,
    context: bytes,
    messages: Sequence[tuple[int, Located]],
    close: bytes,
    times: Sequence[tuple[int, int]],
) -> bytes:
    count = len(messages)
    parts: list[bytes | memoryview] = [head, context]
    parts.append(bytes((count << 4 | 12,)) if count < 15 else b"\xfc" + encode_varint(count))
    for place, (offset, (view, body_at, body_end, block_at, end)) in enumerate(messages):
        key, tags, pairs = take_apart(view[block_at:end].tobytes())
        if key is None:
            parts.append(b"\x28")
        else:
            parts += (b"\x18", encode_varint(len(key)), key, b"\x18")
        parts += (encode_varint(body_end - body_at), view[body_at:body_end])
        if tags is None:
            parts.append(b"\x26")
        else:
            parts += (b"\x18", encode_varint(len(tags)), tags, b"\x16")
        parts.append(encode_varint(offset << 1))
        if pairs:
            parts += (b"\x1b", encode_varint(len(pairs)), b"\x88")
            for name, value in pairs:
                parts += (encode_varint(len(name)), name, encode_varint(len(value)), value)
        if times:
            stored, born = times[place]
            parts += (b"\x06\xca\x01", zigzag(stored, 64), b"\x16", zigzag(born, 64))
        parts.append(close)
    parts.append(b"\x00\x00")
    return b"".join(parts)


@lru_cache(maxsize=1024)
def _around_seqid(protocol: int, method: str, group: str, topic: str, qid: str) -> tuple[bytes, bytes]:
    """Return what a reply has before its sequence number, and behind it up to its messages.

    That is the rest of the header and the beginning of the result: its field 0, in that field 1, the context, and the
    header of the messages; in the binary protocol with the type of their list. Their count follows.
    """
    head = message_head(protocol, REPLY, method, 0)
    texts = [text.encode() for text in (group, topic, qid)]
    if protocol == COMPACT:
        context = b"".join([b"\x18%b%b" % (encode_varint(len(text)), text) for text in texts])
        return head[:2], b"%b\x0c\x00\x1c%b\x00\x19" % (head[3:], context)
    context = b"".join([_BINARY_STRING(11, field, len(text)) + text for field, text in enumerate(texts, 1)])
    return head[:-4], b"\x0c\x00\x00\x0c\x00\x01%b\x00\x0f\x00\x02\x0c" % context


def _binary(
    head: bytes,
    context: bytes,
    messages: Sequence[tuple[int, Located]],
    close: bytes,
    times: Sequence[tuple[int, int]],
) -> bytes:
    field = _BINARY_STRING
    parts: list[bytes | memoryview] = [head, context, _LENGTH(len(messages))]
    for place, (offset, (view, body_at, body_end, block_at, end)) in enumerate(messages):
        key, tags, pairs = take_apart(view[block_at:end].tobytes())
        if key is not None:
            parts += (field(11, 1, len(key)), key)
        parts += (field(11, 2, body_end - body_at), view[body_at:body_end])
        if tags is not None:
            parts += (field(11, 3, len(tags)), tags)
        parts.append(_BINARY_I64_FIELD(10, 4, offset))
        if pairs:
            parts.append(_BINARY_MAP_HEAD(13, 5, 11, 11, len(pairs)))
            for name, value in pairs:
                parts += (_LENGTH(len(name)), name, _LENGTH(len(value)), value)
        if times:
            parts += map(_BINARY_I64_FIELD, (10, 10), (101, 102), times[place])
        parts.append(close)
    parts.append(b"\x00\x00")
    return b"".join(parts)
