"""What the store's tests share: opening over a simulated disk, filling, and reading everything back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from broker.errors import DamagedRecord, DiskFull
from broker.feature import Feature
from broker.features import features
from broker.format.properties import parse_properties
from broker.format.record import split
from broker.log.put import LogPosition, Put
from broker.opening.recovery import RecoveryProgress
from broker.options import StoreOptions
from broker.queues.consume_queue import FILLER
from broker.runtime.disks.read_only_disk import ReadingDisk, ReadingFile
from broker.runtime.metrics import Metrics
from broker.runtime.seams import Clock, Disk
from broker.scheduled.delay.levels import STANDARD_LEVELS
from broker.scheduled.timer.names import TimerOptions
from broker.store import Store
from pyddmq.testing import ManualClock

ROOT = "/store"
HOST = b"\x0a\x00\x00\x01\x00\x00\x04\xd2"
SMALL = {"segment_bytes": 4096, "queue_file_units": 8, "index_slots": 4, "index_entries": 16}


class BusyDisk(ReadingDisk):
    """Lets the owner of the files work before a file is opened or a folder listed."""

    def __init__(self, disk: Disk, work: Callable[[], object]) -> None:
        super().__init__(disk)
        self._work = work

    def open(self, path: str, *, create: bool = False) -> ReadingFile:
        """Work, then open."""
        self._work()
        return super().open(path, create=create)

    def list(self, path: str) -> list[str]:
        """Work, then list."""
        self._work()
        return super().list(path)


def open_store(
    disk: Disk,
    *,
    clock: Clock | None = None,
    seed: int = 1,
    metrics: Metrics | None = None,
    root: str = ROOT,
    progress: Callable[[RecoveryProgress], None] = lambda _: None,
    delay_levels: str = STANDARD_LEVELS,
    timers: TimerOptions | None = None,
    given: Sequence[Feature] | None = None,
    **options: Any,
) -> Store:
    """Open a store with small files, and with all features unless some are given."""
    return Store.open(
        root,
        options=StoreOptions(**{**SMALL, **options}),
        features=features(delay_levels=delay_levels, timers=timers) if given is None else given,
        disk=disk,
        clock=clock or ManualClock(),
        random=Random(seed),
        metrics=metrics or Metrics(),
        progress=progress,
    )


def append(store: Store, *bodies: bytes, topic: str = "t", queue_id: int = 0, **options: Any) -> list[LogPosition]:
    """Append bodies to one queue without a flush."""
    puts = [Put(store.topics[topic], queue_id, body, b"") for body in bodies]
    return store.append(puts, born_ms=1_600_000_000_000, born_host=HOST, **options)


def until_full(store: Store, body: bytes, topic: str = "t") -> int:
    """Append to a topic until that is refused; how many were taken."""
    for count in range(1000):
        try:
            append(store, body, topic=topic)
        except DiskFull:
            return count
        store.flush()
    raise AssertionError("the disk never filled up")


def bodies(store: Store, topic: str = "t", queue_id: int = 0) -> dict[int, bytes | None]:
    """Body by queue offset; None for a filler and for a damaged record."""
    queue = store.topics[topic].queues[queue_id]
    found: dict[int, bytes | None] = {}
    for place, unit in enumerate(queue.read(queue.min_offset, queue.max_offset - queue.min_offset)):
        offset = queue.min_offset + place
        if unit == FILLER:
            found[offset] = None
            continue
        try:
            body, _ = split(store.read(unit[0], unit[1]))
        except DamagedRecord:
            found[offset] = None
        else:
            found[offset] = bytes(body)
    return found


def properties(store: Store, position: LogPosition, topic: str = "t") -> dict[str, str]:
    """Properties of the message at a position."""
    [(physical, size, _)] = store.topics[topic].queues[position.queue_id].read(position.offset, 1)
    return parse_properties(split(store.read(physical, size))[1])
