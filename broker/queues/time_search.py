"""From a moment, or a place in the log, to an offset of a queue: the first message at or after it.

Store timestamps never go back within a store (D4), and commit-log offsets rise, so both rise with a queue's offsets and
can be searched by halves: about two reads per doubling of the queue. Fillers have neither, damaged records no time; the
next message that has one speaks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from broker.errors import DamagedRecord, RecordGone
from broker.format.record import store_timestamp
from broker.queues.consume_queue import FILLER_SIZE, ConsumeQueue

_BLOCK_UNITS_MAX = 1024


class Records(Protocol):
    """Where records are read: an open `Store`, or anything that reads a store's log as it does."""

    def read(self, physical: int, size: int) -> memoryview:
        """Return a whole record. Raises DamagedRecord, RecordGone."""


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

    def time_of(physical: int, size: int) -> int | None:
        try:
            return store_timestamp(records.read(physical, size))
        except (DamagedRecord, RecordGone):
            return None

    return _search(queue, wall_ms, time_of)


def offset_from(queue: ConsumeQueue, physical: int) -> int:
    """Return the offset of the queue's first message that is at or behind a commit-log offset.

    Returns:
        An offset from `min_offset` to `max_offset`; `max_offset` when there is none. Fillers right before the message
        found count as lying before.

    Raises:
        OSError: The queue's file cannot be read.
    """
    return _search(queue, physical, lambda each, _: each)


_ValueOf = Callable[[int, int], int | None]
"""From a record's commit-log offset and size to what is searched for; None where there is none."""


def _search(queue: ConsumeQueue, wanted: int, value_of: _ValueOf) -> int:
    """Return the first offset whose value is `wanted` or more, `max_offset` when there is none."""
    low, high = queue.min_offset, queue.max_offset
    while low < high:
        middle = (low + high) // 2
        known = _first_known(queue, middle, high, value_of)
        if known is not None and known[1] < wanted:
            low = known[0] + 1
        else:
            # Also where nothing from the middle on has a value: what is below decides.
            high = middle
    known = _first_known(queue, low, queue.max_offset, value_of)
    return queue.max_offset if known is None else known[0]


def _first_known(queue: ConsumeQueue, offset: int, end: int, value_of: _ValueOf) -> tuple[int, int] | None:
    """Return offset and value of the first message in [offset, end) that has one; None when none has."""
    for place, physical, size in _units(queue, offset, end):
        if size != FILLER_SIZE and (value := value_of(physical, size)) is not None:
            return place, value
    return None


def _units(queue: ConsumeQueue, offset: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield (offset, physical, size); blocks grow from one unit, for most searches need one."""
    count = 1
    while offset < end:
        for physical, size, _ in queue.read(offset, min(count, end - offset)):
            yield offset, physical, size
            offset += 1
        count = min(count * 4, _BLOCK_UNITS_MAX)
