"""Packed bodies over the wire: clients get what the producer made, and never a compressed body."""

from __future__ import annotations

import zlib
from pathlib import Path
from random import Random

from broker.format.properties import encode_properties
from broker.log.put import Put
from tests.insides import opened_of
from tests.integration.ddmq_tools import NODE, Peer, result
from tests.patient import until
from tests.running_node import RunningNode

TOPICS = """
topics: {orders: {queues: 1}}
groups:
  - {group: first, topics: [{topic: orders, maxPullBatchSize: 32}]}
"""
QID = "pyddmq_broker-0_0"
ZLIB = 0x301


def put(node: RunningNode, *bodies: tuple[bytes, int]) -> None:
    """Append one message per (stored body, sysFlag) at once, as RocketMQ's producers would have had them stored."""

    def append() -> None:
        store = opened_of(node.node).store
        block = encode_properties({"KEYS": "k", "TAGS": "t", "color": "red"})
        puts = [Put(store.topics["orders"], 0, body, block, b"t", sys_flag=flags) for body, flags in bodies]
        store.append(puts, born_ms=1, born_host=b"\x7f\x00\x00\x01\x00\x00\x00\x00")

    node.call(append)


def test_clients_get_unpacked_bodies_and_what_cannot_be_unpacked_is_dead_lettered(tmp_path: Path) -> None:
    """Key, tag and properties are untouched; an unpackable one leaves its neighbours alone and names its reason."""
    with RunningNode(NODE % "" + TOPICS, tmp_path) as node, Peer(node.consumer) as consumer:
        put(
            node,
            (b"plain", 0),
            (zlib.compress(b"packed" * 50), ZLIB),
            (b"broken", ZLIB),
            (b"batch", 0xC0),
            (b"last", 0),
        )
        messages = consumer.pull("first").messages
        assert [(each.offset, each.value) for each in messages] == [(0, b"plain"), (1, b"packed" * 50), (4, b"last")]
        assert {(each.key, each.tag, each.properties["color"]) for each in messages} == {("k", "t", "red")}
        assert consumer.submit(result("first", "orders", QID, [0, 1, 4]))
        tracker = opened_of(node.node).progress.trackers["first", "orders", 0]
        until(lambda: tracker.watermark == 5, "the dead letters of the other two")
        count = node.node.runtime.metrics.value
        for reason in ("damaged", "inner_batch"):
            assert count("pyddmq_bodies_unusable_total", "first", "orders", reason) == 1
        assert count("pyddmq_dead_letters_total", "first", "orders", "unprocessable") == 2


def test_reply_of_unpacked_bodies_stays_bounded(tmp_path: Path) -> None:
    """Bodies that are small in the log and large unpacked go out a reply's worth at a time; none is lost or counted."""
    body = Random(1).randbytes(1000) * 400
    with RunningNode(NODE % ", maxRecvMsgsLength: 1000000" + TOPICS, tmp_path) as node, Peer(node.consumer) as consumer:
        put(node, *[(zlib.compress(body), ZLIB)] * 5)
        found: list[list[int]] = []
        while sum(map(len, found)) < 5:
            messages = consumer.pull("first").messages
            assert {each.value for each in messages} == {body}
            found.append([each.offset for each in messages])
            assert consumer.submit(result("first", "orders", QID, found[-1]))
        assert found == [[0, 1], [2, 3], [4]]
        assert node.node.runtime.metrics.value("pyddmq_timeout_attempts_total", "first", "orders") == 0
