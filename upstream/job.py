"""Messages on their way through one subscription: jobs, deliveries, and the group queues that jobs come from.

Jobs are light: a job behind its key, in the buffer or out to a client holds positions and counters, never a body
(D15). Body, key, tag and properties are read from the log when an action asks for them.

A group queue is one queue of a topic as one group sees it. It outlives the generations of its subscription (D22): it
keeps the tracker, what may have been delivered before, and what is still out from an earlier generation.

These refer to each other, and to the subscription that has them by what they need of it (`Generation`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from broker.runtime.accelerators import accelerated
from pyddmq.actions import BodyUnprocessable, Failed, Message, Outgoing, Status
from upstream.history import JobHistory
from upstream.message_holder import Holder, MadeBody
from upstream.state import JobState

if TYPE_CHECKING:
    import asyncio

    from conf.models import SubscriptionConfig
    from upstream.progress.tracker import OffsetTracker
    from upstream.queues import QueueView

_READ = JobState.READ
_NULL = object()
"""Stands for data that an action made null; None is data that no action replaced."""

OrderKey = str | bytes
"""The value whose jobs run one at a time: bytes of the message key, or text of a JSON value or queue."""

EARLIER_MAX = 16
"""Deliveries of one message that ended without an answer and are remembered, the latest."""

Unit = tuple[int, int, int, int, "GroupQueue"]
"""What a source makes a job of: position, size, tags code, queue offset, group queue; sorts in the source's order."""


Slices = tuple[memoryview, int, int, int, int]
"""A view, and positions in it: of a body and its end, of the block of properties and its end."""


def text_of(key: OrderKey | None) -> str | None:
    """Text of an order key, as people see it; None for a message without one."""
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else key


class PartialBatch(NamedTuple):
    """What a batch becomes when it cannot be sent as it is.

    Attributes:
        messages: Offsets and slices of those that are sent.
        unreadable: Those whose message is damaged or gone.
        unusable: Those whose body cannot be unpacked, and why.
        left: Those for which there is no room, from one job on.
    """

    messages: list[tuple[int, Slices]]
    unreadable: list[UpstreamJob]
    unusable: list[tuple[UpstreamJob, BodyUnprocessable]]
    left: list[UpstreamJob]


class Generation(Protocol):
    """What jobs and group queues need of the subscription that has them, and those who work on jobs alone.

    `upstream.delivery.subscription` is the one there is.

    Attributes:
        group: Name of the group.
        config: Its configuration in force.
        hands_out: Whether pulls get messages of it.
        batch_max: Messages of one pull at most.
        timeout_seconds: Time for a client's answer.
    """

    group: str
    config: SubscriptionConfig
    hands_out: bool
    batch_max: int
    timeout_seconds: float

    def stored_ms(self, job: UpstreamJob) -> int | None:
        """Return when a job's message was stored, ms since the epoch; None when it cannot be read."""

    def refused(self, unit: Unit) -> None:
        """Take note of a message that the group does not get: its tags, or the stress flag, rule it out."""

    def body(self, job: UpstreamJob) -> memoryview:
        """Read a job's body; raises MessageUnreadable."""

    def load(self, job: UpstreamJob) -> Message:
        """Read a job's message; raises MessageUnreadable."""

    def slices(self, jobs: Sequence[UpstreamJob]) -> list[tuple[int, Slices]] | None:
        """Return offsets and slices of a batch for its reply; None where `sort_out` has to look at each."""

    def sort_out(self, jobs: Sequence[UpstreamJob], bytes_max: int) -> PartialBatch:
        """Look at the jobs of a batch one by one; those sent take at most `bytes_max` together, but for the first."""

    def offer(self, jobs: Sequence[UpstreamJob]) -> None:
        """Put RUNNING jobs into the pull buffer."""

    def keep_body(self, job: UpstreamJob, body: bytes) -> None:
        """Have clients given this body of a job that is about to be offered."""

    def answered(self, job: UpstreamJob, answer: Status | Exception) -> bool:
        """Carry out the answer for a job that an action kept; whether this call decided it."""

    def earlier_call_ended(self, job: UpstreamJob) -> None:
        """Go on with a job that an action of an earlier generation had until now."""

    def complete_undecided(self, job: UpstreamJob) -> None:
        """End an UNDECIDED job whose offset is finished by now."""

    def expire(self, job: UpstreamJob) -> None:
        """End a job without a holder, since its log file is deleted."""

    def handed_out(self, delivery: DeliveredBatch) -> None:
        """Watch a batch that was given to a client."""

    def pump(self) -> None:
        """Go on, as far as permits, rate and caps allow."""


class ActionCall:
    """One call of an action.

    Attributes:
        action: Name of the action.
        jobs: What it is about.
        since: Monotonic seconds when it began.
        limit_ms: Its time limit.
        deadline: Monotonic seconds when that ends.
        late: It continued beyond that.
        begun: The action has been entered.
        task: Runs it, of an async action.
        successors: Jobs of a later generation that took the places of its jobs, and wait for its end.
    """

    __slots__ = ("action", "begun", "deadline", "jobs", "late", "limit_ms", "since", "successors", "task")

    def __init__(self, action: str, jobs: Sequence[UpstreamJob], since: float, limit_ms: int) -> None:
        self.action = action
        self.jobs = jobs
        self.since = since
        self.limit_ms = limit_ms
        self.deadline = since + limit_ms / 1000
        self.late = self.begun = False
        self.task: asyncio.Task[None] | None = None
        self.successors: list[UpstreamJob] = []


class DeliveredBatch:
    """One batch that was handed out: all of its jobs share holder, start and deadline.

    Attributes:
        holder: Who has it.
        since: Monotonic seconds when it was handed out.
        deadline: Monotonic seconds when its timeout passes.
        jobs: Its jobs; None once none of them is out, so that no reference cycle keeps them alive.
        open: Jobs of it still unanswered.
        again: One of its messages was delivered before, for certain.
        number: Tells it from every other delivery of its messages; 0 where none of them can have been delivered before.
        reply: Number of its reply on the holder's connection; 0 until that is made.
        stored_ms: When its oldest message was stored, wall clock; of one with messages that come again, of each by its
            offset. Without unreadable ones.
    """

    __slots__ = ("again", "deadline", "holder", "jobs", "number", "open", "reply", "since", "stored_ms")

    def __init__(self, holder: Holder, since: float, deadline: float, jobs: list[UpstreamJob]) -> None:
        self.holder = holder
        self.since = since
        self.deadline = deadline
        self.jobs: list[UpstreamJob] | None = jobs
        self.open = len(jobs)
        self.again = False
        self.number = 0
        self.reply = 0
        self.stored_ms: int | dict[int, int] | None = None

    def moved_on(self, jobs: list[UpstreamJob]) -> DeliveredBatch:
        """Return the same delivery as the next generation sees it, with those of its jobs that are left."""
        moved = DeliveredBatch(self.holder, self.since, self.deadline, jobs)
        moved.number, moved.reply, moved.stored_ms = self.number, self.reply, self.stored_ms
        return moved


class JobFields:
    """The fields of a job, which the loops over many jobs work on; its accelerator is an extension type.

    Attributes:
        offset: Position in its queue, the identity of acks within (topic, queue).
        physical: Where the source has the message: for the embedded broker the commit-log offset. Only the source reads
            it; for others it is the message's identity (`QueueView.identity`).
        size: Bytes that the message takes there.
        group_queue: Its queue, as this group sees it.
        subscription: The generation of (group, topic) that runs it.
        key: Order key, or None for unordered.
        state: See `upstream.state`.
        step: Index of the action that has it (RUNNING).
        deliveries: How often this generation handed it out; replies that never left do not count (D18).
        history: Failures so far, or None.
        record: What the source keeps with it while an action has the job: the whole record, a view into the log.
        made: The body that its actions made, where the group's clients get that
            (`upstream.delivery.transformed_bodies`).
    """

    __slots__ = (
        "_data",
        "_message",
        "_outgoing",
        "deliveries",
        "delivery",
        "group_queue",
        "history",
        "key",
        "made",
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
        self,
        subscription: Generation,
        group_queue: GroupQueue,
        offset: int,
        physical: int,
        size: int,
        key: OrderKey | None,
    ) -> None:
        self.subscription = subscription
        self.group_queue = group_queue
        self.offset = offset
        self.physical = physical
        self.size = size
        self.key = key
        self.state = _READ
        self.step = 0
        self.deliveries = 0
        self.delivery: DeliveredBatch | None = None
        self.successor: UpstreamJob | None = None
        self.history: JobHistory | None = None
        self.record: memoryview | None = None
        self.made: MadeBody | None = None
        self._message: Message | None = None
        self._outgoing: Outgoing | None = None
        self._data: Any = None


if TYPE_CHECKING:
    _Fields = JobFields
else:
    _Fields = accelerated("upstream.jobs_accelerator", "JobFields", JobFields)


class UpstreamJob(_Fields):
    """One message of one subscription."""

    __slots__ = ()

    @property
    def queue_id(self) -> int:
        """Number of its queue."""
        return self.group_queue.queue_id

    @property
    def qid(self) -> str:
        """Text of its queue on the wire."""
        return self.group_queue.qid

    @property
    def topic(self) -> str:
        """Topic of the message."""
        return self.group_queue.topic

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
        """The body as it was published, a view into the log, good while an action has the job; raises as `message`."""
        return self.subscription.body(self)

    @property
    def data(self) -> Any:
        """The raw body (bytes) until an action replaced it, as Json does by the parsed object (R17)."""
        if self._data is not None:
            return None if self._data is _NULL else self._data
        # Of a message that was read the body is there, and its record need not be taken apart again.
        return bytes(self.body) if self._message is None else self._message.body

    @data.setter
    def data(self, value: Any) -> None:
        self._data = _NULL if value is None else value

    @property
    def outgoing(self) -> Outgoing:
        """What actions gathered for the one that sends it on."""
        if self._outgoing is None:
            self._outgoing = Outgoing()
        return self._outgoing

    @outgoing.setter
    def outgoing(self, value: Outgoing) -> None:
        self._outgoing = value

    @property
    def attempts(self) -> int:
        """Failed attempts so far, of all kinds and over restarts."""
        return self.history.attempts if self.history else 0

    @property
    def failed_action(self) -> str:
        """Name of the action that failed last; "": none did, or it was before a restart."""
        return self.history.action if self.history else ""

    @property
    def log_facts(self) -> dict[str, Any]:
        """What a log line says of it, beside its group."""
        return {"topic": self.topic, "qid": self.qid, "offset": self.offset}

    def drop_data(self) -> None:
        """Forget body and parsed data; they are read again on demand (D15)."""
        self.record = None
        self._message = None
        self._outgoing = None
        self._data = None

    def resume(self) -> None:
        """Continue with the next action, after this one answered ASYNCHRONIZED. Without effect in any other state."""
        self.answer(Status.CONTINUE)

    def answer(self, answer: Status | Exception) -> bool:
        """Answer for a job that an action kept with ASYNCHRONIZED; see `pyddmq.actions.Job`."""
        return self.subscription.answered(self, answer)

    def finish(self, success: bool, reason: str = "") -> bool:
        """Complete a job that an action kept with ASYNCHRONIZED; see `pyddmq.actions.Job`."""
        return self.answer(Status.FINISH if success else Failed(reason or "an action finished it without success"))

    def __repr__(self) -> str:
        return f"<job {self.topic} {self.queue_id}:{self.offset} {self.state.name}>"


@dataclass(slots=True, eq=False, repr=False)
class TopicLine:
    """One topic in the pull buffer: the rotation of its group queues, how many jobs it has, and who asked when.

    `asked_at` is the monotonic moment of the last pull for this topic alone; -1.0: none.
    """

    topic: str
    group_queues: deque[GroupQueue] = field(default_factory=deque)
    listed: bool = False
    jobs: int = 0
    asked_at: float = -1.0


@dataclass(slots=True, eq=False, repr=False)
class GroupQueue:
    """State of one (group, topic, queue).

    Attributes:
        subscription: The generation that runs it now, or None.
        live: Unfinished jobs that were read, by offset.
        retries: Whether it is of the group's retry topic, of which it has one topic's messages (D37).
        reused_from: As `QueueView.reused_from` was when it began; each delivery has a number then.
        reused_until: Until this monotonic moment answers to messages that had these offsets are likely; -1.0: not set.
        first_number, last_number: Of the deliveries of a queue with reused offsets; 0: there was none.
        delivered_until: Offsets below may have been delivered before this process began, or by an earlier generation.
        uncertain_until: Offsets below may have been delivered before this process (or generation) began, so it is
            unknown whose answer a result is; those from here on only by what this process remembers.
        check_until: Offsets below may be finished already although they are not read yet.
        adopted: Deliveries of an earlier generation that are still out, by offset: they stay in flight (D12). Of a
            finished message its key waits for their answer or timeout.
        calls: Calls of actions that are out, by offset: `upstream.calls` puts them here, also those that an earlier
            generation left behind.
        apart: Offsets that are read although nothing is to be done with them: finished ones that are `adopted`, those
            in a call of an earlier generation, and those whose retry or dead letter is not known to be durable. Each
            keeps its key.
        stopped: It stands still until an operator has decided about a message of it (`upstream.outcomes.stops`).
        withheld: Nothing more of it is handed out: it is about to be another member's, and answers still count.
        revoked: It was taken away: what was begun before, a call or a dead letter, finishes nothing any more.
        unanswered: Deliveries that ended without an answer, by offset, oldest first: their answers may still come.
        next: Next offset to look up in the queue.
        pending: What the source looked up and did not give out yet.
        waiting: Jobs in the pull buffer, oldest first; some may be finished meanwhile (`gone` of them).
        front: Heap of (offset, job) that came back and go first.
        listed: Whether the group queue is in its topic's rotation.
        answered_at: Monotonic moment of the last answer for one of its messages; -1.0: none.
        skipped: Messages of it that an operator skipped, since the node began.
    """

    line: TopicLine
    queue: QueueView
    qid: str
    tracker: OffsetTracker
    topic: str = field(init=False)
    queue_id: int = field(init=False)
    subscription: Generation | None = None
    live: dict[int, UpstreamJob] = field(default_factory=dict)
    retries: bool = field(init=False)
    stopped: bool = False
    withheld: bool = False
    revoked: bool = False
    delivered_until: int = field(init=False)
    uncertain_until: int = field(init=False)
    check_until: int = field(init=False)
    adopted: dict[int, DeliveredBatch] = field(default_factory=dict)
    apart: set[int] = field(default_factory=set)
    calls: dict[int, ActionCall] = field(default_factory=dict)
    unanswered: dict[int, list[DeliveredBatch]] = field(default_factory=dict)
    next: int = field(init=False)
    pending: list[Unit] = field(default_factory=list)
    waiting: deque[UpstreamJob] = field(default_factory=deque)
    front: list[tuple[int, UpstreamJob]] = field(default_factory=list)
    gone: int = 0
    listed: bool = False
    answered_at: float = -1.0
    skipped: int = 0
    reused_from: int | None = field(init=False)
    reused_until: float = -1.0
    first_number: int = 0
    last_number: int = 0

    def __post_init__(self) -> None:
        self.topic = self.queue.topic
        self.queue_id = self.queue.queue_id
        self.retries = self.line.topic != self.topic
        self.reused_from, end = self.queue.reused_from, self.queue.max_offset
        self.delivered_until = self.uncertain_until = end if self.reused_from is None else min(self.reused_from, end)
        self.check_until = self.tracker.high
        self.next = self.tracker.watermark

    @property
    def in_flight(self) -> int:
        """Messages that are out with clients; counted when asked."""
        return len(self.adopted) + sum(job.delivery is not None for job in self.live.values())

    def is_over(self, offset: int) -> bool:
        """Whether an offset need not be read: it is finished, and its key does not wait."""
        return self.tracker.is_finished(offset) and offset not in self.apart

    def note_unanswered(self, offset: int, delivery: DeliveredBatch) -> None:
        """Remember that a delivery of a message ended without an answer."""
        earlier = self.unanswered.setdefault(offset, [])
        if len(earlier) == EARLIER_MAX:
            del earlier[0]
        earlier.append(delivery)

    def forget(self, offset: int) -> None:
        """Forget an ended message, and who had it."""
        self.live.pop(offset, None)
        self.adopted.pop(offset, None)
        self.apart.discard(offset)
        self.unanswered.pop(offset, None)

    def unfinished_adopted(self) -> list[int]:
        """Return the offsets that are out since an earlier generation and not finished."""
        return [offset for offset in self.adopted if not self.tracker.is_finished(offset)]

    def pass_over(self, offsets: Iterable[int]) -> None:
        """Wait no longer for who has those of these messages that are finished by now: an operator passed them over.

        The keys of others, finished before that, wait on.
        """
        for offset in offsets:
            if self.tracker.is_finished(offset):
                self.adopted.pop(offset, None)

    def rewind(self) -> None:
        """Forget everything read and start again at the watermark, for a new generation."""
        self.live.clear()
        self.pending = []
        self.waiting.clear()
        self.front.clear()
        self.gone = 0
        self.check_until = self.tracker.high
        self.uncertain_until = max(self.uncertain_until, self.queue.max_offset)
        for offset in [each for each in self.adopted if each < self.queue.min_offset]:
            # Retention has deleted its record, which has its key.
            del self.adopted[offset]
        self.apart = {offset for offset in self.adopted if self.tracker.is_finished(offset)}
        self.apart.update(offset for offset in self.tracker.undecided if not self.tracker.is_finished(offset))
        self.apart.update(self.calls)
        self.apart = {offset for offset in self.apart if offset >= self.queue.min_offset}
        self.next = min(self.tracker.watermark, *self.apart) if self.apart else self.tracker.watermark
        for offset in [each for each in self.unanswered if self.is_over(each)]:
            del self.unanswered[offset]
