"""When messages of a store could first be consumed, and how many of a stretch a tag filter takes: for lag samples.

A message that waited (delay level, timer) is stored again when it is due, or soon after: its time is the moment at
which it was due, so that what was late in the broker shows as lag. That is in the record that it replaces (D27), as
long as that is kept; afterwards its own store time is used.

What was read is kept for as long as it is asked for, so that a queue at rest costs no read.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

from broker.errors import DamagedRecord, RecordGone
from broker.format.record import prepared_offset, store_timestamp
from broker.log.decisions import FIRST_RECORD
from broker.queues.consume_queue import FILLER_SIZE, ConsumeQueue
from broker.scheduled.delay.levels import SCHEDULE_NAME, due_ms
from broker.scheduled.delay.puts import DelayedPuts
from broker.scheduled.timer.names import TIMER_NAME, due_of
from broker.scheduled.timer.puts import TimedPuts
from broker.store import Store

WINDOWS = 8
WINDOW_UNITS = 64
"""Units that an estimate looks at: as many of as many places, evenly spaced; a shorter stretch is counted."""

_Key = tuple[str, int, int]


class _Read(NamedTuple):
    """Of a record: its commit-log offset, and its time by the timestamps of the log."""

    physical: int
    time_ms: int


class MessageTimes:
    """Reads message times of one store, and keeps those that are asked for again and again.

    Attributes:
        reads: How many records were read.
    """

    def __init__(self, store: Store) -> None:
        self.reads = 0
        self._store = store
        self._now: dict[_Key, _Read | None] = {}
        self._before: dict[_Key, _Read | None] = {}

    def at(self, queue: ConsumeQueue, offset: int) -> int | None:
        """Return the message time at an offset, ms since the epoch; None where there is no message, or none readable.

        A message below the first that is kept is gone, and none at the end is there yet.
        """
        if not queue.min_offset <= offset < queue.max_offset:
            return None
        key = (queue.topic, queue.queue_id, offset)
        if key in self._now:
            found = self._now[key]
        else:
            found = self._before[key] if key in self._before else self._read(queue, offset)
            self._now[key] = found
        # How old it is is known better than that, where the clock was ahead.
        return None if found is None else self._store.arrivals.stored_ms(found.physical, found.time_ms)

    def round_over(self) -> None:
        """Forget what was not asked for since the call before."""
        self._before, self._now = self._now, {}

    def _read(self, queue: ConsumeQueue, offset: int) -> _Read | None:
        self.reads += 1
        with suppress(DamagedRecord, RecordGone, IndexError, OSError):
            physical, size, _ = queue.read(offset, 1)[0]
            if size == FILLER_SIZE:
                return None
            record = self._store.read(physical, size)
            stored_ms = store_timestamp(record)
            replaced = prepared_offset(record)
            # Nothing is due after it was stored: a clock that was set back would say so.
            due_ms = self._due(replaced) if replaced else None
            return _Read(physical, stored_ms if due_ms is None else min(stored_ms, due_ms))
        return None

    def _due(self, replaced: int) -> int | None:
        """When the record was due that another one replaces; None where it did not wait, or is gone."""
        entry = self._store.record_at(0 if replaced == FIRST_RECORD else replaced)
        if entry is None:
            return None
        if entry.topic == SCHEDULE_NAME:
            return due_ms(entry.properties, entry.store_ms, self._store.waiting(DelayedPuts).levels)
        if entry.topic == TIMER_NAME:
            return due_of(entry.properties, self._store.waiting(TimedPuts).options.precision_ms)
        return None


def matched_share(queue: ConsumeQueue, start: int, end: int, codes: Collection[int]) -> float | None:
    """Return which share of the messages [start, end) have one of these tags codes; None where there is none.

    Counted where there are few, else estimated from some places; units are believed without their records.
    """
    start = max(start, queue.min_offset)
    count = end - start
    if count <= 0:
        return None
    if count <= WINDOWS * WINDOW_UNITS:
        places = [(start, count)]
    else:
        places = [(start + at * (count - WINDOW_UNITS) // (WINDOWS - 1), WINDOW_UNITS) for at in range(WINDOWS)]
    seen = wanted = 0
    for place, size in places:
        with suppress(RecordGone, OSError):
            found = [code for _, unit_size, code in queue.read_unchecked(place, size) if unit_size != FILLER_SIZE]
            seen += len(found)
            wanted += sum(code in codes for code in found)
    return wanted / seen if seen else None
