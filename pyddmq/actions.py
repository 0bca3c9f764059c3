"""What people who write actions import: `Action`, `Status`, `Job`, and how to refuse a message.

docs/actions.md explains it with an example. The four statuses are DDMQ's (R16); the batch form `act_many`, actions that
await or block, and what an action may raise beside them are ours. It imports no room, so that a type checker sees all
of it in an installed package.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = [
    "TRAITS",
    "Action",
    "BodyUnprocessable",
    "Context",
    "Failed",
    "History",
    "Job",
    "Message",
    "MessageUnreadable",
    "Outgoing",
    "RetryLater",
    "RetryNotBefore",
    "Status",
    "TimedOut",
    "Unprocessable",
    "action",
]


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


class Failed(Exception):
    """Raised for a business failure with a reason: as FAIL, and the dead letter contains its text (D17)."""


class RetryLater(Exception):
    """Raised to redeliver the message later without counting an attempt.

    It keeps its place in its key. The wait is not journaled: after a restart the message is delivered immediately.

    Attributes:
        delay_ms: Milliseconds until the next attempt, 0 or more.
    """

    def __init__(self, delay_ms: int, reason: str = "") -> None:
        super().__init__(reason or f"again after {delay_ms} ms")
        self.delay_ms = delay_ms


class RetryNotBefore(Exception):
    """An error of the job, as any other exception, that says when the next attempt may be made at the earliest.

    Attributes:
        delay_ms: Milliseconds that the next attempt waits at least; 0 for no wish. The wait is five minutes
            at most.
    """

    def __init__(self, delay_ms: int, reason: str = "") -> None:
        super().__init__(reason)
        self.delay_ms = delay_ms


class TimedOut(Exception):
    """A call of an action took longer than its time limit; counts as an error of the job, as any other exception."""


class MessageUnreadable(Exception):
    """The record of a job is damaged or deleted. The pipeline finishes and counts it; actions must not catch this."""


class Message(NamedTuple):
    """A stored message, as actions see it."""

    key: str | None
    tag: str | None
    body: bytes
    properties: Mapping[str, str]
    """User properties; the names that the broker keeps for itself are left out (R11)."""
    born_ms: int
    """When the producer's request arrived, wall clock."""
    stored_ms: int = 0
    """When the broker stored it, wall clock; never goes back within a queue."""


class Outgoing:
    """Data of earlier actions for the one that sends the message: parts of an HTTP request, or commands of a sink.

    Attributes:
        query: Parameters of the URL, in order; a name may occur several times.
        form: Fields of a form, likewise.
        headers: HTTP headers, likewise.
        commands: Commands of sinks, in order, each a plain value that its sink understands: see docs/sinks.md.
    """

    __slots__ = ("commands", "form", "headers", "query")

    def __init__(self) -> None:
        self.query: list[tuple[str, str]] = []
        self.form: list[tuple[str, str]] = []
        self.headers: list[tuple[str, str]] = []
        self.commands: list[Any] = []


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
    """The raw body (bytes) until an action replaced it, as Json does by the parsed object (R17); assign it again."""

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
            MessageUnreadable: The record is damaged or deleted.
            BodyUnprocessable: It cannot be unpacked.
        """

    @property
    def message(self) -> Message:
        """Key, tag, body and properties, read from the log on first use. Raises as `body` does."""

    @property
    def outgoing(self) -> Outgoing:
        """Data of earlier actions for the one that sends the message; empty at first, also for a retry."""

    @property
    def attempts(self) -> int:
        """Failed attempts so far, of all kinds and over restarts."""

    @property
    def history(self) -> History | None:
        """What went wrong so far; None where nothing did."""

    def resume(self) -> None:
        """Continue with the next action, after this one answered ASYNCHRONIZED. Without effect in any other state."""

    def answer(self, answer: Status | Exception) -> bool:
        """Answer for a job that an action kept with ASYNCHRONIZED as `act` would have: by a status or what it raises.

        Returns:
            Whether this call decided it; a second one, and ASYNCHRONIZED, change nothing.
        """

    def finish(self, success: bool, reason: str = "") -> bool:
        """Complete a job that an action kept with ASYNCHRONIZED.

        Args:
            success: True: consumed. False: a business failure, retried after the next entry of retryIntervals.
            reason: What failed, for the dead letter.

        Returns:
            Whether this call completed it; a second one changes nothing (W36).
        """


class Context(Protocol):
    """What an action is given of its surroundings; `Action.context`, there from before `open` on."""

    @property
    def group(self) -> str:
        """Consumer group of the subscription."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def timeout_ms(self) -> int:
        """The subscription's `timeout` in force, which a reload may change."""

    @property
    def tps_max(self) -> float | None:
        """The subscription's rate in force, messages per second; None for no limit. A reload may change it."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""

    def count(self, event: str, amount: int = 1) -> None:
        """Count in `pyddmq_action_events_total`, whose labels are group, topic, action and event (one of few)."""

    def note(self, event: str, **facts: object) -> None:
        """Write a log line, one per event, group and minute at most; the others are counted in it (D25)."""


class Action:
    """One step of a pipeline; one instance serves one subscription (group and topic).

    Override `act`, or `act_many` where a batch is cheaper. `Unprocessable` dead-letters the job at once. Another
    exception counts as an error of the job: it is retried up to maxRetry times and then dead-lettered with the
    exception's text as the reason (D17).

    `act` (or `act_many`) may be `async def`: it runs as a task of the loop, for several messages at a time. With
    `blocking` it runs in a thread. In both cases the job keeps its key and its permit until the call ends or its time
    limit cancels it (D45). The answers have the same meaning.

    The class attributes describe the requirements of the action for the pipeline and the configuration check.
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
    blocking: ClassVar[bool] = False
    """It waits for something (a database, a file): it is run in a thread; the library sees to how many there are."""
    is_timed: ClassVar[bool] = True
    """Its time is in `pyddmq_action_seconds`."""
    time_limit_ms: int | None = None
    """Longest time of one call of an action that awaits or blocks; None: the subscription's `timeout`. The option
    `timeLimit`, which all such actions take, changes it."""
    calls_max: ClassVar[int | None] = None
    """Calls of a blocking action at a time, in one subscription; None: as many as it gets threads."""
    changes_body: ClassVar[bool] = False
    """After it, `job.data` is a body of its own making; pull clients get that where the group asks for it."""

    options: BaseModel | None = None
    """The checked options of this subscription, an instance of `options_model`; set before `open`."""
    name: str = ""
    """What the configuration calls it; set before `open`."""
    context: Context
    """Its surroundings; set before `open`."""

    def open(self) -> Awaitable[None] | None:
        """Acquire resources; called once before the first job. May be `async def`; of a blocking action: in a thread.

        What it raises keeps the subscription from starting, is shown, and is tried again every 5 s.
        """
        return None

    def drain(self) -> None:
        """Finish soon what is kept; called once when the generation ends, up to `drainSeconds` before `close`.

        In the loop's thread, whatever the action is: it must not block.
        """

    def close(self) -> Awaitable[None] | None:
        """Release resources; called once after the last job of this generation, and its last call. As `open`."""
        return None

    def act(self, job: Job) -> Status | Awaitable[Status]:
        """Handle one job.

        Args:
            job: The message on its way; `job.data` is the raw body (bytes) until an action replaces it (R17).

        Returns:
            What becomes of the job. After ASYNCHRONIZED the action calls `job.answer(status or exception)`, once, from
            the loop's thread.

        Raises:
            Unprocessable: No attempt can ever process the message: it is dead-lettered at once.
            Failed: A business failure, as FAIL, with a reason.
            RetryLater: Again after a while, without counting an attempt.
            Exception: Any other is a failed attempt. `TypeError`: the class has neither this nor `act_many`.
        """
        raise TypeError(f"{type(self).__name__} overrides neither act nor act_many")

    def act_many(self, jobs: Sequence[Job]) -> Sequence[Status | Exception] | Awaitable[Sequence[Status | Exception]]:
        """Handle several jobs at once; one answer per job, where an exception means that it was raised for this job."""
        answers: list[Status | Exception] = []
        for job in jobs:
            try:
                answers.append(cast("Status", self.act(job)))
            except Exception as error:
                answers.append(error)
        return answers


TRAITS = "__pyddmq_action__"
"""Attribute of a function that `action` decorates: class attributes of the `Action` that it becomes."""

Function = TypeVar("Function", bound=Callable[..., Any])


def action(
    *,
    may_be_last: bool = False,
    needs_json: bool = False,
    provides_json: bool = False,
    needs_data: bool = True,
    changes_body: bool = False,
    blocking: bool = False,
    time_limit_ms: int | None = None,
) -> Callable[[Function], Function]:
    """Say of a function what an `Action` says by its class attributes, which have the same names.

    A function is an action without it, too: one that works on whatever `job.data` is, and not the last one.
    """

    def decorate(function: Function) -> Function:
        traits = {
            "may_be_last": may_be_last,
            "needs_json": needs_json,
            "provides_json": provides_json,
            "needs_data": needs_data,
            "changes_body": changes_body,
            "blocking": blocking,
            "time_limit_ms": time_limit_ms,
        }
        setattr(function, TRAITS, traits)
        return function

    return decorate
