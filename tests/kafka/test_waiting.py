"""Delays, timers and loops on a real Kafka: node processes that own the waiting topic, one of them killed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer as KafkaConsumer

from pyddmq import Producer
from tests.kafka.nodes import NodeProcess
from tests.kafka.topics import make_topic
from tests.kafka_world import Clients
from tests.patient import until
from upstream.kafka.link import KafkaFailure, Outgoing, Transactions
from upstream.kafka.waiting.topics import ANSWER_SETTINGS, TOPIC_SETTINGS

_CONFIG = """
node: {{producerPort: 0, consumerPort: 0, adminPort: 0, data: {data}, brokerName: {name}, drainSeconds: 5}}
kafka:
  main:
    bootstrapServers: "{address}"
    waiting: {{topic: {waiting}, answersTopic: {answers}, partitions: 4}}
topics:
  {topic}: {{brokerCluster: main}}
"""


class Written:
    """How a transaction ended."""

    def __init__(self, clients: Clients, writer: Transactions, *records: Outgoing) -> None:
        self.ended: list[tuple[KafkaFailure | None, object, object]] = []
        writer.write(records, lambda *how: self.ended.append(how))
        clients.until(lambda: self.ended, "a transaction to end")

    @property
    def failure(self) -> KafkaFailure | None:
        """What failed."""
        return self.ended[0][0]


def _begun(clients: Clients, name: str) -> Transactions:
    writer = clients.client().transactions(name)
    ended: list[KafkaFailure | None] = []
    writer.begin(ended.append)
    clients.until(lambda: ended, "an id to be taken")
    assert ended == [None]
    return writer


def test_transactions_are_fenced_and_whole(clients: Clients, topic: Callable[..., str]) -> None:
    """The former holder of an id is fenced; one refused record leaves nothing of its transaction."""
    first, small = topic(), topic(max_message_bytes="1000")
    old = _begun(clients, f"id-{first}")
    assert Written(clients, old, Outgoing(first, 0, b"k", b"1"), Outgoing(small, 0, b"k", b"1")).failure is None
    refused = Written(clients, old, Outgoing(first, 0, b"k", b"2"), Outgoing(small, 0, b"k", b"x" * 5_000))
    assert refused.failure is not None
    assert not refused.failure.fenced
    assert not refused.failure.unknown
    assert refused.ended[0][1].keys() == {small}  # type: ignore[attr-defined]
    missing = Written(clients, old, Outgoing(first, 0, b"k", b"3"), Outgoing(f"{first}-none", 0, b"k", b"3"))
    assert missing.ended[0][1].keys() == {f"{first}-none"}  # type: ignore[attr-defined]
    new = _begun(clients, f"id-{first}")
    fenced = Written(clients, old, Outgoing(first, 0, b"k", b"4")).failure
    assert fenced is not None
    assert fenced.fenced
    assert Written(clients, new, Outgoing(first, 0, b"k", b"5")).failure is None
    _, heard = clients.joined(f"reads-{first}", [first])
    clients.until(lambda: len(heard.got) == 2, "what is committed")
    assert heard.values() == [b"1", b"5"]
    old.close()
    new.close()


class Seen:
    """A plain consumer of Kafka's, read committed: what came when."""

    def __init__(self, address: str, topic: str) -> None:
        self.moments: dict[str, list[float]] = {}
        self._consumer = KafkaConsumer({
            "bootstrap.servers": address, "group.id": f"seen-{topic}", "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        })  # fmt: skip
        self._consumer.subscribe([topic])

    def poll(self) -> int:
        """Take what is there; returns how many in all."""
        for message in self._consumer.consume(500, 0.2):
            if message.error() is None:
                self.moments.setdefault((message.value() or b"").decode(), []).append(time.time())
        return sum(map(len, self.moments.values()))

    def close(self) -> None:
        """End."""
        self._consumer.close()


@pytest.mark.long
def test_two_nodes_one_killed(address: str, topic: Callable[..., str], tmp_path: Path) -> None:
    """Acknowledged timers come once, never early, though their owner is killed; cancelled ones do not come."""
    name = topic(3)
    waiting, answers = f"__w-{os.getpid()}-{name[-10:]}", f"__a-{os.getpid()}-{name[-10:]}"
    make_topic(address, waiting, 4, {**TOPIC_SETTINGS, "cleanup.policy": "compact"})
    make_topic(address, answers, 1, dict(ANSWER_SETTINGS))
    drawn = Random(5)
    seen = Seen(address, name)

    def start(node: str) -> NodeProcess:
        text = _CONFIG.format(
            data=tmp_path / node, name=node, address=address, topic=name, waiting=waiting, answers=answers
        )
        return NodeProcess(tmp_path, node, text=text)

    nodes = [start("one"), start("two")]
    dues: dict[str, int] = {}
    try:

        def ready() -> bool:
            try:
                with Producer(nodes[1].producers) as producer:
                    producer.send(name, b"ready", deliver_at_ms=int(time.time() * 1000) + 500)
            except Exception:
                return False
            return True

        until(ready, "a node to take timers")
        with Producer(nodes[1].producers) as producer:
            for number in range(400):
                body = f"m{number}"
                dues[body] = int(time.time() * 1000) + drawn.randint(500, 25_000)
                producer.send(name, body.encode(), deliver_at_ms=dues[body])
        until(lambda: seen.poll() > 60, "the first timers")
        nodes[0].kill()
        until(lambda: seen.poll() and not dues.keys() - seen.moments.keys(), "all")
        seen.poll()
        assert [body for body, moments in seen.moments.items() if len(moments) > 1 and body != "ready"] == []
        early = [body for body, due in dues.items() if seen.moments[body][0] * 1000 < due]
        assert early == []
    finally:
        seen.close()
        for node in nodes:
            node.kill()
