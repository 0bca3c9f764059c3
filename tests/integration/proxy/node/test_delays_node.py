"""Delay levels through a whole node: over Thrift, by the client, from the command line's options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyddmq import OutgoingMessage, SendRefused
from tests.insides import opened_of
from tests.patient import Consumer, Producer
from tests.running_node import RunningNode

YAML = """
node: {segmentBytes: 1048576, maxMessageBytes: 500000, messageDelayLevel: 1s 2s 2h}
topics:
  orders: {queues: 4}
  notes: {queues: 1}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [Async, PullServer], maxPullBatchSize: 32}
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    """A node with three levels."""
    with RunningNode(YAML, tmp_path / "data") as running:
        yield running


def test_delayed_message_arrives_when_it_is_due(node: RunningNode) -> None:
    """With key, tag and properties as they were sent; the receipt names the message and no place."""
    with Producer(node.producer) as producer, Consumer(node.consumer, "billing") as consumer:
        delayed = OutgoingMessage(
            topic="orders", body=b"later", key="k", tags="t", properties={"own": "1"}, delay_level=1
        )
        [receipt, _] = producer.send_batch([delayed, OutgoingMessage(topic="orders", body=b"now", key="k")])
        assert (receipt.qid, receipt.offset) == ("", -1)
        assert len(receipt.message_id) == 32
        found = []
        for message in consumer:
            found.append(message)
            if len(found) == 2:
                break
    assert [message.body for message in found] == [b"now", b"later"]
    assert (found[1].key, found[1].tag, found[1].properties["own"]) == ("k", "t", "1")
    assert not {"DELAY", "REAL_TOPIC", "REAL_QID"} & found[1].properties.keys()


def test_negative_level_is_refused(node: RunningNode) -> None:
    """With code 11 and a sentence; nothing of its batch is stored."""
    batch = [OutgoingMessage(topic="orders", body=b"a"), OutgoingMessage(topic="orders", body=b"b", delay_level=-1)]
    refused = pytest.raises(SendRefused, match="delayLevel -1 is negative")
    with Producer(node.producer) as producer, refused as caught:
        producer.send_batch(batch)
    assert caught.value.code == 11
    assert sum(queue.max_offset for queue in opened_of(node.node).store.topics["orders"].queues) == 0
