"""Peers that went while nobody looked: no message leaves for them, and what they cannot have got comes back at once."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any, cast

import pytest

from proxy.port.network import AsyncioNetwork, Peer
from pyddmq.testing import NetworkFaults
from pyddmq.testing.network import SimTransport
from tests.hostile.sim import MIB, HostileWorld
from tests.insides import opened_of, transport_behind
from tests.loops import LOOPS
from tests.patient import PATIENCE_SECONDS


def transport_of(world: HostileWorld, place: int = 0) -> SimTransport:
    """Return the node's end of one of the consumers' connections."""
    connection = list(world.node.consumer.connections)[place]
    return cast("SimTransport", transport_behind(connection))


def delivered(world: HostileWorld) -> int:
    """Messages that are out."""
    return world.node.in_force.groups["billing"].stats().in_flight_total


def test_messages_leave_for_nobody_whose_end_lies_unread_in_the_socket() -> None:
    """A process that was stopped wakes with the ends of 24 clients in its sockets: a healthy one gets the messages."""
    world = HostileWorld()
    gone = [world.connect("consumer") for _ in range(24)]
    for each in gone:
        each.transport.write(world.pull_frame(each, linger_ms=30_000))
    world.run(0.5)
    for place in range(24):
        transport_of(world, place).pause_reading()  # As nothing is read by a stopped process.
    for each in gone:
        each.transport.write_eof()
    world.run(0.5)
    for number in range(24):
        opened_of(world.node).store.put("orders", str(number).encode())
    world.run(0.5)
    assert delivered(world) == 0
    healthy = world.connect("consumer")
    messages = world.pull(healthy).value.messages
    assert [each.value for each in messages] == [str(number).encode() for number in range(24)]
    jobs = [
        job for group_queue in world.node.in_force.groups["billing"].group_queues() for job in group_queue.live.values()
    ]
    assert {job.deliveries for job in jobs} == {1}


def test_client_that_only_sends_no_more_reads_an_empty_reply() -> None:
    """It may read on, and its pull has an answer; messages are for those who can still say what became of them."""
    world = HostileWorld()
    client = world.connect("consumer")
    client.transport.write(world.pull_frame(client, linger_ms=30_000))
    world.run(0.5)
    transport_of(world).pause_reading()
    client.transport.write_eof()
    world.run(0.5)
    opened_of(world.node).store.put("orders", b"x")
    world.run(0.5)
    transport_of(world).resume_reading()
    world.run(0.5)
    (reply,) = client.replies
    assert reply.error is None
    assert not reply.value.messages
    assert delivered(world) == 0


@pytest.mark.parametrize("arrived", [False, True])
def test_reset_gives_back_what_the_peer_acknowledged_nothing_of(arrived: bool) -> None:
    """A reply that never reached the peer's system goes back at once and uncounted; any other waits for its timeout."""
    world = HostileWorld()
    client = world.connect("consumer")
    client.transport.write(world.pull_frame(client, linger_ms=30_000))
    world.run(0.5)
    world.network.faults = NetworkFaults(delay_ms_max=0.0 if arrived else 60_000.0, window_bytes=MIB)
    opened_of(world.node).store.put("orders", b"x" * 1000)
    world.run(0.001)
    assert delivered(world) == 1
    transport_of(world).end(ConnectionResetError("reset by the peer"))
    world.run(0.5)
    world.network.faults = NetworkFaults(delay_ms_max=0.1, window_bytes=MIB)
    healthy = world.connect("consumer")
    messages = world.pull(healthy).value.messages
    assert len(messages or ()) == (0 if arrived else 1)
    (job,) = (
        job for group_queue in world.node.in_force.groups["billing"].group_queues() for job in group_queue.live.values()
    )
    assert job.deliveries == 1


def test_reply_to_a_client_that_was_heard_of_since_waits_for_its_timeout() -> None:
    """A client that sent something after the reply had begun to leave may have read it: no guess is made."""
    world = HostileWorld()
    client = world.connect("consumer")
    opened_of(world.node).store.put("orders", b"x")
    assert len(world.pull(client).value.messages) == 1
    (connection,) = world.node.consumer.connections
    assert len(connection.outbox.carried) == 1
    client.transport.write(world.pull_frame(client, linger_ms=30_000))
    world.run(0.5)
    assert not connection.outbox.carried


class _Ends(asyncio.Protocol):
    """The server's end of a real connection: what it was told, and what the kernel said when it was lost."""

    def __init__(self, network: AsyncioNetwork, made: asyncio.Event) -> None:
        self.network = network
        self.made = made
        self.heard = asyncio.Event()
        self.lost = asyncio.Event()
        self.acknowledged_at_loss: int | None = None
        self.transport: Any = None
        self.peer: Peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.peer = self.network.peer(transport)
        self.made.set()

    def data_received(self, data: bytes) -> None:
        self.heard.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.acknowledged_at_loss = self.peer.acknowledged()
        self.lost.set()


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("reset", [False, True])
def test_kernel_tells_of_peers_before_the_loop_does(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], reset: bool
) -> None:
    """On real sockets: alive, acknowledged, then gone without a turn of the loop; the count is there at the loss."""

    async def run() -> None:
        network = AsyncioNetwork()
        ends: list[_Ends] = []
        accepted = asyncio.Event()

        def accept() -> _Ends:
            ends.append(_Ends(network, accepted))
            return ends[-1]

        listener = await network.listen(accept, "127.0.0.1", 0, backlog=5)
        client = socket.create_connection(listener.address, timeout=PATIENCE_SECONDS)
        try:
            await asyncio.wait_for(accepted.wait(), PATIENCE_SECONDS)
            (end,) = ends
            before = end.peer.acknowledged()
            assert before in (0, 1)
            assert not end.peer.gone()
            end.transport.write(b"m" * 1000)
            assert client.recv(2000) == b"m" * 1000
            # The answer's arrival says that ours was acknowledged.
            client.sendall(b"read")
            await asyncio.wait_for(end.heard.wait(), PATIENCE_SECONDS)
            assert end.peer.acknowledged() == before + 1000
            if reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            # No turn of the loop has passed since.
            assert end.peer.gone()
            end.transport.write(b"for nobody")
            await asyncio.wait_for(end.lost.wait(), PATIENCE_SECONDS)
            assert end.acknowledged_at_loss in range(before + 1000, before + 1011)
        finally:
            # A loop that is closed waits for it.
            client.close()
            listener.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())
