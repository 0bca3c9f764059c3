"""Consume-queue units of an earlier process, compared with their records when they are first read (D2).

A unit that does not fit its record is looked up in the log again and mended in the file. A unit whose record is the
damaged one is left as it is: reading the record then reports the damage. So is one whose record the disk does not give
out, unless the log has the right one elsewhere. A filler comes out as `FILLER`, and so does a unit without a record,
which is reported as damage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.errors import DamagedRecord, RecordGone
from broker.feature import UnitCode, unit_code
from broker.format.record import RecordSummary, queue_id, queue_offset
from broker.log.commit_log import CommitLog
from broker.log.scan import record_at, scan
from broker.queues.consume_queue import FILLER, FILLER_SIZE, UNIT, UNIT_BYTES, ConsumeQueue, Unit
from broker.queues.fillers import is_repeat
from broker.runtime.bundle import Runtime
from broker.runtime.store_metrics import UNITS_LOST, UNITS_REPAIRED

assert UNIT_BYTES == 20


def ignored(physical: int) -> None:
    """Report nothing."""


def unit_of(entry: RecordSummary, codes: Mapping[bytes, UnitCode]) -> Unit:
    """Return the unit that belongs to a record; `codes` are `OpenedFeatures.unit_codes`."""
    return entry.physical, entry.size, unit_code(entry.topic, entry.properties, entry.store_ms, codes)


class UnitChecker:
    """Checks the units of one store.

    Args:
        log: Where the records are.
        runtime: Counts and says what is mended and lost.
        fail: Told when a file that is to be mended cannot be written; None mends what is returned and no file, for a
            store that is only read.
        codes: `OpenedFeatures.unit_codes`.
        met: Called with the commit-log offset of each record that a unit names and that is not there.
    """

    def __init__(
        self,
        log: CommitLog,
        *,
        runtime: Runtime,
        codes: Mapping[bytes, UnitCode],
        fail: Callable[[str, OSError], object] | None = None,
        met: Callable[[int], object] = ignored,
    ) -> None:
        self._log = log
        self._met = met
        self._fail = fail
        self._limited_log = runtime.limited_log
        self._codes = codes
        self._repaired = runtime.metrics.counter(UNITS_REPAIRED)
        self._lost = runtime.metrics.counter(UNITS_LOST)

    def check(self, queue: ConsumeQueue, offset: int, units: list[Unit]) -> list[Unit]:
        """Return the units of a queue from `offset` on, mended where they do not fit their records."""
        mended, wrong = units, []
        for place, unit in enumerate(units):
            if unit == FILLER or self._fits(queue, offset + place, unit):
                continue
            if mended is units:
                mended = units[:]
            if self._is_filler(queue, offset + place, unit):
                mended[place] = FILLER
            else:
                wrong.append(place)
        if not wrong:
            return mended
        found = self._search(queue, offset, wrong)
        for place in wrong:
            right = found.get(offset + place)
            if right is None:
                physical, size, _ = units[place]
                if size > 0 and not self._log.pages.is_sure(physical, size):
                    continue
                # What is there may be the place of another message, which must not be handed out for this one.
                mended[place] = FILLER
                self._lost.add()
                self._met(min(max(physical, self._log.min_offset), self._log.visible_end))
                self._limited_log.note("unit_lost", topic=queue.topic, queue_id=queue.queue_id, offset=offset + place)
                continue
            mended[place] = right
            self._repaired.add()
            self._limited_log.note("unit_repaired", topic=queue.topic, queue_id=queue.queue_id, offset=offset + place)
            self._repair(queue, offset + place, right)
        return mended

    def _repair(self, queue: ConsumeQueue, offset: int, unit: Unit) -> None:
        fail = self._fail
        if fail is None:
            return
        try:
            queue.overwrite(offset, UNIT.pack(*unit))
        except OSError as error:
            # What is read was mended all the same; from now on nothing is written any more.
            self._fail = None
            fail("repairing a consume-queue file", error)

    def _fits(self, queue: ConsumeQueue, offset: int, unit: Unit) -> bool:
        """Whether a unit is that of a valid record, of a record that is damaged itself, or of one that is gone."""
        physical, size, _ = unit
        if size <= 0 or physical < 0:
            return False
        if physical < self._log.min_offset:
            return True
        entry = record_at(self._log, physical)
        if entry is not None:
            return unit == unit_of(entry, self._codes) and self._is_of(entry, queue, offset)
        try:
            record = self._log.read(physical, size)
        except RecordGone:
            return True
        except DamagedRecord as error:
            # A wrong sum under the right header: the record is damaged, the unit is not.
            return error.sum_wrong
        return (queue_id(record), queue_offset(record)) == (queue.queue_id, offset)

    def _is_filler(self, queue: ConsumeQueue, offset: int, unit: Unit) -> bool:
        entry = record_at(self._log, unit[0]) if unit[0] >= 0 and unit[1] > 0 else None
        return entry is not None and is_repeat(unit, entry, queue, offset)

    def _search(self, queue: ConsumeQueue, offset: int, wrong: list[int]) -> dict[int, Unit]:
        """Find the records of wrong units between those of the nearest right ones, in one walk over the log."""
        log = self._log
        first, last = offset + wrong[0], offset + wrong[-1]
        start = self._right_place(queue, range(first - 1, queue.min_offset - 1, -1), log.min_offset)
        end = self._right_place(queue, range(last + 1, queue.max_offset), log.visible_end)
        wanted = {offset + place for place in wrong}
        topic = queue.topic.encode("utf-8")
        found: dict[int, Unit] = {}
        for entry in scan(log, start):
            if entry.physical >= end or len(found) == len(wanted):
                break
            if entry.queue_id == queue.queue_id and entry.topic == topic and entry.queue_offset in wanted:
                found[entry.queue_offset] = unit_of(entry, self._codes)
        return found

    def _right_place(self, queue: ConsumeQueue, offsets: range, default: int) -> int:
        """Return the commit-log offset in the first of these units that is right for certain, or `default`."""
        for each in offsets:
            unit = queue.neighbour(each)
            if unit is None:
                break
            entry = record_at(self._log, unit[0]) if unit[1] != FILLER_SIZE else None
            if entry is not None and unit == unit_of(entry, self._codes) and self._is_of(entry, queue, each):
                return unit[0]
        return default

    def _is_of(self, entry: RecordSummary, queue: ConsumeQueue, offset: int) -> bool:
        return (entry.queue_id, entry.queue_offset) == (queue.queue_id, offset) and entry.topic == queue.topic.encode()
