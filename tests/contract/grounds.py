"""The same node over either broker: publish, pull as the consumer service does, answer, let time pass, kill, start."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from broker.runtime.bundle import runtime_of
from broker.runtime.file_writes import FileWrites
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.steps import run_now
from conf.models import GroupConfig
from tests.fakes.kafka.client import SimClient
from tests.fakes.kafka.cluster import SimKafka
from tests.fakes.memory import Cluster, MemoryBroker, Record, SlowSyncs
from tests.kafka_world import Heard
from tests.unit.upstream_world import ROOT, Client, World
from upstream.delivery.group import ConsumerGroup
from upstream.delivery.pauses import Pauses
from upstream.job import GroupQueue
from upstream.kafka.broker import KafkaBroker, Ways
from upstream.kafka.link import Commit, GroupMember, KafkaFailure, KafkaPartition, KafkaRecord, TopicSubscription
from upstream.kafka.partitions import MemberSettings
from upstream.kafka.subscriptions import is_expression
from upstream.progress.progress import Progress
from upstream.source import Broker, Source
from upstream.waiting.buffer import PulledBatch

Taken = dict[tuple[str, int], bytes]
"""Bodies by (qid, offset)."""


class Ground(World):
    """What the contract asks of a node.

    Attributes:
        revokes: Queues may be taken away.
        has_gaps: Offsets may hold no message.
        bodies_come_later: A message is there before its body.
        writes_at_once: A dead letter that was begun is in the log, if not durable.
        retry_topics: What failed may wait in a topic.
        letters_may_double: Of a dead letter that was on its way when the node ended there may be two.
        topic: The one that is asked about.
        unreadable: Why a damaged message cannot be read.
    """

    unreadable = "damaged"

    revokes = False
    has_gaps = True
    bodies_come_later = False
    writes_at_once = False
    retry_topics = True
    letters_may_double = False
    topic = "t"

    def __init__(self, *subscriptions: dict[str, Any], **how: Any) -> None:
        """Start; subscriptions that name no topic are of `topic`."""
        super().__init__(*({"topic": self.topic, **each} for each in subscriptions or ({},)), **how)

    def group_queue(self, queue: int = 0, topic: str | None = None) -> GroupQueue:
        """Return a queue as the group sees it."""
        return super().group_queue(queue, topic or self.topic)

    def source(self, queue: int = 0) -> Source:
        """Return the source of the running generation."""
        subscription = self.group_queue(queue).subscription
        assert subscription is not None
        source: Source = vars(subscription)["_source"]
        return source

    def put(self, body: str, *, key: str | None = None, queue: int = 0, tag: str = "") -> None:
        """Publish one message."""
        self.publish(key, queue=queue, body=body.encode(), tag=tag)

    def damage(self, queue: int, offset: int) -> None:
        """Make a stored message unreadable."""
        physical, _, _ = self.store.topics[self.topic].queues[queue].read(offset, 1)[0]
        self.sim.flip_bit(f"{ROOT}/commitlog/{0:020d}", physical + 5)

    def widen(self) -> None:
        """Give the topic one queue more."""
        self.store.create_topic(self.topic, self.queues + 1)
        self.turn_end()

    def revoke(self) -> int:
        """Have one of two queues be taken away for another node; returns which."""
        raise NotImplementedError

    def finish_elsewhere(self, queue: int, offset: int) -> None:
        """Have the other node finish all up to a message, and commit that."""
        raise NotImplementedError

    def give_back(self, queue: int) -> None:
        """Have the queue come back."""
        raise NotImplementedError

    def committed(self, queue: int = 0) -> int | None:
        """Return what the broker has as committed."""
        return self.progress.offsets.get(self.group_name, self.topic, queue)

    def commit(self) -> None:
        """Begin a commit, and let it end."""
        self.progress.begin_commit()
        self.advance(0.2)

    def letters(self) -> list[bytes]:
        """Return the bodies of the group's dead letters."""
        return [each["body"].encode() for each in self.dead_letters()]

    def take(self, client: Client) -> Taken:
        """Pull until nothing is there, and read each reply's bodies as the consumer service does."""
        taken: Taken = {}
        while (batch := self.pull(client, self.topic)) is not None:
            for offset, (view, start, end, _, _) in self.messages(batch):
                taken[batch.qid, offset] = bytes(view[start:end])
        return taken

    def messages(self, batch: PulledBatch) -> list[tuple[int, Any]]:
        """Return what of a batch can be sent; the rest is given back or ended."""
        generation = batch.jobs[0].subscription
        messages = generation.slices(batch.jobs)
        if messages is None:
            reply = generation.sort_out(batch.jobs, self.group.reply_bytes_max)
            self.group.settle(reply)
            messages = reply.messages
        return messages

    def drain(self, client: Client, seconds: float = 5.0) -> Taken:
        """Pull, time and again, for so long."""
        taken: Taken = {}
        for _ in range(round(seconds * 10)):
            taken |= self.take(client)
            self.advance(0.1)
        return taken

    def ack(self, client: Client, *places: tuple[str, int], fail: bool = False) -> int:
        """Answer for messages; how many counted."""
        counted = 0
        for qid, offset in places:
            success, failed = ([], [offset]) if fail else ([offset], [])
            applied = self.group.apply(self.topic, qid, success, failed, client)
            counted += applied.counted
        self.turn_end()
        return counted


class EmbeddedGround(Ground):
    """Over the store."""

    has_gaps = False
    writes_at_once = True


class MemoryGround(Ground):
    """Over partitions in memory."""

    revokes = True
    bodies_come_later = True

    def __init__(self, *subscriptions: dict[str, Any], seed: int = 1, **how: Any) -> None:
        self.cluster = Cluster(Random(seed))
        super().__init__(*subscriptions, **how)

    def open(self) -> None:
        """Start the node on its journal and on the cluster."""
        self.metrics = Metrics()
        self.limited_log = RateLimitedLog(self.clock)
        for each in self.subscriptions:
            self.cluster.partitions(each["topic"], self.queues)
        self.memory = MemoryBroker(self.cluster, clock=self.clock, scheduler=self.scheduler)
        file_writes = FileWrites(self.disk)
        file_writes.syncs = SlowSyncs(self.cluster, self.scheduler)
        self.progress = run_now(
            Progress.opening(
                ROOT,
                queues=self.memory,
                runtime=runtime_of(self.disk, self.clock, metrics=self.metrics, scheduler=self.scheduler),
                file_writes=file_writes,
            )
        )
        self.pauses = Pauses.open(ROOT, disk=self.disk, clock=self.clock)
        self.group = self.make_group(self.config())
        self.group.start()

    def broker(self) -> Broker:
        """Return the one in memory."""
        return self.memory

    def put(self, body: str, *, key: str | None = None, queue: int = 0, tag: str = "") -> None:
        """Append to a partition."""
        properties = {"TAGS": tag} if tag else {}
        partition = self.cluster.partitions(self.topic, queue + 1)[queue]
        self.memory.publish(partition, Record(body=body.encode(), key=key, properties=properties))
        self.turn_end()

    def turn_end(self) -> None:
        """Write the journal."""
        self.progress.flush()

    def damage(self, queue: int, offset: int) -> None:
        """Make a stored message unreadable."""
        self.cluster.topics[self.topic][queue].records[offset].problem = "damaged"

    def widen(self) -> None:
        """Give the topic one queue more."""
        self.memory.give(self.topic, self.queues)
        self.turn_end()

    def revoke(self) -> int:
        """Take the first."""
        self.memory.revoke(self.topic, 0)
        return 0

    def finish_elsewhere(self, queue: int, offset: int) -> None:
        """Commit."""
        self.cluster.committed[self.group_name, self.topic, queue] = offset + 1

    def give_back(self, queue: int) -> None:
        """Give it."""
        self.memory.give(self.topic, queue)

    def committed(self, queue: int = 0) -> int | None:
        """Return what the cluster has as committed."""
        return self.cluster.committed.get((self.group_name, self.topic, queue))

    def letters(self) -> list[bytes]:
        """Return the bodies of the group's dead letters."""
        [partition] = self.cluster.partitions(self.memory.dead_letter_topic(self.group_name))
        return [record.body for _, record in partition.after(0)]


class OverKafka(Ground):
    """One member of one group over a Kafka."""

    revokes = True
    retry_topics = False
    letters_may_double = True
    protocol = "consumer"
    unreadable = "compacted"

    def __init__(self, *subscriptions: dict[str, Any], settings: MemberSettings | None = None, **how: Any) -> None:
        self.settings = settings or MemberSettings(session_seconds=10)
        self.wanted = True
        super().__init__(*subscriptions, **how)

    def open_member(self, ways: Ways) -> None:
        """Start the node, by its ways to the cluster; it has no partitions yet."""
        self.metrics = Metrics()
        self.limited_log = RateLimitedLog(self.clock)
        runtime = runtime_of(self.disk, self.clock, metrics=self.metrics, scheduler=self.scheduler)
        config = self.config()
        self.member = KafkaBroker(config, ways=ways, runtime=runtime, settings=self.settings)
        self.progress = self.member.progress
        self.pauses = Pauses.open(ROOT, disk=self.disk, clock=self.clock)
        self.group = self.make_group(config)
        self.group.start()
        self.member.join(self.group.group_queues, self.group.go_on, self._changed, lambda: self.wanted)

    def _changed(self) -> bool:
        self.group.reconfigure(self.member.expanded())
        return True

    def make_group(self, config: GroupConfig) -> ConsumerGroup:
        """Make a group that asks whether partitions are its own."""
        self.may_hand_out, self.awaits_partitions = self.member.may_hand_out, self.member.awaits_partitions
        return super().make_group(config)

    def broker(self) -> Broker:
        """Return the member's."""
        return self.member

    def turn_end(self) -> None:
        """Nothing is written."""
        self.progress.flush()

    def damage(self, queue: int, offset: int) -> None:
        """Take a record away, as compaction does, after its job was made, and its body with it."""
        self.take_away(queue, offset)
        del vars(self.source(queue))["_held"][self.group_queue(queue)][offset]
        [job] = [each for each in self.group_queue(queue).live.values() if each.offset == offset]
        source = self.source(queue)
        source.fetch([job], lambda _: None)
        self.wait_for(lambda: source.has(job))  # type: ignore[attr-defined]

    def take_away(self, queue: int, offset: int) -> None:
        """Have a record be in the cluster no more."""
        raise NotImplementedError

    def commit(self) -> None:
        """Let it be made."""
        self.advance(0.3)

    def new_member(self) -> GroupMember:
        """Return another member of the group, of another program."""
        raise NotImplementedError

    def wait_for(self, holds: Callable[[], object]) -> None:
        """Let time pass until something holds that the cluster brings about."""
        raise NotImplementedError

    def revoke(self) -> int:
        """Have another member join; what is out of the partition that it gets is not answered in time."""
        owned = self.member.partitions.owned
        self._other, self._heard = self.new_member(), Heard(reads=False)
        self._other.join(self._heard, [TopicSubscription(self.topic)])
        self.wait_for(lambda: any(each.gone for each in owned) or self._withholds())
        self.advance(self.settings.revoke_seconds + 1)
        self.wait_for(lambda: self._heard.given)
        [place] = self._heard.given
        return place.partition

    def _withholds(self) -> bool:
        return any(each.withheld for each in self.group.group_queues())

    def finish_elsewhere(self, queue: int, offset: int) -> None:
        """Commit as another program does."""
        ended: list[KafkaFailure | None] = []
        self._other.commit([Commit(self.topic, queue, offset + 1, "")], ended.append)
        self.wait_for(lambda: ended)
        assert ended == [None]

    def give_back(self, queue: int) -> None:
        """Have the other member leave."""
        self._other.leave(lambda: None)
        self.wait_for(lambda: any(each.queue_id == queue for each in self.member.partitions.owned))


class KafkaGround(OverKafka):
    """Over a simulated Kafka: one member of one group, by KIP-848."""

    def __init__(
        self, *subscriptions: dict[str, Any], seed: int = 1, beside: KafkaGround | None = None, **how: Any
    ) -> None:
        self.random = Random(seed)
        self.kafka: SimKafka | None = None
        self.beside = beside
        super().__init__(*subscriptions, **how)

    def open(self) -> None:
        """Start the node, and let it get its partitions."""
        if self.beside is not None:
            # Another node of the same group, in the same world.
            self.clock, self.scheduler, self.kafka = self.beside.clock, self.beside.scheduler, self.beside.kafka
        if self.kafka is None:
            self.kafka = SimKafka(self.random, clock=self.clock, scheduler=self.scheduler, protocol=self.protocol)
        elif self.beside is None:
            # The node before was killed: with it went all that its loop had to do.
            self.kafka.scheduler = self.scheduler
            self.kafka.forget_members()
        for each in self.subscriptions:
            if not is_expression(each["topic"]):
                self.kafka.partitions(each["topic"], self.queues)
        self.client = SimClient(self.kafka)
        self.open_member(
            Ways(
                member=self.client.member(self.group_name, "node"),
                again=lambda: self.client.member(self.group_name, "node"),
                reader=self.client.reader(),
                producer=self.client.producer(),
            )
        )
        if self.beside is None:
            self.advance(0.3)

    def cluster(self) -> SimKafka:
        """Return the cluster."""
        assert self.kafka is not None, "it is there once a node was"
        return self.kafka

    def put(self, body: str, *, key: str | None = None, queue: int = 0, tag: str = "") -> None:
        """Append to a partition."""
        headers = [("TAGS", tag.encode())] if tag else []
        self.cluster().append(KafkaPartition(self.topic, queue), key.encode() if key else None, body.encode(), headers)
        self.advance(0.1)

    def new_member(self) -> GroupMember:
        """Return one of the same client."""
        return self.client.member(self.group_name, "other")

    def wait_for(self, holds: Callable[[], object]) -> None:
        """Wait a minute at most."""
        for _ in range(600):
            if holds():
                return
            self.advance(0.1)
        raise AssertionError("it did not come about")

    def take_away(self, queue: int, offset: int) -> None:
        """Compact it away."""
        del self.cluster().topics[self.topic][queue].records[offset]

    def widen(self) -> None:
        """Give the topic one queue more."""
        self.cluster().partitions(self.topic, self.queues + 1)
        self.advance(0.5)

    def committed(self, queue: int = 0) -> int | None:
        """Return what the cluster has as committed."""
        found = self.cluster().group(self.group_name).committed.get(KafkaPartition(self.topic, queue))
        return None if found is None else found[0]

    def letters(self) -> list[bytes]:
        """Return the bodies of the group's dead letters."""
        [partition] = self.cluster().partitions(self.member.dead_letter_topic(self.group_name))
        return [record.value or b"" for _, record in sorted(partition.records.items())]

    def record(self, queue: int, offset: int) -> KafkaRecord:
        """Return a record as the cluster has it."""
        return self.cluster().topics[self.topic][queue].records[offset]


class ClassicKafkaGround(KafkaGround):
    """Likewise by the classic protocol."""

    protocol = "classic"
