"""A producer of Kafka in memory that answers as a test says: late, with a failure, in part, or when it is let."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.runtime.seams import Scheduler
from upstream.kafka.cluster_facts import ClusterFacts
from upstream.kafka.lease import Lease
from upstream.kafka.link import (
    Broken,
    Checkpoint,
    GroupMember,
    Headers,
    KafkaFailure,
    KafkaPartition,
    KafkaRecord,
    KafkaTransactions,
    LogLoaded,
    PartitionReader,
    Produced,
    ScanDone,
    TopicScan,
)

_MASK = 0xFFFF_FFFF


class Answer(NamedTuple):
    """What becomes of a record.

    Attributes:
        seconds: When its producer is told; None: at `MemoryProducer.release`.
        failure: What it is told; None: that it is stored.
        stored: Whether it is in its partition, whatever is told; None: when nothing failed.
        refused: It is not even taken.
        unsent: It waits in the node, from where it can be withdrawn.
    """

    seconds: float | None = 0.001
    failure: KafkaFailure | None = None
    stored: bool | None = None
    refused: bool = False
    unsent: bool = False


class MemoryProducer:
    """`upstream.kafka.link.KafkaProducer`, and `KafkaClient` for it.

    Attributes:
        topics: Partitions by topic; a topic that is not here is not known.
        answer: Says what becomes of a record, given its topic and body.
        records: What is stored.
        asked: Partition and key of each record that was taken, in order.
        closed: Seconds that each `close` had.
        unsent: `done` of each record that has not left the node.
    """

    protocol_trouble = ""

    def __init__(self, scheduler: Scheduler, topics: dict[str, int]) -> None:
        self.topics = topics
        self.answer: Callable[[str, bytes], Answer] = lambda topic, body: Answer()
        self.records: dict[KafkaPartition, list[KafkaRecord]] = {}
        self.asked: list[tuple[int | None, bytes | None]] = []
        self.closed: list[float] = []
        self._scheduler = scheduler
        self._held: list[Callable[[], None]] = []
        self.unsent: list[Produced] = []

    def transactions(self, transactional_id: str, lease: Lease | None = None) -> KafkaTransactions:
        """Nothing waits here."""
        raise NotImplementedError

    def scan(self, scan: TopicScan, done: ScanDone) -> Callable[[], object]:
        """Nothing is looked for here."""
        raise NotImplementedError

    def load(self, place: KafkaPartition, path: str, checkpoint: Checkpoint, done: LogLoaded) -> Callable[[], object]:
        """Nothing waits here."""
        raise NotImplementedError

    def look(self, topics: Sequence[str], reported: Callable[[ClusterFacts], None], groups: Sequence[str] = ()) -> None:
        """Never answered."""

    def produce(  # noqa: PLR0917 - as the protocol says
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        done: Produced,
    ) -> None:
        """Append, or not, as `answer` says."""
        answer = self.answer(topic, value or b"")
        if topic not in self.topics:
            answer = Answer(failure=KafkaFailure("UNKNOWN_TOPIC_OR_PART", "no such topic"))
        if answer.refused:
            assert answer.failure is not None
            raise answer.failure
        if answer.unsent:
            self.unsent.append(done)
            return
        self.asked.append((partition, key))
        number, offset = -1, -1
        if answer.failure is None if answer.stored is None else answer.stored:
            count = self.topics[topic]
            number = partition if partition is not None else (murmur2(key) % count if key is not None else 0)
            assert 0 <= number < count
            stored = self.records.setdefault(KafkaPartition(topic, number), [])
            offset = len(stored)
            stored.append(KafkaRecord(topic, number, offset, 0, key, value, tuple(headers)))

        def report() -> None:
            done(answer.failure, *((number, offset) if answer.failure is None else (-1, -1)))

        if answer.seconds is None:
            self._held.append(report)
        else:
            self._scheduler.call_later(answer.seconds, report)

    def release(self, count: int | None = None) -> None:
        """Tell what was held back, or the first of it."""
        reported = self._held[:count]
        del self._held[:count]
        for report in reported:
            self._scheduler.call_later(0, report)

    def withdraw(self, done: Produced) -> bool:
        """Forget a record that has not left."""
        here = done in self.unsent
        self.unsent = [each for each in self.unsent if each is not done]
        return here

    def partitions(self, topic: str) -> int | None:
        """As in `topics`."""
        return self.topics.get(topic)

    def unreachable(self, topic: str) -> KafkaFailure | None:
        """Never."""

    def close(self, seconds: float) -> None:
        """Nothing is under way any more."""
        self.closed.append(seconds)

    def bodies(self, topic: str) -> list[bytes]:
        """All bodies of a topic, partition after partition."""
        return [
            each.value or b"" for place in sorted(self.records) if place.topic == topic for each in self.records[place]
        ]

    def session_ms(self, reported: Callable[[int | None], None]) -> None:
        """There are no groups here."""

    def producer(self, broken: Broken = lambda _: None) -> MemoryProducer:
        """Itself."""
        return self

    def member(self, group: str, client_id: str, instance_id: str = "") -> GroupMember:
        """There are no groups here."""
        raise NotImplementedError

    def reader(self) -> PartitionReader:
        """There is nothing to read here."""
        raise NotImplementedError


def murmur2(data: bytes) -> int:
    """Return the hash, made positive, by which Java's client chooses a key's partition (org.apache.kafka.Utils)."""
    value = (0x9747B28C ^ len(data)) & _MASK
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 & _MASK
        word = (word ^ word >> 24) * 0x5BD1E995 & _MASK
        value = value * 0x5BD1E995 & _MASK ^ word
    rest = data[whole:]
    if rest:
        value = (value ^ int.from_bytes(rest, "little")) * 0x5BD1E995 & _MASK
    value = (value ^ value >> 13) * 0x5BD1E995 & _MASK
    return (value ^ value >> 15) & 0x7FFF_FFFF
