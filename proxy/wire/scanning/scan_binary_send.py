"""The arguments of the sends in TBinaryProtocol, scanned straight into tuples, by the rules of `scan_binary`."""

from __future__ import annotations

import struct

from broker.runtime.accelerators import accelerated
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
    field_header,
    list_header,
    map_header,
    skip,
    skip_elements,
)
from proxy.wire.errors import ArgumentsError
from proxy.wire.limits import PROPERTIES_MAX
from proxy.wire.scanning.scan_messages import one_by_one, scan_messages
from proxy.wire.steps import Steps
from proxy.wire.texts import VALUE, check_pairs, check_text
from proxy.wire.values import BatchCall, Properties, SendCall, SendMessage

_scan = accelerated("proxy.wire.send_accelerator", "binary_messages", one_by_one)
_new = tuple.__new__
_STRINGS = frozenset((1, 2, 3, 5, 7, 8, 104))

# Sizes are read unsigned: one that is negative for Thrift is beyond any frame and refused as such.
_U32_AT = struct.Struct(">I").unpack_from


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
            (message,), pos = scan_messages(_scan, _message, frame, pos, 1, steps)
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
            steps.take(len(messages))  # of a list that was given before and does not count
            messages, pos = scan_messages(_scan, _message, frame, pos, count, steps)
        elif field_id == 101 and kind == BOOL:
            receipts = frame[pos] != 0
            pos += 1
        else:
            pos = skip(frame, pos, kind, steps)


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
