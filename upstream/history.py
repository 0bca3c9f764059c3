"""What went wrong with a message so far."""

from __future__ import annotations

from typing import Protocol

PULL_SERVER = "PullServer"
"""The action that hands messages to clients: what a client fails, it has failed."""

FAILING_ATTEMPTS = 5
"""Failed attempts from which on a message is shown as one that fails repeatedly."""


class JobHistory:
    """What went wrong with a job so far; only jobs in trouble have one.

    Attributes:
        fails: Business failures counted against retryIntervals.
        errors: Exceptions counted against maxRetry.
        timeouts: Deliveries without an answer counted against maxRetry, together with `errors` (D17).
        due_wall_ms: When the next attempt is due.
        since: Monotonic seconds of the first failure that this process knows of.
        reason: Text of the last failure.
        action: Name of the action that failed last.
        earlier: It had failed before that, in an earlier process or generation.
        stopped: What waits for an operator with it, a `upstream.progress.tracker.Stop`.
    """

    __slots__ = ("action", "due_wall_ms", "earlier", "errors", "fails", "reason", "since", "stopped", "timeouts")

    def __init__(self, since: float, *, earlier: bool = False) -> None:
        self.earlier = earlier
        self.fails = 0
        self.errors = 0
        self.timeouts = 0
        self.stopped = 0
        self.due_wall_ms = 0
        self.since = since
        self.reason = ""
        self.action = ""

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


def noted(job: Troubled, reason: str, now: float, action: str | None = None) -> JobHistory:
    """Note why a job failed, at monotonic `now` seconds if it is for the first time; returns its history.

    Args:
        job: The job.
        reason: Text of the failure.
        now: Monotonic seconds.
        action: Name of the action that failed; None: the last one that did.
    """
    history = job.history
    if history is None:
        history = job.history = JobHistory(now)
    history.reason = reason
    if action is not None:
        history.action = action
    return history
