"""The arguments of the sends in TCompactProtocol, scanned straight into tuples, by the rules of `scan_compact`."""

from __future__ import annotations

from broker.runtime.accelerators import accelerated
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
from proxy.wire.limits import PROPERTIES_MAX
from proxy.wire.scanning.scan_messages import one_by_one, scan_messages
from proxy.wire.steps import Steps
from proxy.wire.texts import VALUE, check_pairs, check_text
from proxy.wire.values import BatchCall, Properties, SendCall, SendMessage

_scan = accelerated("proxy.wire.send_accelerator", "compact_messages", one_by_one)


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
            (message,), pos = scan_messages(_scan, _message, frame, pos, 1, steps)
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
                messages, pos = scan_messages(_scan, _message, frame, pos, count, steps)
            else:
                pos = skip_elements(frame, pos, (element,), count, steps)
        elif last == 101 and kind in (TRUE, FALSE):
            receipts = kind == TRUE
        else:
            pos = skip(frame, pos, kind, steps)


def _properties(frame: bytes, pos: int, steps: Steps) -> tuple[Properties | None, int]:
    """Scan a map of texts; one with other types is passed over like a field of a wrong type."""
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
