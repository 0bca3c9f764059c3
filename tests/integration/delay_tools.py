"""What the tests of delays share: a store with its delivery, over simulated disk and time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker.delay.delays import Delays
from broker.metrics import Metrics
from broker.notices import Notices
from broker.opening import run_to_end
from broker.record import store_timestamp
from broker.store import Store
from broker.testing import ManualClock, ManualScheduler, SimDisk
from tests.integration.store_tools import bodies, open_store

TOPIC = "t"
START_MS = 1_700_000_000_000


@dataclass
class Broker:
    """A store that delivers its delayed messages."""

    store: Store
    delays: Delays
    disk: SimDisk
    clock: ManualClock
    scheduler: ManualScheduler
    metrics: Metrics

    def send(self, body: bytes, level: int, topic: str = TOPIC, **options: Any) -> None:
        """Publish with a delay level."""
        self.store.put(topic, body, delay_level=level, **options)

    def delivered(self, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
        """Bodies of a queue, in its order."""
        return [body or b"" for body in bodies(self.store, topic, queue_id).values()]

    def times(self, topic: str = TOPIC, queue_id: int = 0) -> list[int]:
        """When the records of a queue were stored, ms after START_MS."""
        queue = self.store.topics[topic].queues[queue_id]
        units = queue.read(queue.min_offset, queue.max_offset)
        return [store_timestamp(self.store.read(physical, size)) - START_MS for physical, size, _ in units]

    @property
    def pending(self) -> int:
        """Messages that are not delivered."""
        return sum(level.pending for level in self.delays.levels.values())

    def close(self) -> None:
        """Stop in an orderly way."""
        self.delays.close()
        self.store.close()

    def again(self, *, stop: Callable[[SimDisk], None] = SimDisk.kill, **options: Any) -> Broker:
        """Stop without a farewell, and open what is left."""
        self.delays.stop()
        self.store.abandon()
        stop(self.disk)
        return broker(self.disk, self.clock, **options)


def broker(
    disk: SimDisk | None = None, clock: ManualClock | None = None, *, start: bool = True, **options: Any
) -> Broker:
    """Open a store of a topic with one queue, and deliver if `start` says so."""
    disk, clock, metrics = disk or SimDisk(), clock or ManualClock(START_MS), Metrics()
    store = open_store(disk, clock=clock, metrics=metrics, **options)
    scheduler = ManualScheduler(clock)
    delays = run_to_end(
        Delays.opening(store, disk=disk, clock=clock, scheduler=scheduler, metrics=metrics, notices=Notices(clock))
    )
    store.create_topic(TOPIC, 1)
    if start:
        delays.start()
        scheduler.run_until_idle()
    return Broker(store, delays, disk, clock, scheduler, metrics)
