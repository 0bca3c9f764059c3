"""The arguments of pull and submit in TBinaryProtocol, scanned straight into tuples.

The twin of `scan_compact`: same functions, same results, same errors; a struct.error stands for an IndexError where
the frame ends within a number.
"""

from __future__ import annotations

import struct
from typing import Any

from proxy.wire.binary import (
    I32,
    I32_AT,
    I64,
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
from proxy.wire.limits import OFFSETS_MAX, RESULTS_MAX
from proxy.wire.scanning.scan_deliveries import Elements, scan_deliveries, scan_reasons
from proxy.wire.steps import Steps
from proxy.wire.texts import shown, text_or_none
from proxy.wire.values import ConsumeResult, PullRequest

_I64_AT = struct.Struct(">q").unpack_from


def _i64(frame: bytes, pos: int) -> tuple[int, int]:
    return int(_I64_AT(frame, pos)[0]), pos + 8


_MAPS = Elements(I64, STRING, map_header, skip_elements, _i64, binary)


def pull(frame: bytes, pos: int) -> PullRequest:
    """Scan the arguments of pull."""
    request: PullRequest | None = None
    steps = Steps()
    field_id = 0
    while True:
        kind, field_id, pos = field_header(frame, pos, field_id, steps)
        if kind == STOP:
            break
        if field_id == 1 and kind == STRUCT:
            request, pos = _pull_request(frame, pos, steps)
        else:
            pos = skip(frame, pos, kind, steps)
    if request is None:
        raise ArgumentsError("pull without its argument request")
    return request


def _pull_request(frame: bytes, pos: int, steps: Steps) -> tuple[PullRequest, int]:
    group = topic = version = count_max = linger_ms = None
    results: list[ConsumeResult] = []
    field_id = 0
    while True:
        kind, field_id, pos = field_header(frame, pos, field_id, steps)
        if kind == STOP:
            break
        if kind == STRING and field_id in (1, 2, 60):
            raw, pos = binary(frame, pos)
            if field_id == 1:
                group = shown(raw)
            elif field_id == 2:
                topic = shown(raw)
            else:
                version = shown(raw)
        elif kind == I32 and field_id == 10:
            (count_max,) = I32_AT(frame, pos)
            pos += 4
        elif kind == I32 and field_id == 11:
            (linger_ms,) = I32_AT(frame, pos)
            pos += 4
        elif kind == STRUCT and field_id == 50:
            steps.take(len(results))  # of one that was given before and does not count
            results, pos = results_chain(frame, pos, steps)
        else:
            pos = skip(frame, pos, kind, steps)
    if group is None:
        raise ArgumentsError("PullRequest without its required field groupId")
    return PullRequest(group, topic, count_max, linger_ms, results, version), pos


def submit(frame: bytes, pos: int) -> list[ConsumeResult]:
    """Scan the arguments of submit into its chain, flattened; empty when there is no result."""
    results: list[ConsumeResult] = []
    steps = Steps()
    field_id = 0
    while True:
        kind, field_id, pos = field_header(frame, pos, field_id, steps)
        if kind == STOP:
            return results
        if field_id == 1 and kind == STRUCT:
            steps.take(len(results))  # of one that was given before and does not count
            results, pos = results_chain(frame, pos, steps)
        else:
            pos = skip(frame, pos, kind, steps)


def results_chain(frame: bytes, pos: int, steps: Steps) -> tuple[list[ConsumeResult], int]:
    """Walk a ConsumeResult and its nextResult chain without recursion, since its length is the peer's choice."""
    results: list[ConsumeResult] = []
    # Fields may follow nextResult: the outer elements wait here, each as index in `results`, field id, values.
    outer: list[tuple[int, int, Any]] = []
    index = field_id = 0
    context: tuple[str | None, str | None, str | None] = (None, None, None)
    success: list[int] = []
    fail: list[int] = []
    deliveries: dict[int, int] | None = None
    reasons: dict[int, bytes] | None = None
    results.append(ConsumeResult(None, None, None, success, fail))
    while True:
        kind, field_id, pos = field_header(frame, pos, field_id, steps)
        if kind == LIST and field_id in (3, 4):
            offsets, pos = _offsets(frame, pos, steps)
            if field_id == 3:
                success = offsets
            else:
                fail = offsets
        elif kind == STRUCT and field_id == 1:
            context, pos = _context(frame, pos, steps)
        elif kind == STRUCT and field_id == 10:
            del results[index + 1 :]  # of two nextResult fields the later one counts, as everywhere in Thrift
            outer.append((index, field_id, (context, success, fail, deliveries, reasons)))
            index = len(results)
            if index >= RESULTS_MAX:
                raise ArgumentsError(f"a chain of more than {RESULTS_MAX} results")
            context, success, fail, field_id = (None, None, None), [], [], 0
            deliveries = reasons = None
            results.append(ConsumeResult(None, None, None, success, fail))
        elif kind == MAP and field_id == 101:
            deliveries, pos = scan_deliveries(_MAPS, frame, pos, steps)
        elif kind == MAP and field_id == 102:
            reasons, pos = scan_reasons(_MAPS, frame, pos, steps)
        elif kind == STOP:
            results[index] = ConsumeResult(*context, success, fail, deliveries, reasons)
            if not outer:
                return results, pos
            index, field_id, (context, success, fail, deliveries, reasons) = outer.pop()
        else:
            pos = skip(frame, pos, kind, steps)


def _context(frame: bytes, pos: int, steps: Steps) -> tuple[tuple[str | None, str | None, str | None], int]:
    group = topic = qid = None
    field_id = 0
    while True:
        kind, field_id, pos = field_header(frame, pos, field_id, steps)
        if kind == STOP:
            return (group, topic, qid), pos
        if kind == STRING and field_id in (1, 2, 3):
            raw, pos = binary(frame, pos)
            if field_id == 1:
                group = text_or_none(raw)
            elif field_id == 2:
                topic = text_or_none(raw)
            else:
                qid = text_or_none(raw)
        else:
            pos = skip(frame, pos, kind, steps)


def _offsets(frame: bytes, pos: int, steps: Steps) -> tuple[list[int], int]:
    """Scan a list of offsets. A list of other elements is passed over like a field of a wrong type."""
    element, count, pos = list_header(frame, pos)
    if element != I64:
        return [], skip_elements(frame, pos, (element,), count, steps)
    if count > steps.offsets:
        raise ArgumentsError(f"more than {OFFSETS_MAX} offsets in one call: submit them in several")
    steps.offsets -= count
    return list(struct.unpack_from(f">{count}q", frame, pos)), pos + 8 * count
