"""What a store hands to what works on it while it is open: delays, timers, transactions."""

from __future__ import annotations

from typing import TypedDict

from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import Clock, Disk, Scheduler


class StoreSeams(TypedDict):
    """Keyword arguments of `Delays`, `Timers` and `Transactions`, whose texts say what each is for."""

    disk: Disk
    clock: Clock
    scheduler: Scheduler
    metrics: Metrics
    limited_log: RateLimitedLog
