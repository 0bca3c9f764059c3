"""Nodes on which messages wait, over either broker: what is sent, cancelled and delivered, by the wire alone."""

from __future__ import annotations

from random import Random
from typing import Any

from pyddmq.testing import VirtualClock, VirtualLoop
from tests.fakes.kafka.client import SimClient
from tests.fakes.kafka.cluster import SimKafka
from tests.hostile.sim import HostileWorld
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


class TimeCalls:
    """What a producer asks, and what a group of one topic gets.

    Attributes:
        topic, group: Their names.
        late_ms: What a delivery takes at most.
        ahead_seconds: How far ahead a message may be due.
        delivered: What the group got: body, and when, ms since the epoch.
        properties, keys: Of what it got, by body.
    """

    topic, group = "orders", "billing"
    late_ms = 0
    ahead_seconds = 0

    def __init__(self) -> None:
        self.delivered: list[tuple[bytes, int]] = []
        self.properties: dict[bytes, dict[str, str]] = {}
        self.keys: dict[bytes, list[str]] = {}

    @property
    def now_ms(self) -> int:
        """Wall clock."""
        raise NotImplementedError

    def call(self, method: str, **arguments: Any) -> Any:
        """Call, and return the answer."""
        raise NotImplementedError

    def wait(self, seconds: float) -> None:
        """Let time pass, while the group pulls."""
        raise NotImplementedError

    def send(self, body: bytes, **more: Any) -> Any:
        """Send one message, and return its Result."""
        message = producer_idl.Message(topic=self.topic, body=body, partitionId=-1, hashId=0, **more)
        return self.call("sendSync", message=message, timeout=5_000)

    def delay(self, body: bytes, uuid: str, **more: Any) -> Any:
        """Add a delay message of DDMQ's, and return its DelayResult."""
        message = producer_idl.DelayMessage(topic=self.topic, body=body, tags="t", action=1, uuid=uuid, **more)
        return self.call("sendDelaySync", delayMessage=message, timeout=5_000)

    def cancel(self, delay_id: str) -> int:
        """Cancel one; returns its outcome."""
        message = producer_idl.DelayMessage(topic=self.topic, tags="", action=2, uniqDelayMsgId=delay_id, body=b"-")
        result = self.call("sendDelaySync", delayMessage=message, timeout=5_000)
        assert result.code == 0, result
        outcome: int = result.cancelOutcome
        return outcome

    def half(self, body: bytes, *, group: str = "shop", **more: Any) -> Any:
        """Send a half, and return its HalfResult."""
        message = producer_idl.Message(topic=self.topic, body=body, partitionId=-1, hashId=0, **more)
        return self.call("sendHalfSync", message=message, producerGroup=group, timeout=5_000)

    def end_half(self, handle: str, state: int, *, group: str = "shop", from_check: bool = False) -> int:
        """Decide a half; returns the code of the answer."""
        decision = producer_idl.EndTransaction(producerGroup=group, handle=handle, state=state, fromCheck=from_check)
        code: int = self.call("endTransaction", decision=decision).code
        return code

    def checks(self, *, group: str = "shop", answers: Any = None) -> list[Any]:
        """Fetch checks."""
        request = producer_idl.CheckRequest(producerGroup=group, maxBatchSize=8, maxLingerTime=20, answers=answers)
        found: list[Any] = self.call("fetchChecks", request=request)
        return found

    def pulling(self, result: Any) -> Any:
        """Return what a pull asks."""
        return consumer_idl.PullRequest(groupId=self.group, maxLingerTime=50, result=result)

    def note(self, response: Any) -> Any:
        """Take what a pull brought; returns what the next one acknowledges."""
        if not response.messages:
            return None
        for each in response.messages:
            self.delivered.append((each.value, self.now_ms))
            self.properties[each.value] = dict(each.properties or {})
            self.keys.setdefault(each.value, []).append(each.key)
        offsets = [each.offset for each in response.messages]
        return consumer_idl.ConsumeResult(context=response.context, successOffsets=offsets, failOffsets=[])

    @property
    def bodies(self) -> list[bytes]:
        """What its group got, in order."""
        return [body for body, _ in self.delivered]


class TimeGround(HostileWorld, TimeCalls):
    """A node with its own store, in virtual time.

    Attributes:
        producer: A connection to its producer port.
    """

    yaml = _YAML.format(cluster="", topic="queues: 2")
    late_ms = 400
    """A step of the test, a poll, and the ways of a simulated Kafka."""

    def __init__(self) -> None:
        TimeCalls.__init__(self)
        HostileWorld.__init__(self, self.yaml, kafka=self._kafka_client)
        self.producer = self.connect("producer")
        self._consumer = self.connect("consumer")
        self._parked = False
        self.clock = VirtualClock(self.loop)
        waits = self.config.kafka["main"].waiting if self.config.kafka else None
        self.ahead_seconds = self.config.node.timer_max_delay_sec if waits is None else waits.max_delay_sec
        self.wait(10)

    def _kafka_client(self, loop: VirtualLoop, cluster: str) -> Any:
        raise AssertionError("there is no cluster")

    @property
    def now_ms(self) -> int:
        """Wall clock."""
        return self.clock.wall_ms()

    def call(self, method: str, **arguments: Any) -> Any:
        """Call, and return the answer."""
        client = self.producer
        seen = len(client.replies)
        client.transport.write(client.codec.call(method, 1, **arguments))
        for _ in range(200):
            self.run(0.05)
            if len(client.replies) > seen:
                return client.replies[-1].value
        raise AssertionError(f"{method} was not answered")

    def wait(self, seconds: float) -> None:
        """Let time pass, while the group pulls."""
        result = None
        for _ in range(round(seconds * 10)):
            if not self._parked:
                self._consumer.transport.write(self._consumer.codec.call("pull", 1, request=self.pulling(result)))
                self._parked = True
            self.run(0.1)
            if self._consumer.replies:
                self._parked = False
                [reply] = self._consumer.replies
                self._consumer.replies.clear()
                result = self.note(reply.value)


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
