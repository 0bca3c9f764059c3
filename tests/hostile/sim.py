"""A whole node on a simulated network and disk, and raw clients that do what a test tells them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from actions.registry import Registry
from conf.loader import loads
from proxy.node.node import Node
from proxy.node.parts import Seams
from pyddmq.testing import NetworkFaults, SimDisk, SimNetwork, VirtualClock, VirtualLoop
from tests.fakes.virtual_threads import VirtualThreads
from tests.simulation.wire import Codec, Frames, Reply, consumer_codec, consumer_idl, producer_codec, producer_idl
from upstream.kafka.link import KafkaClient

MIB = 1024 * 1024

YAML = """
node: {memoryMax: 67108864, segmentBytes: 4194304, producerPort: 9613, consumerPort: 9713, maxMessageBytes: 2000000}
topics:
  orders: {queues: 1}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [Async, PullServer], maxPullBatchSize: 32, concurrency: 100000, timeout: 600000}
"""


class Raw(asyncio.Protocol):
    """A client's end of one connection: what it writes is up to the test, what it gets is kept."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.replies: list[Reply] = []
        self.received = 0
        self.lost = False
        self.transport: Any = None
        self._frames = Frames()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self.replies += [self.codec.reply(payload) for _, payload in self._frames.feed(data)]

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class HostileWorld:
    """One node in virtual time; deterministic."""

    def __init__(
        self,
        yaml: str = YAML,
        *,
        disk: SimDisk | None = None,
        kafka: Callable[[VirtualLoop, str], KafkaClient] | None = None,
    ) -> None:
        """Start.

        Args:
            yaml: The configuration.
            disk: The node's.
            kafka: Makes the client of a Kafka cluster, by its name.
        """
        self.loop = VirtualLoop()
        self.network = SimNetwork(
            self.loop, Random(1), NetworkFaults(delay_ms_max=0.1, fragment_share=0.0, window_bytes=MIB)
        )
        self.config = loads(yaml, actions=Registry()).config
        seams = Seams(
            loop=self.loop,
            clock=VirtualClock(self.loop),
            disk=SimDisk() if disk is None else disk,
            randomness=Random(2),
            network=self.network,
            threads=VirtualThreads(self.loop),
            kafka=None if kafka is None else lambda cluster, _: kafka(self.loop, cluster),
        )
        self.node = Node(self.config, seams=seams, registry=Registry())
        task = self.loop.create_task(self.node.start())
        self.loop.run(task.done, seconds=60)
        task.result()

    def run(self, seconds: float) -> None:
        """Let virtual time pass; a fault that nobody handled ends the test."""
        self.loop.run(None, seconds=seconds, turns_max=1_000_000)
        assert not self.loop.errors, self.loop.errors[0]

    def connect(self, service: str) -> Raw:
        """Open a connection to the `producer` or `consumer` port."""
        codec = consumer_codec() if service == "consumer" else producer_codec()
        client = Raw(codec)
        port = self.config.node.consumer_port if service == "consumer" else self.config.node.producer_port
        assert port is not None, "it has plain ports"
        self.network.connect(client, ("127.0.0.1", port))
        self.run(0.01)
        return client

    def publish(self, client: Raw, body: bytes) -> int:
        """Send one message; returns the result's code."""
        seen = len(client.replies)
        message = producer_idl.Message(topic="orders", body=body, key="k", hashId=0, partitionId=-1)
        client.transport.write(client.codec.call("sendSync", 1, message=message, timeout=1000))
        self.run(0.5)
        assert len(client.replies) == seen + 1
        code: int = client.replies[-1].value.code
        return code

    @staticmethod
    def pull_frame(client: Raw, *, linger_ms: int = 20, acks: int = 0) -> bytes:
        """Return a pull, with a result of `acks` offsets that name nothing."""
        result = None
        if acks:
            context = consumer_idl.Context(groupId="billing", topic="orders", qid="pyddmq_broker-0_0")
            result = consumer_idl.ConsumeResult(
                context=context, successOffsets=list(range(10**9, 10**9 + acks)), failOffsets=[]
            )
        request = consumer_idl.PullRequest(groupId="billing", maxLingerTime=linger_ms, result=result)
        return client.codec.call("pull", 1, request=request)

    def pull(self, client: Raw) -> Reply:
        """Pull once, without waiting for messages."""
        seen = len(client.replies)
        client.transport.write(self.pull_frame(client))
        self.run(0.5)
        assert len(client.replies) == seen + 1
        return client.replies[-1]
