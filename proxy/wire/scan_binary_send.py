"""The arguments of the sends in TBinaryProtocol, scanned straight into tuples, by the rules of `scan_binary`."""

from __future__ import annotations

import struct
from functools import partial

from broker.runtime.leaves import leaf
from proxy.wire.binary import (
    BOOL,
    FIELD_AT,
    I32,
    I32_AT,
    I64,
    I64_AT,
    LIST,
    MAP,
    STOP,
    STRING,
    STRUCT,
    binary,
    field_header,
    list_header,
    map_header,
    skip,
    skip_elements,
)
from proxy.wire.errors import ArgumentsError, TextError
from proxy.wire.limits import MESSAGES_MAX, PROPERTIES_MAX, STEPS_PER_MESSAGE
from proxy.wire.steps import NO_STEPS, Steps
from proxy.wire.texts import VALUE, check_pairs, check_text
from proxy.wire.values import BatchCall, General, Properties, SendCall, SendMessage

_new = tuple.__new__
_STRINGS = frozenset((1, 2, 3, 5, 7, 8, 104))

# Sizes are read unsigned: one that is negative for Thrift is beyond any frame and refused as such.
_U32_AT = struct.Struct(">I").unpack_from
# Field headers (type, id) as three bytes, with what follows them.
_TEXT_AT = struct.Struct(">3sI").unpack_from
_HASH_AND_TAGS_AT = struct.Struct(">3sq3sI").unpack_from
_PARTITION_AND_BODY_AT = struct.Struct(">3si3sI").unpack_from
_NO_TOPIC = b"\x0b\x00\x01\x00\x00\x00\x00"  # the field with an empty text
_USUAL_HEADS = (b"\x0b\x00\x02", b"\x0a\x00\x04", b"\x0b\x00\x05", b"\x08\x00\x06", b"\x0b\x00\x07")


def send(frame: bytes, pos: int) -> SendCall:
    """Scan the arguments of sendSync (message, timeout) or sendAsync (message)."""
    message: SendMessage | None = None
    timeout_ms: int | None = None
    steps = Steps()
    field_id = 0
    while True:
        kind, field_id, pos = field_header(frame, pos, field_id, steps)
        if kind == STOP:
            break
        if field_id == 1 and kind == STRUCT:
            (message,), pos = _messages(frame, pos, 1, steps)
        elif field_id == 2 and kind == I64:
            (timeout_ms,) = I64_AT(frame, pos)
            pos += 8
        else:
            pos = skip(frame, pos, kind, steps)
    if message is None:
        raise ArgumentsError("a send without its argument message")
    return SendCall(message, timeout_ms)


def send_batch(frame: bytes, pos: int) -> BatchCall:
    """Scan the arguments of sendBatchSync. An absent list is an empty one (R100)."""
    messages: list[SendMessage] = []
    receipts = False
    steps = Steps()
    field_id = 0
    while True:
        kind, field_id, pos = field_header(frame, pos, field_id, steps)
        if kind == STOP:
            return BatchCall(messages, receipts)
        if field_id == 1 and kind == LIST:
            element, count, pos = list_header(frame, pos)
            if element != STRUCT and count:
                pos = skip_elements(frame, pos, (element,), count, steps)
                continue
            if count > MESSAGES_MAX:
                raise ArgumentsError(f"a batch of {count} messages: at most {MESSAGES_MAX} are allowed")
            steps.take(len(messages))  # of a list that was given before and does not count
            messages, pos = _messages(frame, pos, count, steps)
        elif field_id == 101 and kind == BOOL:
            receipts = frame[pos] != 0
            pos += 1
        else:
            pos = skip(frame, pos, kind, steps)


def _messages(frame: bytes, pos: int, count: int, steps: Steps) -> tuple[list[SendMessage], int]:
    steps.left += count * STEPS_PER_MESSAGE
    messages: list[SendMessage] = []
    try:
        pos = _scan(frame, memoryview(frame), pos, messages, count, partial(_message, steps))
    except TextError as error:
        error.place, error.count = len(messages), count
        raise
    return messages, pos


def _by_layout(  # noqa: PLR0917 - what compiled functions take by name costs more
    frame: bytes, view: memoryview, pos: int, messages: list[SendMessage], count: int, general: General
) -> int:
    """Scan elements of a list of messages; see `scan_compact_send._by_shapes`."""
    add = messages.append
    topic_field = _NO_TOPIC
    topic = b""
    if count and frame.startswith(b"\x0b\x00\x01", pos):
        topic_field = frame[pos : pos + 7 + _TEXT_AT(frame, pos)[1]]
        topic = topic_field[7:]
        if not topic.isascii():
            topic_field, topic = _NO_TOPIC, b""
    for _ in range(count):
        # The layout that DDMQ's own libraries write when every usual field is set: few reads that take several
        # headers and numbers at once. Anything else, also a frame that ends within, goes the general way.
        try:
            if frame.startswith(topic_field, pos):
                key_at = pos + len(topic_field) + 7
                key_head, size = _TEXT_AT(frame, key_at - 7)
                hash_at = key_at + size
                hash_head, hash_id, tags_head, size = _HASH_AND_TAGS_AT(frame, hash_at)
                tags_at = hash_at + 18
                partition_at = tags_at + size
                partition_head, partition_id, body_head, size = _PARTITION_AND_BODY_AT(frame, partition_at)
                if (key_head, hash_head, tags_head, partition_head, body_head) == _USUAL_HEADS:
                    start = partition_at + 14
                    end = start + size
                    body = view[start:end]
                    key = frame[key_at:hash_at]
                    tags = frame[tags_at:partition_at]
                    version, properties, end = _tail(frame, end)
                    if frame[end] == STOP and key.isascii() and tags.isascii():
                        fields = (topic, key, None, hash_id, tags, partition_id, body, version, properties)
                        add(_new(SendMessage, (*fields, None, None, None, None)))
                        pos = end + 1
                        continue
        except (IndexError, struct.error, UnicodeDecodeError, ArgumentsError):
            pass
        message, pos = general(frame, view, pos)
        add(message)
        topic = message.topic
        topic_field = b"\x0b\x00\x01" + len(topic).to_bytes(4, "big") + topic
    return pos


_scan = leaf("proxy.wire.send_leaf", "binary_messages", _by_layout)


def _tail(frame: bytes, pos: int) -> tuple[bytes | None, Properties | None, int]:
    """Scan version (8) and properties (9) after field 7; returns the position of what follows them."""
    version = properties = None
    if frame.startswith(b"\x0b\x00\x08", pos):
        version, pos = binary(frame, pos + 3)
        if not version.isascii():
            version.decode()
    if frame.startswith(b"\x0d\x00\x09", pos):
        properties, pos = _properties(frame, pos + 3, NO_STEPS)
    return version, properties, pos


def _properties(frame: bytes, pos: int, steps: Steps) -> tuple[Properties | None, int]:
    """Scan a map of texts; one with other types is passed over like a field of a wrong type."""
    key, value, count, pos = map_header(frame, pos)
    if count and (key != STRING or value != STRING):
        return None, skip_elements(frame, pos, (key, value), count, steps)
    if count > PROPERTIES_MAX:
        raise ArgumentsError(f"{count} properties: at most {PROPERTIES_MAX} are allowed")
    names: list[bytes] = []
    values: list[bytes] = []
    begin = pos
    end = len(frame)
    ascii_only = True
    for _ in range(count):
        start = pos + 4
        (size,) = _U32_AT(frame, pos)
        value_at = start + size + 4
        (value_size,) = _U32_AT(frame, start + size)
        pos = value_at + value_size
        name = frame[start : start + size]
        text = frame[value_at:pos]
        if not (name.isascii() and text.isascii()):
            ascii_only = False
        names.append(name)
        values.append(text)
    if pos > end:
        raise ArgumentsError(f"{count} properties of {pos - begin} bytes with {end - begin} left")
    if not ascii_only:
        check_pairs(names, values)
    return (tuple(names), tuple(values)) if names else None, pos


def _message(steps: Steps, frame: bytes, view: memoryview, pos: int) -> tuple[SendMessage, int]:
    """Scan any Message, whatever fields it has in whatever order."""
    texts: list[bytes | None] = [None] * 9
    body: memoryview | None = None
    hash_id = 0
    partition_id = -1
    properties: Properties | None = None
    delay_level = deliver_at_ms = delay_ms = unique_key = None
    end = len(frame)
    last = 0
    while True:
        kind = frame[pos]
        if kind == STOP:
            break
        kind, field_id = FIELD_AT(frame, pos)
        if field_id <= last:
            steps.take()
        last = field_id
        pos += 3
        if kind == STRING and field_id in _STRINGS:
            (size,) = I32_AT(frame, pos)
            start = pos + 4
            pos = start + size
            if size < 0 or pos > end:
                raise ArgumentsError(f"a string of {size} bytes with {end - start} left")
            if field_id == 7:
                body = view[start:pos]
            elif field_id == 104:
                unique_key = frame[start:pos]
            else:
                raw = texts[field_id] = frame[start:pos]
                if not raw.isascii() and field_id != VALUE:
                    check_text(raw, field_id)
        elif kind == I64 and field_id == 4:
            (hash_id,) = I64_AT(frame, pos)
            pos += 8
        elif kind == I32 and field_id == 6:
            (partition_id,) = I32_AT(frame, pos)
            pos += 4
        elif kind == MAP and field_id == 9:
            properties, pos = _properties(frame, pos, steps)
        elif kind == I32 and field_id == 101:
            (delay_level,) = I32_AT(frame, pos)
            pos += 4
        elif kind == I64 and field_id == 102:
            (deliver_at_ms,) = I64_AT(frame, pos)
            pos += 8
        elif kind == I64 and field_id == 103:
            (delay_ms,) = I64_AT(frame, pos)
            pos += 8
        else:
            pos = skip(frame, pos, kind, steps)
    _, topic, key, value, _, tags, _, _, version = texts
    delay = (delay_level, deliver_at_ms, delay_ms, unique_key)
    fields = (topic or b"", key, value, hash_id, tags, partition_id, body, version, properties, *delay)
    return _new(SendMessage, fields), pos + 1
