"""The topics of Kafka clusters that take publishes: partitions in the place of queues (docs/kafka.md).

The queue is chosen by the rules of the embedded broker (R96, D7), which give a number that there is: `partitionId` and
`hashId` modulo the partitions, never below 0 (W80). Where the key chooses, or nothing does, the choice is the
producer's: murmur2 of the key, as Java's client has it, so that a key's records of every writer stand together.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import NamedTuple

from broker.format.java import queue_of_hash
from broker.format.message_type import MessageType
from broker.queues.topics import Topic
from broker.runtime.metrics import Metrics
from proxy.services.kafka.codes import refusal_of
from proxy.services.message_rules import Refusal
from proxy.services.topic_port import TopicPort
from pyddmq.codes import ResultCode
from upstream.kafka.link import KafkaFailure, KafkaProducer
from upstream.kafka.waiting.cluster import KafkaWaiting, WaitingRefused
from upstream.kafka.waiting.records import Identity, WaitingHalf
from upstream.waiting.limits import TokenBucket

BY_KEY = -1
"""The producer chooses the partition."""
UNKNOWN_SECONDS = 10.0
"""For so long sends to a topic that its cluster did not know are refused without asking again."""

ProducerOf = Callable[[str], KafkaProducer]
"""Returns the producer of a cluster. Raises KafkaFailure: it cannot be made."""
WaitingOf = Callable[[str], KafkaWaiting | None]
"""Returns what delays of a cluster's topics go by; None: they are not configured."""

_WAITING_CODES = {
    "missing": ResultCode.FAIL_TOPIC_IS_NOT_DELAY,
    "unknown": ResultCode.FAIL_NO_PRODUCER_FOR_CLUSTER,
    "limited": ResultCode.FAIL_REFUSED_BY_RATE_LIMITER,
    "far": ResultCode.FAIL_ILLEGAL_MSG,
}


class KafkaWays(NamedTuple):
    """What ports of Kafka share."""

    producer_of: ProducerOf
    waiting_of: WaitingOf


class Until(NamedTuple):
    """How a message waits.

    Attributes:
        due_ms: Wall clock, ms since the epoch.
        kind: "timer", "level" or "loop".
        principal: Who sent it; "" without sign-in.
        id: What names it; "": its UNIQ_KEY does.
        loop: The id of its pending occurrence; "": it is not a delay message of DDMQ's.
        always: It waits although it is due: a loop, or a message that its client may add again.
        half: Of a message in a transaction, whose `due_ms` is its first check.
        level: Its delay level; 0: none.
    """

    due_ms: int
    kind: str
    principal: str
    id: str = ""
    loop: str = ""
    always: bool = False
    half: WaitingHalf | None = None
    level: int = 0


class KafkaPort(TopicPort):
    """What publishing to one topic of Kafka needs.

    Attributes:
        cluster: Name of its cluster.
        qid_prefix: Text in front of the partition in a qid, "<cluster>_".
        unknown_until: Monotonic seconds until which its cluster is taken not to know the topic.
        waits: Of a message that waits how; None: it is sent at once.
    """

    in_kafka = True

    def __init__(
        self,
        name: str,
        cluster: str,
        ways: KafkaWays,
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
        self._producer_of = ways.producer_of
        self._waiting_of = ways.waiting_of
        super().__init__(topic, limit, metrics, node_limit=node_limit, retry_ms=retry_ms)
        # A delay has to be refused, whatever else there is to pass.
        self.guarded = True
        self.cluster = cluster
        self.qid_prefix = f"{cluster}_"
        self.unknown_until = 0.0
        self.waits: Until | None = None

    @property
    def waiting(self) -> KafkaWaiting:
        """What delays go by. Raises Refusal: they are not configured."""
        found = self._waiting_of(self.cluster)
        if found is None:
            text = (
                f"topic {self.topic.name} is in Kafka, and delays and transactions on cluster {self.cluster} are not "
                "configured; add "
                f"`waiting: {{}}` to kafka.{self.cluster} and create its topics (docs/kafka.md)"
            )
            raise Refusal(ResultCode.FAIL_TOPIC_IS_NOT_DELAY, text)
        return found

    def until(self, until: Until, now_ms: int) -> KafkaPort:
        """Return the port of a message that waits, itself where it is due. Raises Refusal: it may not."""
        waiting = self.waiting
        due_ms = until.due_ms
        if until.half is not None:
            due_ms = max(due_ms, until.half.deliver_at_ms, now_ms + until.half.delay_ms)
        elif due_ms <= now_ms and not until.always:
            return self
        try:
            waiting.check(Identity(self.topic.name, until.principal, until.id), due_ms)
        except WaitingRefused as refused:
            raise refusal_to_wait(refused) from refused
        made = copy.copy(self)
        made.waits = until
        return made

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


def refusal_to_wait(refused: WaitingRefused) -> Refusal:
    """Return what a producer hears of a message that may not wait."""
    return Refusal(_WAITING_CODES[refused.why], str(refused))
