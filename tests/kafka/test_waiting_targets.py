"""A broker that stands still, and with it targets of waiting messages: others are delivered, also by a new owner."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Producer as KafkaProducer

from pyddmq import OutgoingMessage, Producer, SendRefused
from tests.kafka import server
from tests.kafka.nodes import NodeProcess
from tests.kafka.test_waiting import Seen
from tests.kafka.topics import SECONDS, _admin, make_topic
from tests.patient import until
from upstream.kafka.waiting.topics import ANSWER_SETTINGS, TOPIC_SETTINGS

_CONFIG = """
node: {{producerPort: 0, consumerPort: 0, adminPort: 0, data: {data}, brokerName: {name}, drainSeconds: 5}}
kafka:
  main:
    bootstrapServers: "{address}"
    waiting: {{partitions: 2}}
topics: {{good: {{brokerCluster: main}}, {ill}}}
"""
ILL = 3


def _led_by(address: str, broker: int, count: int) -> list[str]:
    """Make topics until some are on a broker."""
    found: list[str] = []
    for number in range(40):
        name = f"t{number}"
        make_topic(address, name, 1, {})
        if _admin(address).list_topics(name, timeout=SECONDS).topics[name].partitions[0].leader == broker:
            found.append(name)
        if len(found) == count:
            return found
    raise AssertionError(f"broker {broker} leads {found}")


def _timers(address: str, topic: str, dues: dict[str, float]) -> None:
    with Producer(address) as producer:
        producer.send_batch([
            OutgoingMessage(topic=topic, body=body.encode(), deliver_at_ms=round(due)) for body, due in dues.items()
        ])  # fmt: skip


@pytest.mark.long
def test_targets_on_a_broker_that_stands_still(jars: str, tmp_path: Path) -> None:
    """Messages to topics elsewhere are delivered, by a new owner too; the rest comes once when it goes on."""
    # The one that stands still keeps what it leads, so that nothing but its return helps.
    first = server.KafkaServer(tmp_path / "first", Path(jars), more={"broker.session.timeout.ms": "120000"})
    second: server.KafkaServer | None = None
    nodes: list[NodeProcess] = []
    seen: Seen | None = None
    try:
        first.start()
        make_topic(first.address, "__pyddmq_waiting", 2, TOPIC_SETTINGS)
        make_topic(first.address, "__pyddmq_answers", 1, ANSWER_SETTINGS)
        make_topic(first.address, "good", 2, {})
        # Kafka's own topics are on the first broker, too.
        KafkaProducer({"bootstrap.servers": first.address, "transactional.id": "a"}).init_transactions(SECONDS)
        seen = Seen(first.address, "good")
        seen.poll()
        second = server.KafkaServer(tmp_path / "second", Path(jars), joins=first.controller)
        second.start()
        ill = _led_by(first.address, 2, ILL)
        topics = ", ".join(f"{each}: {{brokerCluster: main}}" for each in ill)

        def start(name: str) -> NodeProcess:
            text = _CONFIG.format(data=tmp_path / name, address=first.address, ill=topics, name=name)
            nodes.append(NodeProcess(tmp_path, name, text=text))
            return nodes[-1]

        def is_ready(topic: str) -> bool:
            try:
                _timers(nodes[0].producers, topic, {"ready": time.time() * 1000 + 100})
            except SendRefused:
                return False
            return True

        def serves(node: NodeProcess, count: int) -> bool:
            found = urlopen(f"http://{node.admin}/metrics").read().decode()
            return f'pyddmq_kafka_waiting_partitions{{cluster="main"}} {count}' in found

        node, other = start("n1"), start("n2")
        until(lambda: is_ready("good") and all(map(is_ready, ill)), "the node takes timers")
        until(seen.poll, "the first timer")
        until(lambda: serves(node, 1) and serves(other, 1), "owners")
        now = time.time() * 1000
        good = {f"good{number}": now + 4_000 + 50 * number for number in range(200)}
        later = {f"later{number}": now + 40_000 + 50 * number for number in range(100)}
        _timers(node.producers, "good", good | later)
        for number, topic in enumerate(ill):
            _timers(
                node.producers, topic, {f"{topic}-{each}": now + 6_000 + 2_000 * number + each for each in range(20)}
            )
        until(lambda: seen.poll() and time.time() > now / 1000 + 5, "the moment")
        second.pause()
        until(lambda: seen.poll() and good.keys() <= seen.moments.keys(), "what others are due")
        late = sorted(seen.moments[name][0] * 1000 - due for name, due in good.items())
        print("late p50, p99, most", [round(late[at]) for at in (100, 198, 199)])
        assert late[0] >= 0
        killed_at = time.time()
        node.kill()
        until(lambda: serves(other, 2), "the new owner, while the broker stands still")
        print("new owner after s", round(time.time() - killed_at, 1))
        until(lambda: seen.poll() and later.keys() <= seen.moments.keys(), "what is due later")
        late = sorted(seen.moments[name][0] * 1000 - due for name, due in later.items())
        print("late p50, p99, most", [round(late[at]) for at in (50, 98, 99)])
        second.wake()
        for topic in ill:
            reads = Seen(first.address, topic)
            until(lambda reads=reads: reads.poll() and len(reads.moments) >= 21, "what the target is due")  # type: ignore[misc]
            reads.close()
            counts = {name: len(moments) for name, moments in reads.moments.items() if name != "ready"}
            assert counts == {f"{topic}-{each}": 1 for each in range(20)}
        assert {len(moments) for name, moments in seen.moments.items() if name != "ready"} == {1}
    finally:
        if seen is not None:
            seen.close()
        for each in nodes:
            each.kill()
        if second is not None:
            second.wake()
            second.kill()
        first.kill()
