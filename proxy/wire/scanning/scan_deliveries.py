"""The maps of a result, in either protocol: numbers of deliveries and reasons of failures, both by offset."""

from __future__ import annotations

from proxy.wire.errors import ArgumentsError
from proxy.wire.limits import OFFSETS_MAX, REASON_BYTES_MAX
from proxy.wire.reading import ProtocolReader
from proxy.wire.steps import Steps


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
