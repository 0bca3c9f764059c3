"""Faults of our own in what a turn of the node runs: others are served, and the log has a line a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.errors import StoreError
from broker.log.put import Put
from tests.hostile.sim import HostileWorld
from tests.insides import opened_of
from tests.patient import Producer
from tests.running_node import RunningNode
from tests.simulation.wire import consumer_idl, producer_idl

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


@pytest.mark.parametrize("good", [0, 1])
def test_pull_that_waited_is_answered_although_its_messages_cannot_be_had(
    good: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For messages, or for its turn: a fault is its answer, as of one that waits for nothing, and not of those behind.

    Args:
        good: Replies that are made before the one that is not: of the pull before it.
        monkeypatch: Has the store fail.
    """
    world = HostileWorld()
    client, producer = world.connect("consumer"), world.connect("producer")
    store, left = opened_of(world.node).store, [good]
    locate = store.locate

    def failing(places: Any, *unusual: Any) -> Any:
        if unusual:
            left[0] -= 1
            if left[0] == -1:
                raise OSError("no memory for a map")
        return locate(places, *unusual)

    monkeypatch.setattr(store, "locate", failing)
    for number in range(good + 2):
        request = consumer_idl.PullRequest(groupId="billing", maxLingerTime=5000, maxBatchSize=1)
        client.transport.write(client.codec.call("pull", number, request=request))
    world.run(0.1)
    assert client.replies == []
    messages = [producer_idl.Message(topic="orders", body=b"%d" % each, hashId=0) for each in range(good + 2)]
    producer.transport.write(producer.codec.call("sendBatchSync", 1, messages=messages))
    world.run(1)
    bodies = [None if each.error else [message.value for message in each.value.messages] for each in client.replies]
    assert bodies == [*[[b"0"]] * good, None, [b"%d" % (good + 1)]]
    assert "no memory for a map" in client.replies[good].error.message
