"""JournalWriter: the file of the lag journal that grows.

What it guarantees, and which faults it survives:

- A snapshot is one block, written in one call: a kill leaves all of it or a tail that readers pass over. A file is
  never continued after a start, so nothing is ever written behind a torn tail.
- Whatever the disk does, the node continues: a snapshot that cannot be written is dropped and counted, its sequence is
  missing in the file, and the next one begins a new file, which needs none before it. Below `free_bytes_min` nothing is
  written at all: the last space is the store's.
- A file is synced when it ends, beside the loop where `syncs` are handed in. What a power loss takes is the tail that
  the system had not written: figures of some seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from broker.runtime.seams import Disk, Syncs
from lag.blocks import BlockWriter, FileHead, FileKind
from lag.journal.columns import Key
from lag.journal.files import JournalFile, Tier, next_number
from lag.journal.snapshots import SnapshotEncoder
from lag.samples import LagEvent, QueueSample, ScheduledSample

FOLDER: Final = "pyddmq/lag"
"""Where a data directory has its journal."""
FILE_MS: Final = 3_600_000
"""A file holds an hour of the clock at most."""
EVENTS_MAX: Final = 2000
"""Events that wait for the next snapshot; of more the oldest go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalOrigin:
    """Who writes.

    Attributes:
        cluster: Name of the cluster.
        node: Name of the node.
        epoch: Random number of this start, 64 bits.
    """

    cluster: str
    node: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterLimits:
    """Bounds of the file that grows.

    Attributes:
        interval_ms: How far apart snapshots are meant to be; written into the head, so that readers see what is
            missing.
        file_bytes: A file ends when it has so many.
        free_bytes_min: Nothing is written while the disk has less.
    """

    interval_ms: int = 10_000
    file_bytes: int = 16 << 20
    free_bytes_min: int = 64 << 20


class JournalWriter:
    """Writes snapshots: `begin`, `add` as often as wanted, `end`. Raises for nothing that the disk does.

    Attributes:
        written: Snapshots written.
        dropped: Snapshots that could not be written.
        written_bytes: Bytes written, heads included.
        trouble: Why the last one was dropped; None: it was not.

    Args:
        disk: Where.
        folder: Where the files are; made when it is not there.
        origin: Who writes.
        limits: Bounds.
        syncs: Syncs beside the loop; None: a file's end waits for its sync.
    """

    def __init__(
        self, disk: Disk, folder: str, origin: JournalOrigin, limits: WriterLimits, *, syncs: Syncs | None = None
    ) -> None:
        self.written = self.dropped = self.written_bytes = 0
        self.trouble: str | None = None
        self._disk = disk
        self._folder = folder
        self._origin = origin
        self._limits = limits
        self._syncs = syncs
        self._sequence = 0
        self._events: deque[LagEvent] = deque(maxlen=EVENTS_MAX)
        self._file: BlockWriter | None = None
        self._encoder = SnapshotEncoder()
        self._first_ms = self._last_ms = 0
        self._is_open = False

    @property
    def current(self) -> str | None:
        """Path of the file that grows; None: there is none now."""
        return None if self._file is None else self._file.path

    def note(self, event: LagEvent) -> None:
        """Keep an event for the next snapshot."""
        self._events.append(event)

    def begin(self, time_ms: int) -> None:
        """Begin a snapshot of this moment (Unix ms, wall clock)."""
        assert not self._is_open, "the snapshot before has ended"
        self._is_open = True
        self.trouble = None
        try:
            self._begin(time_ms)
        except OSError as error:
            self._give_up(error)

    def _begin(self, time_ms: int) -> None:
        if self._file is not None and self._is_over(self._file, time_ms):
            self._end_file()
        if self._disk.exists(self._folder):
            free = self._disk.free_bytes(self._folder)
            if free < self._limits.free_bytes_min:
                raise OSError(f"{free} bytes are free, and the last {self._limits.free_bytes_min} are for the store")
        if self._file is None:
            self._file = self._begin_file(time_ms)
        self._last_ms = time_ms
        self._encoder.begin(time_ms, self._sequence)

    def add(self, rows: Iterable[tuple[Key, QueueSample]]) -> None:
        """Add queues of the snapshot that was begun: (group, topic, queue) and sample each.

        Args:
            rows: Best in the same order each time: what has not changed costs nothing then.
        """
        assert self._is_open, "a snapshot was begun"
        if self._file is not None:
            add = self._encoder.add
            for key, sample in rows:
                add(key, sample.time_ms, sample)

    def end(self, scheduled: Iterable[ScheduledSample] = ()) -> bool:
        """Write the snapshot with what waits by its own time, and the events noted; False: it was dropped."""
        assert self._is_open, "a snapshot was begun"
        self._is_open = False
        self._sequence += 1
        file = self._file
        if file is not None:
            waiting = [((each.kind, each.topic, each.level), each.time_ms, each) for each in scheduled]
            payload = self._encoder.end(waiting, self._events)
            before = file.position
            try:
                file.append(payload)
            except OSError as error:
                self._give_up(error)
            else:
                self.written_bytes += file.position - before
                self._events.clear()
                self.written += 1
                return True
        self.dropped += 1
        return False

    def write(
        self, time_ms: int, rows: Iterable[tuple[Key, QueueSample]], scheduled: Iterable[ScheduledSample] = ()
    ) -> bool:
        """Do `begin`, `add` and `end` in one go."""
        self.begin(time_ms)
        self.add(rows)
        return self.end(scheduled)

    def close(self, time_ms: int) -> None:
        """Write the events that wait, and end the file; a snapshot that was begun is dropped."""
        if self._is_open:
            self._is_open = False
            self._sequence += 1
            self.dropped += 1
            # The memory has rows that are not written.
            self._end_file(wait=True)
        if self._events:
            self.write(time_ms, ())
        self._end_file(wait=True)

    def _is_over(self, file: BlockWriter, time_ms: int) -> bool:
        """Whether the file that grows takes nothing of this moment."""
        return (
            time_ms < self._last_ms
            or time_ms // FILE_MS != self._first_ms // FILE_MS
            or file.position >= self._limits.file_bytes
        )

    def _begin_file(self, time_ms: int) -> BlockWriter:
        self._disk.make_folder(self._folder)
        number = next_number(self._disk.list(self._folder))
        head = FileHead(
            kind=FileKind.RAW,
            cluster=self._origin.cluster,
            node=self._origin.node,
            epoch=self._origin.epoch,
            sequence=self._sequence,
            first_ms=time_ms,
            last_ms=time_ms // FILE_MS * FILE_MS + FILE_MS - 1,
            interval_ms=self._limits.interval_ms,
        )
        file = BlockWriter(self._disk, f"{self._folder}/{JournalFile(Tier.RAW, number, number).name}", head)
        self.written_bytes += file.position
        self._first_ms = time_ms
        self._encoder = SnapshotEncoder()
        return file

    def _end_file(self, *, wait: bool = False) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.end(None if wait else self._syncs)
            except OSError as error:
                self.trouble = str(error)

    def _give_up(self, error: OSError) -> None:
        """End the file, without what was half written; the next snapshot begins another."""
        self.trouble = str(error)
        file, self._file = self._file, None
        if file is not None:
            file.give_up()
