"""The contract's ground over a real Kafka: one member of one group, by the product's client.

The node's time is virtual, as over every other ground; Kafka and the threads of its client live in the machine's. They
meet in `advance`: what the node has asked of Kafka LATE_SECONDS of its own time ago is waited for, as long as it takes,
and the node's clock stands still meanwhile. So a wait of hours takes no longer than what Kafka has to do in it, and
what is younger may have happened or not, as it is where a node is killed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, TopicPartition

from broker.runtime.seams import SystemClock
from conf.sections.kafka import KafkaClusterConfig
from pyddmq.testing import ManualScheduler
from tests.contract.grounds import OverKafka
from tests.kafka.debts import LATE_SECONDS, Debts, NodeLoop, WatchedMember, WatchedProducer, WatchedReader
from tests.kafka.topics import SECONDS, add_partitions, committed, delete_records, make_topic, plain_producer
from tests.patient import until
from upstream.kafka.broker import Ways
from upstream.kafka.link import KafkaPartition
from upstream.kafka_client.client import LibrdkafkaClient
from upstream.kafka_client.member import LibrdkafkaMember

PROMPT = {"fetch.wait.max.ms": 20}
"""That there is nothing more is said by a fetch that got nothing, which waits for so long."""
_EACH_MANIETH_IN_A_TRANSACTION = 3


def _knows(producer: Any, topic: str, count: int) -> bool:
    return len(producer.list_topics(topic, timeout=SECONDS).topics[topic].partitions) >= count


class Elsewhere:
    """What other programs do at the cluster."""

    def __init__(self, address: str) -> None:
        """Set up, for as long as there are tests."""
        self.address = address
        self._producer = plain_producer(address, log_level=0)
        self._transactions = plain_producer(address, log_level=0, **{"transactional.id": f"contract-{uuid4().hex}"})
        self._transactions.init_transactions(SECONDS)
        looks = {"group.id": "contract-look", "enable.partition.eof": True, "auto.offset.reset": "earliest", **PROMPT}
        self._consumer = Consumer({"bootstrap.servers": address, "enable.auto.commit": False, "log_level": 0, **looks})

    def append(self, place: KafkaPartition, *, transaction: bool, **record: Any) -> int:
        """Append a record, by itself or in a transaction, whose end has an offset, too; returns where it ends."""
        ended: list[int] = []

        def reported(error: KafkaError | None, message: Any) -> None:
            assert error is None, error
            ended.append(message.offset() + 1)

        producer = self._transactions if transaction else self._producer
        if transaction:
            producer.begin_transaction()
        producer.produce(place.topic, partition=place.partition, on_delivery=reported, **record)
        assert producer.flush(SECONDS) == 0, "a record was not taken"
        if transaction:
            producer.commit_transaction(SECONDS)
        return ended[0] + transaction

    def hear_of(self, topic: str, count: int) -> None:
        """Learn of a topic's partitions; a broker may know of new ones late."""
        for producer in (self._producer, self._transactions):
            until(partial(_knows, producer, topic, count), f"{count} partitions")

    def close(self) -> None:
        """End."""
        self._consumer.close()

    def bodies(self, topic: str) -> list[bytes]:
        """Read the only partition of a topic."""
        found: list[bytes] = []
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        while (message := self._consumer.poll(SECONDS)) is not None:
            if (error := message.error()) is None:
                found.append(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
        raise AssertionError(f"{topic} was not read to its end")


class RealKafkaGround(OverKafka):
    """Over a real Kafka, in a topic and a group of its own."""

    elsewhere: Elsewhere
    unreadable = "expired"

    def __init__(self, *subscriptions: dict[str, Any], **how: Any) -> None:
        self.topic = f"contract-{uuid4().hex[:12]}"
        self._ends: dict[KafkaPartition, int] = {}
        super().__init__(*subscriptions, group=f"g-{self.topic}", **how)

    def open(self) -> None:
        """Start the node, and let it get its partitions."""
        if not self._ends:
            for name, partitions in ((self.topic, self.queues), (f"{self.group_name}.DLQ", 1)):
                # The node's clock says a day of long ago.
                make_topic(self.elsewhere.address, name, partitions, {"retention_ms": "-1"})
            self._ends = {KafkaPartition(self.topic, queue): 0 for queue in range(self.queues)}
        self._loop = NodeLoop()
        self._debts = Debts(self.clock)
        config = KafkaClusterConfig.model_validate(
            {
                "bootstrapServers": self.elsewhere.address,
                "groupProtocol": self.protocol,
                "sessionTimeout": 6000,
                "librdkafka": {"topic.metadata.refresh.interval.ms": 100, **PROMPT},
            }
        )
        self._client = client = LibrdkafkaClient(
            "main", config, client_id="contract", loop=self._loop, clock=SystemClock()
        )
        member, reader, producer = client.member(self.group_name, "contract"), client.reader(), client.producer()
        self._watched = WatchedMember(member, self._debts, self._ends)
        self._members = [member]

        def close() -> None:
            self._loop.close()
            producer.close(0)
            reader.close()
            for each in self._members:
                each.leave(lambda: None)
            client.close()
            name = f"kafka-{self.group_name}"
            until(lambda: all(each.name != name for each in threading.enumerate()), "the member to leave")

        self.close = close
        self.open_member(
            Ways(
                member=self._watched,
                again=self._no_other,
                reader=WatchedReader(reader, self._debts),
                producer=WatchedProducer(producer, self._debts),
            )
        )
        self.advance(0.3)

    @staticmethod
    def _no_other() -> WatchedMember:
        raise AssertionError("the contract's member neither leaves nor ends by itself")

    def kill(self) -> None:
        """End the node as a crash does that Kafka has noticed: nothing more is committed; then start again."""
        self.group.stop()
        self.close()
        self.scheduler = ManualScheduler(self.clock)
        self.open()

    def advance(self, seconds: float) -> None:
        """Let the node's time pass, turn by turn; what Kafka owes by then is waited for."""
        end = self.clock.monotonic() + seconds
        while (due := self.scheduler.next_due()) is not None and due <= end:
            self._turn(due - self.clock.monotonic())
        self._turn(end - self.clock.monotonic())

    def _turn(self, seconds: float) -> None:
        self.scheduler.advance(max(0.0, seconds))

        def is_quiet() -> bool:
            self.scheduler.advance(0.0)
            self.turn_end()
            return not self._debts.due()

        self._loop.turn(0)
        if not is_quiet():
            self._loop.until(is_quiet, "what Kafka owes")

    def put(self, body: str, *, key: str | None = None, queue: int = 0, tag: str = "") -> None:
        """Append to a partition; every third record is in a transaction, which leaves a gap."""
        self.counter += 1
        place = KafkaPartition(self.topic, queue)
        self._ends[place] = self.elsewhere.append(
            place,
            transaction=self.counter % _EACH_MANIETH_IN_A_TRANSACTION == 0,
            key=key.encode() if key else None,
            value=body.encode(),
            headers=[("TAGS", tag.encode())] if tag else [],
            timestamp=self.clock.wall_ms(),
        )
        self._debts.add(lambda: self._watched.has_read(place))
        self.advance(0.1)

    def new_member(self) -> LibrdkafkaMember:
        """Return one of the same client."""
        self._members.append(self._client.member(self.group_name, "other"))
        return self._members[-1]

    def wait_for(self, holds: Callable[[], object]) -> None:
        """Wait for it; the node's time stands still."""
        self._debts.add(holds)
        self.advance(LATE_SECONDS)

    def take_away(self, queue: int, offset: int) -> None:
        """Let retention take it, and what lies before."""
        delete_records(self.elsewhere.address, self.topic, queue, offset + 1)

    def widen(self) -> None:
        """Give the topic one queue more."""
        add_partitions(self.elsewhere.address, self.topic, self.queues + 1)
        self.elsewhere.hear_of(self.topic, self.queues + 1)
        place = KafkaPartition(self.topic, self.queues)
        self._ends[place] = 0
        self._debts.add(lambda: place in self._watched.given)
        self.advance(0.5)

    def committed(self, queue: int = 0) -> int | None:
        """Return what the cluster has as committed."""
        offset, _ = committed(self.elsewhere.address, self.group_name, self.topic, queue)
        return None if offset < 0 else offset

    def letters(self) -> list[bytes]:
        """Return the bodies of the group's dead letters."""
        return self.elsewhere.bodies(self.member.dead_letter_topic(self.group_name))
