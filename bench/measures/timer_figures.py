"""What is measured of timers, whoever delivers them: how many, when they are due, and the figures that come of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench.clients.processes import Kind
from bench.measures.runs import Figures, percentiles

PENDING_FROM_MS = 3_600_000
PENDING_SPREAD_MS = 4 * 3_600_000
"""What is pending is due from an hour to five hours from now."""
OTHER_TOPIC = "idle"
OTHER_RATE = 500
BURST_TOPIC = "burst"
DELIVERED_MAX_PER_SECOND = 10_000
"""Other clients go on this long at least while a burst is drained: a second more than it takes at this rate."""
EMPTY_STARTS = 3
"""Starts of the node with nothing stored, of which the middle one counts."""
_PARTS = 4


class TimerPlan(NamedTuple):
    """How many are pending (at the rival: `rival_pending`), rate and time of what is delivered, and the burst."""

    pending: int
    rate: int
    seconds: float
    burst: int
    rival_pending: int


class Start(NamedTuple):
    """A start of the server after SIGKILL: seconds until it was ready, and of its processor time."""

    seconds: float
    cpu: float

    def less(self, other: Start) -> Start:
        """What it took more than another one."""
        return Start(self.seconds - other.seconds, self.cpu - other.cpu)


class Taken(NamedTuple):
    """What is found around the steady load.

    Attributes:
        before: Own memory in bytes with next to nothing pending.
        after: The same with all of it pending.
        filled: Seconds that publishing it took.
        restart: A start with all of it pending.
        empty_restart: One with nothing stored: what the process takes, whatever is pending.
        lost: How many were no longer pending after it.
    """

    before: int
    after: int
    filled: float
    restart: Start
    empty_restart: Start
    lost: int


class Burst(NamedTuple):
    """When a burst was due and when it was drained, and what clients of another topic saw, before and meanwhile.

    Pulls are pairs of when a message was due to be sent and when it came; all of it in nanoseconds, monotonic clock.
    """

    begun: int
    drained: int
    quiet_pulls: Sequence[tuple[int, int]]
    quiet_acks: Sequence[int]
    pulls: Sequence[tuple[int, int]]
    acks: Sequence[int]


def parts(pending: int, begin_ms: int) -> Iterator[tuple[int, int, float]]:
    """Yield the load of what is pending in parts: count, due time of the first, ms from one to the next."""
    spacing = PENDING_SPREAD_MS / pending
    for part in range(_PARTS):
        start, end = pending * part // _PARTS, pending * (part + 1) // _PARTS
        yield end - start, begin_ms + int(start * spacing), spacing


def steady_figures(server: Kind, plan: TimerPlan, pending: int, late: Sequence[int], taken: Taken) -> Figures:
    """Put together what the steady load gave; `late` in nanoseconds."""
    reload = taken.restart.less(taken.empty_restart)
    return Figures(
        measure="timers",
        server=server,
        batch=1,
        messages=len(late),
        per_second=float(plan.rate),
        latency_ms=percentiles(late),
        memory={"own_start": taken.before, "own_end": taken.after},
        facts={
            "pending": pending,
            "early": sum(each < 0 for each in late),
            "bytes_per_pending": (taken.after - taken.before) / pending,
            "published_per_second": pending / taken.filled,
            "restart_seconds": taken.restart.seconds,
            "restart_cpu_seconds": taken.restart.cpu,
            "empty_restart_seconds": taken.empty_restart.seconds,
            "empty_restart_cpu_seconds": taken.empty_restart.cpu,
            "reload_seconds_per_million": reload.seconds / pending * 1e6,
            "reload_cpu_seconds_per_million": reload.cpu / pending * 1e6,
            "lost": taken.lost,
        },
    )


def burst_figures(server: Kind, count: int, burst: Burst) -> Figures:
    """Put together what a burst gave; of the other topic, what was due to be sent while the burst was on."""
    during = [place for place, (sent, _) in enumerate(burst.pulls) if burst.begun <= sent <= burst.drained]
    meanwhile = during or [len(burst.pulls) - 1]
    seconds = (burst.drained - burst.begun) / 1e9
    return Figures(
        measure="timer burst",
        server=server,
        batch=1,
        messages=count,
        per_second=count / seconds,
        latency_ms=percentiles([burst.pulls[place][1] - burst.pulls[place][0] for place in meanwhile]),
        ack_ms=percentiles([burst.acks[place] for place in meanwhile]),
        facts={
            "drain_seconds": seconds,
            "quiet_pull_p99_ms": percentiles([came - sent for sent, came in burst.quiet_pulls])["p99"],
            "quiet_publish_p99_ms": percentiles(burst.quiet_acks)["p99"],
        },
    )


def wall_ms() -> int:
    """Milliseconds of the wall clock, which all processes of the machine share."""
    return time.time_ns() // 1_000_000
