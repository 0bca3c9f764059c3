"""What the tests of loops share: a store with its timers and loops, over simulated disk and time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker.format.properties import encode_properties, find_property
from broker.format.record import split, store_timestamp
from broker.log.put import Put
from broker.queues.consume_queue import FILLER_SIZE
from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.steps import run_now
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.recurring.cancel import cancelling_delay
from broker.scheduled.recurring.loops import Loops
from broker.scheduled.recurring.occurrence import GROWING, LOOP, ONCE, Occurrence
from broker.scheduled.recurring.resumed_loops import returning
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.integration.store_tools import HOST, open_store
from tests.integration.waiting_tools import drive, make_durable

TOPIC = "t"
START_S = 1_700_000_000
UUID = "14f22520-ad72-11e7-91be-6ee54da579e3"


def uuid(number: int) -> str:
    """A uuid for each number."""
    return f"{number:08x}{UUID[8:]}"


def once(at: float = 60, *, number: int = 0) -> Occurrence:
    """A message that is delivered once, so many seconds after the start."""
    return Occurrence(START_S + int(at), ONCE, START_S + int(at) + 172_800, 0, 0, 0, 0, uuid(number))


def loop(
    at: float = 60, *, every: int = 60, times: int = 10, expire: float = 10**8, number: int = 0, growth: int = 0
) -> Occurrence:
    """A loop's first occurrence, its times in seconds from the start."""
    kind, interval = (GROWING, growth) if growth else (LOOP, every)
    return Occurrence(START_S + int(at), kind, START_S + int(expire), times, 0, interval, 0, uuid(number))


def walked(first: Occurrence) -> list[Occurrence]:
    """All occurrences from one on."""
    found = [first]
    while (after := found[-1].next()) is not None:
        found.append(after)
    return found


@dataclass
class World:
    """A store that delivers loops."""

    store: Store
    timers: Timers
    loops: Loops
    disk: SimDisk
    clock: ManualClock
    scheduler: ManualScheduler
    metrics: Metrics

    def add(self, occurrence: Occurrence, body: bytes = b"body", topic: str = TOPIC, **properties: str) -> str:
        """Store a message as the node does; returns its id."""
        put = Put(self.store.topics[topic], 0, body, encode_properties(properties))
        self.store.append([self.loops.first(put, occurrence)], born_ms=self.clock.wall_ms(), born_host=HOST)
        make_durable(self.store, self.scheduler)
        self.scheduler.run_until_idle()
        return occurrence.id

    def cancel(self, occurrence: Occurrence, topic: str = TOPIC) -> CancelEffect:
        """Cancel a message, by any of its occurrences."""
        return drive(cancelling_delay(self.timers, topic, occurrence), self.scheduler)

    def delivered(self, topic: str = TOPIC) -> list[tuple[str, int]]:
        """Ids in the topic with when they were stored, in ms after the start, in their order."""
        queue = self.store.topics[topic].queues[0]
        found = []
        for physical, size, _ in queue.read(queue.min_offset, queue.max_offset):
            if size == FILLER_SIZE:
                continue
            record = self.store.read(physical, size)
            key = find_property(split(record)[1], b"KEYS") or b""
            found.append((key.decode(), store_timestamp(record) - START_S * 1000))
        return found

    def ids(self, topic: str = TOPIC) -> list[str]:
        """Ids in the topic, in their order."""
        return [each for each, _ in self.delivered(topic)]

    def close(self) -> None:
        """Stop in an orderly way."""
        self.timers.close()
        self.store.close()

    def stop(self) -> None:
        """Stop without a farewell."""
        self.timers.stop()
        self.store.abandon()

    def again(self, *, stop: Callable[[SimDisk], None] = SimDisk.kill, **options: Any) -> World:
        """Stop without a farewell, and open what is left."""
        self.stop()
        stop(self.disk)
        return world(self.disk, self.clock, **options)


def world(disk: SimDisk | None = None, clock: ManualClock | None = None, **options: Any) -> World:
    """Open a store of a topic with one queue, and deliver."""
    disk, clock, metrics = disk or SimDisk(), clock or ManualClock(START_S * 1000), Metrics()
    store = open_store(disk, clock=clock, metrics=metrics, **{"segment_bytes": 16384, **options})
    scheduler, limited_log = ManualScheduler(clock), RateLimitedLog(clock)
    loops = Loops(store, runtime_of(disk, clock, metrics=metrics, limited_log=limited_log))
    timers = run_now(
        Timers.opening(
            store, disk=disk, clock=clock, scheduler=scheduler, metrics=metrics, limited_log=limited_log, follower=loops
        )
    )
    store.create_topic(TOPIC, 1)
    run_now(returning(store, disk=disk))
    timers.start()
    scheduler.run_until_idle()
    return World(store, timers, loops, disk, clock, scheduler, metrics)
