"""Faults of our own in what a turn of the node runs: others are served, and the log has a line a minute."""

from __future__ import annotations

from pathlib import Path

from structlog.testing import capture_logs

from broker.errors import StoreError
from broker.log.put import Put
from tests.insides import opened_of
from tests.patient import Producer
from tests.running_node import RunningNode

YAML = """
topics:
  orders: {queues: 1}
"""
HOST = bytes(8)
FAULTS = 5


def test_callback_that_fails_keeps_no_reply_back_and_shows_once(tmp_path: Path) -> None:
    """A publish of the same turn is answered; faults after the first are counted, without their tracebacks."""

    def fail(_: StoreError | None) -> None:
        raise ValueError("of our own")

    def publish_with_fault() -> None:
        store = opened_of(node.node).store
        store.append([Put(store.topics["orders"], 0, b"inside", b"")], born_ms=1, born_host=HOST, done=fail)

    with capture_logs() as lines:
        with RunningNode(YAML, tmp_path) as node, Producer(node.producer) as producer:
            for number in range(FAULTS):
                node.call(publish_with_fault)
                assert producer.send("orders", b"outside").offset == 2 * number + 1
        reported = [line for line in lines if line["event"] == "turn_callback_failed"]
    assert [(line["log_level"], line["count"]) for line in reported] == [("error", 1), ("error", FAULTS - 1)]
    assert ["exc_info" in line for line in reported] == [True, False]
    assert reported[1]["fault"] == "ValueError: of our own"
