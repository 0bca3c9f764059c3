"""Publishes to the broker's own topics from outside: refused by every method, whether the topic is there or not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.scheduled.delay.levels import SCHEDULE_TOPIC
from broker.scheduled.timer.names import TIMER_TOPIC
from broker.transaction.names import HALF_TOPIC, OP_TOPIC
from pyddmq.codes import ResultCode
from tests.insides import opened_of
from tests.integration.ddmq_tools import Peer
from tests.running_node import RunningNode
from tests.simulation.wire import producer_idl

YAML = """
node: {autoCreateTopics: true}
topics:
  orders: {queues: 1}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [PullServer]}
"""
UUID = "14f22520-ad72-11e7-91be-6ee54da579e3"
OWN = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, "%RETRY%billing")


@pytest.fixture(scope="module", params=[False, True], ids=["missing", "there"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node that makes topics on demand, without the broker's own topics or with them."""
    folder: Path = tmp_path_factory.mktemp("data")
    with RunningNode(YAML, folder) as running:
        if request.param:
            for name in OWN:
                running.call(lambda name=name: _make(running, name))
        yield running


def _make(node: RunningNode, name: str) -> None:
    if name not in opened_of(node.node).store.topics:
        opened_of(node.node).store.create_topic(name, 1, system=True)


def call(peer: Peer, method: str, topic: str) -> Any:
    """Publish one message to a topic; the result."""
    message = producer_idl.Message(topic=topic, body=b"x")
    arguments: dict[str, Any] = {
        "sendSync": {"message": message, "timeout": 1000},
        "sendAsync": {"message": message},
        "sendBatchSync": {"messages": [producer_idl.Message(topic="orders", body=b"x"), message]},
        "sendDelaySync": {"delayMessage": _delay(topic), "timeout": 1000},
        "sendHalfSync": {"message": message, "producerGroup": "shop", "timeout": 1000},
    }[method]
    reply = peer.call(method, **arguments)
    assert reply.error is None, reply.error
    return reply.value


def _delay(topic: str) -> Any:
    at = int(time.time()) + 3600
    return producer_idl.DelayMessage(topic=topic, body=b"x", action=1, timestamp=at, dmsgtype=2, uuid=UUID)


@pytest.mark.parametrize("topic", OWN)
@pytest.mark.parametrize("method", ["sendSync", "sendAsync", "sendBatchSync", "sendDelaySync", "sendHalfSync"])
def test_publish_to_a_topic_of_the_brokers_own_is_refused(node: RunningNode, method: str, topic: str) -> None:
    """With its code; a topic that is not there is not made, though others are on demand, and nothing is stored."""
    end = node.call(lambda: opened_of(node.node).store.end)
    there = topic in node.call(lambda: set(opened_of(node.node).store.topics))
    with Peer(node.producer) as peer:
        result = call(peer, method, topic)
    assert result.code == ResultCode.FAIL_TOPIC_NOT_ALLOWED
    assert topic in result.msg
    assert node.call(lambda: opened_of(node.node).store.end) == end
    assert (topic in node.call(lambda: set(opened_of(node.node).store.topics))) == there
