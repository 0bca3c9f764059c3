"""A store with its progress on one disk, for tests of progress.

`killed` and `cut` bring it back after SIGKILL and after a power cut. The clock stands still.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Literal

from broker.features import ALL
from broker.log.put import Put
from broker.options import StoreOptions
from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from broker.runtime.seams import Disk
from broker.runtime.steps import run_now
from broker.store import Store
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk, SimSyncs
from upstream.embedded.queues import EmbeddedQueues
from upstream.progress.ack_writer import Driver
from upstream.progress.journal import AckJournal
from upstream.progress.progress import Progress
from upstream.progress.tracker import OffsetTracker

ROOT = "/data"
OFFSETS = f"{ROOT}/config/consumerOffset.json"
ACKS = f"{ROOT}/pyddmq/acks"
TOPIC, GROUP = "orders", "audit"
SYNC_TAKES = 0.002
"""Seconds that a sync beside the loop takes at most."""
OPTIONS = StoreOptions(segment_bytes=1 << 16, queue_file_units=1000)


def roll(journal: AckJournal, snapshot: Sequence[bytes]) -> None:
    """Begin a segment, make it durable, and give up the one before it, with nothing beside the loop."""
    journal.begin_segment(snapshot)
    journal.sync()
    journal.disk.sync_folder(journal.folder)
    journal.give_up_earlier()


def first() -> int:
    """Start a new group at the first message."""
    return 0


def open_store(
    disk: Disk,
    *,
    root: str = ROOT,
    options: StoreOptions = OPTIONS,
    clock: ManualClock | None = None,
    metrics: Metrics | None = None,
) -> Store:
    """Open a store by itself, as a program does that knows nothing of acks."""
    return Store.open(
        root,
        options=options,
        features=ALL,
        disk=disk,
        clock=clock or ManualClock(),
        random=Random(1),
        metrics=metrics or Metrics(),
    )


def append(store: Store, count: int, *, queue_id: int = 0, body: bytes = b"x") -> None:
    """Append messages and make them visible."""
    put = Put(store.topics[TOPIC], queue_id, body, b"")
    store.append([put] * count, born_ms=0, born_host=b"\x7f\0\0\1\0\0\0\0")
    store.flush()


class Node:
    """A store and its progress on one disk."""

    def __init__(
        self,
        disk: Disk,
        *,
        root: str = ROOT,
        options: StoreOptions = OPTIONS,
        segment_bytes: int = 4096,
        ack_flush: Literal["async", "sync"] = "async",
        driver: Driver | None = None,
        beside: bool = False,
        seed: int = 2,
    ) -> None:
        """Open them; `beside`: syncs that nobody waits for go on beside the loop, for as long as `seed` says."""
        self.disk = disk
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.syncs: SimSyncs | None = None
        self.metrics = Metrics()
        self.store = open_store(disk, root=root, options=options, clock=self.clock, metrics=self.metrics)
        self.store.create_topic(TOPIC, 2)
        if beside:
            assert isinstance(disk, SimDisk)
            self.syncs = SimSyncs(disk, self.scheduler, Random(seed), seconds_max=SYNC_TAKES)
            self.store.file_writes.syncs = self.syncs
        self.progress = run_now(
            Progress.opening(
                root,
                queues=EmbeddedQueues(self.store),
                segment_bytes=segment_bytes,
                ack_flush=ack_flush,
                file_writes=self.store.file_writes,
                driver=driver,
                runtime=runtime_of(disk, self.clock, metrics=self.metrics, scheduler=self.scheduler),
            )
        )

    def publish(self, count: int, *, queue_id: int = 0, body: bytes = b"x") -> None:
        """Append messages and make them visible."""
        append(self.store, count, queue_id=queue_id, body=body)

    def tracker(self, queue_id: int = 0, *, start: Callable[[], int] = first) -> OffsetTracker:
        """Return the group's tracker of a queue."""
        return self.progress.tracker(GROUP, TOPIC, queue_id, first_offset=start)

    def ack(self, *offsets: int, queue_id: int = 0) -> None:
        """Finish and flush, as one turn does."""
        self.tracker(queue_id).finish_many(offsets)
        self.progress.flush()

    def close(self) -> None:
        """Stop in an orderly way."""
        self.progress.close()
        self.store.close()


def killed(node: Node, *, ack_flush: Literal["async", "sync"] = "async") -> Node:
    """Kill the process and start it again."""
    assert isinstance(node.disk, SimDisk)
    node.disk.kill()
    return Node(node.disk, ack_flush=ack_flush)


def cut(node: Node, seed: int) -> Node:
    """Cut the power and start again."""
    assert isinstance(node.disk, SimDisk)
    node.disk.crash(Random(seed))
    return Node(node.disk)


def finished(node: Node, queue_id: int = 0, end: int = 200) -> set[int]:
    """All finished offsets below `end`."""
    tracker = node.tracker(queue_id)
    return {offset for offset in range(end) if tracker.is_finished(offset)}


def rewrite_offset(disk: SimDisk, value: int | None, *, queue_id: int = 0) -> None:
    """Change the file behind the node's back, as mqadmin or a restore would; None removes the queue's entry."""
    file = disk.open(OFFSETS)
    table = json.loads(file.read(0, file.size()))
    queues = table["offsetTable"].setdefault(f"{TOPIC}@{GROUP}", {})
    if value is None:
        queues.pop(str(queue_id))
    else:
        queues[str(queue_id)] = value
    text = json.dumps(table).encode()
    file.truncate(0)
    file.write(0, [text])
    file.sync()
