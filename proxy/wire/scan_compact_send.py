"""The arguments of the sends in TCompactProtocol, scanned straight into tuples, by the rules of `scan_compact`.

Messages of known shapes (`shapes_compact`) are scanned in runs, the others field by field; both give the same.
"""

from __future__ import annotations

import struct
from functools import partial

from broker.runtime.leaves import leaf
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
from proxy.wire.errors import ArgumentsError, TextError
from proxy.wire.limits import MESSAGES_MAX, PROPERTIES_MAX, STEPS_PER_MESSAGE
from proxy.wire.shapes_compact import NO_TAIL, Head, Numbers, Shapes, find_tail
from proxy.wire.steps import NO_STEPS, Steps
from proxy.wire.texts import VALUE, check_pairs, check_text
from proxy.wire.values import BatchCall, General, Properties, SendCall, SendMessage

_new = tuple.__new__
_shapes = Shapes()
_hash_ids = Numbers(absent=0, bits=64)
_partition_ids = Numbers(absent=-1, bits=32)


def send(frame: bytes, pos: int) -> SendCall:
    """Scan the arguments of sendSync (message, timeout) or sendAsync (message)."""
    message: SendMessage | None = None
    timeout_ms: int | None = None
    steps = Steps()
    last = 0
    while True:
        head = frame[pos]
        if head > 15:
            kind = head & 15
            last += head >> 4
            pos += 1
        else:
            kind, last, pos = field_header(frame, pos, last, steps)
        if kind == STOP:
            break
        if last == 1 and kind == STRUCT:
            (message,), pos = _messages(frame, pos, 1, steps)
        elif last == 2 and kind == I64:
            timeout_ms, pos = i64(frame, pos)
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
    last = 0
    while True:
        kind, last, pos = field_header(frame, pos, last, steps)
        if kind == STOP:
            return BatchCall(messages, receipts)
        if last == 1 and kind == LIST:
            element, count, pos = list_header(frame, pos)
            if element == STRUCT:
                steps.take(len(messages))  # of a list that was given before and does not count
                messages, pos = _messages(frame, pos, count, steps)
            else:
                pos = skip_elements(frame, pos, (element,), count, steps)
        elif last == 101 and kind in (TRUE, FALSE):
            receipts = kind == TRUE
        else:
            pos = skip(frame, pos, kind, steps)


def _messages(frame: bytes, pos: int, count: int, steps: Steps) -> tuple[list[SendMessage], int]:
    if count > MESSAGES_MAX:
        raise ArgumentsError(f"a batch of {count} messages: at most {MESSAGES_MAX} are allowed")
    steps.left += count * STEPS_PER_MESSAGE
    messages: list[SendMessage] = []
    try:
        pos = _scan(frame, memoryview(frame), pos, messages, count, partial(_message, steps))
    except TextError as error:
        error.place, error.count = len(messages), count
        raise
    return messages, pos


def _by_shapes(  # noqa: PLR0917 - what compiled functions take by name costs more
    frame: bytes, view: memoryview, pos: int, messages: list[SendMessage], count: int, general: General
) -> int:
    """Scan elements of a list of messages; the leaf `proxy.wire.send_leaf` does the same, field by field.

    Args:
        frame: The frame.
        view: The same; bodies are slices of it.
        pos: Where the next element begins.
        messages: Gets them.
        count: How many it shall have in the end.
        general: Scans any message, or says what is wrong.

    Returns:
        The position behind the last.
    """
    while len(messages) < count:
        for head in _shapes.heads(frame, pos):
            scanned = len(messages)
            pos = _run(head, frame, pos, messages, count)
            if len(messages) > scanned:
                break
        else:
            start = pos
            message, pos = general(frame, view, pos)
            messages.append(message)
            _shapes.learn_head(frame, start)
    return pos


_scan = leaf("proxy.wire.send_leaf", "compact_messages", _by_shapes)


def _run(head: Head, frame: bytes, pos: int, messages: list[SendMessage], count: int) -> int:
    """Scan messages of one head, up to `count` in the list; returns where the first of another one, or the end, is.

    Stops also before a message that is unusual or wrong: the general way says what it is.
    """
    unpack, size, topic, first, second, third, fourth, fifth, tails = head
    unpack_tail, tail_bytes, literals, names, tail_version = tails[0] if tails else NO_TAIL
    view = memoryview(frame)
    frame_bytes = len(frame)
    try:
        while len(messages) < count:
            a, key, b, hash_raw, c, tags, d, partition_raw, e = unpack(frame, pos)
            if a != first or b != second or c != third or d != fourth or e != fifth:
                break
            # Before any text is judged: only when the numbers end where they should do the parts lie where they seem.
            hash_id, partition_id = _hash_ids[hash_raw], _partition_ids[partition_raw]
            at = pos + size
            body_bytes = frame[at]
            if body_bytes < 128:
                at += 1
            elif (more := frame[at + 1]) < 128:
                body_bytes += (more << 7) - 128
                at += 2
            else:
                body_bytes, at = varint32(frame, at)
            end = at + body_bytes
            next_at = end + tail_bytes
            parts = unpack_tail(frame, end) if next_at <= frame_bytes else ()
            if parts[::2] == literals:
                version = tail_version
                values = parts[1::2]
                if not b"".join(values).isascii():
                    for value in values:
                        value.decode()
                properties = (names, values) if names else None
            elif tail := find_tail(tails, frame, end):
                unpack_tail, tail_bytes, literals, names, tail_version = tail
                continue
            else:
                version, properties, next_at = _tail(frame, end)
                if frame[next_at] != STOP:
                    break
                next_at += 1
                _shapes.learn_tail(tails, frame, end)
                unpack_tail, tail_bytes, literals, names, tail_version = tails[0] if tails else NO_TAIL
            if not (key.isascii() and tags.isascii()):
                key.decode()
                tags.decode()
            fields = (
                topic,
                key or None,
                None,
                hash_id,
                tags or None,
                partition_id,
                view[at:end],
                version,
                properties,
                None,
                None,
                None,
                None,
            )
            messages.append(_new(SendMessage, fields))
            pos = next_at
    except (IndexError, struct.error, ArgumentsError, UnicodeDecodeError):
        pass
    return pos


def _tail(frame: bytes, pos: int) -> tuple[bytes | None, Properties | None, int]:
    """Scan version (8) and properties (9) after field 7; returns the position of what follows them."""
    head = frame[pos]
    if head == 0x18:
        version, pos = binary(frame, pos + 1)
        if not version.isascii():
            version.decode()
        if frame[pos] == 0x1B:
            properties, pos = _properties(frame, pos + 1, NO_STEPS)
            return version, properties, pos
        return version, None, pos
    if head == 0x2B:
        properties, pos = _properties(frame, pos + 1, NO_STEPS)
        return None, properties, pos
    return None, None, pos


def _properties(frame: bytes, pos: int, steps: Steps) -> tuple[Properties | None, int]:
    """Scan a map of texts; one with other types is passed over like a field of a wrong type."""
    count = frame[pos]
    if count == 0:
        return None, pos + 1
    if frame[pos + 1] != 0x88 or count > 127:
        return _properties_in_general(frame, pos, steps)
    # Positions are computed as if all lengths were below 128, and one look at the bytes afterwards says whether they
    # were: a length or a text byte of 128 and more is not ASCII.
    names: list[bytes] = []
    values: list[bytes] = []
    end = pos + 2
    try:
        for _ in range(count):
            value_at = end + 1 + frame[end]
            next_at = value_at + 1 + frame[value_at]
            names.append(frame[end + 1 : value_at])
            values.append(frame[value_at + 1 : next_at])
            end = next_at
    except IndexError:
        return _properties_in_general(frame, pos, steps)
    if end <= len(frame) and frame[pos + 2 : end].isascii():
        return (tuple(names), tuple(values)), end
    return _properties_in_general(frame, pos, steps)


def _properties_in_general(frame: bytes, pos: int, steps: Steps) -> tuple[Properties | None, int]:
    key, value, count, pos = map_header(frame, pos)
    if count and (key != BINARY or value != BINARY):
        return None, skip_elements(frame, pos, (key, value), count, steps)
    if count > PROPERTIES_MAX:
        raise ArgumentsError(f"{count} properties: at most {PROPERTIES_MAX} are allowed")
    names: list[bytes] = []
    values: list[bytes] = []
    for _ in range(count):
        name, pos = binary(frame, pos)
        text, pos = binary(frame, pos)
        if not (name.isascii() and text.isascii()):
            check_pairs((name,), (text,))
        names.append(name)
        values.append(text)
    return (tuple(names), tuple(values)) if names else None, pos


def _message(steps: Steps, frame: bytes, view: memoryview, pos: int) -> tuple[SendMessage, int]:
    """Scan any Message, whatever fields it has in whatever order."""
    texts: list[bytes | None] = [None] * 9
    body: memoryview | None = None
    hash_id = 0
    partition_id = -1
    properties: Properties | None = None
    delay_level = deliver_at_ms = delay_ms = unique_key = None
    last = 0
    while True:
        head = frame[pos]
        if head > 15:
            kind = head & 15
            last += head >> 4
            pos += 1
        else:
            kind, last, pos = field_header(frame, pos, last, steps)
        if kind == STOP:
            break
        if kind == BINARY and (last in (1, 2, 3, 5, 8)):
            raw, pos = binary(frame, pos)
            if not raw.isascii() and last != VALUE:
                check_text(raw, last)
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
            properties, pos = _properties(frame, pos, steps)
        elif kind == BINARY and last == 104:
            unique_key, pos = binary(frame, pos)
        elif kind == I32 and last == 101:
            delay_level, pos = i32(frame, pos)
        elif kind == I64 and last == 102:
            deliver_at_ms, pos = i64(frame, pos)
        elif kind == I64 and last == 103:
            delay_ms, pos = i64(frame, pos)
        else:
            pos = skip(frame, pos, kind, steps)
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
        unique_key,
    )
    return message, pos
