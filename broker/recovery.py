"""Recovery: what a store's files mean after whatever stopped it (D3).

The log is scanned from the checkpoint, or from its start when the checkpoint cannot be believed. A record counts when
magic, own physical offset, lengths and sum are right. At a bad place the scan resynchronises on the next such record:

- Nothing valid after it: a torn tail. It is zeroed, so that no old byte can ever be taken for a record, and synced
  before the first append. RocketMQ would leave the bytes.
- Valid records after it: a hole. Everything after it is kept (RocketMQ would cut it off); queue offsets whose records
  were in the hole become filler units.
- Members of an atomic batch at the tail whose other members are missing are cut with the tail (D8). With valid records
  after them they stay: damage costs nothing but itself.

Queue files are derived: what they hold beyond the checkpoint is cut and made anew from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from broker.commit_log import CommitLog
from broker.consume_queue import FILLER_SIZE, UNIT, ConsumeQueue
from broker.errors import DamagedRecord, RecordGone
from broker.java import tags_code
from broker.properties import find_property
from broker.record import (
    BLANK,
    BLANK_BYTES,
    MAGIC_BLANK,
    MAGIC_COMMON_BYTES,
    RECORD_OVERHEAD_BYTES,
    Entry,
    check,
)
from broker.store_json import Checkpoint
from broker.topics import Topics

_CHUNK_BYTES = 1 << 20
_PROBE_BYTES = 4096
_TAIL_UNITS_MAX = 1 << 20

ProgressCallback = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryFacts:
    """What recovery found and did.

    Attributes:
        clean: The store had been closed properly.
        scanned_from: Commit-log offset at which the scan began.
        end: Commit-log offset of the end; everything that names a later offset is void (D11).
        records: Valid records scanned.
        truncated_to: Offset to which a torn tail was cut; None when nothing was cut.
        holes: Damaged stretches [start, end) with valid records after them.
        batches_cut: Incomplete atomic batches cut with the tail.
        batches_broken: Incomplete atomic batches kept, since valid records follow them.
        fillers: Queue offsets that hold nothing, because their record was in a hole.
        duplicates: Records whose queue offset was taken by an earlier record; they have no unit.
        queues_rebuilt: The queue files were not believed and made anew from the whole log.
        store_ms: Latest store timestamp seen, ms since the epoch; 0 for none.
        last_record: Physical offset of the last record, -1 for none.
    """

    clean: bool
    scanned_from: int
    end: int
    records: int
    truncated_to: int | None
    holes: tuple[tuple[int, int], ...]
    batches_cut: int
    batches_broken: int
    fillers: int
    duplicates: int
    queues_rebuilt: bool
    store_ms: int
    last_record: int


def recover(
    log: CommitLog,
    topics: Topics,
    checkpoint: Checkpoint | None,
    *,
    clean: bool,
    progress: ProgressCallback | None = None,
) -> RecoveryFacts:
    """Bring log and queues to a consistent state; on return the log may be appended to.

    Args:
        log: Opened, not yet recovered.
        topics: Loaded; topics and queues that only the log knows are added in memory.
        checkpoint: The last one, if it could be read.
        clean: The store was closed properly.
        progress: Called now and then with (bytes scanned, bytes to scan).

    Raises:
        OSError: A file could not be read, cut or synced.
    """
    log.visible_end = max(log.segments, default=-1) * log.segment_bytes + log.segment_bytes
    trusted = checkpoint is not None and _begin_at(log, topics, checkpoint)
    if checkpoint is not None and trusted:
        start = checkpoint.log_end
        build = _Build(topics, log, store_ms=checkpoint.store_ms, last_record=checkpoint.last_record)
    else:
        start = log.min_offset
        for topic in topics.by_name.values():
            for queue in topic.queues:
                queue.start_at(0, 0)
        build = _Build(topics, log, store_ms=0, last_record=-1)
    _cut_queue_files(topics)
    walk = _Scan(log, start, closed_at=start if clean and trusted else None)
    total = log.visible_end - start
    for entry in walk.entries():
        build.take(entry)
        if progress is not None and build.records % 4096 == 0:
            progress(entry.physical - start, total)
    batches_cut, end = build.finish(walk.end)
    if batches_cut:
        # A hole right before the first of them held their earlier members: it belongs to the tail.
        end = next((hole[0] for hole in walk.holes if hole[1] == end), end)
    log.end = end
    cut = log.cut(end, deep=walk.searched or end != walk.end)
    if not clean:
        # A killed process may have left records that only the page cache holds; from now on they count as durable.
        log.sync_from(start)
    log.visible_end = end
    return RecoveryFacts(
        clean=clean,
        scanned_from=start,
        end=end,
        records=build.records,
        truncated_to=end if cut else None,
        holes=tuple(hole for hole in walk.holes if hole[0] < end),
        batches_cut=batches_cut,
        batches_broken=build.broken,
        fillers=build.fillers,
        duplicates=build.duplicates,
        queues_rebuilt=not trusted and build.records > 0,
        store_ms=build.store_ms,
        last_record=build.last_record,
    )


def _begin_at(log: CommitLog, topics: Topics, checkpoint: Checkpoint) -> bool:
    """Set the queues to where the checkpoint saw them; False when it does not fit the log."""
    if checkpoint.last_record >= 0:
        last = record_at(log, checkpoint.last_record)
        if last is None or not _ends_at(log, last.physical + last.size, checkpoint.log_end):
            return False
    elif checkpoint.log_end != 0:
        return False
    for name, bounds in checkpoint.queues.items():
        topic = topics.grow(name, len(bounds))
        for queue, (minimum, maximum) in zip(topic.queues, bounds, strict=False):
            queue.start_at(minimum, maximum)
            if not _fits(log, topic.name_bytes, queue):
                return False
            queue.advance_minimum(log.min_offset)
    return True


def _ends_at(log: CommitLog, record_end: int, log_end: int) -> bool:
    """Whether the log ends right behind a record, or behind the blank record that follows it."""
    number, start = divmod(record_end, log.segment_bytes)
    if record_end == log_end:
        return True
    return log_end == (number + 1) * log.segment_bytes and _is_blank(log.view(number), start)


def _fits(log: CommitLog, topic: bytes, queue: ConsumeQueue) -> bool:
    """Whether the last unit that the checkpoint vouches for is that of its record."""
    unit = queue.last_unit()
    if unit is None or unit[1] == FILLER_SIZE or unit[0] < log.min_offset:
        return True
    entry = record_at(log, unit[0])
    return entry is not None and (entry.size, entry.topic, entry.queue_id, entry.queue_offset) == (
        unit[1],
        topic,
        queue.queue_id,
        queue.max_offset - 1,
    )


def _cut_queue_files(topics: Topics) -> None:
    for topic in topics.by_name.values():
        for queue in topic.queues:
            queue.cut_files()


def record_at(log: CommitLog, physical: int) -> Entry | None:
    """Return the valid record that begins at a commit-log offset, or None."""
    number, start = divmod(physical, log.segment_bytes)
    if number not in log.segments:
        return None
    return check(log.view(number), start, log.segment_bytes - BLANK_BYTES, physical)


def scan(log: CommitLog, start: int) -> Iterator[Entry]:
    """Walk the valid records from a record's offset on, passing over damage."""
    return _Scan(log, start).entries()


class _Scan:
    """Walks the valid records from an offset on.

    Attributes:
        end: After the walk: end of the last valid record or blank.
        holes: Damaged stretches passed.
        searched: The end was searched for later records, not merely seen to be empty.
    """

    def __init__(self, log: CommitLog, start: int, *, closed_at: int | None = None) -> None:
        self._log = log
        # Where a clean stop left the end: empty bytes there need no search for records behind them.
        self._closed_at = closed_at
        self.end = start
        self.holes: list[tuple[int, int]] = []
        self.searched = False

    def entries(self) -> Iterator[Entry]:
        """Yield the records in log order."""
        log = self._log
        limit = log.segment_bytes - BLANK_BYTES
        number = -1
        view = memoryview(b"")
        while True:
            position = self.end
            if position // log.segment_bytes != number:
                number = position // log.segment_bytes
                log.forget_idle()
                try:
                    view = log.view(number)
                except (RecordGone, DamagedRecord):
                    view = memoryview(b"")
            start = position - number * log.segment_bytes
            entry = check(view, start, limit, position) if view else None
            if entry is not None:
                self.end = position + entry.size
                yield entry
            elif view and _is_blank(view, start):
                self.end = (number + 1) * log.segment_bytes
            else:
                found = self._resynchronise(position)
                if found is None:
                    return
                if view and (check(view, start, limit, position) is not None or _is_blank(view, start)):
                    # The store's owner wrote it while this reader was searching.
                    continue
                self.holes.append((position, found))
                self.end = found

    def _resynchronise(self, position: int) -> int | None:
        """Offset of the next valid record after a bad place, None when there is none."""
        log = self._log
        if position == self._closed_at and self._is_empty(position):
            return None
        self.searched = True
        for number in sorted(log.segments):
            base = number * log.segment_bytes
            if base + log.segment_bytes <= position:
                continue
            found = self._search(number, max(position + 1 - base, 0))
            if found is not None:
                return base + found
        return None

    def _is_empty(self, position: int) -> bool:
        """Whether the log looks untouched from here on: the next bytes are zero, or there is no segment."""
        number, start = divmod(position, self._log.segment_bytes)
        segment = self._log.segments.get(number)
        if segment is None:
            return not any(other > number for other in self._log.segments)
        return not segment.file.read(start, _PROBE_BYTES).strip(b"\x00")

    def _search(self, number: int, start: int) -> int | None:
        log = self._log
        segment = log.segments[number]
        limit = log.segment_bytes - BLANK_BYTES
        view: memoryview | None = None
        at = start
        while at < limit:
            # Chunks overlap, so that a magic on a border is seen.
            chunk = segment.file.read(at, _CHUNK_BYTES + len(MAGIC_COMMON_BYTES))
            hit = chunk.find(MAGIC_COMMON_BYTES)
            while hit >= 0:
                candidate = at + hit - 4
                if candidate >= start:
                    view = view or log.view(number)
                    if check(view, candidate, limit, segment.base + candidate) is not None:
                        return candidate
                hit = chunk.find(MAGIC_COMMON_BYTES, hit + 1)
            at += _CHUNK_BYTES
        return None


def _is_blank(view: memoryview, start: int) -> bool:
    left = len(view) - start
    return left >= BLANK_BYTES and BLANK.unpack_from(view, start) == (left, MAGIC_BLANK)


@dataclass(slots=True)
class _Build:
    """Hands records to their queues, holding back what may turn out to be an incomplete batch at the tail."""

    topics: Topics
    log: CommitLog
    store_ms: int
    last_record: int
    records: int = 0
    fillers: int = 0
    duplicates: int = 0
    broken: int = 0
    _group: list[Entry] = field(default_factory=list)  # members of one batch, so far without a gap
    _held: list[Entry] = field(default_factory=list)  # members of batches already known to be incomplete
    _held_batches: int = 0
    _tail_units: int = 0
    tail_units_max: int = _TAIL_UNITS_MAX  # units held in memory before queue files are written

    def take(self, entry: Entry) -> None:
        """Take the next record of the log."""
        self.records += 1
        if entry.batch is None:
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

    def _break_group(self) -> None:
        if self._group:
            self._held.extend(self._group)
            self._held_batches += 1
            self._group.clear()

    def _settle(self) -> None:
        """Deliver what is held back: a valid record follows it."""
        self._break_group()
        if self._held:
            self.broken += self._held_batches
            for member in self._held:
                self._deliver(member)
            self._held.clear()
            self._held_batches = 0

    def _deliver(self, entry: Entry) -> None:
        self.store_ms = max(self.store_ms, entry.store_ms)
        self.last_record = entry.physical
        if not entry.indexed:
            return
        name = entry.topic.decode("utf-8", "replace")
        topic = self.topics.by_name.get(name)
        if topic is None or entry.queue_id >= len(topic.queues):
            topic = self.topics.grow(name, entry.queue_id + 1)
        queue = topic.queues[entry.queue_id]
        gap_max = entry.physical // RECORD_OVERHEAD_BYTES
        if not queue.max_offset and (self.log.min_offset or entry.queue_offset > gap_max):
            queue.start_at(entry.queue_offset, entry.queue_offset)
        unit = UNIT.pack(entry.physical, entry.size, tags_code(find_property(entry.properties, b"TAGS") or b""))
        added = queue.restore(entry.queue_offset, unit)
        if added < 0:
            self.duplicates += 1
            return
        self.fillers += added
        self._tail_units += 1 + added
        if self._tail_units > self.tail_units_max:
            # Rebuilding a large store must not hold all its units in memory.
            self._tail_units = 0
            for each in self.topics.by_name.values():
                for full in each.queues:
                    full.write_tail()
