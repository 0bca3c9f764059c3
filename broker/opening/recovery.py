"""Recovery: what a store's files mean after whatever stopped it (D3).

The log is scanned from the checkpoint, or from its start when the checkpoint cannot be believed. A record counts when
magic, own physical offset, lengths and sum are right. At a bad place the scan resynchronises on the next such record:

- Nothing valid after it: a torn tail. It is zeroed, so that no old byte can ever be taken for a record, and synced
  before the first append. RocketMQ would leave the bytes.
- Valid records after it: a hole. Everything after it is kept (RocketMQ would cut it off); queue offsets whose records
  were in the hole become filler units.
- Members of an atomic batch at the tail whose other members are missing are cut with the tail (D8). With valid records
  after them they stay: damage costs nothing but itself. Those that replace another record are zeroed: the rest of what
  was to take its place is gone.

Queue files are derived: what they hold beyond the checkpoint is rebuilt from the log. They are written only when the
log is durable, so units beyond those made again exist only where the log lost records, and are looked for only then.

Recovery runs in steps of bounded work, so that its owner can do other things in between. It may be broken off between
any two of them: `abort` is still there, and the next opening begins again from the same checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.feature import OpenedFeatures
from broker.log.commit_log import CommitLog
from broker.log.log_reader import LogReader
from broker.log.scan import LogScan
from broker.opening.foreign import UnsupportedPart
from broker.opening.queue_build import QueueBuild
from broker.opening.store_json import QueueCheckpoint
from broker.queues.consume_queue import FILLER_SIZE, ConsumeQueue
from broker.queues.fillers import is_repeat
from broker.queues.topics import QUEUES_MAX, Topics
from broker.runtime.steps import StepsEnd, step

_STEP_BYTES = 1 << 18
_STEP_RECORDS = 256
_QUEUES_AT_ONCE = 128
_PROBE_BYTES = 4096


class RecoveryProgress(NamedTuple):
    """How far a recovery is.

    Attributes:
        scanned_bytes: Bytes of the log looked at.
        total_bytes: Bytes to look at, the empty rest of the log's files included; 0 when there is nothing to do.
        records: Valid records found so far.
        whole_log: Why the whole log is scanned and all queue files made again; None when it begins at the checkpoint.
    """

    scanned_bytes: int
    total_bytes: int
    records: int = 0
    whole_log: str | None = None


ProgressCallback = Callable[[int, int], None]
"""Told (bytes scanned, bytes to scan)."""

RecoverySteps = Generator[RecoveryProgress, None, "RecoveryFacts"]


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
        duplicates: Records whose queue offset was taken by an earlier record, or is impossible; they have no unit.
        queues_rebuilt: The queue files were not believed and made again from the whole log.
        store_ms: Latest store timestamp seen, ms since the epoch; 0 for none.
        last_record: Physical offset of the last record, -1 for none.
        whole_log: Why the scan began at the log's start; None when it began at the checkpoint.
        files_damaged: Small files of the broker's that were found damaged, relative to the store.
        foreign: What the store has of RocketMQ's that is not read.
        deleted: Topics that RocketMQ has deleted since, and where each of their queues ended.
        marked: Commit-log offsets of records in topics of users that have a feature's mark, by mark.
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
    whole_log: str | None
    files_damaged: tuple[str, ...] = ()
    foreign: tuple[UnsupportedPart, ...] = ()
    marked: Mapping[bytes, Sequence[int]] = field(default_factory=dict)
    deleted: Mapping[str, Sequence[int]] = field(default_factory=dict)


def recover(
    log: CommitLog, topics: Topics, checkpoint: QueueCheckpoint | None, *, clean: bool, given: OpenedFeatures
) -> RecoverySteps:
    """Bring log and queues to a consistent state, in steps; after the last one the log may be appended to.

    Args:
        log: Opened, not yet recovered.
        topics: Loaded; topics and queues that only the log knows are added in memory.
        checkpoint: The last one, if it could be read.
        clean: The store was closed properly.
        given: The features that the store is opened with.

    Yields:
        How far it is, after at most 256 records, 1 MiB of search, or the sync of a file.

    Raises:
        FeatureMissing: A topic that only log or checkpoint know needs another feature.
        OSError: A file could not be read, cut or synced.
    """
    log.visible_end = max(log.segments, default=-1) * log.segment_bytes + log.segment_bytes
    whole_log: str | None = "the checkpoint is missing"
    if checkpoint is not None:
        whole_log = yield from _beginning_at(log, topics, checkpoint)
    if checkpoint is not None and whole_log is None:
        start, floors = checkpoint.log_end, {}
        build = QueueBuild(topics, log, given, store_ms=checkpoint.store_ms, last_record=checkpoint.last_record)
    else:
        start = log.min_offset
        floors = _floors(topics, checkpoint) if start else {}
        for queue in topics.queues():
            queue.start_at(queue.base_offset, queue.base_offset)
        build = QueueBuild(topics, log, given, store_ms=0, last_record=-1)
        if not log.segments:
            whole_log = None
    closed_at = start if clean and whole_log is None else None
    total = 0 if closed_at is not None else log.visible_end - start
    yield RecoveryProgress(0, total, 0, whole_log)
    for number, queue in enumerate(topics.queues(), start=1):
        queue.remove_later_files()
        if number % _QUEUES_AT_ONCE == 0:
            yield RecoveryProgress(0, total, 0, whole_log)
    # A killed process may have left records that only the page cache holds. They are made durable before a queue file
    # gets their units, and before anything is shown.
    walk = LogScan(log, start, closed_at=closed_at, loaded=None if clean else log.write_anew)
    shown_at, shown_records = start, 0
    for entry in walk.steps():
        if entry is not None:
            build.take(entry)
            if walk.looked_at - shown_at < _STEP_BYTES and build.records - shown_records < _STEP_RECORDS:
                continue
        shown_at, shown_records = walk.looked_at, build.records
        yield RecoveryProgress(shown_at - start, total, shown_records, whole_log)
    log.sync()
    yield RecoveryProgress(walk.looked_at - start, total, build.records, whole_log)
    batches_cut, end = build.finish(walk.end)
    for queue, floor in floors.items():
        # Retention took all records of this queue: its offsets continue where they were (D11).
        if not queue.max_offset:
            queue.start_at(floor, floor)
    if checkpoint is not None and (walk.tail_dirty or walk.holes):
        # What the checkpoint vouches for was there, also where it is the last of a queue that is damaged.
        for queue, known in _ends(topics, checkpoint).items():
            build.fillers += queue.lose_until(known)
    if batches_cut:
        # A hole right before the first of them held their earlier members: it belongs to the tail.
        end = next((hole[0] for hole in walk.holes if hole[1] == end), end)
    tail_lost = walk.tail_dirty or end != walk.end
    if tail_lost or walk.holes:
        # Before the log forgets why: a recovery after this one must find the same reason to look.
        for queue in topics.queues():
            queue.cut_files()
            queue.sync()
            yield RecoveryProgress(walk.looked_at - start, total, build.records, whole_log)
    log.end = end
    cut = False
    if tail_lost:
        for found in log.cut(end):
            cut = cut or found
            yield RecoveryProgress(walk.looked_at - start, total, build.records, whole_log)
    log.visible_end = end
    return RecoveryFacts(
        clean=clean,
        scanned_from=start,
        end=end,
        records=build.records,
        truncated_to=end if cut else None,
        holes=tuple(sorted(hole for hole in (*walk.holes, *build.voided) if hole[0] < end)),
        batches_cut=batches_cut,
        batches_broken=build.broken,
        fillers=build.fillers,
        duplicates=build.duplicates,
        queues_rebuilt=whole_log is not None and build.records > 0,
        store_ms=build.store_ms,
        last_record=build.last_record,
        whole_log=whole_log,
        marked={mark: tuple(found) for mark, found in build.marked.items()},
        deleted=_deleted(topics, checkpoint, build),
    )


def begin_at(log: CommitLog, topics: Topics, checkpoint: QueueCheckpoint) -> str | None:
    """Set the queues to where the checkpoint saw them; say why when it does not fit log or queue files."""
    steps = _beginning_at(log, topics, checkpoint)
    while not isinstance(made := step(steps), StepsEnd):
        pass
    return made.result


def _beginning_at(
    log: CommitLog, topics: Topics, checkpoint: QueueCheckpoint
) -> Generator[RecoveryProgress, None, str | None]:
    """`begin_at` in steps."""
    reader = LogReader(log, window_bytes=_PROBE_BYTES)
    if checkpoint.last_record >= 0:
        last = reader.record(checkpoint.last_record)
        if last is None or not _ends_at(log, reader, last.physical + last.size, checkpoint.log_end):
            return "the checkpoint does not match the log"
    elif checkpoint.log_end != 0:
        return "the checkpoint does not match the log"
    number = 0
    for name, bounds in checkpoint.queues.items():
        if _is_gone(topics, name):
            continue
        topic = topics.grow(name, len(bounds))
        for queue, (minimum, maximum) in zip(topic.queues, bounds, strict=False):
            number += 1
            if number % _QUEUES_AT_ONCE == 0:
                yield RecoveryProgress(0, 0)
            # What an earlier life of the topic had ends at the base; the checkpoint may be older than its deletion.
            queue.start_at(max(minimum, queue.base_offset), max(maximum, queue.base_offset))
            if queue.max_offset == queue.base_offset > 0:
                continue
            if not _fits(log, reader, topic.name_bytes, queue):
                return f"the checkpoint does not match the files of queue {name}/{queue.queue_id}"
            if not queue.advance_minimum(log.min_offset, all_there=True):
                return f"a file of queue {name}/{queue.queue_id} is missing"
    return None


def _is_gone(topics: Topics, name: str) -> bool:
    """Whether a topic that a checkpoint names was deleted, here or by RocketMQ."""
    return (topics.lives.of(name).deleted and name not in topics.by_name) or topics.was_deleted(name)


def _deleted(topics: Topics, checkpoint: QueueCheckpoint | None, build: QueueBuild) -> dict[str, list[int]]:
    """Where the queues of topics ended that RocketMQ has deleted: by the last checkpoint and the log."""
    ends = {name: dict(found) for name, found in build.deleted.items()}
    for name, bounds in (checkpoint.queues if checkpoint is not None else {}).items():
        if topics.was_deleted(name) and not topics.lives.of(name).deleted:
            found = ends.setdefault(name, {})
            for queue_id, (_, maximum) in enumerate(bounds):
                found[queue_id] = max(found.get(queue_id, 0), maximum)
    return {
        name: [found.get(queue_id, 0) for queue_id in range(min(max(found) + 1, QUEUES_MAX))]
        for name, found in ends.items()
        if found
    }


def _floors(topics: Topics, checkpoint: QueueCheckpoint | None) -> dict[ConsumeQueue, int]:
    """One past the highest offset that each queue is known to have had, from the checkpoint or its files."""
    floors = {} if checkpoint is None else _ends(topics, checkpoint)
    for queue in topics.queues():
        if queue not in floors:
            floors[queue] = queue.end_in_files()
    return floors


def _ends(topics: Topics, checkpoint: QueueCheckpoint) -> dict[ConsumeQueue, int]:
    """One past the highest offset that a checkpoint saw in each queue."""
    return {
        queue: maximum
        for name, bounds in checkpoint.queues.items()
        if not _is_gone(topics, name)
        for queue, (_, maximum) in zip(topics.grow(name, len(bounds)).queues, bounds, strict=False)
    }


def _ends_at(log: CommitLog, reader: LogReader, record_end: int, log_end: int) -> bool:
    """Whether the log ends right behind a record, or behind the blank record that follows it."""
    if record_end == log_end:
        return True
    next_segment = (record_end // log.segment_bytes + 1) * log.segment_bytes
    return log_end == next_segment and reader.is_blank(record_end)


def _fits(log: CommitLog, reader: LogReader, topic: bytes, queue: ConsumeQueue) -> bool:
    """Whether the last unit that the checkpoint vouches for is that of its record."""
    unit = queue.last_unit()
    if unit is None or unit[1] == FILLER_SIZE or unit[0] < log.min_offset:
        return True
    entry = reader.record(unit[0])
    if entry is None:
        return False
    offset = queue.max_offset - 1
    its = (entry.size, entry.topic, entry.queue_id, entry.queue_offset)
    return its == (unit[1], topic, queue.queue_id, offset) or is_repeat(unit, entry, queue, offset)
