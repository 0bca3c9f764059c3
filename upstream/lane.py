"""One queue of a topic as one group sees it, and the deliveries out of it.

A lane outlives the generations of its subscription (D22): it keeps the tracker, what may have been delivered before,
and what is still out from an earlier generation.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from upstream.job import UpstreamJob

if TYPE_CHECKING:
    from broker.consume_queue import ConsumeQueue
    from upstream.buffer import TopicLine
    from upstream.subscription import Subscription
    from upstream.tracker import OffsetTracker

EARLIER_MAX = 16
"""Deliveries of one message that ended without an answer and are remembered, the latest."""

Unit = tuple[int, int, int, int, "Lane"]
"""Physical offset, size, tags code, queue offset, lane: sorts in commit-log order."""


class Holder(Protocol):
    """A connection, as the buffer sees it.

    Attributes:
        heard: Number of the last reply that the client can have had when it sent the request being handled.
        carried: Number of the last reply with messages.
    """

    heard: int
    carried: int

    @property
    def address(self) -> str:
        """`ip:port` of the client."""
        ...

    @property
    def closed(self) -> bool:
        """Whether the connection is gone."""
        ...


class Delivery:
    """One batch that was handed out: all of its jobs share holder, start and deadline.

    Attributes:
        holder: Who has it.
        since: Monotonic seconds when it was handed out.
        deadline: Monotonic seconds when its timeout passes.
        jobs: Its jobs; None once none of them is out, so that no reference cycle keeps them alive.
        open: Jobs of it still unanswered.
        number: Tells it from every other delivery of its messages; 0 where none of them can have been delivered before.
        reply: Number of its reply on the holder's connection; 0 until that is made.
    """

    __slots__ = ("deadline", "holder", "jobs", "number", "open", "reply", "since")

    def __init__(self, holder: Holder, since: float, deadline: float, jobs: list[UpstreamJob]) -> None:
        self.holder = holder
        self.since = since
        self.deadline = deadline
        self.jobs: list[UpstreamJob] | None = jobs
        self.open = len(jobs)
        self.number = 0
        self.reply = 0

    def moved_on(self, jobs: list[UpstreamJob]) -> Delivery:
        """Return the same delivery as the next generation sees it, with those of its jobs that are left."""
        moved = Delivery(self.holder, self.since, self.deadline, jobs)
        moved.number, moved.reply = self.number, self.reply
        return moved


class Lane:
    """State of one (group, topic, queue).

    Attributes:
        subscription: The generation that runs it now, or None.
        live: Unfinished jobs that were read, by offset.
        retries: Whether the queue is the group's retry topic's, of which the lane has one topic's messages (D37).
        delivered_until: Offsets below may have been delivered before this process began, or by an earlier generation.
        uncertain_until: Offsets below may have been delivered before this process (or generation) began, so nobody
            can tell whose answer a result is; those from here on only by what this process remembers.
        check_until: Offsets below may be finished already although they are not read yet.
        adopted: Deliveries of an earlier generation that are still out, by offset: they stay in flight (D12). Of a
            finished message its key waits for their answer or timeout.
        apart: Offsets that are read although nothing is to be done with them: finished ones that are `adopted`, and
            those whose retry or dead letter is not known to be durable. Each keeps its key.
        unanswered: Deliveries that ended without an answer, by offset, oldest first: their answers may still come.
        next: Next offset to look up in the queue.
        pending: Units looked up but not yet given to the merge.
        waiting: Jobs in the pull buffer, oldest first; some may be finished meanwhile (`gone` of them).
        front: Heap of (offset, job) that came back and go first.
        listed: Whether the lane stands in its topic's rotation.
    """

    __slots__ = (
        "adopted",
        "apart",
        "check_until",
        "delivered_until",
        "front",
        "gone",
        "line",
        "listed",
        "live",
        "next",
        "pending",
        "qid",
        "queue",
        "queue_id",
        "retries",
        "subscription",
        "topic",
        "tracker",
        "unanswered",
        "uncertain_until",
        "waiting",
    )

    def __init__(self, line: TopicLine, queue: ConsumeQueue, qid: str, tracker: OffsetTracker) -> None:
        self.line = line
        self.topic = queue.topic
        self.queue_id = queue.queue_id
        self.qid = qid
        self.queue = queue
        self.tracker = tracker
        self.subscription: Subscription | None = None
        self.live: dict[int, UpstreamJob] = {}
        self.retries = line.topic != queue.topic
        self.delivered_until = self.uncertain_until = queue.max_offset
        self.check_until = tracker.high
        self.adopted: dict[int, Delivery] = {}
        self.apart: set[int] = set()
        self.unanswered: dict[int, list[Delivery]] = {}
        self.next = tracker.watermark
        self.pending: list[Unit] = []
        self.waiting: deque[UpstreamJob] = deque()
        self.front: list[tuple[int, UpstreamJob]] = []
        self.gone = 0
        self.listed = False

    @property
    def in_flight(self) -> int:
        """Messages that are out with clients; counted when asked."""
        return len(self.adopted) + sum(job.delivery is not None for job in self.live.values())

    def is_over(self, offset: int) -> bool:
        """Whether an offset need not be read: it is finished, and its key waits for nobody."""
        return self.tracker.is_finished(offset) and offset not in self.apart

    def note_unanswered(self, offset: int, delivery: Delivery) -> None:
        """Remember that a delivery of a message ended without an answer."""
        earlier = self.unanswered.setdefault(offset, [])
        if len(earlier) == EARLIER_MAX:
            del earlier[0]
        earlier.append(delivery)

    def forget(self, offset: int) -> None:
        """Forget a message that is over, and who had it."""
        self.live.pop(offset, None)
        self.adopted.pop(offset, None)
        self.apart.discard(offset)
        self.unanswered.pop(offset, None)

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
            # Retention has taken its record, which would tell its key.
            del self.adopted[offset]
        self.apart = {offset for offset in self.adopted if self.tracker.is_finished(offset)}
        self.apart.update(offset for offset in self.tracker.undecided if not self.tracker.is_finished(offset))
        self.apart = {offset for offset in self.apart if offset >= self.queue.min_offset}
        self.next = min(self.tracker.watermark, *self.apart) if self.apart else self.tracker.watermark
        for offset in [each for each in self.unanswered if self.is_over(each)]:
            del self.unanswered[offset]
