"""The maps of a result, in either protocol: numbers of deliveries and reasons of failures, both by offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from proxy.wire.errors import ArgumentsError
from proxy.wire.limits import OFFSETS_MAX, REASON_BYTES_MAX
from proxy.wire.steps import Steps


class Elements(NamedTuple):
    """How a protocol writes what is in these maps; all functions take a frame and a position.

    Attributes:
        i64: Type of numbers.
        text: Type of texts.
        map_header: Reads the types of keys and values, the count, and where the first key is.
        skip_elements: Passes over so many elements of some types.
        read_i64: Reads a number, and where the next element is.
        read_text: Reads the bytes of a text, and where the next element is.
    """

    i64: int
    text: int
    map_header: Callable[[bytes, int], tuple[int, int, int, int]]
    skip_elements: Callable[[bytes, int, tuple[int, ...], int, Steps], int]
    read_i64: Callable[[bytes, int], tuple[int, int]]
    read_text: Callable[[bytes, int], tuple[bytes, int]]


def scan_deliveries(elements: Elements, frame: bytes, pos: int, steps: Steps) -> tuple[dict[int, int] | None, int]:
    """Scan numbers of deliveries. A map of other types is passed over like a field of a wrong type.

    Raises:
        ArgumentsError: There are too many in the call.
    """
    count, pos = _begin(elements, elements.i64, frame, pos, steps)
    if count is None:
        return None, pos
    read = elements.read_i64
    found = {}
    for _ in range(count):
        offset, pos = read(frame, pos)
        found[offset], pos = read(frame, pos)
    return found, pos


def scan_reasons(elements: Elements, frame: bytes, pos: int, steps: Steps) -> tuple[dict[int, bytes] | None, int]:
    """Scan reasons of failures, as `scan_deliveries` does; of each its beginning is kept."""
    count, pos = _begin(elements, elements.text, frame, pos, steps)
    if count is None:
        return None, pos
    found = {}
    for _ in range(count):
        offset, pos = elements.read_i64(frame, pos)
        raw, pos = elements.read_text(frame, pos)
        found[offset] = raw[:REASON_BYTES_MAX]
    return found, pos


def _begin(elements: Elements, wanted: int, frame: bytes, pos: int, steps: Steps) -> tuple[int | None, int]:
    """Return how many elements follow, and where; None behind a map of other types."""
    key, value, count, pos = elements.map_header(frame, pos)
    if count and (key != elements.i64 or value != wanted):
        return None, elements.skip_elements(frame, pos, (key, value), count, steps)
    if count > steps.numbers:
        raise ArgumentsError(f"more than {OFFSETS_MAX} numbers and reasons in one call: submit them in several")
    steps.numbers -= count
    return count, pos
