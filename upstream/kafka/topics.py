"""Topics and queues of one group's share of a Kafka cluster: what this member was given, until that is taken away."""

from __future__ import annotations

from collections.abc import Callable

from upstream.kafka.commits.metadata import CommitMetadata
from upstream.kafka.link import Assignment
from upstream.queues import UNKNOWN, QueueView


class KafkaQueue:
    """`upstream.queues.QueueView` of one partition, as long as this member has it.

    Kafka gives no offset to a second record, but after an unclean election of a leader: then the second one is of a
    later leader. So offset and leader's epoch identify a record.

    Attributes:
        assignment: What was reported when it was given.
        start: The group's position then.
        min_offset: First offset that is kept, as last heard.
        max_offset: The end, as last heard.
        newest: Offset and time (ms) of the last record that came.
        gone: It is the member's no more.
        expired: Messages that retention took before the partition was given.
        missing: The cluster does not have it at present, or has another topic of its name.
        is_back: It was missing, and there is one of its name again; whether it is the same is not known yet.
        is_other: Its topic was created again, or may have been.
        doubted: Something of it came that is below what came before.
        diverged: Since where it is another log than was read; None: it is not known to be.
        short_looks: How often, one after the other, it was found to end before what was read.
        leader_epoch: Of the last leader of which the group has read something; -1: not known.
        claimed: Up to which offset single ones were finished when it was given, and of which leader the last was.
        reused_from: As `Assignment.reused_from`.
        is_cut: More was finished of it than its log has.
        topic_id: Of which topic its position is; "": the cluster has no ids; None: not heard yet.
    """

    base_offset = void_from = 0

    def __init__(self, assignment: Assignment, start: int) -> None:
        self.assignment = assignment
        self.place = assignment.place
        self.topic = assignment.topic
        self.queue_id = assignment.partition
        self.start = start
        self.min_offset = assignment.low
        self.max_offset = max(assignment.high, start)
        self.newest = (UNKNOWN, UNKNOWN)
        self.gone = False
        self.expired = 0
        self.missing = False
        self.is_back = False
        self.is_other = False
        self.doubted = False
        self.diverged: int | None = None
        self.short_looks = 0
        self.leader_epoch = assignment.leader_epoch
        self.claimed = (0, -1)
        self.reused_from = assignment.reused_from
        self.is_cut = False
        self.topic_id: str | None = None

    @property
    def stood_at(self) -> int:
        """Where the group had committed, be it kept still or not; where it begins otherwise."""
        committed = self.assignment.committed
        return self.start if committed is None or self.assignment.is_beyond else committed

    def kept(self, known: CommitMetadata) -> CommitMetadata:
        """Return what is known of messages that the log has: at and above its end are, or will be, others."""
        end = self.assignment.high
        ranges = [(start, min(last, end)) for start, last in known.ranges if start < end]
        self.is_cut |= any(last > end for _, last in known.ranges)
        failures = {offset: failure for offset, failure in known.failures.items() if offset < end}
        return known._replace(ranges=ranges, failures=failures)

    def void_above(self, offset: int) -> int:
        """No gap is known before it is read."""
        return 0

    def identity(self, offset: int, *, checked: bool = True) -> int:
        """An offset says it."""
        return UNKNOWN

    def __repr__(self) -> str:
        return f"<partition {self.topic} {self.queue_id} {self.min_offset}..{self.max_offset}>"


class KafkaTopic:
    """`upstream.queues.NodeTopic` of one member."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.queues: list[KafkaQueue] = []
        self.listeners: list[Callable[[], None]] = []

    def give(self, queue: KafkaQueue) -> None:
        """Add a queue; who listens is to be `told`."""
        self.queues = sorted([*self.queues, queue], key=lambda each: each.queue_id)

    def take(self, queue: KafkaQueue) -> None:
        """Take a queue away; likewise."""
        self.queues = [each for each in self.queues if each is not queue]

    def reported(self) -> None:
        """Call the listeners; they may change."""
        for listener in list(self.listeners):
            listener()


def own(queue: QueueView) -> KafkaQueue:
    """Return a queue as what it is here."""
    assert isinstance(queue, KafkaQueue), "a queue of this broker"
    return queue
