"""Nodes on which messages wait, over either broker: what is sent, cancelled and delivered, by the wire alone."""

from __future__ import annotations

from random import Random
from typing import Any

from pyddmq.testing import VirtualClock, VirtualLoop
from tests.fakes.kafka.client import SimClient
from tests.fakes.kafka.cluster import SimKafka
from tests.hostile.sim import HostileWorld, Raw
from tests.simulation.wire import consumer_idl, producer_idl

WAITING_PARTITIONS = 3
_YAML = """
node: {{segmentBytes: 1048576, maxMessageBytes: 100000, producerPort: 9613, consumerPort: 9713}}
{cluster}
topics:
  orders: {{{topic}}}
groups:
  - group: billing
    topics:
      - {{topic: orders, maxPullBatchSize: 32, concurrency: 1000, consumeFromWhere: first}}
"""
_CLUSTER = f"""
kafka:
  main:
    bootstrapServers: "127.0.0.1:1"
    sessionTimeout: 6000
    membership: always
    waiting: {{partitions: {WAITING_PARTITIONS}}}
"""


class TimeGround(HostileWorld):
    """A node with its own store.

    Attributes:
        producer: A connection to its producer port.
        delivered: What its group got: body, and when, ms since the epoch.
    """

    yaml = _YAML.format(cluster="", topic="queues: 2")

    def __init__(self) -> None:
        super().__init__(self.yaml, kafka=self._kafka_client)
        self.producer = self.connect("producer")
        self._consumer = self.connect("consumer")
        self.delivered: list[tuple[bytes, int]] = []
        self.properties: dict[bytes, dict[str, str]] = {}
        self.keys: dict[bytes, list[str]] = {}
        self._parked = False
        self.clock = VirtualClock(self.loop)
        self.wait(10)

    def _kafka_client(self, loop: VirtualLoop, cluster: str) -> Any:
        raise AssertionError("there is no cluster")

    @property
    def ahead_seconds(self) -> int:
        """How far ahead a message may be due."""
        waits = self.config.kafka["main"].waiting if self.config.kafka else None
        return self.config.node.timer_max_delay_sec if waits is None else waits.max_delay_sec

    @property
    def now_ms(self) -> int:
        """Wall clock."""
        return self.clock.wall_ms()

    def call(self, method: str, *, client: Raw | None = None, **arguments: Any) -> Any:
        """Call, and return the answer."""
        client = client or self.producer
        seen = len(client.replies)
        client.transport.write(client.codec.call(method, 1, **arguments))
        for _ in range(200):
            self.run(0.05)
            if len(client.replies) > seen:
                return client.replies[-1].value
        raise AssertionError(f"{method} was not answered")

    def send(self, body: bytes, **more: Any) -> Any:
        """Send one message, and return its Result."""
        message = producer_idl.Message(topic="orders", body=body, partitionId=-1, hashId=0, **more)
        return self.call("sendSync", message=message, timeout=5_000)

    def delay(self, body: bytes, uuid: str, **more: Any) -> Any:
        """Add a delay message of DDMQ's, and return its DelayResult."""
        message = producer_idl.DelayMessage(topic="orders", body=body, tags="t", action=1, uuid=uuid, **more)
        return self.call("sendDelaySync", delayMessage=message, timeout=5_000)

    def cancel(self, delay_id: str) -> int:
        """Cancel one; returns its outcome."""
        message = producer_idl.DelayMessage(topic="orders", tags="", action=2, uniqDelayMsgId=delay_id, body=b"-")
        result = self.call("sendDelaySync", delayMessage=message, timeout=5_000)
        assert result.code == 0, result
        outcome: int = result.cancelOutcome
        return outcome

    def wait(self, seconds: float) -> None:
        """Let time pass, while the group pulls."""
        result = None
        for _ in range(round(seconds * 10)):
            if not self._parked:
                request = consumer_idl.PullRequest(groupId="billing", maxLingerTime=50, result=result)
                self._consumer.transport.write(self._consumer.codec.call("pull", 1, request=request))
                self._parked = True
            self.run(0.1)
            if not self._consumer.replies:
                continue
            self._parked = False
            [reply] = self._consumer.replies
            self._consumer.replies.clear()
            result = None
            for each in reply.value.messages or []:
                self.delivered.append((each.value, self.now_ms))
                self.properties[each.value] = dict(each.properties or {})
                self.keys.setdefault(each.value, []).append(each.key)
            if reply.value.messages:
                offsets = [each.offset for each in reply.value.messages]
                result = consumer_idl.ConsumeResult(context=reply.value.context, successOffsets=offsets, failOffsets=[])

    @property
    def bodies(self) -> list[bytes]:
        """What its group got, in order."""
        return [body for body, _ in self.delivered]


class KafkaTimeGround(TimeGround):
    """A node before a Kafka in memory.

    Attributes:
        kafka: The cluster.
    """

    yaml = _YAML.format(cluster=_CLUSTER, topic="brokerCluster: main")
    has_topics = True

    def _kafka_client(self, loop: VirtualLoop, cluster: str) -> SimClient:
        if not hasattr(self, "kafka"):
            self.kafka = SimKafka(
                Random(3), clock=VirtualClock(loop), scheduler=loop, session_seconds=6, protocol="classic"
            )
            self.kafka.partitions("orders", 2)
            if self.has_topics:
                self.kafka.partitions("__pyddmq_waiting", WAITING_PARTITIONS)
                self.kafka.partitions("__pyddmq_answers", 1)
        return SimClient(self.kafka)


class BareKafkaGround(KafkaTimeGround):
    """One whose cluster lacks the topics that delays need."""

    has_topics = False
