"""What people who write actions import: `Action`, `Status`, `Job`, and how to refuse a message.

docs/actions.md explains it with an example. The four statuses are DDMQ's (R16); the batch form `act_many` is ours. It
imports no room, so that a type checker sees all of it in an installed package.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["Action", "BodyUnprocessable", "History", "Job", "Message", "MessageUnreadable", "Status", "Unprocessable"]


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
    """The body cannot be unpacked (`broker.format.body`); raised when an action asks for it.

    Attributes:
        reason: Label of the counter.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class MessageUnreadable(Exception):
    """The record of a job is damaged or gone. The pipeline finishes and counts the job; actions let this pass."""


class Message(NamedTuple):
    """A stored message, as actions see it."""

    key: str | None
    tag: str | None
    body: bytes
    properties: Mapping[str, str]
    """User properties; the names that the broker keeps for itself are left out (R11)."""
    born_ms: int
    """When the producer's request arrived, wall clock."""


class History(Protocol):
    """What went wrong with a job so far, over restarts: counts of failures, of errors, and of unanswered deliveries."""

    fails: int
    """Business failures counted against retryIntervals."""
    errors: int
    """Exceptions counted against maxRetry."""
    timeouts: int
    """Deliveries without an answer counted against maxRetry, together with `errors` (D17)."""
    reason: str
    """Text of the last failure."""


class Job(Protocol):
    """A message on its way through one subscription, as its actions see it. Only the loop's thread may touch it."""

    data: Any
    """The raw body (bytes) until an action replaced it, as Json does by the parsed object (R17); assign it anew."""

    @property
    def group(self) -> str:
        """Consumer group that the job belongs to."""

    @property
    def topic(self) -> str:
        """Topic of the message."""

    @property
    def qid(self) -> str:
        """Text of its queue on the wire."""

    @property
    def offset(self) -> int:
        """Position in its queue."""

    @property
    def body(self) -> memoryview:
        """The body as it was published: a view into the log, good while the job is in an action.

        Raises:
            MessageUnreadable: The record is damaged or gone.
            BodyUnprocessable: It cannot be unpacked.
        """

    @property
    def message(self) -> Message:
        """Key, tag, body and properties, read from the log on first use. Raises as `body` does."""

    @property
    def attempts(self) -> int:
        """Failed attempts so far, of all kinds and over restarts."""

    @property
    def history(self) -> History | None:
        """What went wrong so far; None where nothing did."""

    def resume(self) -> None:
        """Go on with the next action, after this one answered ASYNCHRONIZED. Without effect in any other state."""

    def finish(self, success: bool, reason: str = "") -> bool:
        """Complete a job that an action kept with ASYNCHRONIZED.

        Args:
            success: True: consumed. False: a business failure, retried after the next entry of retryIntervals.
            reason: What failed, for the dead letter.

        Returns:
            Whether this call completed it; a second one changes nothing (W36).
        """


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

    def act(self, job: Job) -> Status:
        """Handle one job.

        Args:
            job: The message on its way; `job.data` is the raw body (bytes) until an action replaces it (R17).

        Returns:
            What becomes of the job. After ASYNCHRONIZED the action calls `job.resume()` or `job.finish(success)`,
            once, from the loop's thread.

        Raises:
            Unprocessable: No attempt can ever process the message: it is dead-lettered at once.
            Exception: Any other is a failed attempt. `TypeError`: the class has neither this nor `act_many`.
        """
        raise TypeError(f"{type(self).__name__} overrides neither act nor act_many")

    def act_many(self, jobs: Sequence[Job]) -> Sequence[Status | Exception]:
        """Handle several jobs at once; one answer per job, where an exception stands for one that was raised."""
        answers: list[Status | Exception] = []
        for job in jobs:
            try:
                answers.append(self.act(job))
            except Exception as error:
                answers.append(error)
        return answers
