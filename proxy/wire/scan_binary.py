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
    STOP,
    STRING,
    STRUCT,
    binary,
    field_header,
    list_header,
    skip,
    skip_elements,
)
from proxy.wire.errors import ArgumentsError
from proxy.wire.limits import OFFSETS_MAX, RESULTS_MAX
from proxy.wire.values import ConsumeResult, PullRequest


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
