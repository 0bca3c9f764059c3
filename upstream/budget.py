"""The node's one account of memory: what is held for clients and groups, its ceiling, and how near it is.

Each part that holds memory for a client adds it here and takes it away again: connections (unfinished frames, requests
without an answer, replies not yet taken), publishes until their flush, and jobs. The account is integers, so that the
hot path pays an addition per request or batch and never one per message.

The nearer the ceiling, the more measures are in force, each together with those before it:

========  ==========================================================================================
level     measure, from this share of the ceiling on
========  ==========================================================================================
EASED     1/2: nothing is read ahead from the log but one batch per topic, where jobs alone take that but for those
          topics that have none
SLOWED    5/8: unfinished frames of peers without rights are given up, then idle connections above their address' share;
          connections with much unfinished input are not read, but for a few at a time
REFUSING  6/8: unfinished frames above their address' share are given up; publishes and pulls are refused as overloaded,
          pulls not while jobs alone keep that up; parked pulls keep waiting
CLOSING   7/8: connections that held most for longest are closed, until refusing ends; no new ones
========  ==========================================================================================

A level ends an eighth of the ceiling below where it began, so that it does not flicker. The last eighth is for what is
under way when the level is reached: a frame, a reply.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice

JOB_BYTES = 640
"""What an unfinished job takes, its key and its places in tables included; measured on 64-bit CPython 3.11."""

LIMIT_UNBOUNDED = 1 << 62
VISITS_MAX = 2_000
"""Subscriptions whose jobs one look counts, in some milliseconds."""


class Pressure(IntEnum):
    """How near the ceiling is; see the module's table."""

    NONE = 0
    EASED = 1
    SLOWED = 2
    REFUSING = 3
    CLOSING = 4


_BEGINS_EIGHTHS = {Pressure.EASED: 4, Pressure.SLOWED: 5, Pressure.REFUSING: 6, Pressure.CLOSING: 7}


@dataclass(slots=True, eq=False)
class Budget:
    """The account of one node.

    Attributes:
        limit: The ceiling in bytes.
        count_jobs: Counts the jobs that there are; None: as many as were added.
        changed: Told the measures in force before and now, when they change.
        used: Bytes held now. Whoever adds directly asks `reached` or calls `recount` afterwards.
        job_bytes: How much of that is for jobs: an upper bound, exact after a count of all.
        staged_bytes: How much of that is for publishes that wait for a flush.
        begun: How much is for those of each flush that has begun, in that order.
        level: The measures in force.
        next_at: The value of `used` from which on a further measure is due.
        lives: Of each subscription with unfinished jobs, what counts them, and how many it has at most; the others are
            not visited.
        lives_total: The sum of these.
        settlers: Who has something taken off that has gone without a word: called before each count.
    """

    limit: int = LIMIT_UNBOUNDED
    count_jobs: Callable[[], int] | None = field(default=None, kw_only=True)
    changed: Callable[[Pressure, Pressure], None] | None = field(default=None, kw_only=True)
    used: int = 0
    job_bytes: int = 0
    staged_bytes: int = 0
    begun: deque[int] = field(default_factory=deque)
    level: Pressure = Pressure.NONE
    lives: dict[Callable[[], int], int] = field(default_factory=dict)
    lives_total: int = 0
    settlers: list[Callable[[], None]] = field(default_factory=list)
    next_at: int = field(init=False)

    def __post_init__(self) -> None:
        self.next_at = self.begins(Pressure.EASED)

    def begins(self, level: Pressure) -> int:
        """Return the use in bytes from which on a level is in force."""
        return self.limit * _BEGINS_EIGHTHS[level] // 8

    def configure(self, limit: int) -> None:
        """Change the ceiling."""
        self.limit = limit
        self.recount()

    @property
    def refuses_pulls(self) -> bool:
        """Whether pulls are refused: not while jobs alone keep the measure in force, for pulls are what ends them."""
        return self.level >= Pressure.REFUSING and self.job_bytes < self.begins(Pressure.SLOWED)

    @property
    def jobs_take_half(self) -> bool:
        """Whether jobs alone hold so much that nothing is read ahead."""
        return self.job_bytes >= self.begins(Pressure.EASED)

    def add(self, count: int) -> None:
        """Take `count` bytes more (below 0: less) into account."""
        self.used += count
        if self.used >= self.next_at:
            self.recount()

    def add_jobs(self, count: int, live: Callable[[], int] | None = None) -> None:
        """Note that `count` jobs were made. They are not taken off when they end: `recount` counts the existing ones.

        `live` counts the unfinished jobs of the subscription that made them.
        """
        if live is not None:
            self.lives[live] = self.lives.get(live, 0) + count
            self.lives_total += count
        size = count * JOB_BYTES
        self.job_bytes += size
        used = self.used = self.used + size
        if used >= self.next_at:
            self.recount()

    def stage(self, count: int) -> None:
        """Take `count` bytes into account until their flush has ended."""
        self.staged_bytes += count
        self.used += count
        if self.used >= self.next_at:
            self.recount()

    def begin(self) -> None:
        """Note that a flush has begun with what was staged; it is held until `end`."""
        self.begun.append(self.staged_bytes)
        self.staged_bytes = 0

    def end(self, count: int) -> None:
        """Forget what so many flushes, those that began first, have made durable."""
        for _ in range(min(count, len(self.begun))):
            self.used -= self.begun.popleft()

    def flushed(self) -> None:
        """Forget all that was staged: it is durable or refused."""
        self.end(len(self.begun))
        self.used -= self.staged_bytes
        self.staged_bytes = 0

    def live_jobs(self) -> int:
        """Count the unfinished jobs; a subscription without any is visited again once it has made some."""
        self._visit(len(self.lives))
        return self.lives_total

    def look(self) -> None:
        """Count the jobs of some subscriptions, those that were counted longest ago, and see what that calls for."""
        self._visit(VISITS_MAX)
        self._weigh(self.lives_total)

    def _visit(self, count: int) -> None:
        for live in list(islice(self.lives, count)):
            jobs = live()
            self.lives_total += jobs - self.lives.pop(live)
            if jobs:
                self.lives[live] = jobs

    def recount(self) -> None:
        """Count the jobs that there are and see which measures that calls for."""
        self._weigh(None if self.count_jobs is None else self.count_jobs())

    def _weigh(self, jobs: int | None) -> None:
        for settle in self.settlers:
            settle()
        if jobs is not None:
            counted = jobs * JOB_BYTES
            self.used += counted - self.job_bytes
            self.job_bytes = counted
        old = level = self.level
        used, eighth = self.used, self.limit // 8
        while level < Pressure.CLOSING and used >= self.begins(Pressure(level + 1)):
            level = Pressure(level + 1)
        while level > Pressure.NONE and used < self.begins(level) - eighth:
            level = Pressure(level - 1)
        self.next_at = self.begins(Pressure(level + 1)) if level < Pressure.CLOSING else LIMIT_UNBOUNDED
        if level != old:
            self.level = level
            if self.changed is not None:
                self.changed(old, level)
