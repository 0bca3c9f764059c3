"""The Action protocol: what a step of the pipeline may see, answer and be told.

This is public API for people who write their own actions; docs/actions.md explains it with an example. The four
statuses are DDMQ's (R16); the batch form `act_many` is ours.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

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


class Unprocessable(Exception):
    """Raised by an action for a message that no attempt can ever process: it is dead-lettered at once (D17)."""


class BodyUnprocessable(Unprocessable):
    """The body cannot be unpacked (`broker.body`); raised when an action asks for it.

    Attributes:
        reason: Label of the counter.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class MessageUnreadable(Exception):
    """The record of a job is damaged or gone. The pipeline finishes and counts the job; actions let this pass."""


class Action:
    """One step of a pipeline; one instance serves one subscription (group and topic).

    Override `act`, or `act_many` where a batch is cheaper. `Unprocessable` dead-letters the job at once. Another
    exception counts as an error of the job: it is retried up to maxRetry times and then dead-lettered with the
    exception's text as the reason (D17).

    The class attributes tell the pipeline and the configuration check what the action needs of its place.
    """

    needs_json: ClassVar[bool] = False
    """It works on the parsed body: an action that provides it must stand before."""
    provides_json: ClassVar[bool] = False
    """After it, `job.data` is the parsed body."""
    may_be_last: ClassVar[bool] = False
    """It can end a pipeline: it hands the message out or finishes it itself."""
    is_gate: ClassVar[bool] = False
    """It only marks where order per key begins; it is never run."""
    needs_data: ClassVar[bool] = True
    """It looks at `job.data`; false saves parsing again after a wait behind the key (D15)."""
    options_model: ClassVar[type[BaseModel] | None] = None
    """Checks the action's `options` in the configuration; None: it takes none."""

    options: BaseModel | None = None
    """The checked options of this subscription, an instance of `options_model`; set before `open`."""

    def open(self) -> None:
        """Acquire resources; called once before the first job."""

    def close(self) -> None:
        """Release resources; called once after the last job of this generation."""

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
        """Handle several jobs at once; one answer per job, where an exception stands for one that was raised."""
        answers: list[Status | Exception] = []
        for job in jobs:
            try:
                answers.append(self.act(job))
            except Exception as error:
                answers.append(error)
        return answers
