"""What went wrong with a message so far."""

from __future__ import annotations

from typing import Protocol

FAILING_ATTEMPTS = 5
"""Failed attempts from which on a message is told of as one that fails again and again."""


class JobHistory:
    """What went wrong with a job so far; only jobs in trouble have one.

    Attributes:
        fails: Business failures counted against retryIntervals.
        errors: Exceptions counted against maxRetry.
        timeouts: Deliveries without an answer counted against maxRetry, together with `errors` (D17).
        due_wall_ms: When the next attempt is due.
        since: Monotonic seconds of the first failure that this process knows of.
        reason: Text of the last failure.
        earlier: It had failed before that, in an earlier process or generation.
        stopped: What waits for an operator with it, a `upstream.progress.tracker.Stop`.
    """

    __slots__ = ("due_wall_ms", "earlier", "errors", "fails", "reason", "since", "stopped", "timeouts")

    def __init__(self, since: float, *, earlier: bool = False) -> None:
        self.earlier = earlier
        self.fails = 0
        self.errors = 0
        self.timeouts = 0
        self.stopped = 0
        self.due_wall_ms = 0
        self.since = since
        self.reason = ""

    @property
    def attempts(self) -> int:
        """Failed attempts of all kinds, over restarts."""
        return self.fails + self.errors + self.timeouts


class Troubled(Protocol):
    """What has a history: a job."""

    history: JobHistory | None


def history_of(job: Troubled) -> JobHistory:
    """Return the history of a job that has failed."""
    assert job.history is not None, "it has failed"
    return job.history


def noted(job: Troubled, reason: str, now: float) -> JobHistory:
    """Note why a job failed, at monotonic `now` seconds if it is for the first time; returns its history."""
    history = job.history
    if history is None:
        history = job.history = JobHistory(now)
    history.reason = reason
    return history
