"""The arguments of pull and submit in TCompactProtocol, scanned straight into tuples.

Every function takes (frame, position of the arguments struct). They raise ArgumentsError, or IndexError where the
frame ends early and UnicodeDecodeError where a text is none; `scan` turns all of them into ArgumentsError.
"""

from __future__ import annotations

from typing import Any

from broker.runtime.leaves import leaf
from proxy.wire.compact import (
    BINARY,
    I32,
    I64,
    LIST,
    MAP,
    OFFSET_PAIRS,
    STOP,
    STRUCT,
    binary,
    field_header,
    i32,
    i64,
    list_header,
    map_header,
    skip,
    skip_elements,
    varint64,
)
from proxy.wire.errors import ArgumentsError
from proxy.wire.limits import OFFSETS_MAX, REASON_BYTES_MAX, RESULTS_MAX
from proxy.wire.steps import Steps
from proxy.wire.texts import shown, text_or_none
from proxy.wire.values import ConsumeResult, PullRequest

_HIGH_BYTES = bytes(range(128, 256))
_HIGH_EVEN_BYTES = bytes(range(128, 256, 2))
_new = tuple.__new__

_Context = tuple[str | None, str | None, str | None]
_NO_CONTEXT: _Context = (None, None, None)
_PENDING = ConsumeResult(None, None, None, [], [])  # holds a place in a chain until the element is complete
_contexts: dict[bytes, _Context] = {}
_CONTEXTS_MAX = 4_096
_CONTEXT_BYTES_MAX = 512

_PLANES_COUNT_MIN = 6
"""From this count on, reading a list of numbers by columns is cheaper than number by number."""


def _usual_none(frame: bytes, pos: int) -> PullRequest | None:
    """Leave all to the general way; the leaf `proxy.wire.pull_leaf` does more.

    Returns:
        What the general way finds, or None.
    """
    return None


def _usual_submit_none(frame: bytes, pos: int) -> list[ConsumeResult] | None:
    """Leave all to the general way, as `_usual_none`."""
    return None


_usual = leaf("proxy.wire.pull_leaf", "scan", _usual_none)
_usual_submit = leaf("proxy.wire.pull_leaf", "scan_submit", _usual_submit_none)


def pull(frame: bytes, pos: int) -> PullRequest:
    """Scan the arguments of pull."""
    request = _usual(frame, pos)
    if request is not None:
        return request
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
            request, pos = _pull_request(frame, pos, steps)
        else:
            pos = skip(frame, pos, kind, steps)
    if request is None:
        raise ArgumentsError("pull without its argument request")
    return request


def _pull_request(frame: bytes, pos: int, steps: Steps) -> tuple[PullRequest, int]:
    group = topic = version = count_max = linger_ms = None
    results: list[ConsumeResult] = []
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
        if kind == BINARY and (last < 3 or last == 60):
            size = frame[pos]
            if size < 128:
                raw = frame[pos + 1 : pos + 1 + size]
                pos += 1 + size
            else:
                raw, pos = binary(frame, pos)
            if last == 1:
                group = shown(raw)
            elif last == 2:
                topic = shown(raw)
            elif last == 60:
                version = shown(raw)
        elif kind == I32 and last == 10:
            count_max, pos = i32(frame, pos)
        elif kind == I32 and last == 11:
            linger_ms, pos = i32(frame, pos)
        elif kind == STRUCT and last == 50:
            steps.take(len(results))  # of one that was given before and does not count
            results, pos = results_chain(frame, pos, steps)
        else:
            pos = skip(frame, pos, kind, steps)
    if group is None:
        raise ArgumentsError("PullRequest without its required field groupId")
    return _new(PullRequest, (group, topic, count_max, linger_ms, results, version)), pos


def submit(frame: bytes, pos: int) -> list[ConsumeResult]:
    """Scan the arguments of submit into its chain, flattened; empty when there is no result."""
    usual = _usual_submit(frame, pos)
    if usual is not None:
        return usual
    results: list[ConsumeResult] = []
    steps = Steps()
    last = 0
    while True:
        kind, last, pos = field_header(frame, pos, last, steps)
        if kind == STOP:
            return results
        if last == 1 and kind == STRUCT:
            steps.take(len(results))  # of one that was given before and does not count
            results, pos = results_chain(frame, pos, steps)
        else:
            pos = skip(frame, pos, kind, steps)


def results_chain(frame: bytes, pos: int, steps: Steps) -> tuple[list[ConsumeResult], int]:
    """Walk a ConsumeResult and its nextResult chain without recursion, since its length is the peer's choice."""
    results: list[ConsumeResult] = []
    # Fields may follow nextResult: the outer elements wait here, each as its index in `results` and its field id.
    outer: list[tuple[int, int, Any]] = []
    index = last = 0
    context: _Context = _NO_CONTEXT
    success: list[int] = []
    fail: list[int] = []
    deliveries: dict[int, int] | None = None
    reasons: dict[int, bytes] | None = None
    results.append(_PENDING)
    while True:
        head = frame[pos]
        if head > 15:
            kind = head & 15
            last += head >> 4
            pos += 1
        else:
            kind, last, pos = field_header(frame, pos, last, steps)
        if kind == LIST and last in (3, 4):
            offsets, pos = _offsets(frame, pos, steps)
            if last == 3:
                success = offsets
            else:
                fail = offsets
        elif kind == STRUCT and last == 1:
            context, pos = _context(frame, pos, steps)
        elif kind == STRUCT and last == 10:
            del results[index + 1 :]  # of two nextResult fields the later one counts, as everywhere in Thrift
            outer.append((index, last, (context, success, fail, deliveries, reasons)))
            index = len(results)
            if index >= RESULTS_MAX:
                raise ArgumentsError(f"a chain of more than {RESULTS_MAX} results")
            context, success, fail, last = _NO_CONTEXT, [], [], 0
            deliveries = reasons = None
            results.append(_PENDING)
        elif kind == MAP and last == 101:
            deliveries, pos = _deliveries(frame, pos, steps)
        elif kind == MAP and last == 102:
            reasons, pos = _reasons(frame, pos, steps)
        elif kind == STOP:
            results[index] = _new(ConsumeResult, (*context, success, fail, deliveries, reasons))
            if not outer:
                return results, pos
            index, last, (context, success, fail, deliveries, reasons) = outer.pop()
        else:
            pos = skip(frame, pos, kind, steps)


def _context(frame: bytes, pos: int, steps: Steps) -> tuple[_Context, int]:
    """Scan a Context. A client sends the same one over and over: short ones are remembered by their bytes."""
    start = pos
    try:
        if frame[pos] == 0x18:
            pos += 2 + frame[pos + 1]
            if frame[pos] == 0x18:
                pos += 2 + frame[pos + 1]
                if frame[pos] == 0x18:
                    pos += 2 + frame[pos + 1]
                    if frame[pos] == STOP:
                        known = _contexts.get(frame[start:pos])
                        if known is not None:
                            return known, pos + 1
    except IndexError:
        # A length of 128 or more was taken for one byte; the general way reads it right.
        pass
    return _context_in_general(frame, start, steps)


def _context_in_general(frame: bytes, pos: int, steps: Steps) -> tuple[_Context, int]:
    start = pos
    group = topic = qid = None
    last = 0
    while True:
        kind, last, pos = field_header(frame, pos, last, steps)
        if kind == STOP:
            break
        if kind == BINARY and last in (1, 2, 3):
            raw, pos = binary(frame, pos)
            if last == 1:
                group = text_or_none(raw)
            elif last == 2:
                topic = text_or_none(raw)
            else:
                qid = text_or_none(raw)
        else:
            pos = skip(frame, pos, kind, steps)
    context = (group, topic, qid)
    raw = frame[start : pos - 1]
    if len(raw) <= _CONTEXT_BYTES_MAX and raw.isascii():
        # Lengths are ASCII here, so the bytes mean the same wherever they stand.
        if len(_contexts) >= _CONTEXTS_MAX:
            _contexts.clear()
        _contexts[raw] = context
    return context, pos


def _offsets(frame: bytes, pos: int, steps: Steps) -> tuple[list[int], int]:
    """Scan a list of offsets. A list of other elements is passed over like a field of a wrong type."""
    element, count, pos = list_header(frame, pos)
    if count == 0:
        return [], pos
    if element != I64:
        return [], skip_elements(frame, pos, (element,), count, steps)
    if count > steps.offsets:
        raise ArgumentsError(f"more than {OFFSETS_MAX} offsets in one call: submit them in several")
    steps.offsets -= count
    if count >= _PLANES_COUNT_MIN:
        offsets = _offsets_by_columns(frame, pos, count)
        if offsets is not None:
            width = _width(frame, pos)
            return offsets, pos + width * count
    offsets = []
    add = offsets.append
    for _ in range(count):
        first = frame[pos]
        second = frame[pos + 1]
        if first < 128:
            value = first
            pos += 1
        elif second < 128:
            value = first + (second << 7) - 128
            pos += 2
        else:
            third = frame[pos + 2]
            if third < 128:
                value = first + (second << 7) + (third << 14) - 16512
                pos += 3
            else:
                value, pos = varint64(frame, pos)
        add((value >> 1) ^ -(value & 1))
    return offsets, pos


def _deliveries(frame: bytes, pos: int, steps: Steps) -> tuple[dict[int, int] | None, int]:
    """Scan numbers of deliveries. A map of other types is passed over like a field of a wrong type."""
    key, value, count, pos = map_header(frame, pos)
    if count and (key != I64 or value != I64):
        return None, skip_elements(frame, pos, (key, value), count, steps)
    if count > steps.numbers:
        raise ArgumentsError(f"more than {OFFSETS_MAX} numbers and reasons in one call: submit them in several")
    steps.numbers -= count
    found = {}
    for _ in range(count):
        offset, pos = i64(frame, pos)
        found[offset], pos = i64(frame, pos)
    return found, pos


def _reasons(frame: bytes, pos: int, steps: Steps) -> tuple[dict[int, bytes] | None, int]:
    """Scan reasons of failures, as `_deliveries` does; of each its beginning is kept."""
    key, value, count, pos = map_header(frame, pos)
    if count and (key != I64 or value != BINARY):
        return None, skip_elements(frame, pos, (key, value), count, steps)
    if count > steps.numbers:
        raise ArgumentsError(f"more than {OFFSETS_MAX} numbers and reasons in one call: submit them in several")
    steps.numbers -= count
    found = {}
    for _ in range(count):
        offset, pos = i64(frame, pos)
        raw, pos = binary(frame, pos)
        found[offset] = raw[:REASON_BYTES_MAX]
    return found, pos


def _width(frame: bytes, pos: int) -> int:
    """Bytes of the varint at `pos`."""
    start = pos
    while frame[pos] > 127:
        pos += 1
    return pos + 1 - start


def _run_of_offsets(region: bytes, width: int, count: int) -> list[int] | None:
    """Read offsets that follow each other, as those of a whole batch mostly do; None where they do not."""
    if width < 3:
        return None
    low = (region[0] & 127 | (region[1] & 127) << 7) >> 1
    high = region[2:width]
    if low + count > len(OFFSET_PAIRS) or high.join(OFFSET_PAIRS[low : low + count]) + high != region:
        return None
    first, _ = varint64(region, 0)
    return list(range(first >> 1, (first >> 1) + count))


def _offsets_by_columns(frame: bytes, pos: int, count: int) -> list[int] | None:
    """Read numbers of one width at once: the offsets of a batch lie close together, so their high bytes are the same.

    Returns None where that does not hold; nothing is lost then but a little time.
    """
    width = _width(frame, pos)
    if not 2 <= width <= 9:
        return None
    region = frame[pos : pos + width * count]
    if len(region) < width * count:
        return None
    run = _run_of_offsets(region, width, count)
    if run is not None:
        return run
    base = -(128 + (128 << 7)) if width > 2 else -128
    for column in range(2, width):
        byte = frame[pos + column]
        if region[column::width].count(byte) != count:
            return None
        base += (byte & 127) << 7 * column
    low = region[0::width]
    high = region[1::width]
    # Even low bytes with the continuation bit begin numbers that are not negative.
    if low.translate(None, _HIGH_EVEN_BYTES):
        return None
    if width == 2:
        if not high.isascii():
            return None
    elif high.translate(None, _HIGH_BYTES):
        return None
    return [(one + (two << 7) + base) >> 1 for one, two in zip(low, high, strict=True)]
