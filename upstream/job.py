"""A message on its way through one subscription.

Jobs are light: a job behind its key, in the buffer or out to a client holds positions and counters, never a body
(D15). Body, key, tag and properties are read from the log when an action asks for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyddmq.actions import Message
from upstream.state import State

if TYPE_CHECKING:
    from upstream.lane import Delivery, Lane
    from upstream.subscription import Subscription

_READ = State.READ

FAILING_ATTEMPTS = 5
"""Failed attempts from which on a message is told of as one that fails again and again."""

OrderKey = str | bytes
"""The value whose jobs run one at a time: bytes of the message key, or text of a JSON value or queue."""


class History:
    """What went wrong with a job so far; only jobs in trouble have one.

    Attributes:
        fails: Business failures counted against retryIntervals.
        errors: Exceptions counted against maxRetry.
        timeouts: Deliveries without an answer counted against maxRetry, together with `errors` (D17).
        due_wall_ms: When the next attempt is due.
        since: Monotonic seconds of the first failure that this process knows of.
        reason: Text of the last failure.
        earlier: It had failed before that, in an earlier process or generation.
    """

    __slots__ = ("due_wall_ms", "earlier", "errors", "fails", "reason", "since", "timeouts")

    def __init__(self, since: float, *, earlier: bool = False) -> None:
        self.earlier = earlier
        self.fails = 0
        self.errors = 0
        self.timeouts = 0
        self.due_wall_ms = 0
        self.since = since
        self.reason = ""

    @property
    def attempts(self) -> int:
        """Failed attempts of all kinds, over restarts."""
        return self.fails + self.errors + self.timeouts


class UpstreamJob:
    """One message of one subscription.

    Attributes:
        offset: Position in its queue, the identity of acks within (topic, queue).
        physical: Commit-log offset of the record in bytes.
        size: Size of the whole record in bytes.
        lane: Its queue, as this group sees it.
        subscription: The generation of (group, topic) that runs it.
        key: Order key, or None for unordered.
        state: See `upstream.state`.
        step: Index of the action that has it (RUNNING).
        deliveries: How often this process handed it out; replies that never left do not count (D18).
        history: Failures so far, or None.
        record: The whole record, a view into the log, while an action has the job.
    """

    __slots__ = (
        "_data",
        "_message",
        "deliveries",
        "delivery",
        "history",
        "key",
        "lane",
        "offset",
        "physical",
        "record",
        "size",
        "state",
        "step",
        "subscription",
        "successor",
    )

    # Positional, because one is made for every message: keywords would cost a tenth of a microsecond.
    def __init__(  # noqa: PLR0917
        self, subscription: Subscription, lane: Lane, offset: int, physical: int, size: int, key: OrderKey | None
    ) -> None:
        self.subscription = subscription
        self.lane = lane
        self.offset = offset
        self.physical = physical
        self.size = size
        self.key = key
        self.state = _READ
        self.step = 0
        self.deliveries = 0
        self.delivery: Delivery | None = None
        self.successor: UpstreamJob | None = None
        self.history: History | None = None
        self.record: memoryview | None = None
        self._message: Message | None = None
        self._data: Any = None

    @property
    def queue_id(self) -> int:
        """Number of its queue."""
        return self.lane.queue_id

    @property
    def qid(self) -> str:
        """Text of its queue on the wire."""
        return self.lane.qid

    @property
    def topic(self) -> str:
        """Topic of the message."""
        return self.lane.topic

    @property
    def group(self) -> str:
        """Consumer group that the job belongs to."""
        return self.subscription.group

    @property
    def message(self) -> Message:
        """Key, tag, body and properties, read from the log on first use.

        Raises:
            MessageUnreadable: The record is damaged or gone; the pipeline then finishes and counts the job.
        """
        if self._message is None:
            self._message = self.subscription.load(self)
        return self._message

    @property
    def body(self) -> memoryview:
        """The body as it was published: a view into the log, good while the job is in an action.

        Raises:
            MessageUnreadable: The record is damaged or gone.
        """
        return self.subscription.body(self)

    @property
    def data(self) -> Any:
        """The raw body (bytes) until an action replaced it, as Json does by the parsed object (R17)."""
        return bytes(self.body) if self._data is None else self._data

    @data.setter
    def data(self, value: Any) -> None:
        self._data = value

    @property
    def attempts(self) -> int:
        """Failed attempts so far, of all kinds and over restarts."""
        return self.history.attempts if self.history else 0

    def drop_data(self) -> None:
        """Forget body and parsed data; they are read again when somebody asks (D15)."""
        self.record = None
        self._message = None
        self._data = None

    def resume(self) -> None:
        """Go on with the next action, after this one answered ASYNCHRONIZED. Without effect in any other state."""
        self.subscription.resume(self)

    def finish(self, success: bool, reason: str = "") -> bool:
        """Settle a job that an action kept with ASYNCHRONIZED.

        Args:
            success: True: consumed. False: a business failure, retried after the next entry of retryIntervals.
            reason: What failed, for the dead letter.

        Returns:
            Whether this call settled it; a second one changes nothing (W36).
        """
        return self.subscription.settle(self, success, reason)

    def __repr__(self) -> str:
        return f"<job {self.topic} {self.queue_id}:{self.offset} {self.state.name}>"
