"""The arguments of the sends in TCompactProtocol, scanned straight into tuples, by the rules of `scan_compact`."""

from __future__ import annotations

from proxy.wire.compact import (
    BINARY,
    FALSE,
    I32,
    I64,
    LIST,
    MAP,
    STOP,
    STRUCT,
    TRUE,
    binary,
    field_header,
    i32,
    i64,
    list_header,
    map_header,
    skip,
    skip_elements,
    varint32,
)
from proxy.wire.errors import ArgumentsError
from proxy.wire.limits import MESSAGES_MAX, PROPERTIES_MAX
from proxy.wire.values import BatchCall, Properties, SendCall, SendMessage

_new = tuple.__new__


def send(frame: bytes, pos: int) -> SendCall:
    """Scan the arguments of sendSync (message, timeout) or sendAsync (message)."""
    message: SendMessage | None = None
    timeout_ms: int | None = None
    last = 0
    while True:
        head = frame[pos]
        if head > 15:
            kind = head & 15
            last += head >> 4
            pos += 1
        else:
            kind, last, pos = field_header(frame, pos, last)
        if kind == STOP:
            break
        if last == 1 and kind == STRUCT:
            (message,), pos = _messages(frame, pos, 1)
        elif last == 2 and kind == I64:
            timeout_ms, pos = i64(frame, pos)
        else:
            pos = skip(frame, pos, kind)
    if message is None:
        raise ArgumentsError("a send without its argument message")
    return SendCall(message, timeout_ms)


def send_batch(frame: bytes, pos: int) -> BatchCall:
    """Scan the arguments of sendBatchSync. An absent list is an empty one (R100)."""
    messages: list[SendMessage] = []
    receipts = False
    last = 0
    while True:
        kind, last, pos = field_header(frame, pos, last)
        if kind == STOP:
            return BatchCall(messages, receipts)
        if last == 1 and kind == LIST:
            element, count, pos = list_header(frame, pos)
            if element == STRUCT:
                messages, pos = _messages(frame, pos, count)
            else:
                pos = skip_elements(frame, pos, (element,), count)
        elif last == 101 and kind in (TRUE, FALSE):
            receipts = kind == TRUE
        else:
            pos = skip(frame, pos, kind)


def _messages(frame: bytes, pos: int, count: int) -> tuple[list[SendMessage], int]:
    if count > MESSAGES_MAX:
        raise ArgumentsError(f"a batch of {count} messages: at most {MESSAGES_MAX} are allowed")
    view = memoryview(frame)
    messages: list[SendMessage] = []
    add = messages.append
    no_delay = (None, None, None)
    topic_field = b"\x18\x00"
    topic = b""
    if count and frame[pos] == 0x18:
        topic_field = frame[pos : pos + 2 + frame[pos + 1]]
        topic = topic_field[2:]
        if not topic_field.isascii():
            topic_field, topic = b"\x18\x00", b""
    for _ in range(count):
        # The layout that DDMQ's own libraries write when every usual field is set and short. Positions are computed
        # as if all lengths were below 128, and one look at the bytes afterwards says whether they were: a length, a
        # number or a text byte of 128 and more is not ASCII. Anything else goes the general way.
        try:
            if frame.startswith(topic_field, pos):
                key_at = pos + len(topic_field)
                hash_at = key_at + 2 + frame[key_at + 1]
                tags_at = hash_at + 2
                partition_at = tags_at + 2 + frame[tags_at + 1]
                if (
                    frame[key_at] == 0x18
                    and frame[hash_at] == 0x26
                    and frame[tags_at] == 0x18
                    and frame[partition_at] == 0x15
                    and frame[partition_at + 2] == 0x18
                    and frame[key_at : partition_at + 2].isascii()
                ):
                    size = frame[partition_at + 3]
                    start = partition_at + 4
                    if size > 127:
                        more = frame[start]
                        start += 1
                        if more < 128:
                            size += (more << 7) - 128
                        else:
                            size, start = varint32(frame, start - 2)
                    end = start + size
                    body = view[start:end]
                    version, properties, end = _tail(frame, end)
                    if frame[end] == STOP:
                        hash_id = frame[hash_at + 1]
                        partition_id = frame[partition_at + 1]
                        key = frame[key_at + 2 : hash_at]
                        tags = frame[tags_at + 2 : partition_at]
                        hash_id = (hash_id >> 1) ^ -(hash_id & 1)
                        partition_id = (partition_id >> 1) ^ -(partition_id & 1)
                        fields = (topic, key, None, hash_id, tags, partition_id, body, version, properties)
                        add(_new(SendMessage, fields + no_delay))
                        pos = end + 1
                        continue
        except IndexError:
            pass
        message, pos = _message(frame, view, pos)
        add(message)
        topic = message.topic
        if len(topic) < 128:
            topic_field = b"\x18" + bytes((len(topic),)) + topic
    return messages, pos


def _tail(frame: bytes, pos: int) -> tuple[bytes | None, Properties | None, int]:
    """Scan version (8) and properties (9) after field 7; returns the position of what follows them."""
    head = frame[pos]
    if head == 0x18:
        version, pos = binary(frame, pos + 1)
        if not version.isascii():
            version.decode()
        if frame[pos] == 0x1B:
            properties, pos = _properties(frame, pos + 1)
            return version, properties, pos
        return version, None, pos
    if head == 0x2B:
        properties, pos = _properties(frame, pos + 1)
        return None, properties, pos
    return None, None, pos


def _properties(frame: bytes, pos: int) -> tuple[Properties | None, int]:
    """Scan a map of texts; one with other types is passed over like a field of a wrong type."""
    count = frame[pos]
    if count == 0:
        return None, pos + 1
    if frame[pos + 1] != 0x88 or count > 127:
        return _properties_in_general(frame, pos)
    # As in `_messages`: positions as if every length were below 128, then one look at the bytes.
    properties: Properties = []
    add = properties.append
    end = pos + 2
    try:
        for _ in range(count):
            value_at = end + 1 + frame[end]
            next_at = value_at + 1 + frame[value_at]
            add((frame[end + 1 : value_at], frame[value_at + 1 : next_at]))
            end = next_at
    except IndexError:
        return _properties_in_general(frame, pos)
    if end <= len(frame) and frame[pos + 2 : end].isascii():
        return properties, end
    return _properties_in_general(frame, pos)


def _properties_in_general(frame: bytes, pos: int) -> tuple[Properties | None, int]:
    key, value, count, pos = map_header(frame, pos)
    if count and (key != BINARY or value != BINARY):
        return None, skip_elements(frame, pos, (key, value), count)
    if count > PROPERTIES_MAX:
        raise ArgumentsError(f"{count} properties: at most {PROPERTIES_MAX} are allowed")
    properties = []
    for _ in range(count):
        name, pos = binary(frame, pos)
        text, pos = binary(frame, pos)
        if not (name.isascii() and text.isascii()):
            name.decode()
            text.decode()
        properties.append((name, text))
    return properties or None, pos


def _message(frame: bytes, view: memoryview, pos: int) -> tuple[SendMessage, int]:
    """Scan any Message, whatever fields it has in whatever order."""
    texts: list[bytes | None] = [None] * 9
    body: memoryview | None = None
    hash_id = 0
    partition_id = -1
    properties: Properties | None = None
    delay_level = deliver_at_ms = delay_ms = None
    last = 0
    while True:
        head = frame[pos]
        if head > 15:
            kind = head & 15
            last += head >> 4
            pos += 1
        else:
            kind, last, pos = field_header(frame, pos, last)
        if kind == STOP:
            break
        if kind == BINARY and (last in (1, 2, 3, 5, 8)):
            raw, pos = binary(frame, pos)
            if not raw.isascii():
                raw.decode()
            texts[last] = raw
        elif kind == BINARY and last == 7:
            size, pos = varint32(frame, pos)
            body = view[pos : pos + size]
            pos += size
        elif kind == I64 and last == 4:
            hash_id, pos = i64(frame, pos)
        elif kind == I32 and last == 6:
            partition_id, pos = i32(frame, pos)
        elif kind == MAP and last == 9:
            properties, pos = _properties(frame, pos)
        elif kind == I32 and last == 101:
            delay_level, pos = i32(frame, pos)
        elif kind == I64 and last == 102:
            deliver_at_ms, pos = i64(frame, pos)
        elif kind == I64 and last == 103:
            delay_ms, pos = i64(frame, pos)
        else:
            pos = skip(frame, pos, kind)
    _, topic, key, value, _, tags, _, _, version = texts
    message = SendMessage(
        topic or b"",
        key,
        value,
        hash_id,
        tags,
        partition_id,
        body,
        version,
        properties,
        delay_level,
        deliver_at_ms,
        delay_ms,
    )
    return message, pos
