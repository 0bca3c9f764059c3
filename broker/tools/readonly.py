"""A store opened for reading alone: no lock is taken and not a byte is changed; another process may have it open.

What is seen is a consistent prefix: every whole record up to where the log ended when it was opened, incomplete atomic
batches at the tail left out. A running owner may append, delete old segments and rewrite its small files beneath it;
what it deletes comes out as `RecordGone`. Records and units are compared with their sums at every read (D2).

The checkpoint says which part of the queue files to believe, and the log behind it is scanned. Without a
checkpoint that fits (a store that only RocketMQ wrote) the whole log is scanned; 20 bytes per message are then held in
memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict

from broker.errors import RecordGone, StoreUnreadable
from broker.feature import OpenedFeatures
from broker.features import ALL
from broker.format.locating import Place
from broker.format.record import Located, RecordSummary
from broker.index.index import Index
from broker.log.scan import LogScan, record_at
from broker.opening.queue_build import QueueBuild
from broker.opening.reading import geometry_of, open_log_for_reading
from broker.opening.recovery import ProgressCallback, begin_at
from broker.opening.store_json import CheckpointFile, Geometry, QueueCheckpoint
from broker.opening.unit_check import UnitChecker
from broker.options import StoreOptions
from broker.queues.consume_queue import ConsumeQueue, Unit
from broker.queues.topics import Topic, Topics
from broker.runtime.bundle import runtime_of
from broker.runtime.disks.read_only_disk import ReadingDisk
from broker.runtime.metrics import Metrics
from broker.runtime.seams import Clock, Disk

GIVEN = OpenedFeatures(ALL)
"""A store that is only read is understood whole, also one of another program."""


class ReadOnlyStore:
    """A store that is only read; close it to release the mapped files.

    Attributes:
        root: Its folder.
        geometry: Its file sizes.
        topics: All topics by name; their queues read like those of a `Store`.
        log: Its commit log.
        holes: Damaged stretches [start, end) of the log, seen in the part that was scanned.
        scanned_from: Commit-log offset at which the scan began.
        index: The index as it was last saved; what it lacks is read from the log by queries.
        live: Whether another process had it open when it was opened here: its tail moves.
        strange_files: Names of commit-log files that were left out, because their size is not a segment's.
    """

    def __init__(self, root: str, geometry: Geometry, *, disk: ReadingDisk, clock: Clock, metrics: Metrics) -> None:
        self.root = root
        self.geometry = geometry
        self.holes: list[tuple[int, int]] = []
        self.scanned_from = 0
        self.live = disk.locked(f"{root}/lock")
        self._disk = disk
        self.log, self.strange_files = open_log_for_reading(root, geometry, disk=disk)
        self._topics = Topics(root, disk=disk, clock=clock, queue_file_units=geometry.queue_file_units)
        self.topics: Mapping[str, Topic] = self._topics.by_name
        runtime = runtime_of(disk, clock, metrics=metrics)
        self._checker = UnitChecker(self.log, runtime=runtime, codes=GIVEN.unit_codes)
        self.index = Index(
            root,
            log=self.log,
            options=self.options,
            runtime=runtime,
            read_only=True,
        )

    @classmethod
    def open(
        cls,
        root: str,
        *,
        disk: Disk,
        clock: Clock,
        metrics: Metrics | None = None,
        progress: ProgressCallback | None = None,
    ) -> ReadOnlyStore:
        """Open a store of this broker's or of RocketMQ's.

        Args:
            root: Its folder.
            disk: Where; `RealDisk(read_only=True)` needs no permission to write.
            clock: For the minutes of the rate-limited log.
            metrics: Counts damage that is met.
            progress: Called now and then with (bytes scanned, bytes to scan).

        Raises:
            StoreUnreadable: There is no store, or the files with its sizes or topics are damaged with all copies.
            StoreFormatNewer: A newer version wrote it.
            OSError: A file cannot be read.
        """
        reading = disk if isinstance(disk, ReadingDisk) else ReadingDisk(disk)
        geometry = geometry_of(root, disk=reading)
        if geometry is None:
            raise StoreUnreadable(f"{root} has no store; pass the data directory of a node")
        # Read before the log's files are listed: what it says is then in them for certain.
        checkpoint = CheckpointFile(root, disk=reading).load()
        store = cls(root, geometry, disk=reading, clock=clock, metrics=metrics or Metrics())
        store._load(checkpoint, progress)
        return store

    def _load(self, checkpoint: QueueCheckpoint | None, progress: ProgressCallback | None) -> None:
        log, topics = self.log, self._topics
        topics.load()
        log.visible_end = max(log.segments, default=-1) * log.segment_bytes + log.segment_bytes
        start = log.min_offset
        if checkpoint is not None and begin_at(log, topics, checkpoint) is None:
            start = checkpoint.log_end
        else:
            for queue in topics.queues():
                queue.start_at(0, 0)
        self.scanned_from = start
        build = QueueBuild(topics, log, GIVEN, store_ms=0, last_record=-1, tail_units_max=sys.maxsize)
        total = log.visible_end - start
        walk = LogScan(log, start)
        for entry in walk.entries():
            build.take(entry)
            if progress is not None and build.records % 4096 == 0:
                progress(entry.physical - start, total)
        _, end = build.finish(walk.end)
        self.holes = [hole for hole in walk.holes if log.min_offset <= hole[0] and hole[1] <= end]
        log.end = log.visible_end = end
        log.chill(end)
        for queue in topics.queues():
            queue.checker = self._check
        clean = not self._disk.exists(f"{self.root}/abort")
        self.index.open(clean=clean, index_ms=CheckpointFile(self.root, disk=self._disk).index_ms())

    def _check(self, queue: ConsumeQueue, offset: int, units: list[Unit]) -> list[Unit]:
        if any(unit == (0, 0, 0) for unit in units) and self._forget_deleted():
            queue.advance_minimum(self.log.min_offset)
            if offset < queue.min_offset:
                raise RecordGone(-1)
        return self._checker.check(queue, offset, units)

    def _forget_deleted(self) -> bool:
        """Drop the segments that the owner has deleted since; returns whether there was one."""
        there = set(self._disk.list(self.log.folder))
        gone = [number for number, segment in self.log.segments.items() if f"{segment.base:020d}" not in there]
        for number in gone:
            del self.log.segments[number]
        return bool(gone)

    @property
    def min_offset(self) -> int:
        """Commit-log offset of the first byte that is kept."""
        return self.log.min_offset

    @property
    def end(self) -> int:
        """Commit-log offset of the end of the readable log."""
        return self.log.visible_end

    @property
    def options(self) -> StoreOptions:
        """Options with the sizes of this store."""
        return StoreOptions(**asdict(self.geometry))

    def read(self, physical: int, size: int) -> memoryview:
        """Return a whole record, its sum compared.

        Raises:
            DamagedRecord: Another record is at that offset.
            RecordGone: The owner deleted it.
        """
        return self.log.read(physical, size)

    def locate(self, places: Sequence[Place]) -> list[Located]:
        """Find bodies and property blocks of the records at these (physical offset, size). Raises as `read`."""
        return self.log.locate(places)

    def records(
        self, start: int | None = None, *, damaged: Callable[[int, int], None] | None = None
    ) -> Iterator[RecordSummary]:
        """Walk the valid records in log order, from the offset of one of them or the log's beginning on.

        Args:
            start: Commit-log offset of a record; the oldest if not given.
            damaged: Called with start and end of each damaged stretch that is passed.
        """
        walk = LogScan(self.log, self.min_offset if start is None else max(start, self.min_offset))
        seen = 0
        for entry in walk.entries():
            if entry.physical >= self.end:
                return
            if damaged is not None:
                for hole in walk.holes[seen:]:
                    if hole[0] >= self.min_offset:
                        damaged(*hole)
            seen = len(walk.holes)
            yield entry

    def segment_at(self, wall_ms: int) -> int:
        """Return where to begin to meet every record stored at or after a moment: the beginning of a log file.

        Store timestamps never go back (D4), so a file whose first record is older ends the files that can be left out.
        """
        for number in sorted(self.log.segments, reverse=True):
            base = number * self.log.segment_bytes
            first = record_at(self.log, base) if base < self.end else None
            if first is not None and first.store_ms < wall_ms:
                return base
        return self.min_offset

    def close(self) -> None:
        """Release the mapped files; returned views stay readable."""
        self.log.close()
