"""The topics of Kafka clusters that take publishes: partitions in the place of queues (docs/kafka.md).

The queue is chosen by the rules of the embedded broker (R96, D7), which give a number that there is: `partitionId` and
`hashId` modulo the partitions, never below 0 (W80). Where the key chooses, or nothing does, the choice is the
producer's: murmur2 of the key, as Java's client has it, so that a key's records of every writer stand together.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from broker.format.java import queue_of_hash
from broker.format.message_type import MessageType
from broker.queues.topics import Topic
from broker.runtime.metrics import Metrics
from proxy.services.kafka.codes import refusal_of
from proxy.services.message_rules import Refusal
from proxy.services.topic_port import TopicPort
from pyddmq.codes import ResultCode
from upstream.kafka.link import KafkaFailure, KafkaProducer
from upstream.waiting.limits import TokenBucket

BY_KEY = -1
"""The producer chooses the partition."""
UNKNOWN_SECONDS = 10.0
"""For so long sends to a topic that its cluster did not know are refused without asking again."""

ProducerOf = Callable[[str], KafkaProducer]
"""Returns the producer of a cluster. Raises KafkaFailure: it cannot be made."""


class KafkaPort(TopicPort):
    """What publishing to one topic of Kafka needs at hand.

    Attributes:
        cluster: Name of its cluster.
        qid_prefix: Text in front of the partition in a qid, "<cluster>_".
        unknown_until: Monotonic seconds until which its cluster is taken not to know the topic.
    """

    in_kafka = True

    def __init__(
        self,
        name: str,
        cluster: str,
        producer_of: ProducerOf,
        limit: TokenBucket | None,
        metrics: Metrics,
        *,
        message_type: MessageType,
        node_limit: TokenBucket | None = None,
        retry_ms: int = -1,
    ) -> None:
        """Set up; see `TopicPort`."""
        topic = Topic(name, system=False)
        topic.message_type = message_type
        self._producer_of = producer_of
        super().__init__(topic, limit, metrics, node_limit=node_limit, retry_ms=retry_ms)
        # A delay has to be refused, whatever else there is to pass.
        self.guarded = True
        self.cluster = cluster
        self.qid_prefix = f"{cluster}_"
        self.unknown_until = 0.0

    @property
    def producer(self) -> KafkaProducer:
        """The producer of its cluster. Raises Refusal: there is none."""
        try:
            return self._producer_of(self.cluster)
        except KafkaFailure as failure:
            raise refusal_of(failure, self.cluster, self.topic.name) from failure

    def place(self, partition_id: int, hash_id: int, randomness: random.Random) -> int:
        """Return the partition of a message, or BY_KEY. Raises Refusal: it asks for one and they are not known."""
        if partition_id == -1 and not hash_id:
            return BY_KEY
        partitions = self.producer.partitions(self.topic.name)
        if not partitions:
            text = (
                f"the partitions of topic {self.topic.name} in Kafka cluster {self.cluster} are unknown: "
                "the cluster cannot be reached, or does not have the topic; send again, or without "
                "partitionId and hashId"
            )
            raise Refusal(ResultCode.FAIL_NO_PRODUCER_FOR_CLUSTER, text)
        if partition_id >= 0:
            return partition_id % partitions
        if partition_id < -1:
            return randomness.randrange(partitions)
        return queue_of_hash(hash_id, partitions)
