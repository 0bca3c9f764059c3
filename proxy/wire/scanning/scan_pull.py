"""The arguments of pull and submit, scanned straight into tuples.

Every function takes how the protocol is read, the frame, and the position of the arguments struct. They raise
ArgumentsError, or IndexError and struct.error where the frame ends early; `scan` turns all of them into ArgumentsError.
"""

from __future__ import annotations

from typing import Any

from broker.runtime.accelerators import accelerated
from proxy.wire import compact
from proxy.wire.errors import ArgumentsError
from proxy.wire.limits import OFFSETS_MAX, REASON_BYTES_MAX, RESULTS_MAX
from proxy.wire.reading import STOP, ProtocolReader
from proxy.wire.steps import Steps
from proxy.wire.texts import shown, text_or_none
from proxy.wire.values import ConsumeResult, PullRequest

# The maps of a result, in either protocol: numbers of deliveries and reasons of failures, both by offset.


def scan_deliveries(reading: ProtocolReader, frame: bytes, pos: int, steps: Steps) -> tuple[dict[int, int] | None, int]:
    """Scan numbers of deliveries. A map of other types is passed over like a field of a wrong type.

    Raises:
        ArgumentsError: There are too many in the call.
    """
    count, pos = _begin(reading, reading.i64, frame, pos, steps)
    if count is None:
        return None, pos
    read = reading.read_i64
    found = {}
    for _ in range(count):
        offset, pos = read(frame, pos)
        found[offset], pos = read(frame, pos)
    return found, pos


def scan_reasons(reading: ProtocolReader, frame: bytes, pos: int, steps: Steps) -> tuple[dict[int, bytes] | None, int]:
    """Scan reasons of failures, as `scan_deliveries` does; of each its beginning is kept."""
    count, pos = _begin(reading, reading.text, frame, pos, steps)
    if count is None:
        return None, pos
    found = {}
    for _ in range(count):
        offset, pos = reading.read_i64(frame, pos)
        raw, pos = reading.read_text(frame, pos)
        found[offset] = raw[:REASON_BYTES_MAX]
    return found, pos


def _begin(reading: ProtocolReader, wanted: int, frame: bytes, pos: int, steps: Steps) -> tuple[int | None, int]:
    """Return how many elements follow, and where; None behind a map of other types."""
    key, value, count, pos = reading.map_header(frame, pos)
    if count and (key != reading.i64 or value != wanted):
        return None, reading.skip_elements(frame, pos, (key, value), count, steps)
    if count > steps.numbers:
        raise ArgumentsError(f"more than {OFFSETS_MAX} numbers and reasons in one call; split the call")
    steps.numbers -= count
    return count, pos


_Context = tuple[str | None, str | None, str | None]
_NO_CONTEXT: _Context = (None, None, None)
_PENDING = ConsumeResult(None, None, None, [], [])  # holds a place in a chain until the element is complete


def _usual_none(frame: bytes, pos: int) -> PullRequest | None:
    """Leave all to the general way; `proxy.wire.pull_accelerator` does more, for TCompactProtocol.

    Returns:
        What the general way finds, or None.
    """
    return None


def _usual_submit_none(frame: bytes, pos: int) -> list[ConsumeResult] | None:
    """Leave all to the general way, as `_usual_none`."""
    return None


usual_pull = accelerated("proxy.wire.pull_accelerator", "scan", _usual_none)
usual_submit = accelerated("proxy.wire.pull_accelerator", "scan_submit", _usual_submit_none)


def pull(reading: ProtocolReader, frame: bytes, pos: int) -> PullRequest:
    """Scan the arguments of pull."""
    request = usual_pull(frame, pos) if reading is compact.READING else None
    if request is not None:
        return request
    steps = Steps()
    last = 0
    while True:
        kind, last, pos = reading.header(frame, pos, last, steps)
        if kind == STOP:
            break
        if last == 1 and kind == reading.struct:
            request, pos = _pull_request(reading, frame, pos, steps)
        else:
            pos = reading.skip(frame, pos, kind, steps)
    if request is None:
        raise ArgumentsError("pull without its argument request")
    return request


def _pull_request(reading: ProtocolReader, frame: bytes, pos: int, steps: Steps) -> tuple[PullRequest, int]:
    texts: dict[int, str] = {}
    count_max = linger_ms = None
    results: list[ConsumeResult] = []
    last = 0
    while True:
        kind, last, pos = reading.header(frame, pos, last, steps)
        if kind == STOP:
            break
        if kind == reading.text and last in (1, 2, 60):
            raw, pos = reading.read_text(frame, pos)
            texts[last] = shown(raw)
        elif kind == reading.i32 and last == 10:
            count_max, pos = reading.read_i32(frame, pos)
        elif kind == reading.i32 and last == 11:
            linger_ms, pos = reading.read_i32(frame, pos)
        elif kind == reading.struct and last == 50:
            steps.take(len(results))  # of one that was given before and does not count
            results, pos = _results_chain(reading, frame, pos, steps)
        else:
            pos = reading.skip(frame, pos, kind, steps)
    if 1 not in texts:
        raise ArgumentsError("PullRequest without its required field groupId")
    return PullRequest(texts[1], texts.get(2), count_max, linger_ms, results, texts.get(60)), pos


def submit(reading: ProtocolReader, frame: bytes, pos: int) -> list[ConsumeResult]:
    """Scan the arguments of submit into its chain, flattened; empty when there is no result."""
    usual = usual_submit(frame, pos) if reading is compact.READING else None
    if usual is not None:
        return usual
    results: list[ConsumeResult] = []
    steps = Steps()
    last = 0
    while True:
        kind, last, pos = reading.header(frame, pos, last, steps)
        if kind == STOP:
            return results
        if last == 1 and kind == reading.struct:
            steps.take(len(results))  # of one that was given before and does not count
            results, pos = _results_chain(reading, frame, pos, steps)
        else:
            pos = reading.skip(frame, pos, kind, steps)


def _results_chain(reading: ProtocolReader, frame: bytes, pos: int, steps: Steps) -> tuple[list[ConsumeResult], int]:
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
        kind, last, pos = reading.header(frame, pos, last, steps)
        if kind == reading.list and last == 3:
            success, pos = _offsets(reading, frame, pos, steps)
        elif kind == reading.list and last == 4:
            fail, pos = _offsets(reading, frame, pos, steps)
        elif kind == reading.struct and last == 1:
            context, pos = _context(reading, frame, pos, steps)
        elif kind == reading.struct and last == 10:
            # Of two nextResult fields the later one counts, as everywhere in Thrift.
            steps.take(len(results) - index - 1)
            del results[index + 1 :]
            outer.append((index, last, (context, success, fail, deliveries, reasons)))
            index = len(results)
            if index >= RESULTS_MAX:
                raise ArgumentsError(f"a chain of more than {RESULTS_MAX} results")
            context, success, fail, last = _NO_CONTEXT, [], [], 0
            deliveries = reasons = None
            results.append(_PENDING)
        elif kind == reading.map and last == 101:
            deliveries, pos = scan_deliveries(reading, frame, pos, steps)
        elif kind == reading.map and last == 102:
            reasons, pos = scan_reasons(reading, frame, pos, steps)
        elif kind == STOP:
            results[index] = ConsumeResult(*context, success, fail, deliveries, reasons)
            if not outer:
                return results, pos
            index, last, (context, success, fail, deliveries, reasons) = outer.pop()
        else:
            pos = reading.skip(frame, pos, kind, steps)


def _context(reading: ProtocolReader, frame: bytes, pos: int, steps: Steps) -> tuple[_Context, int]:
    names: dict[int, str | None] = {}
    last = 0
    while True:
        kind, last, pos = reading.header(frame, pos, last, steps)
        if kind == STOP:
            return (names.get(1), names.get(2), names.get(3)), pos
        if kind == reading.text and last in (1, 2, 3):
            raw, pos = reading.read_text(frame, pos)
            names[last] = text_or_none(raw)
        else:
            pos = reading.skip(frame, pos, kind, steps)


def _offsets(reading: ProtocolReader, frame: bytes, pos: int, steps: Steps) -> tuple[list[int], int]:
    """Scan a list of offsets. A list of other elements is passed over like a field of a wrong type."""
    element, count, pos = reading.list_header(frame, pos)
    if count and element != reading.i64:
        return [], reading.skip_elements(frame, pos, (element,), count, steps)
    if count > steps.offsets:
        raise ArgumentsError(f"more than {OFFSETS_MAX} offsets in one call; split the call")
    steps.offsets -= count
    return reading.read_i64s(frame, pos, count)
