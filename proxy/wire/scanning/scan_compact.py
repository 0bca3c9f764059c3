"""The arguments of pull and submit in TCompactProtocol, scanned straight into tuples.

Every function takes (frame, position of the arguments struct). They raise ArgumentsError, or IndexError where the
frame ends early and UnicodeDecodeError where a text is none; `scan` turns all of them into ArgumentsError.
"""

from __future__ import annotations

from typing import Any

from broker.runtime.accelerators import accelerated
from proxy.wire.compact import (
    BINARY,
    I32,
    I64,
    LIST,
    MAP,
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
)
from proxy.wire.errors import ArgumentsError
from proxy.wire.limits import OFFSETS_MAX, RESULTS_MAX
from proxy.wire.scanning.scan_deliveries import Elements, scan_deliveries, scan_reasons
from proxy.wire.steps import Steps
from proxy.wire.texts import shown, text_or_none
from proxy.wire.values import ConsumeResult, PullRequest

_new = tuple.__new__
_MAPS = Elements(I64, BINARY, map_header, skip_elements, i64, binary)

_Context = tuple[str | None, str | None, str | None]
_NO_CONTEXT: _Context = (None, None, None)
_PENDING = ConsumeResult(None, None, None, [], [])  # holds a place in a chain until the element is complete


def _usual_none(frame: bytes, pos: int) -> PullRequest | None:
    """Leave all to the general way; `proxy.wire.pull_accelerator` does more.

    Returns:
        What the general way finds, or None.
    """
    return None


def _usual_submit_none(frame: bytes, pos: int) -> list[ConsumeResult] | None:
    """Leave all to the general way, as `_usual_none`."""
    return None


_usual = accelerated("proxy.wire.pull_accelerator", "scan", _usual_none)
_usual_submit = accelerated("proxy.wire.pull_accelerator", "scan_submit", _usual_submit_none)


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
            deliveries, pos = scan_deliveries(_MAPS, frame, pos, steps)
        elif kind == MAP and last == 102:
            reasons, pos = scan_reasons(_MAPS, frame, pos, steps)
        elif kind == STOP:
            results[index] = _new(ConsumeResult, (*context, success, fail, deliveries, reasons))
            if not outer:
                return results, pos
            index, last, (context, success, fail, deliveries, reasons) = outer.pop()
        else:
            pos = skip(frame, pos, kind, steps)


def _context(frame: bytes, pos: int, steps: Steps) -> tuple[_Context, int]:
    group = topic = qid = None
    last = 0
    while True:
        kind, last, pos = field_header(frame, pos, last, steps)
        if kind == STOP:
            return (group, topic, qid), pos
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
    offsets = []
    for _ in range(count):
        offset, pos = i64(frame, pos)
        offsets.append(offset)
    return offsets, pos
