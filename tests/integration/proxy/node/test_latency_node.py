"""How long a node takes, on a whole node in virtual time: a disk whose syncs take 4 ms, a network of 1 ms."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from actions.registry import Registry
from broker.log.put import Put
from broker.runtime.disks.timed_syncs import SYNC_SECONDS
from broker.runtime.metrics import Metrics
from conf.loader import loads
from proxy.node.node import Node
from proxy.node.parts import Seams
from proxy.node.reload import Reloader
from proxy.operate import answers
from proxy.operate.attention.findings import judged
from proxy.operate.live_node import LiveNode
from proxy.port.calls_pass import GATHERED_CALLS
from proxy.services.publishing import PUBLISH_SECONDS
from pyddmq.codes import ResultCode
from pyddmq.testing import NetworkFaults, SimDisk, SimNetwork, SimSyncs, VirtualClock, VirtualLoop
from tests.console_page import fragment
from tests.insides import opened_of
from tests.simulation.wire import Codec, consumer_codec, consumer_idl, producer_codec, producer_idl
from upstream.figures.latency import END_TO_END_SECONDS, HAND_OUT_SECONDS

YAML = """
node: {segmentBytes: 4194304, producerPort: 9613, consumerPort: 9713}
topics:
  orders: {queues: 1}
groups:
  - {group: g, topics: [{topic: orders}]}
"""


class Half(Random):
    """Draws the middle of everything."""

    def random(self) -> float:
        return 0.5


class Peer(asyncio.Protocol):
    """A client that sends calls and keeps the replies."""

    def __init__(self) -> None:
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data


def codes(peers: list[Peer]) -> list[int]:
    """Return the code of each client's answer."""
    codec = producer_codec()
    return [codec.reply(peer.received[4:]).value.code for peer in peers]


class Machine:
    """One node, and clients of it."""

    def __init__(self, sync_seconds: float = 0.004) -> None:
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        disk = self.disk = SimDisk()
        self.network = SimNetwork(self.loop, Half(), NetworkFaults())
        seams = Seams(
            loop=self.loop,
            clock=self.clock,
            disk=disk,
            randomness=Random(2),
            network=self.network,
            syncs=SimSyncs(disk, self.loop, Half(), seconds_max=2 * sync_seconds),
        )
        self.metrics = Metrics()
        self.node = Node(loads(YAML, actions=Registry()).config, seams=seams, registry=Registry(), metrics=self.metrics)
        self.view = LiveNode(self.node, Reloader(self.node, lambda: loads(YAML, actions=Registry())))
        task = self.loop.create_task(self.node.start())
        self.loop.run(task.done, seconds=60)
        task.result()

    def call(self, codec: Codec, port: int, method: str, **arguments: Any) -> None:
        """Call once over a connection of its own and wait for the reply."""
        peer = Peer()
        transport = self.network.connect(peer, ("127.0.0.1", port))
        assert transport is not None
        transport.write(codec.call(method, 1, **arguments))
        self.loop.run(lambda: bool(peer.received), seconds=10)

    def send_each_ms(self, count: int) -> list[Peer]:
        """Have clients send one message each, one after the other, a millisecond apart; returns them at once."""
        peers = [Peer() for _ in range(count)]
        sent = producer_idl.Message(topic="orders", body=b"{}")
        frame = producer_codec().call("sendSync", 1, message=sent, timeout=60_000)
        for at, peer in enumerate(peers):
            transport = self.network.connect(peer, ("127.0.0.1", 9613))
            assert transport is not None
            self.loop.call_later(1 + at / 1000, transport.write, frame)
        return peers

    def let_pass(self, seconds: float) -> None:
        """Let time pass."""
        end = self.clock.monotonic() + seconds
        self.loop.run(lambda: self.clock.monotonic() >= end, seconds=seconds + 1)

    def seen(self, name: str, *labels: str) -> dict[int, int]:
        """Observations by bucket."""
        counts = self.metrics.histogram(name, *labels).counts
        return {place: count for place, count in enumerate(counts) if count}


def test_each_stretch_of_a_messages_way_is_observed_and_shows_where_an_operator_looks() -> None:
    """Three messages of a frame wait for one sync of 4 ms; a second later they are pulled, and then finished."""
    machine = Machine()
    messages = [producer_idl.Message(topic="orders", key=str(each), body=b"{}") for each in range(3)]
    machine.call(producer_codec(), 9613, "sendBatchSync", messages=messages)
    assert machine.seen(PUBLISH_SECONDS) == {12: 3}
    assert machine.metrics.histogram(PUBLISH_SECONDS).sum_us == 3 * 4_000
    assert machine.seen(SYNC_SECONDS, "commit_log") == {12: 1}
    machine.let_pass(1.1)
    machine.call(consumer_codec(), 9713, "pull", request=consumer_idl.PullRequest(groupId="g"))
    assert machine.seen(HAND_OUT_SECONDS, "g", "orders") == {21: 3}
    assert machine.seen(END_TO_END_SECONDS, "g", "orders") == {}
    result = consumer_idl.ConsumeResult(
        context=consumer_idl.Context(groupId="g", topic="orders", qid="pyddmq_broker-0_0"),
        successOffsets=[0, 1],
        failOffsets=[2],
    )
    machine.let_pass(1.1)
    machine.call(consumer_codec(), 9713, "submit", result=result)
    assert machine.seen(END_TO_END_SECONDS, "g", "orders") == {22: 2}
    # The first one is that of the start, which waited for it.
    assert machine.seen(SYNC_SECONDS, "ack_journal") == {0: 1}
    machine.let_pass(0.1)
    assert machine.seen(SYNC_SECONDS, "ack_journal") == {0: 1, 12: 1}
    shown = answers.stats(machine.view, judged(machine.view), limit=0).latencies
    assert [(each.name, each.labels, each.count) for each in shown] == [
        ("publish", {}, 3),
        ("sync", {"file": "commit_log"}, 1),
        ("sync", {"file": "ack_journal"}, 2),
        ("end to end", {"group": "g", "topic": "orders"}, 2),
        ("hand out", {"group": "g", "topic": "orders"}, 3),
    ]
    assert shown[0].p50_seconds == 0.003072
    assert shown[0].p99_seconds == 0.004076
    page = fragment(machine.view, "/node")
    assert '<td data-label="What">publish</td>' in page
    assert "3.07 ms" in page


def test_a_refused_publish_is_not_observed() -> None:
    """What is answered without being stored says nothing about how long storing takes."""
    machine = Machine()
    machine.call(producer_codec(), 9613, "sendSync", message=producer_idl.Message(topic="", body=b"{}"), timeout=1_000)
    assert machine.seen(PUBLISH_SECONDS) == {}


def appended(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many messages each append has, as they come."""
    counts: list[int] = []
    store = opened_of(machine.node).store
    append = store.append

    def noted(puts: Sequence[Put], **how: Any) -> Any:
        counts.append(len(puts))
        return append(puts, **how)

    monkeypatch.setattr(store, "append", noted)
    return counts


@pytest.mark.parametrize(("clients", "appends"), [(1, [1]), (6, [1, 5]), (GATHERED_CALLS + 4, [1, GATHERED_CALLS, 3])])
def test_sends_that_come_while_the_disk_is_at_work_gather_for_the_next_flush(
    clients: int, appends: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few are one append at its end, none later than that; many do not wait for each other."""
    machine = Machine(sync_seconds=0.1)
    counts = appended(machine, monkeypatch)
    peers = machine.send_each_ms(clients)
    machine.let_pass(1.195)
    assert counts == appends
    machine.let_pass(0.1)
    assert codes(peers) == [ResultCode.OK] * clients


def test_sends_that_gather_are_refused_when_the_flush_before_them_fails() -> None:
    """They do not wait for a flush that will not come; none of the failed one's records is a client's."""
    machine = Machine(sync_seconds=0.1)
    store = opened_of(machine.node).store
    peers = machine.send_each_ms(4)
    machine.let_pass(0.95)
    store.append([Put(store.topics["orders"], 0, b"of the node itself", b"")], born_ms=0, born_host=bytes(8))
    machine.disk.fail("sync", path_part="commitlog")
    machine.let_pass(1.0)
    assert codes(peers) == [ResultCode.FAIL_UNKNOWN] * 4
