"""Burrow's evaluator as a mode: its statuses by its rules, on the last commits of a queue, bit for bit.

For who is used to its alarms; what its users complain of (a lag that never falls counts as trouble however small,
nothing is said of time) is its own. The rules in their order, each on the window of commits, oldest first:

1. under `minimum_complete` of the window, OK;
2. the current lag is at most `allowed_lag`: OK;
3. the last commit is longer ago than the first is before the last, and no end of the queue that is remembered is at or
   below the last committed offset: STOP;
4. an offset is lower than the one before it, and none after it reaches that one again: REWIND;
5. a lag of the window is at most `allowed_lag`: OK;
6. all offsets are equal: STALL;
7. no lag is below that of the commit before it: WARN;
8. else OK.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Final

from lag.samples import QueueSample


class BurrowStatus(IntEnum):
    """Burrow's values, of a partition or a group."""

    NOTFOUND = 0
    OK = 1
    WARN = 2
    ERR = 3
    STOP = 4
    STALL = 5
    REWIND = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class BurrowOptions:
    """What Burrow's configuration says of a window.

    Attributes:
        intervals: Commits that a window holds.
        min_distance_ms: A commit sooner after the one before it takes that one's place.
        minimum_complete: Share of the window that must be filled for a verdict, 0.0 to 1.0.
        allowed_lag: A lag of so many messages or fewer is none.
    """

    intervals: int = 10
    min_distance_ms: int = 1_000
    minimum_complete: float = 0.0
    allowed_lag: int = 0

    def __post_init__(self) -> None:
        """Refuse what Burrow could not work by.

        Raises:
            ValueError: An option is out of bounds.
        """
        if self.intervals < 1:
            raise ValueError(f"intervals is {self.intervals}: a window holds one commit at least")
        if self.min_distance_ms < 0 or self.allowed_lag < 0:
            raise ValueError("min_distance_ms and allowed_lag must be 0 or more")
        if not 0 <= self.minimum_complete <= 1:
            raise ValueError(f"minimum_complete is {self.minimum_complete}: it is a share, 0.0 to 1.0")


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit: when, the offset, and the lag that it left."""

    time_ms: int
    offset: int
    lag: int


DEFAULTS: Final = BurrowOptions()


def commits_of(samples: Sequence[QueueSample], options: BurrowOptions = DEFAULTS) -> list[Commit]:
    """Return the commits that samples saw, the last `intervals` of them, oldest first.

    A sample saw one if a client moved the offset or answered since the sample before; its moment is that, or the
    sample's where it is not known. Samples that could not be read saw none.

    Args:
        samples: Samples of one queue, oldest first.
        options: Size of the window, and the least distance.
    """
    found: list[Commit] = []
    before: tuple[int | None, int | None] | None = None
    for sample in samples:
        if sample.committed is None or sample.end is None:
            continue
        known = [moment for moment in (sample.moved_ms, sample.answered_ms) if moment is not None]
        at = max(known, default=None)
        if (at, sample.committed) == before:
            continue
        before = (at, sample.committed)
        commit = Commit(sample.time_ms if at is None else at, sample.committed, max(0, sample.end - sample.committed))
        if found and commit.time_ms - found[-1].time_ms < options.min_distance_ms:
            found.pop()
        found.append(commit)
    return found[-options.intervals :]


def evaluate(
    commits: Sequence[Commit], ends: Iterable[int], current_lag: int, now_ms: int, options: BurrowOptions = DEFAULTS
) -> BurrowStatus:
    """Return the status of one queue.

    Args:
        commits: The window, oldest first.
        ends: Ends of the queue that are remembered.
        current_lag: Messages from the last commit to the present end.
        now_ms: The moment that is judged, in Unix ms.
        options: What the configuration says.
    """
    if not commits:
        return BurrowStatus.NOTFOUND
    allowed, last = options.allowed_lag, commits[-1]
    if len(commits) / options.intervals < options.minimum_complete or current_lag <= allowed:
        return BurrowStatus.OK
    if now_ms - last.time_ms > last.time_ms - commits[0].time_ms and all(end > last.offset for end in ends):
        return BurrowStatus.STOP
    # What fell and came back is above the peak before it, or at it; so the last peak tells.
    if last.offset < max(commit.offset for commit in commits):
        return BurrowStatus.REWIND
    if any(commit.lag <= allowed for commit in commits):
        return BurrowStatus.OK
    if all(commit.offset == last.offset for commit in commits):
        return BurrowStatus.STALL
    if all(after.lag >= before.lag for before, after in pairwise(commits)):
        return BurrowStatus.WARN
    return BurrowStatus.OK


def group_status(statuses: Iterable[BurrowStatus]) -> BurrowStatus:
    """Return the status of a group: the worst of its queues', where all above WARN count as ERR; NOTFOUND of none."""
    worst = max(statuses, default=BurrowStatus.NOTFOUND)
    return BurrowStatus.ERR if worst > BurrowStatus.WARN else worst


def judge(samples: Sequence[QueueSample], now_ms: int, options: BurrowOptions = DEFAULTS) -> BurrowStatus:
    """Return the status of one queue by its samples, oldest first; NOTFOUND without a commit."""
    commits = commits_of(samples, options)
    ends = [sample.end for sample in samples if sample.end is not None][-options.intervals :]
    current = max(0, ends[-1] - commits[-1].offset) if commits else 0
    return evaluate(commits, ends, current, now_ms, options)
