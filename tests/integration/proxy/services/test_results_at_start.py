"""Results that come when they cannot be taken: while a node starts, and where acks cannot be recorded.

DDMQ's client for C++ throws the results of a call away that is answered with an exception; what it acked would come
again. Virtual time, a simulated disk that outlives its node.
"""

from __future__ import annotations

import asyncio
import errno
from random import Random
from typing import Any

import pytest

from actions.registry import Registry
from conf.loader import loads
from proxy.node.node import Node
from proxy.node.opened import Opened
from proxy.node.parts import Seams
from proxy.services.results import held_calls
from pyddmq.codes import PullCode
from pyddmq.testing import NetworkFaults, SimDisk, SimNetwork, VirtualClock, VirtualLoop
from tests.hostile.sim import Raw
from tests.insides import opened_of
from tests.simulation.wire import consumer_codec, consumer_idl, producer_codec, producer_idl

YAML = """
node: {segmentBytes: 1048576, maxMessageBytes: 500000, producerPort: 9613, consumerPort: 9713}
topics: {orders: {queues: 1}}
groups:
  - group: billing
    topics: [{topic: orders, maxPullBatchSize: 4, timeout: 600000}]
"""
QID = "pyddmq_broker-0_0"
STEP_SECONDS = 10.0
"""How long a step of a start takes: long enough for everything that a test does meanwhile."""


class World:
    """A disk, a network, and one node after the other on them."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.network = SimNetwork(self.loop, Random(1), NetworkFaults(delay_ms_max=0.1, fragment_share=0.0))
        self.disk = SimDisk()
        self.node: Node
        self.starting: asyncio.Task[Opened]

    def begin(self, *, step_seconds: float = 0.0) -> asyncio.Task[Opened]:
        """Begin to start a node; its start waits so long after each step."""
        seams = Seams(
            loop=self.loop,
            clock=VirtualClock(self.loop),
            disk=self.disk,
            randomness=Random(2),
            network=self.network,
            step_pause_seconds=step_seconds,
        )
        self.node = Node(loads(YAML, actions=Registry()).config, seams=seams, registry=Registry())
        task = self.loop.create_task(self.node.start())
        self.run(0.1)
        return task

    def run(self, seconds: float) -> None:
        """Let time pass; a fault that nobody handled ends the test."""
        self.loop.run(None, seconds=seconds, turns_max=1_000_000)
        assert not self.loop.errors, self.loop.errors[0]

    def connect(self, port: int = 9713) -> Raw:
        """A connection to a port."""
        client = Raw(consumer_codec() if port == 9713 else producer_codec())
        self.network.connect(client, ("127.0.0.1", port))
        self.run(0.01)
        return client

    def ask(self, client: Raw, frame: bytes) -> Any:
        """Write a call; the reply that came of it, or None."""
        seen = len(client.replies)
        client.transport.write(frame)
        self.run(0.5)
        return client.replies[seen] if len(client.replies) > seen else None

    def publish(self, count: int) -> None:
        """Store messages."""
        client = self.connect(9613)
        for number in range(count):
            message = producer_idl.Message(topic="orders", body=b"%d" % number, hashId=0, partitionId=0)
            assert self.ask(client, client.codec.call("sendSync", 1, message=message, timeout=1000)).value.code == 0

    def watermark(self) -> int:
        """Committed offset."""
        return opened_of(self.node).progress.trackers["billing", "orders", 0].watermark


def result_of(offsets: list[int]) -> Any:
    """A result that finishes offsets."""
    context = consumer_idl.Context(groupId="billing", topic="orders", qid=QID)
    return consumer_idl.ConsumeResult(context=context, successOffsets=offsets, failOffsets=[])


def pull(client: Raw, offsets: list[int] | None = None, group: str = "billing") -> bytes:
    """A pull that carries the successes of offsets, none when absent."""
    result = None if offsets is None else result_of(offsets)
    request = consumer_idl.PullRequest(groupId=group, maxLingerTime=20, result=result)
    return client.codec.call("pull", 1, request=request)


def submit(client: Raw, offsets: list[int]) -> bytes:
    """A submit of successes."""
    return client.codec.call("submit", 1, result=result_of(offsets))


def messages(reply: Any) -> list[int]:
    """Offsets of a pull's reply."""
    assert reply is not None
    assert reply.error is None, reply.error
    return [message.offset for message in reply.value.messages]


@pytest.fixture
def world() -> World:
    """A node with eight messages, four of them handed out; then it is killed and the next one is amid its start."""
    world = World()
    world.begin().result()
    world.publish(8)
    client = world.connect()
    assert messages(world.ask(client, pull(client))) == [0, 1, 2, 3]
    world.node.kill()
    world.run(0.1)
    world.starting = world.begin(step_seconds=STEP_SECONDS)
    assert world.node.state == "recovering"
    return world


def finish(world: World) -> None:
    """Let the start come to its end."""
    world.loop.run(world.starting.done, seconds=100 * STEP_SECONDS)
    world.starting.result()
    world.run(0.1)


def test_results_wait_for_the_start_and_count_first(world: World) -> None:
    """A pull with acks is answered when the node is ready, with what those leave; one without is told to come again."""
    early, asking = world.connect(), world.connect()
    assert world.ask(early, pull(early, [0, 1, 3])) is None
    assert world.ask(asking, pull(asking)).error.code == PullCode.STARTING
    leaving = world.connect()
    assert world.ask(leaving, submit(leaving, [2])) is None
    assert world.node.runtime.metrics.value("pyddmq_held_calls") == 2
    finish(world)
    assert messages(early.replies[0]) == [4, 5, 6, 7], "results of all that waited come before the first delivery"
    assert leaving.replies[0].value is True
    assert world.watermark() == 4
    assert world.node.runtime.metrics.value("pyddmq_held_calls") == 0


def test_result_of_a_client_that_has_gone_counts(world: World) -> None:
    """Its last submit, whose answer it did not wait for (S8): no message is handed to it either."""
    gone, ended = world.connect(), world.connect()
    world.ask(gone, submit(gone, [0, 1]))
    gone.transport.abort()
    world.ask(ended, pull(ended, [2]))
    ended.transport.write_eof()
    finish(world)
    assert world.watermark() == 3
    other = world.connect()
    assert messages(world.ask(other, pull(other))) == [3, 4, 5, 6]


def test_empty_results_are_answered(world: World) -> None:
    """A chain that says nothing is no reason to wait."""
    client = world.connect()
    assert world.ask(client, pull(client, [])).error.code == PullCode.STARTING
    assert world.ask(client, submit(client, [])).value is True


def test_pull_for_an_unknown_group_is_told_so_after_its_results(world: World) -> None:
    """What was held is answered with what there is to say, in the connection's order."""
    client = world.connect()
    world.ask(client, pull(client, [0]) + pull(client, [1], group="nobody") + pull(client, [2]))
    finish(world)
    first, second, third = client.replies
    assert messages(first) == [3, 4, 5, 6]
    assert second.error.code == PullCode.NO_SUCH_GROUP
    assert messages(third) == [7]


@pytest.mark.parametrize("bound", ["CALLS_MAX", "BYTES_MAX"])
def test_beyond_the_bound_connections_end_unanswered(world: World, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    """Their clients keep the results and send them again; calls of those who have gone make room first."""
    first, second, third = world.connect(), world.connect(), world.connect()
    monkeypatch.setattr(held_calls, bound, 2 if bound == "CALLS_MAX" else 2 * len(submit(first, [0])))
    world.ask(first, submit(first, [0]))
    world.ask(second, submit(second, [1]))
    assert world.ask(third, submit(third, [2])) is None
    assert (first.lost, second.lost, third.lost) == (False, False, True)
    assert world.node.runtime.metrics.value("pyddmq_results_unanswered_total", "starting") == 1
    first.transport.write_eof()
    world.run(0.1)
    again = world.connect()
    world.ask(again, submit(again, [2]))
    assert not again.lost
    finish(world)
    assert [each.replies[0].value for each in (second, again)] == [True, True]
    assert world.watermark() == 0
    assert [each.held_bytes for _, each in world.node.connections()] == [0, 0]


@pytest.mark.parametrize(("errno_of", "code"), [("ENOSPC", PullCode.ACKS_REFUSED), ("EIO", PullCode.STORE_FAILED)])
def test_results_that_cannot_be_recorded_get_no_answer(errno_of: str, code: PullCode) -> None:
    """Codes 6 and 7: a call with results is left unanswered, a pull without any is told why."""
    world = World()
    world.begin().result()
    world.publish(4)
    client = world.connect()
    assert messages(world.ask(client, pull(client))) == [0, 1, 2, 3]
    for _ in range(1000):
        world.disk.fail("write", error=getattr(errno, errno_of), path_part="/acks/")
    assert world.ask(client, submit(client, [0])) is None
    assert client.lost, "the write that failed"
    for number in range(2):
        later = world.connect()
        frame = pull(later, [0]) if number else submit(later, [0])
        assert world.ask(later, frame + pull(later)) is None
        assert later.lost
    assert world.node.runtime.metrics.value("pyddmq_results_unanswered_total", code.name.lower()) == 2
    asking = world.connect()
    assert world.ask(asking, pull(asking)).error.code == code
    assert world.ask(asking, pull(asking, [])).error.code == code
    assert world.ask(asking, submit(asking, [])).value is True
