"""Sends by DDMQ's ProducerService to topics of a real Kafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from pyddmq import OutgoingMessage, Producer
from tests.fakes.memory.producer import murmur2
from tests.insides import opened_of
from tests.integration.ddmq_tools import Peer
from tests.kafka.server import KafkaServer
from tests.kafka.topics import make_topic, send_plainly, topic_names
from tests.patient import PATIENCE_MS
from tests.running_node import RunningNode
from upstream.kafka.headers import decode, message_id
from upstream.kafka.link import KafkaRecord

pytestmark = pytest.mark.long

YAML = """
node: {segmentBytes: 8388608, maxMessageBytes: 4000000}
kafka:
  main: {bootstrapServers: "ADDRESS", librdkafka: {message.timeout.ms: 240000}}
topics:
  orders: {queues: 2}
  TOPIC: {brokerCluster: main}
  nowhere: {brokerCluster: main}
"""
PARTITIONS = 3


def node(address: str, topic: str, data: Path) -> RunningNode:
    """A node before that Kafka."""
    return RunningNode(YAML.replace("ADDRESS", address).replace("TOPIC", topic), data)


def records(address: str, topic: str, count: int) -> list[KafkaRecord]:
    """Read so many, and look that there is no further one."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "test", "enable.auto.commit": False})
    found: list[KafkaRecord] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=60)[1] for each in range(PARTITIONS)
        ]
        while len(found) < sum(ends):
            each: Any = consumer.poll(60)
            assert each is not None
            assert each.error() is None, each.error()
            found.append(
                KafkaRecord(
                    topic,
                    each.partition(),
                    each.offset(),
                    each.timestamp()[1],
                    each.key(),
                    each.value(),
                    each.headers(),
                )
            )
    finally:
        consumer.close()
    assert len(found) == count
    return found


def test_mixed_batch_is_stored_in_both(address: str, topic: Callable[..., str], tmp_path: Path) -> None:
    """Receipts say where; key, tag, properties and id are in the record; a key goes where Java's client puts it."""
    name = topic(PARTITIONS)
    keys = [f"key-{number}" for number in range(20)]
    with node(address, name, tmp_path / "data") as running, Producer(running.producer, timeout_ms=60_000) as producer:
        batch = [OutgoingMessage(topic="orders", body=b"stored", key="k")]
        batch += [
            OutgoingMessage(topic=name, body=key.encode(), key=key, tags="T", properties={"a": "é"}) for key in keys
        ]
        receipts = producer.send_batch(batch)
        assert opened_of(running.node).store.topics["orders"].queues[int(receipts[0].qid[-1])].max_offset == 1
    found = records(address, name, len(keys))
    assert {(f"main_{each.partition}", each.offset) for each in found} == {
        (each.qid, each.offset) for each in receipts[1:]
    }
    ids = {each.message_id for each in receipts[1:]}
    for record in found:
        assert record.key == record.value
        assert record.partition == murmur2(record.key or b"") % PARTITIONS
        decoded = decode(record)
        assert (decoded.tag, decoded.properties["a"]) == ("T", "é")
        assert message_id(record) in ids


def test_partition_is_that_of_other_writers(address: str, topic: Callable[..., str], tmp_path: Path) -> None:
    """A key's records of a plain producer with Java's partitioner stand beside those of the node."""
    name = topic(PARTITIONS)
    keys: Sequence[str] = [f"customer-{number}" for number in range(12)] + ["é-7", "订单"]
    with node(address, name, tmp_path / "data") as running, Producer(running.producer, timeout_ms=60_000) as producer:
        for key in keys:
            producer.send(name, b"node", key=key)
    send_plainly(
        address,
        name,
        [{"key": key.encode(), "value": b"plain", "partition": murmur2(key.encode()) % PARTITIONS} for key in keys],
    )
    places: dict[bytes | None, set[int]] = {}
    for record in records(address, name, 2 * len(keys)):
        places.setdefault(record.key, set()).add(record.partition)
    assert all(len(each) == 1 for each in places.values())


def test_topic_that_is_not_there_is_told_and_not_made(address: str, topic: Callable[..., str], tmp_path: Path) -> None:
    """Also where the broker makes topics by itself; a record that is too large is told as such."""
    name = topic()
    with node(address, name, tmp_path / "data") as running, Peer(running.producer) as peer:
        result = peer.send("nowhere", timeout_ms=PATIENCE_MS, partitionId=-1)
        assert (result.code, "cluster main" in result.msg) == (14, True)
        result = peer.send(name, bytes(3_000_000), timeout_ms=PATIENCE_MS, partitionId=-1)
        assert (result.code, "cluster main" in result.msg) == (11, True)
    assert "nowhere" not in topic_names(address)


def test_kafka_restarts_while_numbered_messages_are_sent(killable: KafkaServer, tmp_path: Path) -> None:
    """Each message is stored once, and those of a key in the order in which they were sent."""
    make_topic(killable.address, "permits", PARTITIONS, {})
    count, half = 600, 200
    with (
        node(killable.address, "permits", tmp_path / "data") as running,
        Producer(running.producer, timeout_ms=2_000, resends=500, resend_pause_ms=50) as producer,
        Producer(running.producer, timeout_ms=60_000) as other,
    ):
        sent = [
            producer.send_soon(OutgoingMessage(topic="permits", body=b"%d" % number, key=f"k{number % 7}"))
            for number in range(half)
        ]
        sent[half - 1 - 20].result(PATIENCE_MS / 1000)
        killable.kill()
        # Some are under way still; these go on while nobody answers.
        sent += [
            producer.send_soon(OutgoingMessage(topic="permits", body=b"%d" % number, key=f"k{number % 7}"))
            for number in range(half, half + 20)
        ]
        assert other.send("orders", b"beside").code == 0
        killable.start()
        sent += [
            producer.send_soon(OutgoingMessage(topic="permits", body=b"%d" % number, key=f"k{number % 7}"))
            for number in range(half + 20, count)
        ]
        receipts = [each.result(PATIENCE_MS / 1000) for each in sent]
    assert all(each.numbered for each in receipts)
    by_key: dict[bytes | None, list[int]] = {}
    for record in sorted(records(killable.address, "permits", count), key=lambda each: (each.partition, each.offset)):
        by_key.setdefault(record.key, []).append(int(record.value or b""))
    assert by_key == {f"k{key}".encode(): list(range(key, count, 7)) for key in range(7)}
