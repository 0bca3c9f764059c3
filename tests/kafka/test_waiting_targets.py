"""A broker that stands still, and with it a target of waiting messages: others are delivered meanwhile."""

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
node: {{producerPort: 0, consumerPort: 0, adminPort: 0, data: {data}, brokerName: n, drainSeconds: 5}}
kafka:
  main:
    bootstrapServers: "{address}"
    waiting: {{partitions: 2}}
topics: {{good: {{brokerCluster: main}}, {ill}: {{brokerCluster: main}}}}
"""


def _led_by(address: str, broker: int) -> str:
    """Make topics until one is on a broker."""
    for number in range(20):
        make_topic(address, f"t{number}", 1, {})
        found = _admin(address).list_topics(f"t{number}", timeout=SECONDS).topics[f"t{number}"]
        if found.partitions[0].leader == broker:
            return f"t{number}"
    raise AssertionError(f"broker {broker} leads no partition")


def _timers(address: str, topic: str, dues: dict[str, float]) -> None:
    with Producer(address) as producer:
        producer.send_batch([
            OutgoingMessage(topic=topic, body=body.encode(), deliver_at_ms=round(due)) for body, due in dues.items()
        ])  # fmt: skip


@pytest.mark.long
def test_target_on_a_broker_that_stands_still(jars: str, tmp_path: Path) -> None:
    """Messages to topics elsewhere are delivered; its own are once it goes on, each once."""
    # The one that stands still keeps what it leads, so that nothing but its return helps.
    first = server.KafkaServer(tmp_path / "first", Path(jars), more={"broker.session.timeout.ms": "120000"})
    second: server.KafkaServer | None = None
    node: NodeProcess | None = None
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
        ill = _led_by(first.address, 2)
        text = _CONFIG.format(data=tmp_path / "n", address=first.address, ill=ill)
        node = NodeProcess(tmp_path, "n", text=text)

        def is_ready(topic: str) -> bool:
            try:
                _timers(node.producers, topic, {"ready": time.time() * 1000 + 100})
            except SendRefused:
                return False
            return True

        until(lambda: is_ready("good") and is_ready(ill), "the node takes timers")
        until(seen.poll, "the first timer")
        served = 'pyddmq_kafka_waiting_partitions{cluster="main"} 2'
        until(lambda: served in urlopen(f"http://{node.admin}/metrics").read().decode(), "owners")
        now = time.time() * 1000
        good = {f"good{number}": now + 4_000 + 50 * number for number in range(200)}
        _timers(node.producers, "good", good)
        _timers(node.producers, ill, {f"ill{number}": now + 6_000 + number for number in range(20)})
        time.sleep(max(0.0, now / 1000 + 5 - time.time()))
        second.pause()
        until(lambda: seen.poll() and good.keys() <= seen.moments.keys(), "what others are due")
        late = sorted(seen.moments[name][0] * 1000 - due for name, due in good.items())
        print("late p50, p99, most", [round(late[at]) for at in (100, 198, 199)])
        assert late[0] >= 0
        second.wake()
        reads = Seen(first.address, ill)
        until(lambda: reads.poll() and len(reads.moments) >= 21, "what the target is due")
        reads.close()
        assert {name: len(moments) for name, moments in reads.moments.items() if name != "ready"} == {
            f"ill{number}": 1 for number in range(20)
        }
    finally:
        if seen is not None:
            seen.close()
        if node is not None:
            node.kill()
        if second is not None:
            second.wake()
            second.kill()
        first.kill()
