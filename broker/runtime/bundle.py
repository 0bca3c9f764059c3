"""What the parts of one node, or of one store by itself, share: time, disk, chance, counts, log lines, calls, syncs.

Made once by the code that knows the process, and handed in where three or more of it go together; a function that needs
the clock alone is given the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, NoReturn

from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import Clock, Disk, Scheduler, Syncs


class NoScheduler:
    """Stands for the scheduler of a program that has no event loop: nothing of it may ask for a call."""

    def call_soon(self, callback: Callable[..., Any], /, *args: Any) -> NoReturn:
        """Raise RuntimeError."""
        raise RuntimeError("this program has no event loop, so no calls can be scheduled")

    def call_later(self, delay: float, callback: Callable[..., Any], /, *args: Any) -> NoReturn:
        """Raise RuntimeError."""
        self.call_soon(callback, *args)


class NoChance(Random):
    """Stands for the randomness of a program that draws nothing."""

    def random(self) -> float:
        """Raise RuntimeError."""
        raise RuntimeError("this program has no source of randomness")

    def getrandbits(self, k: int, /) -> int:
        """Raise RuntimeError."""
        return int(self.random())


def no_requests() -> int:
    """Return 0: there are no clients."""
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The bundle; see the module.

    Attributes:
        clock: Wall clock and monotonic clock.
        disk: Where files are.
        random: Draws ids.
        metrics: The registry.
        limited_log: Log lines, one per kind and minute.
        scheduler: Makes calls later.
        alarms: Makes those whose lateness counts; None where nothing may be done before its moment.
        syncs: Makes syncs in the background; without it they are made at once.
        requests: Tells a number that grows with what clients ask: work in steps makes small ones meanwhile.
    """

    clock: Clock
    disk: Disk
    random: Random
    metrics: Metrics
    limited_log: RateLimitedLog
    scheduler: Scheduler
    alarms: Scheduler | None = None
    syncs: Syncs | None = None
    requests: Callable[[], int] = no_requests


def runtime_of(
    disk: Disk,
    clock: Clock,
    *,
    metrics: Metrics | None = None,
    scheduler: Scheduler | None = None,
    random: Random | None = None,
    limited_log: RateLimitedLog | None = None,
) -> Runtime:
    """Make the bundle of a program that waits for the disk: what is not given is its own, or absent."""
    return Runtime(
        clock=clock,
        disk=disk,
        random=random or NoChance(),
        metrics=metrics or Metrics(),
        limited_log=limited_log or RateLimitedLog(clock),
        scheduler=scheduler or NoScheduler(),
    )
