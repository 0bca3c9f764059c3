"""What outlives a node: partitions with gaps in their offsets, and committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import cast

from broker.runtime.file_writes import Steps
from broker.runtime.seams import DiskFile, Reported, ScheduledCall, Scheduler
from upstream.progress.progress import DeadLetterOrigin
from upstream.queues import UNKNOWN

DELAY_SECONDS_MAX = 0.05
"""How long an append, a commit or a body takes at most."""


@dataclass(slots=True, kw_only=True)
class Record:
    """One message.

    Attributes:
        serial: Tells it from every other one.
        problem: `damaged` or `gone`: its body cannot be had.
        replaces: What is finished by its being there.
        due_ms: When one that waits goes to the retry topic; `counts` are its fails, errors and timeouts so far.
    """

    body: bytes
    key: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    stored_ms: int = 0
    serial: int = UNKNOWN
    problem: str | None = None
    replaces: DeadLetterOrigin | None = None
    due_ms: int = 0
    counts: tuple[int, int, int] = (0, 0, 0)


class Partition:
    """One queue of a topic, whoever reads it."""

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.records: dict[int, Record] = {}
        self.min_offset = 0
        self.max_offset = 0

    def after(self, offset: int) -> Iterator[tuple[int, Record]]:
        """Yield what is kept from an offset on."""
        for each in range(max(offset, self.min_offset), self.max_offset):
            if each in self.records:
                yield each, self.records[each]


class Cluster:
    """All partitions. `random` says how long things take and where gaps are."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.topics: dict[str, list[Partition]] = {}
        self.committed: dict[tuple[str, str, int], int] = {}
        self._serial = 0

    def partitions(self, topic: str, count: int = 1) -> list[Partition]:
        """Return the partitions of a topic, made where there are less."""
        found = self.topics.setdefault(topic, [])
        found.extend(Partition(topic, number) for number in range(len(found), count))
        return found

    def append(self, partition: Partition, record: Record) -> int:
        """Put a record at the end, behind a gap at times; returns its offset."""
        offset = partition.max_offset + (self.random.random() < 0.3) * self.random.randint(1, 3)
        record.serial = self._serial = self._serial + 1
        partition.records[offset] = record
        partition.max_offset = offset + 1
        return offset

    def delay(self) -> float:
        """Return how long the next thing takes."""
        return self.random.uniform(0.001, DELAY_SECONDS_MAX)


class _Commit:
    """A commit on its way; the writer of steps waits for it as for a file."""

    def __init__(self, cluster: Cluster, offsets: dict[tuple[str, str, int], int]) -> None:
        self._cluster = cluster
        self._offsets = offsets

    def sync(self) -> None:
        """It is made."""
        self._cluster.committed.update(self._offsets)


class MemoryOffsets:
    """`upstream.queues.CommittedOffsets` of one node."""

    def __init__(self, cluster: Cluster, finish_writes: Callable[[], None]) -> None:
        self._cluster = cluster
        self._set: dict[tuple[str, str, int], int] = {}
        self.changed_outside = False
        self.finish_writes = finish_writes

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return what is set, or committed by whomever."""
        key = (group, topic, queue_id)
        return self._set.get(key, self._cluster.committed.get(key))

    def set(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit it with the next `writing`."""
        self._set[group, topic, queue_id] = offset

    def items(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield all."""
        for (group, topic, queue_id), offset in {**self._cluster.committed, **self._set}.items():
            yield group, topic, queue_id, offset

    def writing(self) -> Steps[bool]:
        """Commit what was set: one step, which takes its time."""
        offsets, self._set = self._set, {}
        if offsets:
            yield cast("DiskFile", _Commit(self._cluster, offsets))
        return bool(offsets)


class _Late:
    def __init__(self, run: Callable[[], None]) -> None:
        self._run: Callable[[], None] | None = run
        self.handle: ScheduledCall | None = None

    def wait(self) -> None:
        """Let it happen now, unless it has."""
        run, self._run = self._run, None
        if run is not None:
            run()


class SlowSyncs:
    """`Syncs` that take some time each, commits among them."""

    def __init__(self, cluster: Cluster, scheduler: Scheduler) -> None:
        self._cluster = cluster
        self._scheduler = scheduler

    def begin(self, file: DiskFile, done: Reported) -> _Late:
        """Sync a file some time later."""
        return self._later(file.sync, done)

    def begin_folder(self, path: str, done: Reported) -> _Late:
        """Folders of the simulated disk need none."""
        return self._later(lambda: None, done)

    def _later(self, sync: Callable[[], None], done: Reported) -> _Late:
        def run() -> None:
            sync()
            done(None)

        late = _Late(run)
        late.handle = self._scheduler.call_later(self._cluster.delay(), late.wait)
        return late
