"""What the tests of delays and of timers share: a store whose messages wait, and what holds over every stop of it."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Self, TypeVar

from broker.errors import DiskFull
from broker.format.properties import encode_properties
from broker.format.record import store_timestamp
from broker.log.durability import AwaitedSteps
from broker.log.put import LogPosition, Put
from broker.queues.consume_queue import FILLER_SIZE
from broker.runtime.metrics import Metrics
from broker.runtime.seams import Syncs
from broker.runtime.steps import StepsEnd, step
from broker.scheduled.delay.delays import Delays
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk, SimSyncs
from tests.integration.store_tools import ROOT, bodies
from tests.integration.turns import Turns, take_over

TOPIC = "t"
Result = TypeVar("Result")
START_MS = 1_700_000_000_000
Sent = dict[bytes, int]
"""What was acknowledged, with its due time."""


def let_pass(scheduler: ManualScheduler, until: Callable[[], bool]) -> None:
    """Let time pass, from one timer to the next, until something holds."""
    scheduler.run_until_idle()
    while not until():
        due = scheduler.next_due()
        assert due is not None, "nothing is under way that could end this"
        scheduler.advance(max(due - scheduler.time(), 0.0))


def drive(steps: AwaitedSteps[Result], scheduler: ManualScheduler) -> Result:
    """Make a change in its steps, letting time pass where it waits for the disk; return its result."""
    while not isinstance(made := step(steps), StepsEnd):
        if made is not None:
            reported: list[bool] = []
            made.then(partial(reported.append, True))
            let_pass(scheduler, partial(bool, reported))
        scheduler.run_until_idle()
    return made.result


def retain(store: Store, scheduler: ManualScheduler, *, between: Callable[[], object] = lambda: None) -> None:
    """Let retention do all that is due, as a node has it done; something else between its steps."""
    while drive(store.retention.steps(), scheduler):
        between()


def flush_in_background(store: Store, syncs: Syncs, scheduler: ManualScheduler) -> None:
    """Have what is appended to a store flushed as a node does it."""
    take_over(store, Turns(lambda: scheduler.call_soon(store.commit.begin)), syncs=syncs)


def make_durable(store: Store, scheduler: ManualScheduler) -> None:
    """Have what is staged made durable: at once, or where the store syncs in the background, by the end of a sync."""
    if store.commit.syncs is None:
        store.flush()
        return
    store.commit.begin()
    let_pass(scheduler, lambda: not store.unsettled)


def put_durably(
    store: Store,
    scheduler: ManualScheduler,
    topic: str,
    body: bytes,
    *,
    key: str = "",
    tags: str = "",
    queue_id: int | None = None,
    properties: Mapping[str, str] | None = None,
    delay_level: int = 0,
    deliver_at_ms: int = 0,
    delay_ms: int = 0,
) -> LogPosition:
    """`Store.put`, and where the store syncs in the background, as a node does it; raises the same."""
    waits = {"delay_level": delay_level, "deliver_at_ms": deliver_at_ms, "delay_ms": delay_ms}
    if store.commit.syncs is None:
        options: dict[str, Any] = {"key": key, "tags": tags, "queue_id": queue_id, "properties": properties, **waits}
        return store.put(topic, body, **options)
    target = store.topics[topic]
    block = encode_properties({"TAGS": tags, "KEYS": key, **(properties or {})})
    put = Put(target, store.queue_for(target, key) if queue_id is None else queue_id, body, block, tags.encode())
    put = store._waits.put(put, level=delay_level, deliver_at_ms=deliver_at_ms, delay_ms=delay_ms)
    [position] = store.append([put], born_ms=store._clock.wall_ms(), born_host=store.options.store_host)
    make_durable(store, scheduler)
    if store.failed is not None:
        raise store.failed
    return position


@dataclass(kw_only=True)
class WaitingStore(ABC):
    """A store over simulated disk and time that delivers what waits in it."""

    store: Store
    disk: SimDisk
    clock: ManualClock
    scheduler: ManualScheduler
    metrics: Metrics

    @property
    @abstractmethod
    def delivery(self) -> Delays | Timers:
        """What delivers."""

    @abstractmethod
    def opened_again(self, **options: object) -> Self:
        """Open what is on the disk."""

    def delivered(self, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
        """Bodies of a queue, in its order; a place that a power loss left empty is passed over."""
        return [body for body in bodies(self.store, topic, queue_id).values() if body is not None]

    def times(self, topic: str = TOPIC, queue_id: int = 0) -> list[int]:
        """When the records of a queue were stored, ms after START_MS."""
        queue = self.store.topics[topic].queues[queue_id]
        units = queue.read(queue.min_offset, queue.max_offset)
        return [
            store_timestamp(self.store.read(physical, size)) - START_MS
            for physical, size, _ in units
            if size != FILLER_SIZE
        ]

    def flush_in_background(self, random: Random, *, seconds_max: float = 0.002) -> None:
        """Have what is appended flushed as a node does it, with syncs that end up to so much later."""
        flush_in_background(
            self.store, SimSyncs(self.disk, self.scheduler, random, seconds_max=seconds_max), self.scheduler
        )

    def fill(self) -> None:
        """Publish until the disk is full."""
        with contextlib.suppress(DiskFull):
            while True:
                self.store.put(TOPIC, b"y" * 3000)

    def close(self) -> None:
        """Stop in an orderly way."""
        self.delivery.close()
        self.store.close()

    def leave(self) -> None:
        """Stop without a farewell."""
        self.delivery.stop()
        self.store.abandon()

    def again(self, *, stop: Callable[[SimDisk], None] = SimDisk.kill, **options: object) -> Self:
        """Stop without a farewell, and open what is left."""
        self.leave()
        stop(self.disk)
        return self.opened_again(**options)


def lose(disk: SimDisk, files: Sequence[str], which: int) -> None:
    """Delete those files, or the files of those folders, whose bit is set."""
    for place, name in enumerate(files):
        if not which >> place & 1:
            continue
        for path in [f"{ROOT}/{name}", *(f"{ROOT}/{name}/{each}" for each in disk.list(f"{ROOT}/{name}"))]:
            if disk.exists(path) and not disk.is_folder(path):
                disk.remove(path)
