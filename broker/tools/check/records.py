"""Every record of the log, and every consume-queue unit against its record.

One walk over the log meets each record; the unit that belongs to it is compared with the one in the queue's file. What
the walk passes over is a hole; queue offsets that no record was met for must hold fillers, or lie below what is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from broker.format.record import RecordSummary
from broker.log.commit_log import SEGMENT_NAME_DIGITS, CommitLog, segment_name
from broker.log.log_pages import Segment
from broker.log.scan import LogScan
from broker.opening.queue_build import QueueBuild
from broker.opening.reading import open_log_for_reading
from broker.opening.recovery import ProgressCallback, begin_at
from broker.opening.store_json import Geometry, QueueCheckpoint
from broker.queues.consume_queue import UNIT_BYTES
from broker.queues.topics import RETRY_PREFIX, Topics
from broker.runtime.disks.read_only_disk import NumberedFile, ReadingDisk
from broker.runtime.names import is_number, queue_path
from broker.tools.check.findings import Severity, StoreFinding
from broker.tools.check.queues import Patch, QueueCheck
from broker.tools.check.small_files import checkpoint_finding, foreign
from broker.tools.readonly import GIVEN

_CHUNK_BYTES = 1 << 20


@dataclass(slots=True)
class Tally:
    """What a check has read. Counts of records and units, sizes in bytes."""

    records: int = 0
    log_bytes: int = 0
    units: int = 0
    end: int = 0
    """Commit-log offset of the end of the last valid record or blank."""
    fillers: int = 0
    """Queue offsets that hold nothing."""


@dataclass(slots=True)
class RecordCheck:
    """The look at log and queues.

    Attributes:
        holes: Damaged stretches [start, end) of the log with valid records behind them.
        hole_ms: By start of a hole, the store timestamp of the record behind it, ms since the epoch.
        patches: What has to be written into queue files so that they are right.
        wrong_sizes: Log files of another size than a segment's, by name: their size in bytes.
        trusted: The checkpoint fits; else all queue files are made again at the next start.
    """

    root: str
    geometry: Geometry
    topics: Topics
    checkpoint: QueueCheckpoint | None
    disk: ReadingDisk
    live: bool
    tally: Tally = field(default_factory=Tally)
    holes: list[tuple[int, int]] = field(default_factory=list)
    hole_ms: dict[int, int] = field(default_factory=dict)
    patches: list[Patch] = field(default_factory=list)
    wrong_sizes: dict[str, int] = field(default_factory=dict)
    trusted: bool = False
    _queues: dict[tuple[bytes, int], QueueCheck] = field(default_factory=dict)
    _served: dict[bytes, bool] = field(default_factory=dict)

    def run(self, progress: ProgressCallback | None = None) -> Iterator[StoreFinding]:
        """Yield what is wrong. Raises OSError when a folder cannot be read."""
        log, _ = open_log_for_reading(self.root, self.geometry, disk=self.disk)
        yield from self._check_log_files(log)
        yield from self._probe(log)
        log.visible_end = max(log.segments, default=-1) * log.segment_bytes + log.segment_bytes
        known = {name: len(topic.queues) for name, topic in self.topics.by_name.items()}
        if self.checkpoint is not None:
            misfit = begin_at(log, self.topics, self.checkpoint)
            self.trusted = misfit is None
            if misfit is not None:
                yield from self._missing_queue_files(self.checkpoint)
                yield checkpoint_finding("checkpoint_json_misfit", misfit)
        for name in self.topics.by_name:
            yield from self._check_queue_files(name)
        yield from self._walk(log, progress)
        for queue in self._all_queues(log):
            yield from queue.finish()
            self.tally.units += queue.units
            self.tally.fillers += queue.fillers
            self.patches += queue.patches
        for name, queues in self._seen_topics().items():
            if queues > known.get(name, 0):
                yield StoreFinding(
                    kind="topic_unknown",
                    severity=Severity.WARNING,
                    file="config/topics.json",
                    text=f"the log has {queues} queues of topic {name}; the file knows {known.get(name, 0)}",
                    costs="no data; the next start adds them",
                    repair="the store is opened and closed, which adds them",
                )
        log.close()

    # Files of the log

    def _check_log_files(self, log: CommitLog) -> Iterator[StoreFinding]:
        """Names and sizes, and gaps between the files."""
        names = self.disk.list(log.folder)
        for name in names:
            path = f"commitlog/{name}"
            if not is_number(name) or len(name) != SEGMENT_NAME_DIGITS:
                yield foreign(path)
                continue
            size = NumberedFile(self.disk, f"{log.folder}/{name}").size()
            if int(name) % log.segment_bytes:
                text = f"its name is not a multiple of the log files' size, {log.segment_bytes} bytes"
                repair = "moved to pyddmq/set-aside"
            elif size == log.segment_bytes or (size == 0 and name == names[-1]):
                continue
            elif size > log.segment_bytes:
                text = f"it has {size} bytes and should have {log.segment_bytes}"
                repair = "cut to its size; the rest is kept in pyddmq/set-aside"
            else:
                text = f"it is truncated: {size} of {log.segment_bytes} bytes"
                repair = "extended to its size with zeros; the existing records are kept"
            if self.disk.exists(f"{log.folder}/{name}"):
                if not int(name) % log.segment_bytes:
                    file = _OddSegment(self.disk, f"{log.folder}/{name}", log.segment_bytes)
                    log.segments[int(name) // log.segment_bytes] = Segment(int(name), file)
                self.wrong_sizes[name] = size
                yield StoreFinding(
                    kind="segment_size",
                    severity=Severity.DAMAGE,
                    file=path,
                    text=text,
                    costs="a node does not start",
                    repair=repair,
                )
        numbers = sorted(log.segments)
        for before, after in pairwise(numbers):
            if after != before + 1:
                base = (before + 1) * log.segment_bytes
                yield StoreFinding(
                    kind="segment_missing",
                    severity=Severity.DAMAGE,
                    file=f"commitlog/{segment_name(base)}",
                    text=f"{after - before - 1} log files are missing from here",
                    costs="the messages that were in them are lost; RocketMQ does not open the store",
                    count=after - before - 1,
                    repair="created again, empty",
                )

    def _probe(self, log: CommitLog) -> Iterator[StoreFinding]:
        """Read every log file once by plain reads: a bad sector is then an error, and not a signal."""
        for number in sorted(log.segments):
            at = 0
            try:
                for at in range(0, log.segment_bytes, _CHUNK_BYTES):
                    log.segments[number].file.read(at, _CHUNK_BYTES)
            except OSError as error:
                del log.segments[number]
                yield StoreFinding(
                    kind="segment_unreadable",
                    severity=Severity.DAMAGE,
                    file=f"commitlog/{segment_name(number * log.segment_bytes)}",
                    position=at,
                    text=f"the disk cannot read it: {error.strerror or error}",
                    costs="a node that reads there stops or loses data; copy the store to another disk",
                )

    # Records

    def _is_served(self, entry: RecordSummary) -> bool:
        """Whether a record's topic is there; RocketMQ may have deleted it."""
        found = self._served.get(entry.topic)
        if found is None:
            name = entry.topic.decode("utf-8", "replace")
            found = self._served[entry.topic] = not self.topics.was_deleted(name)
        return found

    def _walk(self, log: CommitLog, progress: ProgressCallback | None) -> Iterator[StoreFinding]:
        start = log.min_offset
        total = log.visible_end - start
        # What recovery would make of an incomplete batch at the tail is asked of recovery itself.
        build = _Batches(self.topics, log, GIVEN, store_ms=0, last_record=-1)
        walk = LogScan(log, start)
        reported = 0
        for entry in walk.entries():
            if len(walk.holes) > reported:
                yield from self._report_holes(log, walk.holes[reported:])
                self.hole_ms.update((start, entry.store_ms) for start, _ in walk.holes[reported:])
                reported = len(walk.holes)
            build.take(entry)
            if (
                entry.indexed
                and entry.physical >= self.topics.lives.begins.get(entry.topic, 0)
                and self._is_served(entry)
            ):
                yield from self._queue(log, entry.topic, entry.queue_id).take(entry)
            self.tally.records += 1
            if progress is not None and self.tally.records % 4096 == 0:
                progress(entry.physical - start, total)
        cut, end = build.finish(walk.end)
        self.holes = [hole for hole in walk.holes if hole[1] <= end]
        self.tally.end = end
        self.tally.log_bytes = end - start
        if not self.live:
            if cut:
                yield self._tail_finding(log, "batch_incomplete", end, f"{cut} atomic batches lack members")
            elif (torn := _first_bytes(log, end)) is not None:
                yield self._tail_finding(log, "tail_torn", torn, "bytes that are not a record follow the last one")

    def _report_holes(self, log: CommitLog, holes: list[tuple[int, int]]) -> Iterator[StoreFinding]:
        for start, end in holes:
            if start < log.min_offset:
                continue
            yield StoreFinding(
                kind="log_hole",
                severity=Severity.DAMAGE,
                file=f"commitlog/{segment_name(start // log.segment_bytes * log.segment_bytes)}",
                position=start % log.segment_bytes,
                text=f"{end - start} bytes are not a record; the next valid one is at commit-log offset {end}",
                costs="only the messages in them are lost; RocketMQ would cut the log here",
                repair="filled with records without a queue; the bytes are kept in pyddmq/set-aside",
            )

    def _tail_finding(self, log: CommitLog, kind: str, at: int, text: str) -> StoreFinding:
        return StoreFinding(
            kind=kind,
            severity=Severity.NOTE,
            file=f"commitlog/{segment_name(at // log.segment_bytes * log.segment_bytes)}",
            position=at % log.segment_bytes,
            text=text,
            costs="nothing that was acknowledged, unless the disk lost synced data; the next start cuts it",
            repair="cut when the store is opened",
        )

    # Queues

    def _queue(self, log: CommitLog, topic: bytes, queue_id: int) -> QueueCheck:
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            name = topic.decode("utf-8", "replace")
            queue = self._queues[topic, queue_id] = QueueCheck(
                self.root,
                name,
                queue_id,
                log=log,
                disk=self.disk,
                file_units=self.geometry.queue_file_units,
                believed=self._believed(name, queue_id),
                live=self.live,
            )
        return queue

    def _all_queues(self, log: CommitLog) -> list[QueueCheck]:
        for name, topic in self.topics.by_name.items():
            for queue_id in range(len(topic.queues)):
                self._queue(log, name.encode(), queue_id)
        return list(self._queues.values())

    def _seen_topics(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for queue in self._queues.values():
            if queue.next >= 0:
                found[queue.topic] = max(found.get(queue.topic, 0), queue.queue_id + 1)
        return found

    def _check_queue_files(self, topic: str) -> Iterator[StoreFinding]:
        size_wanted = self.geometry.queue_file_units * UNIT_BYTES
        for queue_id in self.disk.list(f"{self.root}/consumequeue/{topic}"):
            folder = f"consumequeue/{topic}/{queue_id}"
            if not is_number(queue_id):
                yield foreign(folder)
                continue
            for name in self.disk.list(f"{self.root}/{folder}"):
                if not is_number(name) or len(name) != SEGMENT_NAME_DIGITS or int(name) % size_wanted:
                    yield foreign(f"{folder}/{name}")
                    continue
                size = NumberedFile(self.disk, f"{self.root}/{folder}/{name}").size()
                if size != size_wanted and self.disk.exists(f"{self.root}/{folder}/{name}"):
                    yield StoreFinding(
                        kind="queue_file_size",
                        severity=Severity.WARNING,
                        file=f"{folder}/{name}",
                        text=f"it has {size} bytes instead of {size_wanted}",
                        costs="no data here; units are rebuilt from the log; RocketMQ does not open the store",
                        repair="set to its size, its units rebuilt from the log",
                    )

    def _missing_queue_files(self, checkpoint: QueueCheckpoint) -> Iterator[StoreFinding]:
        file_bytes = self.geometry.queue_file_units * UNIT_BYTES
        for name, bounds in checkpoint.queues.items():
            for queue_id, (minimum, maximum) in enumerate(bounds):
                for base in range(minimum * UNIT_BYTES // file_bytes * file_bytes, maximum * UNIT_BYTES, file_bytes):
                    path = f"{queue_path(name, queue_id)}/{base:020d}"
                    if not self.disk.exists(f"{self.root}/{path}"):
                        yield StoreFinding(
                            kind="queue_file_missing",
                            severity=Severity.WARNING,
                            file=path,
                            text="it is missing, or retention deleted it since the last checkpoint",
                            costs="no data; units are rebuilt from the log",
                            repair="rebuilt from the log when the store is opened",
                        )

    def queue_ends(self) -> dict[tuple[str, int], int]:
        """Return, by topic and queue, the queue offset that the next message gets."""
        return {
            (queue.topic, queue.queue_id): max(queue.next, self._believed(queue.topic, queue.queue_id).stop)
            for queue in self._queues.values()
        }

    def retries_stored(self) -> dict[str, dict[int, range]]:
        """Return, by retry topic and queue, the queue offsets from the first message of the log to the last."""
        found: dict[str, dict[int, range]] = {}
        for queue in self._queues.values():
            if queue.topic.startswith(RETRY_PREFIX) and queue.first >= 0:
                found.setdefault(queue.topic, {})[queue.queue_id] = range(queue.first, queue.next)
        return found

    def _believed(self, name: str, queue_id: int) -> range:
        """Return the queue offsets whose units the files should hold: those that the checkpoint covers."""
        topic = self.topics.by_name.get(name)
        if not self.trusted or topic is None or queue_id >= len(topic.queues):
            return range(0)
        return range(topic.queues[queue_id].min_offset, topic.queues[queue_id].max_offset)


class _OddSegment(NumberedFile):
    """A log file of a wrong size, seen as if it had the right one."""

    def __init__(self, disk: ReadingDisk, path: str, segment_bytes: int) -> None:
        super().__init__(disk, path)
        self._bytes = segment_bytes

    def view(self) -> memoryview:
        """Return what it has, zeros for what is missing."""
        return memoryview(super().read(0, self._bytes).ljust(self._bytes, b"\x00"))

    def read(self, offset: int, size: int) -> bytes:
        """Return the same in part."""
        size = min(size, self._bytes - offset)
        return super().read(offset, size).ljust(size, b"\x00")


class _Batches(QueueBuild):
    """Recovery's rule for incomplete batches, without queues."""

    def _deliver(self, entry: RecordSummary) -> None:
        """Take nothing."""


def _first_bytes(log: CommitLog, end: int) -> int | None:
    """Commit-log offset of the first byte from `end` on that is not zero, None when there is none."""
    for number in sorted(log.segments):
        base = number * log.segment_bytes
        for at in range(max(end - base, 0), log.segment_bytes, _CHUNK_BYTES):
            chunk = log.segments[number].file.read(at, _CHUNK_BYTES)
            rest = chunk.lstrip(b"\x00")
            if rest:
                return base + at + len(chunk) - len(rest)
    return None
