"""One group's share of a Kafka cluster: `upstream.source.Broker`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from broker.errors import StoreError
from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from conf.models import GroupConfig
from upstream.budget import Budget
from upstream.job import Generation, GroupQueue, UpstreamJob
from upstream.kafka.commits.blobs import Blobs
from upstream.kafka.commits.commits import KafkaOffsets
from upstream.kafka.dead_letters import DeadLetterWriter
from upstream.kafka.link import GroupMember, KafkaPartition, KafkaProducer, PartitionReader
from upstream.kafka.membership import Membership
from upstream.kafka.partitions import MemberSettings, Partitions
from upstream.kafka.source import KafkaSource
from upstream.kafka.topics import KafkaQueue, KafkaTopic, own
from upstream.progress.progress import DeadLetterOrigin, Progress
from upstream.queues import UNKNOWN, CommittedOffsets, NodeTopic, QueueView, TakeOver
from upstream.source import Appended, SourceCounts, Stored

DEAD_LETTER_SUFFIX = ".DLQ"
LEFT_OUT = declare(
    "pyddmq_kafka_headers_left_out_total",
    "Headers of Kafka records that cannot be property names: empty, or with 0x01 or 0x02.",
    ("group", "topic"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """A group's ways to its cluster.

    Attributes:
        member: Its first member.
        again: Makes another, after that one has left or ended.
    """

    member: GroupMember
    again: Callable[[], GroupMember]
    reader: PartitionReader
    producer: KafkaProducer


class _Claims:
    """What is given to this member is the group's."""

    def take(self, topic: NodeTopic) -> None:
        """It has what it was given."""

    def release(self, topic: str | None = None) -> None:
        """Commits are made as things finish; the member leaves with the node."""


class KafkaBroker:
    """One group's share of a cluster.

    Attributes:
        budget: The node's account of memory.
        partitions: What its member was given.
        membership: When it has one.
    """

    truncated_to = UNKNOWN

    def __init__(self, config: GroupConfig, *, ways: Ways, runtime: Runtime, settings: MemberSettings) -> None:
        """Set up; `join` begins.

        Args:
            config: The group.
            ways: To the cluster.
            runtime: The node's; its disk is not used.
            settings: Times and bounds.
        """
        blobs = Blobs(config.group, settings.commit_topic, reader=ways.reader, producer=ways.producer, runtime=runtime)
        self.partitions = Partitions(config, member=ways.member, blobs=blobs, runtime=runtime, settings=settings)
        self.budget = Budget()
        self._ways = ways
        self._runtime = runtime
        self._settings = settings
        self._sources: list[KafkaSource] = []
        self.membership = Membership(config.group, ways.member, ways.again, self.partitions, runtime)
        self._dead_letters = DeadLetterWriter(ways.producer, runtime, config.group)

    # Life

    @property
    def progress(self) -> Progress:
        """Return how far the group is."""
        return self.partitions.progress

    def join(
        self,
        group_queues: Callable[[], Sequence[GroupQueue]],
        serve: Callable[[], None],
        changed: Callable[[], bool] = lambda: True,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Become a member when, and for as long as, it is wanted.

        Args:
            group_queues: Tells what the group has in hand.
            serve: Answers parked pulls.
            changed: Told when what `expanded` returns has changed; whether the group reads accordingly.
            wanted: Whether a client pulls, or has messages of the group.
        """

        def go_on() -> None:
            for source in self._sources:
                source.go_on()
            serve()

        self.partitions.begin(group_queues, go_on, changed, self.membership.broken)
        self.membership.begin(wanted)

    def configure(self, config: GroupConfig) -> None:
        """Read what a changed configuration lists."""
        self.partitions.configure(config)

    def expanded(self, config: GroupConfig | None = None) -> GroupConfig:
        """Return the group's configuration over the topics that are there; see `upstream.kafka.subscriptions`."""
        found = self.partitions.expanded(config or self.partitions.subscriptions.config)
        share = self._settings.waiting_bytes // max(1, len(found.enabled_topics))
        for source in self._sources:
            source.keep_up_to(share)
        return found

    @property
    def leave_seconds(self) -> float:
        """How long a member that leaves waits for its last commit."""
        return self._settings.leave_seconds(cut_off=self.partitions.trouble is not None)

    def leave(self, done: Callable[[], None]) -> None:
        """Give up all partitions, with their last commit, and be no member any more."""

        def left() -> None:
            self.partitions.end()
            self._ways.reader.close()
            done()

        self.membership.end(left)

    def may_hand_out(self) -> bool:
        """Whether what this member was given is its own for certain (D54)."""
        return self.partitions.lease.holds

    def awaits_partitions(self) -> bool:
        """Whether the cluster may not have given this member its partitions since the start: for a session at most."""
        return self.partitions.awaits_first

    def when_durable(self, reported: Callable[[bool], None]) -> None:
        """Report once what has finished by now is committed; False: it will not be, others get it again."""
        self.partitions.commits.when_durable(reported)

    # Queues

    def queue(self, topic: str, queue_id: int) -> KafkaQueue | None:
        """Return a partition that this member has or is about to have."""
        return self.partitions.queue(topic, queue_id)

    def make_durable(self) -> None:
        """Kafka has acknowledged what is reported."""

    def opening_offsets(self, root: str, runtime: Runtime, *, finish_writes: Callable[[], None]) -> KafkaOffsets:
        """They come with the partitions."""
        return self.partitions.opening_offsets(root, runtime, finish_writes=finish_writes)

    def taking_over(self, offsets: CommittedOffsets) -> Generator[None, None, TakeOver]:
        """Nobody had anything in hand that the texts of commits do not say."""
        return self.partitions.taking_over(offsets)

    def offset_at(self, queue: QueueView, time_ms: int) -> int:
        """Return where the subscription's moment was found when the partition was given; its end otherwise."""
        at_time = own(queue).assignment.at_time
        return queue.max_offset if at_time is None else at_time

    def offsets_from(self, topic: str, time_ms: int, reported: Callable[[Mapping[int, int] | None], None]) -> None:
        """Ask where the records of a moment (ms since the epoch) or later begin in this member's partitions.

        Args:
            topic: Of these.
            time_ms: The moment.
            told: Told offsets by partition, an end where no record is so late, in a later turn of the loop; None: the
                cluster did not answer.
        """
        found = self.topic(topic)
        queues = {each.place: each for each in (found.queues if found is not None else ())}

        def arrived(offsets: Mapping[KafkaPartition, int | None] | None) -> None:
            if offsets is None:
                reported(None)
                return
            ends = {place: queue.max_offset for place, queue in queues.items()}
            reported(
                {place.partition: ends[place] if (offset := offsets.get(place)) is None else offset for place in queues}
            )

        self._ways.member.offsets_at(list(queues), time_ms, arrived)

    def stored(self, queue: QueueView, offset: int) -> Stored | None:
        """Tell it of a message that is in hand; nothing says how long it stays."""
        stored_ms = self.partitions.stored_ms(own(queue), offset)
        return None if stored_ms is None else Stored(stored_ms, None)

    # Topics

    def topic(self, name: str) -> KafkaTopic | None:
        """Return a topic; what a group subscribes is there, if only without partitions of this member's."""
        return self.partitions.topics.get(name)

    def make_topic(self, name: str) -> KafkaTopic:
        """Return a topic of the group's own."""
        return self.partitions.topic_named(name)

    def dead_letter_topic(self, group: str) -> str:
        """Return a name that Kafka takes."""
        return group + DEAD_LETTER_SUFFIX

    def is_dead_letter_topic(self, topic: str) -> bool:
        """By its name."""
        return topic.endswith(DEAD_LETTER_SUFFIX)

    def unknown(self, topic: str) -> str | None:
        """Its partitions are known once the cluster has given this member its share."""
        return self.partitions.unknown(topic)

    def claims(self, group: str, client_id: str, *, progress: Progress, lost: Callable[[str], None]) -> _Claims:
        """What is given is claimed."""
        return _Claims()

    def open(
        self,
        subscription: Generation,
        group_queues: Sequence[GroupQueue],
        *,
        counters: SourceCounts,
        keeps_bodies: bool,
    ) -> KafkaSource:
        """Open the source of one generation."""
        self._sources = [each for each in self._sources if not each.closed]
        source = KafkaSource(
            subscription,
            group_queues,
            stream_of=self.partitions.streams.__getitem__,
            reader=self._ways.reader,
            may_hand_out=self.may_hand_out,
            clock=self._runtime.clock,
            counters=counters,
            expired=self.partitions.logs.expired,
            after_bounds=self.partitions.logs.after_bounds,
            bytes_max=self._settings.waiting_bytes,
            budget=self.budget,
            left_out=self._runtime.metrics.counter(LEFT_OUT, subscription.group, subscription.config.topic),
        )
        self._sources.append(source)
        self.expanded()
        return source

    # Appends

    def append_dead_letter(self, group: str, job: UpstreamJob, reason: str, done: Appended) -> None:
        """Produce a copy with the reason and where it comes from; see `Broker.append_dead_letter`."""
        source = next((each for each in self._sources if not each.closed and each.has(job)), None)
        if source is None:
            self._read_again(job)
            raise StoreError(f"the body of {job.topic} {job.qid} {job.offset} is being read again")
        self._dead_letters.write(self.dead_letter_topic(group), job, source.record(job), reason, done)

    def is_dead_letter_refused(self, job: UpstreamJob) -> bool:
        """Whether Kafka has refused it so far."""
        return self._dead_letters.is_refused(job)

    def withdraw_dead_letter(self, job: UpstreamJob) -> bool:
        """Try no more to write it."""
        return self._dead_letters.withdraw(job)

    def _read_again(self, job: UpstreamJob) -> None:
        for source in self._sources:
            if not source.closed and source.reads(job):
                source.fetch([job], lambda _: None)

    def replaced_by_dead_letters(self, queue: QueueView, start: int) -> Iterator[DeadLetterOrigin]:
        """A dead letter is durable before its offset is finished; nothing else shows that one was written."""
        return iter(())
