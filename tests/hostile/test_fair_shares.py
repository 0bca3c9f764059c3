"""Clients that ask without end beside one that asks a little, in virtual time: how much of each turn they get."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from functools import partial

import pytest

from proxy.port.connection import Connection
from proxy.port.server import ThriftServer
from proxy.port.shares import SLICE_FRAMES
from proxy.services.results.result_steps import STEP_RESULTS
from proxy.wire.call import Call
from pyddmq.codes import ResultCode
from pyddmq.testing import NetworkFaults
from tests.hostile.attacker import NAME
from tests.hostile.sim import MIB, HostileWorld, Raw
from tests.insides import is_read, opened_of
from tests.simulation.wire import consumer_idl
from upstream.delivery import stats as group_stats
from upstream.delivery.group import ConsumerGroup

LIBUV_READS = 32
"""How often libuv reads one socket in a turn of its loop."""


class Turns:
    """Notes how many frames of each connection are handled in each turn of the loop."""

    def __init__(self, world: HostileWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self.frames: Counter[tuple[int, str]] = Counter()
        handle = ThriftServer.handle

        def noted(server: ThriftServer, connection: Connection, frame: bytes) -> bool:
            self.frames[world.loop.turns, connection.address] += 1
            return handle(server, connection, frame)

        monkeypatch.setattr(ThriftServer, "handle", noted)

    def of(self, address: str) -> list[int]:
        """Turns in which frames of a connection were handled."""
        return [turn for (turn, client), _ in self.frames.items() if client == address]


def stats_frames(client: Raw, count: int) -> bytes:
    """Return so many calls of getConsumeStats."""
    request = consumer_idl.ConsumeStatsRequest(group="billing")
    return client.codec.call("getConsumeStats", 1, request=request) * count


def test_pipelined_calls_leave_every_turn_to_others_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five clients pipeline thousands of calls; none gets more than its slice of a turn, and others are served."""
    world = HostileWorld()
    hostile = [world.connect("consumer") for _ in range(5)]
    addresses = [each.address for each in world.node.consumer.connections]
    producer = world.connect("producer")
    turns = Turns(world, monkeypatch)
    world.network.faults = NetworkFaults(delay_ms_max=0.0, fragment_share=0.0, window_bytes=MIB)
    for each in hostile:
        each.transport.write(stats_frames(each, 2_000))
    assert world.publish(producer, b"one") == ResultCode.OK
    (healthy,) = (each.address for each in world.node.producer.connections)
    (served,) = turns.of(healthy)
    world.run(2.0)
    assert max(turns.frames.values()) <= SLICE_FRAMES
    for address in addresses:
        assert max(turns.of(address)) > served + 20
    assert all(len(each.replies) == 2_000 for each in hostile)


def test_long_frames_are_read_a_piece_in_a_turn() -> None:
    """Of a client that sends megabytes without end one read is taken per turn, as often as its socket has more."""
    world = HostileWorld()
    client = world.connect("consumer")
    (connection,) = world.node.consumer.connections
    stream = NAME * 3
    pieces = [stream[at : at + 256_000] for at in range(0, len(stream), 256_000)]
    reads: Counter[int] = Counter()
    while pieces:
        turn = world.loop.turns
        while pieces and reads[turn] < LIBUV_READS and is_read(connection):
            connection.data_received(pieces.pop(0))
            reads[turn] += 1
        world.loop.run(partial(_has_turned, world, turn), seconds=1, turns_max=1_000)
    world.run(1.0)
    assert max(reads.values()) == 1
    assert len(client.replies) == 3


def _has_turned(world: HostileWorld, turn: int) -> bool:
    return world.loop.turns > turn


def test_stats_of_a_group_do_not_walk_what_waits_behind_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """GetConsumeStats reads a number per queue; what is unfinished in them is never looked at."""
    world = HostileWorld()
    client = world.connect("consumer")
    for _ in range(50):
        opened_of(world.node).store.put("orders", b"x", key="k")
    world.run(0.5)

    def walked(*_: object, **__: object) -> None:
        raise AssertionError("the live jobs were walked")

    monkeypatch.setattr(ConsumerGroup, "stats", walked)
    monkeypatch.setattr(group_stats.StatsReader, "topic", walked)
    client.transport.write(stats_frames(client, 1))
    world.run(0.5)
    (reply,) = client.replies
    assert reply.error is None
    (row,) = reply.value
    assert row.topic == "orders"
    assert dict(row.produceOffsets) == {"pyddmq_broker-0_0": 50}
    assert dict(row.consumeOffsets) == {"pyddmq_broker-0_0": 0}


def test_long_chain_of_results_is_applied_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A submit of 50,000 offsets takes many turns; a pull of another client and its own next frame come in order."""
    world = HostileWorld()
    applied: list[tuple[int, int]] = []
    apply = ConsumerGroup.apply

    def noted(group: ConsumerGroup, topic: str, qid: str, success: list[int], *more: object) -> object:
        applied.append((world.loop.turns, len(success)))
        return apply(group, topic, qid, success, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(ConsumerGroup, "apply", noted)
    client = world.connect("consumer")
    for _ in range(3):
        opened_of(world.node).store.put("orders", b"x")
    assert len(world.pull(client).value.messages) == 3
    context = consumer_idl.Context(groupId="billing", topic="orders", qid="pyddmq_broker-0_0")
    offsets = [*range(10**9, 10**9 + 50_000), 0, 1, 2]
    result = consumer_idl.ConsumeResult(context=context, successOffsets=offsets, failOffsets=[7])
    client.transport.write(client.codec.call("submit", 2, result=result) + stats_frames(client, 1))
    world.run(2.0)
    assert sum(count for _, count in applied) == 50_003
    in_turn: Counter[int] = Counter()
    for turn, count in applied:
        in_turn[turn] += count
    assert max(in_turn.values()) <= STEP_RESULTS
    _, submitted, row = client.replies
    assert submitted.value is True
    assert dict(row.value[0].consumeOffsets) == {"pyddmq_broker-0_0": 3}


def test_results_on_a_long_pull_count_before_it_takes_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pull whose results are applied in steps is served after the last of them, and answered in its turn."""
    world = HostileWorld()
    calls: list[str] = []

    def noted(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def run(*given: object) -> object:
            calls.append(name)
            return call(*given)

        return run

    for name in ("apply", "pull"):
        monkeypatch.setattr(ConsumerGroup, name, noted(name, getattr(ConsumerGroup, name)))
    client = world.connect("consumer")
    opened_of(world.node).store.put("orders", b"x")
    client.transport.write(world.pull_frame(client, acks=20_000) + world.pull_frame(client, linger_ms=50))
    world.run(2.0)
    first, second = client.replies
    assert [each.value for each in first.value.messages] == [b"x"]
    assert not second.value.messages
    assert calls == ["apply"] * -(-20_000 // STEP_RESULTS) + ["pull"] * 2


def test_end_of_file_behind_pipelined_frames_loses_none_of_them() -> None:
    """Frames that wait for their turn when the client says that it sends no more are handled and answered."""
    world = HostileWorld()
    client = world.connect("consumer")
    client.transport.write(stats_frames(client, 1_000))
    client.transport.write_eof()
    world.run(2.0)
    assert len(client.replies) == 1_000
    assert not world.node.consumer.connections


def test_frames_that_wait_for_their_turn_are_in_the_account() -> None:
    """What a deferred connection sent is counted, and reading stops above what every ordinary call needs."""
    world = HostileWorld()
    client = world.connect("consumer")
    (connection,) = world.node.consumer.connections
    connection.deferred = True  # Its turn does not come.
    client.transport.write(stats_frames(client, 20_000))
    world.run(1.0)
    held = connection.held_bytes
    assert held > 64 * 1024
    client.transport.write(stats_frames(client, 20_000))
    world.run(1.0)
    assert connection.held_bytes == held


def test_call_that_breaks_in_the_middle_of_its_steps_ends_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told that results count when it is not known which did; others go on."""
    world = HostileWorld()
    client, other = world.connect("consumer"), world.connect("consumer")

    def broken() -> Generator[None, None, None]:
        yield
        raise RuntimeError("broken")

    def steps(connection: Connection, call: Call) -> None:
        connection.work(broken())

    service = opened_of(world.node).consumer_service
    world.node.consumer.serve({**service.handlers(), "submit": steps}, service.line)
    client.transport.write(client.codec.call("submit", 2, result=consumer_idl.ConsumeResult()))
    world.run(1.0)
    assert client.lost
    assert client.replies == []
    assert world.pull(other).error is None
