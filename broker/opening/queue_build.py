"""Queues made from the log: each record found by recovery gets its unit, in the order of the log.

Members of an atomic batch are held back until the batch is complete or a later valid record shows that it was written
whole (D8).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.feature import OpenedFeatures, UnitCode, unit_code
from broker.format.properties import find_property
from broker.format.record import RECORD_OVERHEAD_BYTES, RecordSummary
from broker.log.commit_log import CommitLog
from broker.log.decisions import prepared_at
from broker.queues.consume_queue import UNIT, ConsumeQueue
from broker.queues.topics import Topics, is_system

_TAIL_UNITS_MAX = 1 << 20


@dataclass(slots=True)
class QueueBuild:
    """Hands records to their queues, holding back what may turn out to be an incomplete batch at the tail."""

    topics: Topics
    log: CommitLog
    given: OpenedFeatures
    store_ms: int
    last_record: int
    records: int = 0
    fillers: int = 0
    duplicates: int = 0
    broken: int = 0
    voided: list[tuple[int, int]] = field(default_factory=list)  # stretches of the log that were records
    _group: list[RecordSummary] = field(default_factory=list)  # members of one batch, so far without a gap
    _held: list[RecordSummary] = field(default_factory=list)  # members of batches already known to be incomplete
    _held_batches: int = 0
    _tail_units: int = 0
    _queues: dict[tuple[bytes, int], ConsumeQueue] = field(default_factory=dict)
    _marks: tuple[bytes, ...] = field(init=False)
    _codes: Mapping[bytes, UnitCode] = field(init=False)
    tail_units_max: int = _TAIL_UNITS_MAX  # units held in memory before queue files are written
    deleted: dict[str, dict[int, int]] = field(default_factory=dict)  # by topic and queue id: where RocketMQ's ended
    marked: dict[bytes, list[int]] = field(default_factory=dict)  # by mark of a feature: commit-log offsets

    def __post_init__(self) -> None:
        self._marks, self._codes = self.given.marks, self.given.unit_codes

    def take(self, entry: RecordSummary) -> None:
        """Take the next record of the log."""
        self.records += 1
        if entry.batch is None or self._is_copy(entry):
            self._settle()
            self._deliver(entry)
            return
        place, count = entry.batch
        group = self._group
        follows = bool(group) and group[-1].batch == (place - 1, count)
        if not follows or group[-1].physical + group[-1].size != entry.physical:
            self._break_group()
            if place:
                last = self._held[-1].batch if self._held else None
                if last is None or last[1] != count or last[0] >= place:
                    self._held_batches += 1
                self._held.append(entry)
                return
        group.append(entry)
        if place + 1 == count:
            complete = group[:]
            group.clear()
            self._settle()
            for member in complete:
                self._deliver(member)

    def finish(self, end: int) -> tuple[int, int]:
        """Cut what was held back; returns the number of batches cut and the end of the log."""
        self._break_group()
        if not self._held:
            return 0, end
        end = self._held[0].physical
        self.records -= len(self._held)
        return self._held_batches, end

    def _is_copy(self, entry: RecordSummary) -> bool:
        """Whether a batch mark is none: RocketMQ leaves all properties in what it delivers after it waited."""
        carries_copy = self.given.copies.get(entry.topic)
        if carries_copy is not None:
            return carries_copy(entry.properties)
        return find_property(entry.properties, b"REAL_TOPIC") is not None

    def _break_group(self) -> None:
        if self._group:
            self._held.extend(self._group)
            self._held_batches += 1
            self._group.clear()

    def _settle(self) -> None:
        """Deliver what is held back: a valid record follows it.

        What replaces another record counts only with all of its batch: without the timer that takes its place a cancel
        would lose one. What it was to replace waits on.
        """
        self._break_group()
        if self._held:
            self.broken += self._held_batches
            for member in self._held:
                if prepared_at(self.log, member.physical):
                    self.log.void(member.physical, member.size)
                    self.records -= 1
                    self.voided.append((member.physical, member.physical + member.size))
                else:
                    self._deliver(member)
            self._held.clear()
            self._held_batches = 0

    def _deliver(self, entry: RecordSummary) -> None:
        self.store_ms = max(self.store_ms, entry.store_ms)
        self.last_record = entry.physical
        if not entry.indexed or entry.physical < self.topics.lives.begins.get(entry.topic, 0):
            return
        queue = self._queues.get((entry.topic, entry.queue_id)) or self._queue(entry)
        if queue is None:
            ends = self.deleted.setdefault(entry.topic.decode("utf-8", "replace"), {})
            ends[entry.queue_id] = max(ends.get(entry.queue_id, 0), entry.queue_offset + 1)
            return
        gap_max = entry.physical // RECORD_OVERHEAD_BYTES
        if queue.max_offset == queue.base_offset and (self.log.min_offset or entry.queue_offset > gap_max):
            queue.start_at(entry.queue_offset, entry.queue_offset)
        if entry.queue_offset - queue.next_offset > gap_max:
            # The log never had room for so many messages before it: no place of a queue, and no reason for fillers.
            self.duplicates += 1
            return
        for mark in self._marks:
            if mark in entry.properties and not is_system(queue.topic):
                self.marked.setdefault(mark, []).append(entry.physical)
        unit = UNIT.pack(
            entry.physical, entry.size, unit_code(entry.topic, entry.properties, entry.store_ms, self._codes)
        )
        added = queue.restore(entry.queue_offset, unit)
        if added < 0:
            self.duplicates += 1
            return
        self.fillers += added
        self._tail_units += 1 + added
        if self._tail_units > self.tail_units_max:
            # Rebuilding a large store must not hold all its units in memory.
            self._tail_units = 0
            self.log.sync()
            for full in self.topics.queues():
                full.write_tail()

    def _queue(self, entry: RecordSummary) -> ConsumeQueue | None:
        """Find or make the queue of a record; None for a topic that RocketMQ has deleted."""
        name = entry.topic.decode("utf-8", "replace")
        if self.topics.was_deleted(name):
            return None
        topic = self.topics.by_name.get(name)
        if topic is None or entry.queue_id >= len(topic.queues):
            topic = self.topics.grow(name, entry.queue_id + 1)
        queue = self._queues[entry.topic, entry.queue_id] = topic.queues[entry.queue_id]
        return queue
