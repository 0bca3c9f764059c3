"""One node's ways to a Kafka in memory: `upstream.kafka.link.KafkaClient`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from upstream.kafka.link import Headers, KafkaFailure, KafkaRecord, Place, Produced
from upstream.testing.kafka_cluster import SimKafka
from upstream.testing.kafka_member import SimMember


class SimClient:
    """`upstream.kafka.link.KafkaClient` of one node."""

    def __init__(self, cluster: SimKafka) -> None:
        self._cluster = cluster
        self.members: list[SimMember] = []
        self._producers: list[SimProducer] = []

    def member(self, group: str, client_id: str) -> SimMember:
        """Return a member."""
        member = SimMember(self._cluster, group)
        self.members.append(member)
        return member

    def reader(self) -> SimReader:
        """Return a reader."""
        return SimReader(self._cluster)

    def producer(self) -> SimProducer:
        """Return a producer."""
        producer = SimProducer(self._cluster)
        self._producers.append(producer)
        return producer

    def kill(self) -> None:
        """The node has died."""
        for member in self.members:
            member.kill()
        for producer in self._producers:
            producer.dead = True


class SimReader:
    """`upstream.kafka.link.PartitionReader`."""

    def __init__(self, cluster: SimKafka) -> None:
        self._cluster = cluster

    def fetch(self, place: Place, offsets: Sequence[int], there: Callable[[Sequence[KafkaRecord]], None]) -> None:
        """Read again."""

        def arrive() -> None:
            records = self._cluster.topics[place.topic][place.partition].records
            there([records[each] for each in offsets if each in records])

        self._cluster.later(arrive)

    def close(self) -> None:
        """Nothing is held."""


class SimProducer:
    """`upstream.kafka.link.Producer`.

    Attributes:
        dead: Its process is none any more.
    """

    def __init__(self, cluster: SimKafka) -> None:
        self._cluster = cluster
        self.dead = False

    def produce(  # noqa: PLR0917 - as the protocol says
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        done: Produced,
    ) -> None:
        """Append some time later."""

        def arrive() -> None:
            if self.dead:
                return
            if self._cluster.down:
                self._cluster.later(done, KafkaFailure("_MSG_TIMED_OUT", "not acknowledged", unknown=True), -1, -1)
                return
            if topic in self._cluster.missing:
                failure = KafkaFailure("UNKNOWN_TOPIC_OR_PART", f"there is no topic {topic}")
                self._cluster.later(done, failure, -1, -1)
                return
            count = len(self._cluster.partitions(topic))
            number = partition if partition is not None else sum(key or b"") % count
            offset = self._cluster.append(Place(topic, number), key, value, headers)
            self._cluster.later(done, None, number, offset)

        self._cluster.later(arrive)

    def partitions(self, topic: str) -> int | None:
        """As they are."""
        found = self._cluster.topics.get(topic)
        return None if found is None else len(found)

    def close(self, seconds: float) -> None:
        """Nothing is held."""
