"""What the tests of timers share: a store with its delivery, over simulated disk and time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker.consume_queue import FILLER_SIZE
from broker.metrics import Metrics
from broker.notices import Notices
from broker.opening import run_to_end
from broker.record import store_timestamp
from broker.store import Store
from broker.testing import ManualClock, ManualScheduler, SimDisk
from broker.timer.names import TimerOptions
from broker.timer.timers import Timers
from tests.integration.store_tools import bodies, open_store

TOPIC = "t"
START_MS = 1_700_000_000_000
SMALL = TimerOptions(slots=600, roll_slots=120, log_file_bytes=52 * 32 + 16)
"""A round of 20 minutes, rolls from two minutes on, files of 32 units."""


@dataclass
class Broker:
    """A store that delivers its timed messages."""

    store: Store
    timers: Timers
    disk: SimDisk
    clock: ManualClock
    scheduler: ManualScheduler
    metrics: Metrics

    def send(self, body: bytes, delay_ms: int, topic: str = TOPIC, **options: Any) -> str:
        """Publish for later; return the message's id."""
        return self.store.put(topic, body, delay_ms=delay_ms, **options).unique_key.decode()

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

    @property
    def pending(self) -> int:
        """Messages that are not delivered."""
        return self.timers.pending + self.timers.entering.lag

    def close(self) -> None:
        """Stop in an orderly way."""
        self.timers.close()
        self.store.close()

    def again(self, *, stop: Callable[[SimDisk], None] = SimDisk.kill, **options: Any) -> Broker:
        """Stop without a farewell, and open what is left."""
        self.timers.stop()
        self.store.abandon()
        stop(self.disk)
        return broker(self.disk, self.clock, **options)


def broker(
    disk: SimDisk | None = None, clock: ManualClock | None = None, *, start: bool = True, **options: Any
) -> Broker:
    """Open a store of a topic with one queue, and deliver if `start` says so."""
    disk, clock, metrics = disk or SimDisk(), clock or ManualClock(START_MS), Metrics()
    # No two openings make the same ids.
    options = {"timers": SMALL, "seed": disk.operations + 1, **options}
    store = open_store(disk, clock=clock, metrics=metrics, **options)
    scheduler = ManualScheduler(clock)
    timers = run_to_end(
        Timers.opening(store, disk=disk, clock=clock, scheduler=scheduler, metrics=metrics, notices=Notices(clock))
    )
    store.create_topic(TOPIC, 1)
    if start:
        timers.start()
        scheduler.run_until_idle()
    return Broker(store, timers, disk, clock, scheduler, metrics)
