"""What the tests of delays share: a store with its delivery, over simulated disk and time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.steps import run_now
from broker.scheduled.delay import metrics as counted
from broker.scheduled.delay.delays import Delays
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.integration.store_tools import open_store
from tests.integration.waiting_tools import START_MS, TOPIC, WaitingStore, put_durably

__all__ = ["LEVELS_S", "START_MS", "TOPIC", "Broker", "broker", "counted"]

LEVELS_S = (1, 5, 10, 30, *range(60, 660, 60), 1200, 1800, 3600, 7200)


@dataclass(kw_only=True)
class Broker(WaitingStore):
    """A store that delivers its delayed messages."""

    delays: Delays

    def send(self, body: bytes, level: int, topic: str = TOPIC, **options: Any) -> str:
        """Publish with a delay level; return the message's id."""
        position = put_durably(self.store, self.scheduler, topic, body, delay_level=level, **options)
        return position.unique_key.decode()

    def later(self, body: bytes, seconds: int = 1, topic: str = TOPIC) -> str:
        """Publish for in so many seconds, as there is a level of; return the message's id."""
        return self.send(body, LEVELS_S.index(seconds) + 1, topic)

    @property
    def delivery(self) -> Delays:
        """What delivers."""
        return self.delays

    @property
    def pending(self) -> int:
        """Messages that are not delivered."""
        return sum(level.pending for level in self.delays.levels.values())

    def opened_again(self, **options: Any) -> Broker:
        """Open what is on the disk."""
        return broker(self.disk, self.clock, **options)


def broker(
    disk: SimDisk | None = None, clock: ManualClock | None = None, *, start: bool = True, **options: Any
) -> Broker:
    """Open a store of a topic with one queue, and deliver if `start` says so."""
    disk, clock, metrics = disk or SimDisk(), clock or ManualClock(START_MS), Metrics()
    store = open_store(disk, clock=clock, metrics=metrics, **options)
    scheduler = ManualScheduler(clock)
    delays = run_now(
        Delays.opening(
            store, disk=disk, clock=clock, scheduler=scheduler, metrics=metrics, limited_log=RateLimitedLog(clock)
        )
    )
    store.create_topic(TOPIC, 1)
    if start:
        delays.start()
        scheduler.run_until_idle()
    return Broker(store=store, delays=delays, disk=disk, clock=clock, scheduler=scheduler, metrics=metrics)
