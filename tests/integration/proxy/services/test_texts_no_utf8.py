"""Texts that are no UTF-8, as DDMQ's clients for PHP and C++ send them, in both protocols and both ways of scanning.

A client library takes a server that answers with a TApplicationException out of its list, so no such answer may come of
what one message holds.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from pyddmq.codes import PullCode, ResultCode
from tests.accelerator_ways import WAYS, need_compiled, running
from tests.fakes.codec import Reply, decode_reply, encode_call
from tests.insides import opened_of
from tests.integration.ddmq_tools import NODE
from tests.patient import PATIENCE_SECONDS
from tests.running_node import RunningNode
from tests.wire_values import PROTOCOLS

YAML = (
    NODE % ""
    + """
topics: {orders: {queues: 1}}
groups:
  - group: billing
    topics: [{topic: orders}]
"""
)
MARKER = "marker-text"
GBK = "订单号码啊".encode("gbk") + b"\xff"
assert len(GBK) == len(MARKER)
UUID = "14f22520-ad72-11e7-91be-6ee54da579e3"
TEXTS = [
    ("topic", MARKER, "topic"),
    ("key", MARKER, "key"),
    ("tags", MARKER, "tags"),
    ("version", MARKER, "version"),
    ("properties", {"city": MARKER}, "'city'"),
    ("properties", {MARKER: "Beijing"}, "name"),
]


@pytest.fixture(params=WAYS)
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Accelerators and Python."""
    if request.param == "compiled":
        need_compiled()
    with running(request.param):
        yield


@pytest.fixture
def node(_way: None, tmp_path: Path) -> Iterator[RunningNode]:
    """A node with one topic and one group."""
    with RunningNode(YAML, tmp_path) as found:
        yield found


def ask(address: str, protocol: int, method: str, arguments: dict[str, Any]) -> Reply:
    """Call with the marker, wherever it stands, as GBK; one connection per call."""
    frame = encode_call(protocol, method, 1, arguments).replace(MARKER.encode(), GBK)
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as peer:
        peer.sendall(frame)
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            got = peer.recv(1 << 16)
            assert got, "the node closed the connection"
            data += got
    return decode_reply(data[4:])


def answered(reply: Reply) -> dict[str, Any]:
    """The result of a reply; a TApplicationException fails the test."""
    assert reply.application is None, reply.application
    value: dict[str, Any] = reply.value
    return value


def test_body_in_the_text_field_is_stored_byte_for_byte(node: RunningNode) -> None:
    """`value`, which DDMQ declares a string, holds whatever a client put there: alone, in a batch and in a half."""
    for protocol in PROTOCOLS:
        message = {"topic": "orders", "key": "k", "value": MARKER, "hashId": 0, "partitionId": 0}
        assert answered(ask(node.producer, protocol, "sendSync", {"message": message, "timeout": 100}))["code"] == 0
        assert answered(ask(node.producer, protocol, "sendBatchSync", {"messages": [message, message]}))["code"] == 0
        half = answered(
            ask(node.producer, protocol, "sendHalfSync", {"message": message, "producerGroup": "p", "timeout": 100})
        )
        decision = {"producerGroup": "p", "handle": half["handle"], "state": 8}
        assert answered(ask(node.producer, protocol, "endTransaction", {"decision": decision}))["code"] == 0
        request = {"groupId": "billing", "maxBatchSize": 8, "maxLingerTime": 1000}
        found: list[Any] = []
        deadline = monotonic() + PATIENCE_SECONDS
        while len(found) < 4 and monotonic() < deadline:
            found += answered(ask(node.consumer, protocol, "pull", {"request": request}))["messages"]
        assert [each["value"] for each in found] == [GBK] * 4


@pytest.mark.parametrize(("field", "value", "named"), TEXTS)
def test_other_texts_are_refused_by_name(node: RunningNode, field: str, value: Any, named: str) -> None:
    """Code 11, which leaves the node in every client's list, and a sentence that names the field; nothing is stored."""
    for protocol in PROTOCOLS:
        message = {"topic": "orders", "key": "k", "tags": "t", "hashId": 0, "partitionId": 0, "body": b"x"}
        bad = {**message, field: value}
        single = answered(ask(node.producer, protocol, "sendSync", {"message": bad, "timeout": 100}))
        half = answered(
            ask(node.producer, protocol, "sendHalfSync", {"message": bad, "producerGroup": "p", "timeout": 100})
        )
        batch = answered(ask(node.producer, protocol, "sendBatchSync", {"messages": [message, message, bad, message]}))
        for result in (single, half, batch):
            assert result["code"] == ResultCode.FAIL_ILLEGAL_MSG
            assert "UTF-8" in result["msg"]
        assert named in single["msg"]
        assert named in batch["msg"]
        assert "message 2 of 4" in batch["msg"]
    assert node.call(lambda: node.node.runtime.metrics.value("pyddmq_sends_refused_total", "11")) == 2 * (1 + 1 + 4)
    assert node.call(lambda: opened_of(node.node).store.topics["orders"].queues[0].max_offset) == 0


@pytest.mark.parametrize("field", ["topic", "tags", "uuid", "properties", "uniqDelayMsgId"])
def test_texts_of_a_delayed_message_are_refused_by_name(node: RunningNode, field: str) -> None:
    """sendDelaySync, likewise, with its own result."""
    message: dict[str, Any] = {"topic": "orders", "tags": "t", "body": b"x", "action": 1, "timestamp": 2_000_000_000}
    message |= {"dmsgtype": 2, "uuid": UUID, field: {"city": MARKER} if field == "properties" else MARKER}
    for protocol in PROTOCOLS:
        found = answered(ask(node.producer, protocol, "sendDelaySync", {"delayMessage": message, "timeout": 100}))
        assert found["code"] == ResultCode.FAIL_ILLEGAL_MSG
        assert field in found["msg"]
        assert found["uniqDelayMsgId"] == ""


def test_names_on_the_consumer_port_are_names_that_nobody_has(node: RunningNode) -> None:
    """A group or topic of other bytes is unknown, and a result that names one is passed over, not its pull (D13)."""
    sent = {"topic": "orders", "key": "k", "hashId": 0, "partitionId": 0, "body": b"x"}
    for protocol in PROTOCOLS:
        assert answered(ask(node.producer, protocol, "sendSync", {"message": sent, "timeout": 100}))["code"] == 0
        error = ask(node.consumer, protocol, "pull", {"request": {"groupId": MARKER}}).error
        assert error is not None
        assert error[1]["code"] == PullCode.NO_SUCH_GROUP
        error = ask(node.consumer, protocol, "pull", {"request": {"groupId": "billing", "topic": MARKER}}).error
        assert error is not None
        assert error[1]["code"] == PullCode.NO_SUCH_TOPIC
        context = {"groupId": "billing", "topic": "orders", "qid": MARKER}
        results = {"context": context, "successOffsets": [0], "failOffsets": []}
        request = {"groupId": "billing", "maxLingerTime": 20, "result": results}
        assert len(answered(ask(node.consumer, protocol, "pull", {"request": request}))["messages"]) == 1
        assert ask(node.consumer, protocol, "getConsumeStats", {"request": {"group": MARKER}}).value == []
