"""Details of DDMQ's calls that its client libraries and dashboards go by: empty statistics, order of checks, marks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pyddmq.codes import ResultCode
from tests.integration.ddmq_tools import NODE, Peer
from tests.running_node import RunningNode
from tests.simulation.wire import consumer_idl, producer_idl

YAML = (
    NODE % ""
    + """
topics:
  orders: {queues: 1, maxTps: 1}
  later: {queues: 1, messageType: DELAY}
  plain: {queues: 1, messageType: NORMAL, maxTps: 1}
  resting: {queues: 1, enabled: false}
groups:
  - group: billing
    topics: [{topic: orders}, {topic: later}]
"""
)
UUID = "14f22520-ad72-11e7-91be-6ee54da579e3"
LONG_TAG = "t" * 300


def delayed(peer: Peer, topic: str, **more: Any) -> Any:
    """A DelayResult."""
    fields: dict[str, Any] = {"tags": "t", "body": b"x", "action": 1, "timestamp": int(time.time()) - 1, "dmsgtype": 2}
    fields |= {"uuid": UUID} | more
    return peer.call("sendDelaySync", delayMessage=producer_idl.DelayMessage(topic=topic, **fields), timeout=100).value


def test_statistics_of_an_unknown_group_or_topic_are_empty(tmp_path: Path) -> None:
    """R76: no exception, so that a dashboard which asks for a list of groups gets through it."""
    with RunningNode(YAML, tmp_path) as node, Peer(node.consumer) as peer:
        assert peer.stats("nobody") == []
        assert peer.stats("nobody", "orders") == []
        assert peer.stats("billing", "nothing") == []
        assert [row.topic for row in peer.stats("billing")] == ["orders", "later"]


def test_delay_message_is_checked_in_the_order_of_ddmq(tmp_path: Path) -> None:
    """R102: the message itself, then its topic, its type, the action's own fields, and its rate at the very end."""
    with RunningNode(YAML, tmp_path) as node, Peer(node.producer) as peer:
        wrong = {"action": 9, "timestamp": 1, "dmsgtype": 7}
        assert delayed(peer, "nowhere", tags=LONG_TAG, **wrong).code == ResultCode.FAIL_ILLEGAL_MSG
        assert delayed(peer, "nowhere", body=b"", **wrong).code == ResultCode.FAIL_ILLEGAL_MSG
        assert delayed(peer, "nowhere", **wrong).code == ResultCode.FAIL_TOPIC_NOT_EXIST
        assert delayed(peer, "resting", **wrong).code == ResultCode.FAIL_TOPIC_NOT_ALLOWED
        assert delayed(peer, "plain", **wrong).code == ResultCode.FAIL_TOPIC_IS_NOT_DELAY
        assert delayed(peer, "orders", **wrong).code == ResultCode.FAIL_ILLEGAL_DELAY_ACTION
        assert peer.send("orders").code == ResultCode.OK
        assert delayed(peer, "orders", dmsgtype=7).code == ResultCode.FAIL_ILLEGAL_DELAY_MSG_TYPE
        assert delayed(peer, "orders").code == ResultCode.FAIL_REFUSED_BY_RATE_LIMITER


@pytest.mark.parametrize("batch", [False, True])
def test_message_is_checked_in_the_order_of_ddmq(tmp_path: Path, batch: bool) -> None:
    """The message itself, then its topic, its type, its rate."""
    with RunningNode(YAML, tmp_path) as node, Peer(node.producer) as peer:

        def send(topic: str, body: bytes = b"x", **more: Any) -> int:
            message = producer_idl.Message(topic=topic, body=body, **more)
            if batch:
                return int(peer.call("sendBatchSync", messages=[message]).value.code)
            return int(peer.call("sendSync", message=message, timeout=0).value.code)

        assert send("nowhere", b"") == ResultCode.FAIL_ILLEGAL_MSG
        assert send("nowhere", tags=LONG_TAG) == ResultCode.FAIL_ILLEGAL_MSG
        assert send("nowhere", key="k" * 256) == ResultCode.FAIL_ILLEGAL_MSG
        assert send("resting", properties={"UNIQ_KEY": "mine"}) == ResultCode.FAIL_ILLEGAL_MSG
        assert send("nowhere") == ResultCode.FAIL_TOPIC_NOT_EXIST
        assert send("plain") == ResultCode.OK
        assert send("plain", hashId=7) == ResultCode.FAIL_ILLEGAL_MSG
        assert send("plain") == ResultCode.FAIL_REFUSED_BY_RATE_LIMITER


def test_disabled_topic_is_told_as_such(tmp_path: Path) -> None:
    """Code 13, with the key that would change it; a topic that the configuration does not have is another matter."""
    with RunningNode(YAML, tmp_path) as node, Peer(node.producer) as peer:
        refused = peer.send("resting")
        assert refused.code == ResultCode.FAIL_TOPIC_NOT_ALLOWED
        assert "resting is disabled; set `enabled: true`" in refused.msg
        assert "disabled" not in peer.send("nowhere").msg
        node.reload(YAML.replace(", enabled: false", ""))
        assert peer.send("resting").code == 0


def test_refused_low_level_calls_show(tmp_path: Path) -> None:
    """One line in the log for each method, however often a client of it tries, and a counter (D25)."""
    names = {"consumerId": "1@host#0", "groupId": "nobody", "cluster": ""}
    with capture_logs() as logs, RunningNode(YAML, tmp_path) as node, Peer(node.consumer) as peer:
        for _ in range(3):
            peer.call("fetch", request=consumer_idl.FetchRequest(**names))
            peer.call("ack", result=consumer_idl.AckResult(**names, offsets={"orders": {"q": 1}}))
        value = node.node.runtime.metrics.value
        assert node.call(lambda: value("pyddmq_fetches_refused_total", "no_such_group")) == 3
        assert node.call(lambda: value("pyddmq_fetch_acks_refused_total", "no_such_group")) == 3
    reported = [line for line in logs if line["event"] in ("fetch_refused", "ack_refused")]
    events = sorted((line["event"], line["count"]) for line in reported if line["count"] == 1)
    assert events == [("ack_refused", 1), ("fetch_refused", 1)]
    assert all("nobody" in line["text"] for line in reported if line["event"] == "fetch_refused")


def test_delivered_delay_message_is_marked(tmp_path: Path) -> None:
    """`from_chronos` tells a consumer that it waited; the sender's own properties stay, and so does other mail."""
    with RunningNode(YAML, tmp_path) as node:
        with Peer(node.producer) as peer:
            assert delayed(peer, "later", properties={"city": "Beijing", "from_chronos": "no"}).code == 0
            assert peer.send("orders", properties={"city": "Hangzhou"}).code == 0
        with Peer(node.consumer) as peer:
            [marked] = peer.pull("billing", topic="later").messages
            [other] = peer.pull("billing", topic="orders").messages
    assert marked.properties == {"city": "Beijing", "from_chronos": "true"}
    assert other.properties == {"city": "Hangzhou"}
