"""The low-level API of a running node, through Apache Thrift's own library and over restarts and kills."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TCompactProtocol import TCompactProtocol

from conf.loader import loads
from proxy.node.reload import Reloader
from proxy.operate.live_node import LiveNode
from pyddmq import Consumer, Producer, PullRefused
from pyddmq.codes import PullCode
from tests.apache_structs import (
    RESULTS,
    AckResult,
    ConsumeResult,
    ConsumeStatsRequest,
    Context,
    FetchRequest,
    PullException,
    ddmqs,
)
from tests.console_page import fragment
from tests.insides import opened_of
from tests.integration.proxy.services.test_apache_client import ApacheClient
from tests.patient import until
from tests.running_node import RunningNode

YAML = """
node: {segmentBytes: 1048576, maxMessageBytes: 500000}
topics: {orders: {queues: 2}}
groups:
  - group: low
    topics: [{topic: orders, actions: [LowLevel], maxPullBatchSize: 32}]
  - {group: pulled, topics: [{topic: orders}]}
"""
QIDS = ("pyddmq_broker-0_0", "pyddmq_broker-0_1")
Offsets = Mapping[str, int]


class Low(ApacheClient):
    """A client with a name."""

    def __init__(self, node: RunningNode, name: str = "1@host#0", protocol: Any = TCompactProtocol) -> None:
        super().__init__(node.consumer, protocol)
        self.name = name

    def request(self, offsets: Offsets | None = None, **how: Any) -> Any:
        """A fetch of the group."""
        asked = {"orders": dict(offsets)} if offsets else None
        given = {"consumerId": self.name, "groupId": "low", "cluster": "pyddmq", **how}
        return FetchRequest(fetchOffset=asked, **given)

    def fetch(self, offsets: Offsets | None = None, *, reads: Any = None, **how: Any) -> Any:
        """Fetch once."""
        return self.call("fetch", reads=reads, request=self.request(offsets, **how))

    def ack(self, offsets: Offsets, **how: Any) -> bool:
        """Ack."""
        given = {"consumerId": self.name, "groupId": "low", "cluster": "pyddmq", **how}
        return bool(self.call("ack", result=AckResult(offsets={"orders": dict(offsets)}, **given)))


@contextmanager
def closing(client: Low) -> Iterator[Low]:
    """Close it in the end."""
    try:
        yield client
    finally:
        client.close()


def publish(node: RunningNode, count: int) -> None:
    """Send so many to the queues in turn."""
    with Producer(node.producer) as producer:
        for number in range(count):
            receipt = producer.send(
                "orders", b"%d" % number, key="k", tags="t", properties={"p": "v"}, partition_id=number
            )
            assert receipt.offset >= 0


def found(response: Any) -> dict[str, list[int]]:
    """Offsets of the messages by queue."""
    assert response.code is None
    return {row.qid: [message.offset for message in row.messages] for row in response.results}


@pytest.mark.parametrize("protocol", [TBinaryProtocol, TCompactProtocol])
def test_fetch_ack_and_stats(tmp_path: Path, protocol: Any) -> None:
    """Every field of a message comes, positions are where acks put them, and stats show it."""
    with RunningNode(YAML, tmp_path) as node, closing(Low(node, protocol=protocol)) as client:
        publish(node, 6)
        response = client.fetch()
        assert found(response) == {qid: [0, 1, 2] for qid in QIDS}
        message = response.results[0].messages[0]
        assert (message.key, message.tag, message.properties) == ("k", "t", {"p": "v"})
        assert (message.storeTimestamp, message.bornTimestamp) == (None, None)
        assert {row.nextRequestOffset for row in response.results} == {3}
        assert client.ack({QIDS[0]: 3, QIDS[1]: 1})
        [stats] = client.call("getConsumeStats", request=ConsumeStatsRequest(group="low"))
        assert stats.consumeOffsets == {QIDS[0]: 3, QIDS[1]: 1}
        assert stats.produceOffsets == {QIDS[0]: 3, QIDS[1]: 3}
        assert found(client.fetch()) == {QIDS[0]: [], QIDS[1]: [1, 2]}


def test_times_come_to_who_knows_of_them(tmp_path: Path) -> None:
    """A request with field 101, be it false, gets fields 101 and 102 of messages; DDMQ's structs see none."""
    with RunningNode(YAML, tmp_path) as node, closing(Low(node)) as client:
        publish(node, 2)
        for only_named in (False, True):
            response = client.fetch(dict.fromkeys(QIDS, 0), onlyNamed=only_named)
            for row in response.results:
                [message] = row.messages
                assert message.bornTimestamp <= message.storeTimestamp
                assert message.storeTimestamp > 1_600_000_000_000
        old = client.fetch(dict.fromkeys(QIDS, 0), reads=ddmqs(RESULTS["fetch"]), onlyNamed=True)
        assert found(old) == {qid: [0] for qid in QIDS}


def test_fetch_waits_for_an_arrival(tmp_path: Path) -> None:
    """W72: nothing is there, and it comes back with what arrives, long before its linger ends; empty after it."""
    with RunningNode(YAML, tmp_path) as node, closing(Low(node)) as client:
        assert found(client.fetch(maxLingerTime=30)) == {qid: [] for qid in QIDS}
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(client.fetch(maxLingerTime=20_000)))
        thread.start()
        until(lambda: node.call(lambda: waiting(node)), "the fetch")
        publish(node, 1)
        thread.join(10)
        assert [sum(map(len, found(each).values())) for each in answers] == [1]


def waiting(node: RunningNode) -> int:
    """Fetches that wait at the node."""
    fetching = node.node.in_force.groups["low"].fetch_hooks.arrived
    return (
        sum(each.waiting for each in fetching.__self__.fetchers.by_id.values()) if hasattr(fetching, "__self__") else 0
    )


def test_calls_that_cannot_be_served_say_why(tmp_path: Path) -> None:
    """A fetch by its code, an ack by false, a pull and a submit by their exception; the log has the sentence."""
    with RunningNode(YAML, tmp_path) as node, closing(Low(node)) as client:
        publish(node, 2)
        codes: dict[PullCode, Any] = {
            PullCode.NO_SUCH_GROUP: {"groupId": "nobody"},
            PullCode.NOT_LOW_LEVEL: {"groupId": "pulled"},
            PullCode.OTHER_CLUSTER: {"cluster": "other"},
        }
        for code, how in codes.items():
            response = client.fetch(**how)
            assert (response.code, response.results) == (code, [])
            assert not client.ack({QIDS[0]: 1}, **how)
        response = client.fetch({"nowhere": 0}, onlyNamed=True)
        assert (response.code, response.results) == (PullCode.NO_SUCH_QUEUE, [])
        assert not client.ack({QIDS[0]: 2})
        assert client.ack({QIDS[0]: 1}, cluster="")
        with Consumer(node.consumer, "low") as consumer, pytest.raises(PullRefused, match="low level") as refused:
            consumer.pull()
        assert refused.value.code == PullCode.LOW_LEVEL
        of_low = ConsumeResult(context=Context(groupId="low", topic="orders", qid=QIDS[1]), successOffsets=[0])
        with pytest.raises(PullException) as submitted:
            client.call("submit", result=of_low)
        reported: Any = submitted.value
        assert reported.code == PullCode.LOW_LEVEL
        assert node.call(lambda: opened_of(node.node).progress.trackers["low", "orders", 1].watermark) == 0


def test_clients_share_queues_and_take_over(tmp_path: Path) -> None:
    """Two names get a queue each; acks of what only the other was given are refused; a name is taken over."""
    with RunningNode(YAML, tmp_path) as node, closing(Low(node, "a")) as first, closing(Low(node, "b")) as second:
        publish(node, 4)
        first.fetch()
        [theirs] = found(second.fetch())
        [own] = found(first.fetch())
        assert {theirs, own} == set(QIDS)
        assert first.ack({theirs: 1}), "it was given that one while the queue was its own"
        publish(node, 2)
        assert found(second.fetch()) == {theirs: [1, 2]}
        assert not first.ack({theirs: 3}), "that one was given to the other alone"
        assert first.ack({own: 1})
        with closing(Low(node, "a")) as again:
            assert found(again.fetch()) == {own: [1, 2]}


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_acked_positions_outlive_the_node(tmp_path: Path, ends: str) -> None:
    """What was answered never comes again, also after a kill; what was not acked does."""
    with RunningNode(YAML, tmp_path) as node, closing(Low(node)) as client:
        publish(node, 6)
        assert found(client.fetch()) == {qid: [0, 1, 2] for qid in QIDS}
        assert client.ack({QIDS[0]: 3, QIDS[1]: 2})
        getattr(node, ends)()
    with RunningNode(YAML, tmp_path) as node, closing(Low(node)) as client:
        assert found(client.fetch()) == {QIDS[0]: [], QIDS[1]: [2]}


def test_operators_see_who_fetches(tmp_path: Path) -> None:
    """The views of groups name fetchers and their queues, and the lag; the console has a table of them."""
    with RunningNode(YAML, tmp_path) as node, closing(Low(node, "tasks")) as client:
        publish(node, 2)
        client.fetch()
        live = LiveNode(node.node, Reloader(node.node, lambda: loads(YAML, actions=node.registry)))
        [low] = [each for each in node.call(lambda: live.groups(details_max=10)) if each.group == "low"]
        [fetcher] = low.fetchers
        assert (fetcher.id, list(fetcher.queues)) == ("tasks", [f"orders {qid}" for qid in QIDS])
        assert fetcher.address.startswith("127.0.0.1:")
        assert low.topics[0].lag == 2
        page = node.call(lambda: fragment(live, "/group", group="low"))
        assert "<h2>Fetchers</h2>" in page
        assert "tasks" in page
