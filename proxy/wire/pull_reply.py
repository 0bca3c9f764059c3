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
from broker.format.record import CRC_PREFIX, Located, strip_own
from broker.runtime.leaves import leaf
from proxy.wire.block_shapes import BlockShapes
from proxy.wire.call import COMPACT, REPLY, Call, encode_varint, message_head
from proxy.wire.compact import OFFSET_PAIRS

_LENGTH = struct.Struct(">I").pack
_BINARY_STRING = struct.Struct(">BhI").pack
_BINARY_I64_FIELD = struct.Struct(">Bhq").pack
_BINARY_MAP_HEAD = struct.Struct(">BhBBI").pack

_UNIQUE_KEY_PREFIX = b"UNIQ_KEY\x01"
_UNUSUAL = (b"", b"_")
assert len(_UNIQUE_KEY_PREFIX) == len(CRC_PREFIX) == len(PRIVATE_PREFIX) == 9

# Varints of usual lengths; longer texts take the general way.
_VARINT = tuple(encode_varint(value) for value in range(2048))

_Parts = tuple[bytes | None, bytes | None, list[tuple[bytes, bytes]]]
_shapes = BlockShapes()


def take_apart(block: bytes) -> _Parts:
    """Return KEYS or None, TAGS or None, and the user's properties in their order, of a record's property block.

    The usual block is one of our own: KEYS and TAGS first, UNIQ_KEY and what the broker adds last, short texts in
    ASCII. Any other goes through `_take_any_apart`, which accepts every layout that RocketMQ reads.
    """
    tokens = block.split(b"\x02")
    if len(tokens) < 3 or tokens[-2][:9] != CRC_PREFIX or not block.isascii():
        return _take_any_apart(block)
    stop = -3
    if tokens[-3][:9] != _UNIQUE_KEY_PREFIX:
        stop = -4
        if len(tokens) < 4 or tokens[-4][:9] != _UNIQUE_KEY_PREFIX or tokens[-3][:9] != PRIVATE_PREFIX:
            return _take_any_apart(block)
    key = tags = None
    index = 0
    token = tokens[0]
    if token[:5] == b"KEYS\x01":
        key = token[5:]
        index = 1
        token = tokens[1]
    if token[:5] == b"TAGS\x01":
        tags = token[5:]
        index += 1
    pairs = []
    for token in tokens[index:stop]:
        name, _, value = token.partition(b"\x01")
        if not value or name in SYSTEM_PROPERTIES or name[:1] in _UNUSUAL:
            return _take_any_apart(block)
        pairs.append((name, value))
    if tokens[-1] or key == b"" or tags == b"":
        return _take_any_apart(block)
    return key, tags, pairs


def _take_any_apart(block: bytes) -> _Parts:
    """Take a block of any layout apart.

    A pair with an empty name or value counts as absent and of two equal names the later one, as RocketMQ's own reader
    has it. Broken UTF-8, which only another program can have stored, is replaced so that clients can decode the reply.
    """
    block = strip_own(block)
    if not block.isascii():
        block = block.decode("utf-8", "replace").encode()
    key = tags = None
    pairs: dict[bytes, bytes] = {}
    for token in block.split(b"\x02"):
        name, _, value = token.partition(b"\x01")
        if not value:
            continue
        if name == b"KEYS":
            key = value
        elif name == b"TAGS":
            tags = value
        elif name and name not in SYSTEM_PROPERTIES and not name.startswith(PRIVATE_PREFIX):
            pairs[name] = value
    return key, tags, list(pairs.items())


def encode_pull_reply(
    call: Call, group: bytes, topic: bytes, qid: bytes, messages: Sequence[tuple[int, Located]], *, delivery: int = 0
) -> bytes:
    """Encode the reply of a pull that found messages.

    Args:
        call: The call that is answered.
        group: Consumer group, UTF-8.
        topic: Topic of every message, UTF-8.
        qid: Queue of every message, UTF-8.
        messages: Per message its queue offset and where its record stands, as `Store.locate` found it.
        delivery: Number of the delivery, in each message; 0: none.

    Returns:
        The frame with its length.
    """
    head = message_head(call.protocol, REPLY, call.method, call.seqid)
    binary = call.protocol != COMPACT
    context = (_binary_context if binary else _context)(group, topic, qid)
    close = _close(delivery, binary) if delivery else b"\x00"
    frame = _usual(head, context, list(messages), binary, close)
    if frame is not None:
        return frame
    body = (_binary if binary else _compact)(head, context, messages, close)
    return _LENGTH(len(body)) + body


def _close(delivery: int, binary: bool) -> bytes:
    """Return the end of each message: the number of its delivery, field 103."""
    if binary:
        return _BINARY_I64_FIELD(10, 103, delivery) + b"\x00"
    return b"\x06\xce\x01" + encode_varint(delivery << 1) + b"\x00"


def _usual_none(
    head: bytes, context: bytes, messages: list[tuple[int, Located]], binary: bool, close: bytes
) -> bytes | None:
    """Leave all to the general way; the leaf `proxy.wire.pull_leaf` does more.

    Args:
        head: The header of the reply.
        context: What `_context` or `_binary_context` returns.
        messages: As `encode_pull_reply` gets them.
        binary: In which protocol.
        close: What ends each message.

    Returns:
        The frame with its length, as the general way makes it, or None.
    """
    return None


_usual = leaf("proxy.wire.pull_leaf", "reply", _usual_none)


def _compact(head: bytes, context: bytes, messages: Sequence[tuple[int, Located]], close: bytes) -> bytes:
    count = len(messages)
    parts: list[bytes | memoryview] = [head, context]
    parts.append(bytes((count << 4 | 12,)) if count < 15 else b"\xfc" + encode_varint(count))
    shapes = _shapes.by_length
    size, size_bytes = -1, b""
    numbers = _offsets([offset for offset, _ in messages])
    for number, (_, (view, body_at, body_end, block_at, end)) in zip(numbers, messages, strict=True):
        block = view[block_at:end].tobytes()
        body = view[body_at:body_end]
        if body_end - body_at != size:
            size = body_end - body_at
            size_bytes = encode_varint(size)
        shape = shapes.get(end - block_at)
        if shape is not None:
            pieces = shape.cut(block)
            if pieces[::2] == shape.names and block.count(b"\x02") == shape.separators and block.isascii():
                if shape.key_head is None:
                    parts += (b"\x28", size_bytes, body)
                else:
                    parts += (shape.key_head, pieces[1], b"\x18", size_bytes, body)
                if shape.tags_head is None:
                    parts += (b"\x26", number)
                else:
                    parts += (shape.tags_head, pieces[shape.user_at - 1], b"\x16", number)
                user = list(pieces[shape.user_at : shape.user_end])
                user[::2] = shape.heads
                user[-1] = close
                parts += user
                shape.misses = 0
                continue
        parts += _compact_message(block, size_bytes, body, number, close)
    parts.append(b"\x00\x00")
    return b"".join(parts)


@lru_cache(maxsize=1024)
def _context(group: bytes, topic: bytes, qid: bytes) -> bytes:
    """Return the beginning of the result: its field 0, in that field 1, the context, and the header of the messages."""
    texts = [b"\x18%b%b" % (encode_varint(len(text)), text) for text in (group, topic, qid)]
    return b"\x0c\x00\x1c%b\x00\x19" % b"".join(texts)


def _offsets(offsets: Sequence[int]) -> list[bytes]:
    """Return the zigzag varint of each offset; those of a reply nearly always have the same high bits."""
    high = offsets[0] >> 13 if offsets else 0
    if not high or min(offsets) >> 13 != high or max(offsets) >> 13 != high:
        return [_varint(offset << 1) for offset in offsets]
    pairs = OFFSET_PAIRS
    high_bytes = encode_varint(high)
    return [pairs[offset & 8191] + high_bytes for offset in offsets]


def _compact_message(
    block: bytes, size_bytes: bytes, body: memoryview, number: bytes, close: bytes
) -> list[bytes | memoryview]:
    """Encode one message whose block has no known shape, and learn it."""
    key, tags, pairs = take_apart(block)
    _shapes.learn(block, key, tags, pairs)
    parts: list[bytes | memoryview] = []
    if key is None:
        parts += (b"\x28", size_bytes, body)
    else:
        parts += (b"\x18", _varint(len(key)), key, b"\x18", size_bytes, body)
    if tags is None:
        parts += (b"\x26", number)
    else:
        parts += (b"\x18", _varint(len(tags)), tags, b"\x16", number)
    if pairs:
        parts += (b"\x1b", _varint(len(pairs)), b"\x88")
        for name, value in pairs:
            parts += (_varint(len(name)), name, _varint(len(value)), value)
    parts.append(close)
    return parts


def _varint(value: int) -> bytes:
    if value < 2048:
        return _VARINT[value]
    return bytes((value & 127 | 128, value >> 7)) if value < 16384 else encode_varint(value)


@lru_cache(maxsize=1024)
def _binary_context(group: bytes, topic: bytes, qid: bytes) -> bytes:
    """`_context` in the binary protocol, with the type of the messages' list; their count follows."""
    texts = [_BINARY_STRING(11, field, len(text)) + text for field, text in enumerate((group, topic, qid), 1)]
    return b"\x0c\x00\x00\x0c\x00\x01%b\x00\x0f\x00\x02\x0c" % b"".join(texts)


def _binary(head: bytes, context: bytes, messages: Sequence[tuple[int, Located]], close: bytes) -> bytes:
    field = _BINARY_STRING
    parts: list[bytes | memoryview] = [head, context, _LENGTH(len(messages))]
    for offset, (view, body_at, body_end, block_at, end) in messages:
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
        parts.append(close)
    parts.append(b"\x00\x00")
    return b"".join(parts)
