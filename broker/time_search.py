"""From a moment to an offset: the first message of a queue that was stored at or after it.

Store timestamps never go back within a store (D4), so they rise with a queue's offsets and can be searched by halves:
about two reads per doubling of the queue. Fillers and damaged records have no time; the next record that has one
speaks for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from broker.consume_queue import FILLER_SIZE, ConsumeQueue
from broker.errors import DamagedRecord, RecordGone
from broker.record import store_timestamp

_BLOCK_UNITS_MAX = 1024


class Records(Protocol):
    """Where records are read: an open `Store`, or anything that reads a store's log as it does."""

    def read(self, physical: int, size: int) -> memoryview:
        """Return a whole record. Raises DamagedRecord, RecordGone."""
        ...


def offset_at(records: Records, queue: ConsumeQueue, wall_ms: int) -> int:
    """Return the offset of the queue's first message that was stored at or after a moment.

    Args:
        records: The store that the queue belongs to.
        queue: One of its queues.
        wall_ms: The moment, ms since the epoch, by the broker's clock.

    Returns:
        An offset from `min_offset` to `max_offset`; `max_offset` when all messages are older. Fillers and damaged
        records right before the message found count as older.

    Raises:
        OSError: The queue's file cannot be read.
    """
    low, high = queue.min_offset, queue.max_offset
    while low < high:
        middle = (low + high) // 2
        timed = _first_timed(records, queue, middle, high)
        if timed is None:
            # Nothing from the middle on has a time: whatever is there is neither older nor newer. Look below.
            high = middle
        elif timed[1] < wall_ms:
            low = timed[0] + 1
        else:
            high = middle
    return _past_timeless(records, queue, low)


def _past_timeless(records: Records, queue: ConsumeQueue, offset: int) -> int:
    """Return the first offset from there on whose record has a time, `max_offset` when none has."""
    timed = _first_timed(records, queue, offset, queue.max_offset)
    return queue.max_offset if timed is None else timed[0]


def _first_timed(records: Records, queue: ConsumeQueue, offset: int, end: int) -> tuple[int, int] | None:
    """Return (offset, store time in ms) of the first record in [offset, end) that can be read; None when none can."""
    for place, physical, size in _units(queue, offset, end):
        if size == FILLER_SIZE:
            continue
        try:
            return place, store_timestamp(records.read(physical, size))
        except (DamagedRecord, RecordGone):
            continue
    return None


def _units(queue: ConsumeQueue, offset: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (offset, physical, size); blocks grow from one unit, for most searches need one."""
    count = 1
    while offset < end:
        for physical, size, _ in queue.read(offset, min(count, end - offset)):
            yield offset, physical, size
            offset += 1
        count = min(count * 4, _BLOCK_UNITS_MAX)
