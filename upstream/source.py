"""Where messages come from: what groups ask of a broker, and subscriptions of a source. Protocols only.

Three things are kept apart, because each has another life and another owner:

- A `Source` is one generation of a subscription reading one topic. It makes light jobs, and says what their bodies are
  on demand (D15). It decides nothing: how often a message came, when it comes again, who has it and what ends
  as a dead letter is the group's (D41). So another source is a reader and a writer, and no second delivery engine.
- A `Broker` is the one thing of a node that all groups share: it knows topics, opens sources, and makes durable what
  groups hand it. Whatever it makes durable it reports later, by a call; no caller may count on when.
- A queue (`upstream.queues`) outlives both: positions, deliveries and keys hang on it.

The cut runs where two brokers differ. The embedded one answers at once, orders a topic's queues among each other, keeps
every queue for good and finds any record by its place. Kafka has order in one partition only, gaps between offsets,
partitions that come and go, slow appends and commits, and bodies that must be fetched again. What this module promises
both can give; code above may use only what it promises. `docs/architecture.md` has the list, and the contract
suite asks each implementation for it.

Bytes for replies cross the seam as `Slices`: views and positions in them, one call per batch. The embedded source cuts
them out of the log without copying a byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from broker.errors import StoreError
from broker.runtime.metrics import Counter
from pyddmq.actions import Message
from upstream.job import Generation, GroupQueue, Slices, UpstreamJob
from upstream.progress.progress import DeadLetterOrigin, Progress
from upstream.queues import NodeTopic, Queues, QueueView

Appended = Callable[[StoreError | None, str, int, int], None]
"""Called once an append has ended: with None, or why only a restart shows whether the message is there; and with
topic, queue number and offset that it has or would have. Never called from within the append."""


class MessageTimeLeft(Protocol):
    """What is left until a message goes by itself; None where no such limit is set."""

    @property
    def seconds(self) -> float | None: ...

    @property
    def bytes(self) -> int | None: ...

    @property
    def share(self) -> float | None:
        """The smaller of the two as a part of its limit, from 1.0 to 0.0."""


class Stored(NamedTuple):
    """When a message was stored (wall clock), and how long it stays."""

    stored_ms: int
    left: MessageTimeLeft | None


class MessageFilter(NamedTuple):
    """Which messages a group is given.

    Attributes:
        tags: Only these; None: all.
        pressure_traffic: Whether those of stress tests are among them.
    """

    tags: frozenset[bytes] | None
    pressure_traffic: bool


class Stretch(NamedTuple):
    """What was read of a queue from an offset on.

    Attributes:
        messages: Offsets and slices of those that are wanted and can be read.
        times: Of each, if asked for: when it was stored, and when its producer says that it was made; ms.
        next_offset: Where to read on.
        bytes: What the messages take at most in a reply, without its frame.
        passed: Runs of offsets that hold nothing for the reader: first, end, and why: `tag_filter`,
            `pressure_traffic`, `damaged`, `gone`, or the reason why a body cannot be unpacked.
    """

    messages: list[tuple[int, Slices]]
    times: list[tuple[int, int]]
    next_offset: int
    bytes: int
    passed: list[tuple[int, int, str]]


class SourceCounts(Protocol):
    """What a source counts on behalf of its subscription."""

    def skipped(self, reason: str) -> Counter:
        """Messages that are finished without a delivery."""


class Source(Protocol):
    """Where the messages of one generation of a subscription come from. Called from the loop's thread only.

    Attributes:
        bodies_come_later: `fetch` is to be called before a body is read.
        lag_max: Unfinished offsets of a queue beyond which nothing more is read of it; None: no limit.
    """

    lag_max: int | None

    @property
    def bodies_come_later(self) -> bool: ...

    def read(self, count: int) -> list[UpstreamJob]:
        """Make the next jobs, at most `count`, in the order of their queues; registered in their group queues.

        Messages that are not delivered (filtered, unreadable) are finished and counted, and not among them; so fewer
        than `count`, even none, may come although there is more: see `caught_up`. So are offsets that never held one,
        uncounted.
        """

    @property
    def caught_up(self) -> bool:
        """Whether `read` has nothing to give until something arrives or an offset finishes."""

    def arrived(self) -> None:
        """Tell that something may be there to read: messages arrived, or a limit moved."""

    def add_group_queue(self, group_queue: GroupQueue) -> None:
        """Read another queue too: the topic got more of them."""

    def close(self) -> None:
        """Read nothing more, and forget what is under way."""

    def fetch(self, jobs: Sequence[UpstreamJob], there: Callable[[list[UpstreamJob]], None]) -> list[UpstreamJob]:
        """Have the bodies of jobs in memory until these have ended; asked only where `bodies_come_later`.

        Args:
            jobs: Jobs that hold permits.
            there: Called, in a later turn, with those whose bodies came. Of one that never will a body is asked for
                all the same, and that raises.

        Returns:
            Those whose bodies are in memory.
        """

    def body(self, job: UpstreamJob) -> memoryview:
        """Read a job's body alone.

        Raises:
            MessageUnreadable: It is damaged or gone.
            BodyUnprocessable: It cannot be unpacked.
        """

    def load(self, job: UpstreamJob) -> Message:
        """Read a job's message.

        Raises:
            MessageUnreadable: It is damaged or gone.
            BodyUnprocessable: It cannot be unpacked.
        """

    def stored_ms(self, job: UpstreamJob) -> int | None:
        """Return when a job's message was stored, ms since the epoch; None when it cannot be read."""

    def message_id(self, job: UpstreamJob) -> str | None:
        """Return the id by which its producer knows a message; None for one without, or that cannot be read."""

    def slices(self, jobs: Sequence[UpstreamJob]) -> list[tuple[int, Slices]] | None:
        """Return offsets and slices of a batch for its reply; None where one of its jobs needs a look: `located`."""

    def located(self, job: UpstreamJob) -> Slices:
        """Return the slices of one message for a reply; raises as `body`."""


class Claims(Protocol):
    """A group's right to read queues: no other consumer has it meanwhile, but for what the broker itself takes away."""

    def take(self, topic: NodeTopic) -> None:
        """Take all queues that a topic has now, or keep those held.

        Raises:
            QueuesOwned: Somebody else consumes one of them; nothing was taken.
        """

    def release(self, topic: str | None = None) -> None:
        """Give up one topic, with the committed offsets written down before, or all of them without that."""


class Times(Queues, Protocol):
    """Queues, and when their messages were stored."""

    def offset_at(self, queue: QueueView, time_ms: int) -> int:
        """Return the first offset of a queue stored at or after a moment (wall clock); its end when there is none."""

    def stored(self, queue: QueueView, offset: int) -> Stored | None:
        """Tell when the message at an offset was stored, or the first that is kept; None where it cannot be read."""


class Broker(Times, Protocol):
    """What the groups of a node have in common."""

    def topic(self, name: str) -> NodeTopic | None:
        """Return a topic; None when there is none of that name."""

    def make_topic(self, name: str) -> NodeTopic:
        """Return a topic of a group's own, made where it is missing. Raises StoreError."""

    def dead_letter_topic(self, group: str) -> str:
        """Name of the topic in which a group's dead letters stand."""

    def is_dead_letter_topic(self, topic: str) -> bool:
        """Whether a topic holds dead letters, of any group."""

    def unknown(self, topic: str) -> str | None:
        """Return why it is not known yet where a group is in a topic; None: it is known."""

    def claims(self, group: str, client_id: str, *, progress: Progress, lost: Callable[[str], None]) -> Claims:
        """Claim queues for a group.

        Args:
            group: Name of the group.
            client_id: Who claims.
            progress: Committed before queues are released.
            lost: Called with a topic whose queues another consumer got meanwhile.
        """

    def open(
        self,
        subscription: Generation,
        group_queues: Sequence[GroupQueue],
        *,
        counters: SourceCounts,
        keeps_bodies: bool,
    ) -> Source:
        """Open the source of one generation; it is where its group queues do.

        Args:
            subscription: Owner of the jobs that are made; its configuration says which messages it wants, and their
                order key.
            group_queues: All queues; more may be added later.
            counters: Series of the subscription.
            keeps_bodies: Bodies are read at once, before the order gate: leave them with the jobs.
        """

    def append_dead_letter(self, group: str, job: UpstreamJob, reason: str, done: Appended) -> None:
        """Append the dead letter of a job (D16), which names the message that it replaces.

        Raises:
            StoreError: It is refused; nothing was written, and `done` is not called.
            MessageUnreadable: The message is damaged or gone; likewise.
        """

    def is_dead_letter_refused(self, job: UpstreamJob) -> bool:
        """Whether the dead letter of a job was refused after it was taken, and is tried again."""

    def withdraw_dead_letter(self, job: UpstreamJob) -> bool:
        """Give such a dead letter up: its `done` is not called. False: it is under way, or done."""

    def replaced_by_dead_letters(self, queue: QueueView, start: int) -> Iterator[DeadLetterOrigin]:
        """Yield what the dead letters of a queue replace from an offset on; unreadable ones are left out."""


class StretchSource(Protocol):
    """A broker whose queues can be read by clients that keep their own offsets (low-level topics)."""

    def read_stretch(
        self, queue: QueueView, start: int, count_max: int, bytes_max: int, wanted: MessageFilter, *, times: bool
    ) -> Stretch:
        """Read a queue for a client that keeps an offset of its own; no job is made, and no position moves.

        One call does bounded work: it may return without a message although there are some behind `next_offset`.

        Args:
            queue: Any queue of this broker.
            start: First offset wanted; from `min_offset` to `max_offset`.
            count_max: Messages at most.
            bytes_max: What they may take together. The first one is read whatever it takes, if this is above 0.
            wanted: Which of them.
            times: Whether their times are wanted, too.
        """


class RetryQueues(Protocol):
    """A broker in which a failed message can leave its queue until its next attempt (D37)."""

    def retry_topic(self, group: str) -> str:
        """Name of the topic in which what a group failed comes again (D37)."""

    def append_retry(self, group: str, job: UpstreamJob, wait_ms: int, done: Appended) -> None:
        """Append a failed job's message, with its counts: after a wait it comes again (D37).

        Raises:
            StoreError: It is refused; nothing was written, and `done` is not called.
            MessageUnreadable: The message is damaged or gone; likewise.
        """

    def retry_queues(self, group: str) -> Sequence[QueueView]:
        """Return the queues where `append_retry` leaves records; those of other topics than the group's are shared."""

    def replaced_by_retries(self, queue: QueueView, start: int) -> Iterator[DeadLetterOrigin]:
        """Yield what the records of `append_retry` in a queue replace, likewise."""
