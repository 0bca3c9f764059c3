"""What the tests of timers share: a store with its delivery, over simulated disk and time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from broker.log.group_commit import seconds_early
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.steps import run_now
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.names import TimerOptions
from broker.scheduled.timer.timers import Timers
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.integration.store_tools import open_store
from tests.integration.waiting_tools import START_MS, TOPIC, WaitingStore, put_durably

__all__ = ["SMALL", "START_MS", "TOPIC", "Broker", "broker", "counted"]

SMALL = TimerOptions(slots=600, roll_slots=120, log_file_bytes=52 * 32 + 16)
"""A round of 20 minutes, rolls from two minutes on, files of 32 units."""


@dataclass(kw_only=True)
class Broker(WaitingStore):
    """A store that delivers its timed messages."""

    timers: Timers

    def send(self, body: bytes, delay_ms: int, topic: str = TOPIC, **options: Any) -> str:
        """Publish for later; return the message's id."""
        position = put_durably(self.store, self.scheduler, topic, body, delay_ms=delay_ms, **options)
        return position.unique_key.decode()

    def later(self, body: bytes, seconds: int = 1, topic: str = TOPIC) -> str:
        """Publish for in so many seconds; return the message's id."""
        return self.send(body, seconds * 1000, topic)

    @property
    def delivery(self) -> Timers:
        """What delivers."""
        return self.timers

    @property
    def pending(self) -> int:
        """Messages that are not delivered."""
        return self.timers.pending + self.timers.entering.lag

    def opened_again(self, **options: Any) -> Broker:
        """Open what is on the disk."""
        return broker(self.disk, self.clock, **options)


def broker(
    disk: SimDisk | None = None, clock: ManualClock | None = None, *, start: bool = True, **options: Any
) -> Broker:
    """Open a store of a topic with one queue, and deliver if `start` says so."""
    disk, clock, metrics = disk or SimDisk(), clock or ManualClock(START_MS), Metrics()
    # No two openings make the same ids.
    options = {"timers": SMALL, "seed": disk.operations + 1, **options}
    store = open_store(disk, clock=clock, metrics=metrics, **options)
    clock.sleep(seconds_early(store.recovery.store_ms, clock))
    scheduler = ManualScheduler(clock)
    timers = run_now(
        Timers.opening(
            store, disk=disk, clock=clock, scheduler=scheduler, metrics=metrics, limited_log=RateLimitedLog(clock)
        )
    )
    store.create_topic(TOPIC, 1)
    if start:
        timers.start()
        scheduler.run_until_idle()
    return Broker(store=store, timers=timers, disk=disk, clock=clock, scheduler=scheduler, metrics=metrics)
