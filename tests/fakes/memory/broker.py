"""One node's view of a cluster in memory: `upstream.source.Broker`, in which everything takes its time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

from broker.runtime.bundle import Runtime
from broker.runtime.seams import Clock, Scheduler
from pyddmq.actions import MessageUnreadable
from tests.fakes.memory.cluster import Cluster, MemoryOffsets, Partition, Record
from tests.fakes.memory.source import MemorySource, own, slices_of
from tests.fakes.memory.topics import MemoryQueue, MemoryTopic
from upstream.job import Generation, GroupQueue, UpstreamJob
from upstream.progress.progress import DeadLetterOrigin, Progress, ProgressFailed
from upstream.queues import UNKNOWN, CommittedOffsets, NodeTopic, QueueView, TakeOver
from upstream.source import Appended, MessageFilter, SourceCounts, Stored, Stretch

WAITS = "waits"
"""Topic in which what failed waits until it goes to its group's retry topic."""
DEAD_LETTERS = "dead-letters-"
RETRIES = "retries-"


class _Claims:
    """Queues are this node's as long as they are given to it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def take(self, topic: NodeTopic) -> None:
        """It has what it was given."""

    def release(self, topic: str | None = None) -> None:
        """Commit, where that can be done."""
        if topic is not None and not isinstance(self._progress.failed, ProgressFailed):
            self._progress.commit()


class MemoryBroker:
    """What one node has of a cluster; a node that ends is forgotten with its scheduler."""

    truncated_to = UNKNOWN

    def __init__(self, cluster: Cluster, *, clock: Clock, scheduler: Scheduler) -> None:
        self.cluster = cluster
        self._clock = clock
        self._scheduler = scheduler
        self._topics = {
            name: MemoryTopic(name, [MemoryQueue(each) for each in partitions])
            for name, partitions in cluster.topics.items()
        }
        for _, record in self.cluster.partitions(WAITS)[0].after(0):
            self._wait(record)

    # Queues

    def queue(self, topic: str, queue_id: int) -> MemoryQueue | None:
        """Return a queue that this node was given."""
        found = self._topics.get(topic)
        return None if found is None else next((each for each in found.queues if each.queue_id == queue_id), None)

    def revoke(self, topic: str, queue_id: int) -> None:
        """Take a queue away."""
        found = self._topics[topic]
        found.queues = [each for each in found.queues if each.queue_id != queue_id]
        found.reported()

    def give(self, topic: str, queue_id: int) -> None:
        """Give a queue, or give it back."""
        found = self._topics[topic]
        partition = self.cluster.partitions(topic, queue_id + 1)[queue_id]
        found.queues = sorted([*found.queues, MemoryQueue(partition)], key=lambda each: each.queue_id)
        found.reported()

    def publish(self, partition: Partition, record: Record) -> int:
        """Append as a producer does, durable at once; returns the offset."""
        record.stored_ms = self._clock.wall_ms()
        offset = self.cluster.append(partition, record)
        if partition.topic in self._topics:
            self._topics[partition.topic].reported()
        return offset

    def make_durable(self) -> None:
        """It has no disk."""

    def opening_offsets(self, root: str, runtime: Runtime, *, finish_writes: Callable[[], None]) -> MemoryOffsets:
        """They are the cluster's."""
        return MemoryOffsets(self.cluster, finish_writes)

    def taking_over(self, offsets: CommittedOffsets) -> Generator[None, None, TakeOver]:
        """Nobody had anything in hand."""
        yield
        return lambda tracker_of, metrics: False

    def offset_at(self, queue: QueueView, time_ms: int) -> int:
        """Look at each."""
        found = (offset for offset, record in own(queue).partition.after(0) if record.stored_ms >= time_ms)
        return next(found, queue.max_offset)

    def stored(self, queue: QueueView, offset: int) -> Stored | None:
        """Of the first from there on; nothing says how long it stays."""
        found = next(own(queue).partition.after(offset), None)
        return None if found is None else Stored(found[1].stored_ms, None)

    # Topics

    def topic(self, name: str) -> MemoryTopic | None:
        """Return a topic."""
        return self._topics.get(name)

    def make_topic(self, name: str) -> MemoryTopic:
        """Make it with one queue."""
        if name not in self._topics:
            self._topics[name] = MemoryTopic(name, [MemoryQueue(self.cluster.partitions(name)[0])])
        return self._topics[name]

    def dead_letter_topic(self, group: str) -> str:
        """A name that Kafka takes."""
        return f"{DEAD_LETTERS}{group}"

    def retry_topic(self, group: str) -> str:
        """A name that Kafka takes."""
        return f"{RETRIES}{group}"

    def is_dead_letter_topic(self, topic: str) -> bool:
        """By its name."""
        return topic.startswith(DEAD_LETTERS)

    def unknown(self, topic: str) -> str | None:
        """Queues are there from the first moment on."""
        return None

    def claims(self, group: str, client_id: str, *, progress: Progress, lost: Callable[[str], None]) -> _Claims:
        """What is given is claimed."""
        return _Claims(progress)

    def open(
        self,
        subscription: Generation,
        group_queues: Sequence[GroupQueue],
        *,
        counters: SourceCounts,
        keeps_bodies: bool,
    ) -> MemorySource:
        """Open the source of one generation."""
        return MemorySource(
            subscription,
            group_queues,
            cluster=self.cluster,
            clock=self._clock,
            scheduler=self._scheduler,
            counters=counters,
            keeps_bodies=keeps_bodies,
        )

    def read_stretch(
        self, queue: QueueView, start: int, count_max: int, bytes_max: int, wanted: MessageFilter, *, times: bool
    ) -> Stretch:
        """Look at each."""
        found = Stretch([], [], queue.max_offset, 0, [])
        room = bytes_max
        for offset, record in own(queue).partition.after(start):
            size = len(record.body)
            if len(found.messages) == count_max or room <= 0 or (size > room and found.messages):
                found = found._replace(next_offset=offset)
                break
            tag = record.properties.get("TAGS", "").encode()
            if record.problem is not None:
                found.passed.append((offset, offset + 1, record.problem))
            elif wanted.tags is not None and tag not in wanted.tags:
                found.passed.append((offset, offset + 1, "tag_filter"))
            else:
                found.messages.append((offset, slices_of(record)))
                if times:
                    found.times.append((record.stored_ms, record.stored_ms))
                room -= size
        return found._replace(bytes=bytes_max - room)

    # Appends

    def is_dead_letter_refused(self, job: UpstreamJob) -> bool:
        """What is taken is not refused later."""
        return False

    def withdraw_dead_letter(self, job: UpstreamJob) -> bool:
        """Likewise."""
        return False

    def append_dead_letter(self, group: str, job: UpstreamJob, reason: str, done: Appended) -> None:
        """Copy the message, some time later."""
        record = self._copy(group, job, {"REASON": reason})
        self._append(self.make_topic(self.dead_letter_topic(group)), record, done)

    def append_retry(self, group: str, job: UpstreamJob, wait_ms: int, done: Appended) -> None:
        """Copy the message to where it waits, some time later."""
        origin = job.subscription.config.topic
        record = self._copy(group, job, {"ORIGIN": origin, "GROUP": group})
        history = job.history
        assert history is not None, "only what failed is sent back"
        record.counts = (history.fails, history.errors, history.timeouts)
        record.due_ms = self._clock.wall_ms() + wait_ms

        def durable(error: None, topic: str, queue_id: int, offset: int) -> None:
            self._wait(record)
            done(error, topic, queue_id, offset)

        self._append(self.make_topic(WAITS), record, durable)

    def _copy(self, group: str, job: UpstreamJob, more: dict[str, str]) -> Record:
        found = own(job.group_queue.queue).partition.records.get(job.offset)
        if found is None or found.problem is not None:
            raise MessageUnreadable("gone" if found is None or found.problem is None else found.problem)
        origin = DeadLetterOrigin(group, job.topic, job.queue_id, job.offset, found.serial)
        return Record(body=found.body, key=found.key, properties={**found.properties, **more}, replaces=origin)

    def _append(self, topic: MemoryTopic, record: Record, done: Callable[[None, str, int, int], None]) -> None:
        partition = self.cluster.partitions(topic.name)[0]

        def durable() -> None:
            offset = self.publish(partition, record)
            # Told later still: a node may end between the two.
            self._scheduler.call_later(self.cluster.delay(), done, None, topic.name, 0, offset)

        self._scheduler.call_later(self.cluster.delay(), durable)

    def _wait(self, record: Record) -> None:
        """Put a record into its group's retry topic when it is due; once, whoever ends before."""
        if record.due_ms:
            wait_ms = max(0, record.due_ms - self._clock.wall_ms())
            self._scheduler.call_later(wait_ms / 1000, self._come_again, record)

    def _come_again(self, record: Record) -> None:
        if record.due_ms:
            record.due_ms = 0
            group = record.properties["GROUP"]
            again = Record(body=record.body, key=record.key, properties=dict(record.properties), counts=record.counts)
            self.make_topic(self.retry_topic(group))
            self.publish(self.cluster.partitions(self.retry_topic(group))[0], again)

    def retry_queues(self, group: str) -> list[MemoryQueue]:
        """Where all groups' wait; what comes again replaces nothing."""
        return [] if self.topic(self.retry_topic(group)) is None else self.make_topic(WAITS).queues

    def replaced_by_dead_letters(self, queue: QueueView, start: int) -> Iterator[DeadLetterOrigin]:
        """Of what is there."""
        return (each.replaces for _, each in own(queue).partition.after(start) if each.replaces is not None)

    def replaced_by_retries(self, queue: QueueView, start: int) -> Iterator[DeadLetterOrigin]:
        """Of what waits or waited."""
        return self.replaced_by_dead_letters(queue, start)
