"""Real clients over real sockets above a limit of theirs: they come as often as they may, and lose nothing."""

from __future__ import annotations

from pathlib import Path

from pyddmq import Consumer, Producer, RateLimited
from tests.insides import opened_of
from tests.patient import PATIENCE_MS
from tests.running_node import RunningNode

YAML = """
node: {segmentBytes: 4194304}
topics:
  orders: {queues: 1}
groups:
  - {group: billing, topics: [{topic: orders}]}
limits: {addresses: [{networks: [127.0.0.0/8], requestsPerSecond: 40}]}
"""


def test_producer_and_consumer_keep_to_their_rate(tmp_path: Path) -> None:
    """The producer waits as long as it is told; every message is stored once, delivered and acknowledged."""
    refused: list[Exception] = []
    with RunningNode(YAML, tmp_path / "data") as running:
        with Producer(
            running.producer, resends=1000, resend_pause_ms=1, on_resend=refused.append, timeout_ms=PATIENCE_MS
        ) as producer:
            for number in range(100):
                producer.send("orders", b"%d" % number, key="k")
        assert all(isinstance(each, RateLimited) for each in refused)
        assert all(isinstance(each, RateLimited) and each.retry_after_ms > 0 for each in refused)
        got: list[bytes] = []
        with Consumer(running.consumer, "billing", batch_size=8) as consumer:
            while len(got) < 100:
                for message in consumer.pull(patience_ms=PATIENCE_MS):
                    got.append(bytes(message.body))
                    consumer.ack(message)
        assert got == [b"%d" % number for number in range(100)]
        tracker = opened_of(running.node).progress.trackers["billing", "orders", 0]
        assert running.call(lambda: tracker.watermark) == 100
