"""The Action protocol: what a step of the pipeline may see, answer and be told.

This is public API for people who write their own actions; docs/actions.md explains it with an example. The four
statuses are DDMQ's (R16); the batch form `act_many` is ours.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from upstream.job import UpstreamJob


class Status(enum.Enum):
    """What an action made of a job (R16)."""

    CONTINUE = "continue"
    """Go on with the next action."""
    FINISH = "finish"
    """Done: the message counts as consumed."""
    FAIL = "fail"
    """A business failure: retried after the next entry of retryIntervals, then dead-lettered (D17)."""
    ASYNCHRONIZED = "asynchronized"
    """Somebody else resumes or finishes the job later."""


class Action:
    """One step of a pipeline; one instance serves one subscription (group and topic).

    Override `act`, or `act_many` where a batch is cheaper. An exception counts as an error of the job: it is retried
    up to maxRetry times and then dead-lettered with the exception's text as the reason (D17).
    """

    def open(self) -> None:
        """Called once before the first job; acquire resources here."""

    def close(self) -> None:
        """Called once after the last job of this generation."""

    def act(self, job: UpstreamJob) -> Status:
        """Handle one job.

        Args:
            job: The message on its way; `job.data` is the raw body (bytes) until an action replaces it (R17).

        Returns:
            What becomes of the job. After ASYNCHRONIZED the action calls `job.resume()` or `job.finish(success)`,
            once, from the loop's thread.
        """
        raise TypeError(f"{type(self).__name__} overrides neither act nor act_many")

    def act_many(self, jobs: Sequence[UpstreamJob]) -> Sequence[Status | Exception]:
        """Handle several jobs at once; the answer has one entry per job, an exception standing for one that was raised."""
        answers: list[Status | Exception] = []
        for job in jobs:
            try:
                answers.append(self.act(job))
            except Exception as error:
                answers.append(error)
        return answers
