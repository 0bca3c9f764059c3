"""The arguments of pull, submit and the sends in TBinaryProtocol, scanned straight into tuples.

The twin of `scan_compact` and `scan_compact_send`: same functions, same results, same errors; a struct.error stands
for an IndexError where the frame ends within a number.
"""

from __future__ import annotations

import struct
from typing import Any

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
from proxy.wire.errors import ArgumentsError
from proxy.wire.limits import MESSAGES_MAX, OFFSETS_MAX, PROPERTIES_MAX, RESULTS_MAX
from proxy.wire.values import BatchCall, ConsumeResult, Properties, PullRequest, SendCall, SendMessage


def pull(frame: bytes, pos: int) -> PullRequest:
    """Scan the arguments of pull."""
    request: PullRequest | None = None
    while True:
        kind, field_id, pos = field_header(frame, pos)
        if kind == STOP:
            break
        if field_id == 1 and kind == STRUCT:
            request, pos = _pull_request(frame, pos)
        else:
            pos = skip(frame, pos, kind)
    if request is None:
        raise ArgumentsError("pull without its argument request")
    return request


def _pull_request(frame: bytes, pos: int) -> tuple[PullRequest, int]:
    group = topic = version = count_max = linger_ms = None
    results: list[ConsumeResult] = []
    while True:
        kind, field_id, pos = field_header(frame, pos)
        if kind == STOP:
            break
        if kind == STRING and field_id in (1, 2, 60):
            raw, pos = binary(frame, pos)
            if field_id == 1:
                group = raw.decode()
            elif field_id == 2:
                topic = raw.decode()
            else:
                version = raw.decode()
        elif kind == I32 and field_id == 10:
            (count_max,) = I32_AT(frame, pos)
            pos += 4
        elif kind == I32 and field_id == 11:
            (linger_ms,) = I32_AT(frame, pos)
            pos += 4
        elif kind == STRUCT and field_id == 50:
            results, pos = results_chain(frame, pos)
        else:
            pos = skip(frame, pos, kind)
    if group is None:
        raise ArgumentsError("PullRequest without its required field groupId")
    return PullRequest(group, topic, count_max, linger_ms, results, version), pos


def submit(frame: bytes, pos: int) -> list[ConsumeResult]:
    """Scan the arguments of submit into its chain, flattened; empty when there is no result."""
    results: list[ConsumeResult] = []
    while True:
        kind, field_id, pos = field_header(frame, pos)
        if kind == STOP:
            return results
        if field_id == 1 and kind == STRUCT:
            results, pos = results_chain(frame, pos)
        else:
            pos = skip(frame, pos, kind)


def results_chain(frame: bytes, pos: int) -> tuple[list[ConsumeResult], int]:
    """Walk a ConsumeResult and its nextResult chain without recursion, since its length is the peer's choice."""
    results: list[ConsumeResult] = []
    # Fields may follow nextResult: the outer elements wait here, each as its index in `results` and what it has.
    outer: list[tuple[int, Any]] = []
    offsets_left = OFFSETS_MAX
    index = 0
    context: tuple[str | None, str | None, str | None] = (None, None, None)
    success: list[int] = []
    fail: list[int] = []
    results.append(ConsumeResult(None, None, None, success, fail))
    while True:
        kind, field_id, pos = field_header(frame, pos)
        if kind == LIST and field_id in (3, 4):
            offsets, pos = _offsets(frame, pos, offsets_left)
            offsets_left -= len(offsets)
            if field_id == 3:
                success = offsets
            else:
                fail = offsets
        elif kind == STRUCT and field_id == 1:
            context, pos = _context(frame, pos)
        elif kind == STRUCT and field_id == 10:
            del results[index + 1 :]  # of two nextResult fields the later one counts, as everywhere in Thrift
            outer.append((index, (context, success, fail)))
            index = len(results)
            if index >= RESULTS_MAX:
                raise ArgumentsError(f"a chain of more than {RESULTS_MAX} results")
            context, success, fail = (None, None, None), [], []
            results.append(ConsumeResult(None, None, None, success, fail))
        elif kind == STOP:
            results[index] = ConsumeResult(*context, success, fail)
            if not outer:
                return results, pos
            index, (context, success, fail) = outer.pop()
        else:
            pos = skip(frame, pos, kind)


def _context(frame: bytes, pos: int) -> tuple[tuple[str | None, str | None, str | None], int]:
    group = topic = qid = None
    while True:
        kind, field_id, pos = field_header(frame, pos)
        if kind == STOP:
            return (group, topic, qid), pos
        if kind == STRING and field_id in (1, 2, 3):
            raw, pos = binary(frame, pos)
            if field_id == 1:
                group = raw.decode()
            elif field_id == 2:
                topic = raw.decode()
            else:
                qid = raw.decode()
        else:
            pos = skip(frame, pos, kind)


def _offsets(frame: bytes, pos: int, count_max: int) -> tuple[list[int], int]:
    """Scan a list of offsets. A list of other elements is passed over like a field of a wrong type."""
    element, count, pos = list_header(frame, pos)
    if element != I64:
        return [], skip_elements(frame, pos, (element,), count)
    if count > count_max:
        raise ArgumentsError(f"more than {OFFSETS_MAX} offsets in one call")
    return list(struct.unpack_from(f">{count}q", frame, pos)), pos + 8 * count


def send(frame: bytes, pos: int) -> SendCall:
    """Scan the arguments of sendSync (message, timeout) or sendAsync (message)."""
    message: SendMessage | None = None
    timeout_ms: int | None = None
    view = memoryview(frame)
    while True:
        kind, field_id, pos = field_header(frame, pos)
        if kind == STOP:
            break
        if field_id == 1 and kind == STRUCT:
            message, pos = _message(frame, view, pos)
        elif field_id == 2 and kind == I64:
            (timeout_ms,) = I64_AT(frame, pos)
            pos += 8
        else:
            pos = skip(frame, pos, kind)
    if message is None:
        raise ArgumentsError("a send without its argument message")
    return SendCall(message, timeout_ms)


def send_batch(frame: bytes, pos: int) -> BatchCall:
    """Scan the arguments of sendBatchSync. An absent list is an empty one (R100)."""
    messages: list[SendMessage] = []
    receipts = False
    while True:
        kind, field_id, pos = field_header(frame, pos)
        if kind == STOP:
            return BatchCall(messages, receipts)
        if field_id == 1 and kind == LIST:
            element, count, pos = list_header(frame, pos)
            if element != STRUCT and count:
                pos = skip_elements(frame, pos, (element,), count)
                continue
            if count > MESSAGES_MAX:
                raise ArgumentsError(f"a batch of {count} messages: at most {MESSAGES_MAX} are allowed")
            view = memoryview(frame)
            messages = []
            for _ in range(count):
                message, pos = _message(frame, view, pos)
                messages.append(message)
        elif field_id == 101 and kind == BOOL:
            receipts = frame[pos] != 0
            pos += 1
        else:
            pos = skip(frame, pos, kind)


def _properties(frame: bytes, pos: int) -> tuple[Properties | None, int]:
    """Scan a map of texts; one with other types is passed over like a field of a wrong type."""
    key, value, count, pos = map_header(frame, pos)
    if count and (key != STRING or value != STRING):
        return None, skip_elements(frame, pos, (key, value), count)
    if count > PROPERTIES_MAX:
        raise ArgumentsError(f"{count} properties: at most {PROPERTIES_MAX} are allowed")
    properties: Properties = []
    add = properties.append
    for _ in range(count):
        start = pos + 4
        (size,) = I32_AT(frame, pos)
        value_at = start + size + 4
        (value_size,) = I32_AT(frame, start + size)
        pos = value_at + value_size
        if size < 0 or value_size < 0 or pos > len(frame):
            raise ArgumentsError("a property whose length is negative or beyond the frame")
        name = frame[start : start + size]
        text = frame[value_at:pos]
        if not (name.isascii() and text.isascii()):
            name.decode()
            text.decode()
        add((name, text))
    return properties or None, pos


def _message(frame: bytes, view: memoryview, pos: int) -> tuple[SendMessage, int]:
    """Scan any Message, whatever fields it has in whatever order."""
    texts: list[bytes | None] = [None] * 9
    body: memoryview | None = None
    hash_id = 0
    partition_id = -1
    properties: Properties | None = None
    delay_level = deliver_at_ms = delay_ms = None
    end = len(frame)
    while True:
        kind = frame[pos]
        if kind == STOP:
            break
        kind, field_id = FIELD_AT(frame, pos)
        pos += 3
        if kind == STRING and field_id in (1, 2, 3, 5, 7, 8):
            (size,) = I32_AT(frame, pos)
            start = pos + 4
            pos = start + size
            if size < 0 or pos > end:
                raise ArgumentsError(f"a string of {size} bytes with {end - start} left")
            if field_id == 7:
                body = view[start:pos]
            else:
                raw = texts[field_id] = frame[start:pos]
                if not raw.isascii():
                    raw.decode()
        elif kind == I64 and field_id == 4:
            (hash_id,) = I64_AT(frame, pos)
            pos += 8
        elif kind == I32 and field_id == 6:
            (partition_id,) = I32_AT(frame, pos)
            pos += 4
        elif kind == MAP and field_id == 9:
            properties, pos = _properties(frame, pos)
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
            pos = skip(frame, pos, kind)
    _, topic, key, value, _, tags, _, _, version = texts
    delay = (delay_level, deliver_at_ms, delay_ms)
    fields = (topic or b"", key, value, hash_id, tags, partition_id, body, version, properties, *delay)
    return tuple.__new__(SendMessage, fields), pos + 1
