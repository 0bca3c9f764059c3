"""What counts as handed out over TLS: ciphertext that the kernel has (D18, D40, F9), on both loops and in none."""

from __future__ import annotations

import socket
import ssl
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from broker.runtime.seams import Buffer
from proxy.port.outbox import CARRIED_MAX
from proxy.tls.channel import TLS_BYTES, TlsTransport
from pyddmq.testing import NetworkFaults
from pyddmq.testing.network import SimTransport
from tests.hostile.sim import MIB
from tests.insides import opened_of, transport_behind
from tests.patient import PATIENCE_SECONDS, until
from tests.running_node import RunningNode
from tests.simulation.wire import consumer_codec, consumer_idl
from tests.tls.conftest import Certificates
from tests.tls.world import TlsWorld

BODY, COUNT = 30_000, 400


def below(world: TlsWorld, place: int = 0) -> SimTransport:
    """The node's end of one of the consumers' connections."""
    transport = transport_behind(list(world.node.consumer.connections)[place])
    assert isinstance(transport, TlsTransport)
    return cast("SimTransport", transport.below)


def delivered(world: TlsWorld) -> int:
    """Messages that are out."""
    return world.node.in_force.groups["billing"].stats().in_flight_total


def test_messages_leave_for_nobody_whose_end_lies_unread_in_the_socket(certificates: Certificates) -> None:
    """F9: asked before anything is encrypted."""
    world = TlsWorld(certificates)
    gone = [world.open() for _ in range(3)]
    for each in gone:
        each.write(world.pull_frame(each.raw, linger_ms=30_000))
    world.run(0.5)
    for place in range(3):
        below(world, place).pause_reading()
    for each in gone:
        each.below.write_eof()
    world.run(0.5)
    opened_of(world.node).store.put("orders", b"x")
    world.run(0.5)
    assert delivered(world) == 0
    assert [each.value for each in world.pull(world.connect("consumer")).value.messages] == [b"x"]


@pytest.mark.parametrize("arrived", [False, True])
def test_reset_gives_back_what_the_peer_acknowledged_nothing_of(certificates: Certificates, arrived: bool) -> None:
    """F9: bytes of the handshake and of TLS itself count as the peer's system counts them."""
    world = TlsWorld(certificates)
    client = world.open()
    # A first reply makes a difference of clear bytes and those that were sent.
    opened_of(world.node).store.put("orders", b"first" * 1000)
    assert len(world.pull(client.raw).value.messages) == 1
    client.write(world.pull_frame(client.raw, linger_ms=30_000))
    world.run(0.5)
    world.network.faults = NetworkFaults(delay_ms_max=0.0 if arrived else 60_000.0, window_bytes=MIB)
    opened_of(world.node).store.put("orders", b"x" * 1000)
    world.run(0.001)
    assert delivered(world) == 2
    below(world).end(ConnectionResetError("reset by the peer"))
    world.run(0.5)
    world.network.faults = NetworkFaults(delay_ms_max=0.1, window_bytes=MIB)
    messages = world.pull(world.connect("consumer")).value.messages
    assert len(messages or ()) == (0 if arrived else 1)


def test_reply_that_the_kernel_did_not_take_whole_stays_ours(certificates: Certificates) -> None:
    """D18: those behind it never left, and go back with the connection at once and uncounted."""
    world = TlsWorld(certificates)
    client = world.open()
    world.network.faults = NetworkFaults(delay_ms_max=0.1, window_bytes=200_000)
    client.below.pause_reading()
    for _ in range(3):
        opened_of(world.node).store.put("orders", b"x" * 1_500_000)
    for _ in range(3):
        client.write(world.pull_frame(client.raw, linger_ms=1))
    world.run(0.5)
    [connection] = world.node.consumer.connections
    assert (connection.doing, connection.outbox.carries_messages) == ("writing", True)
    stuck = below(world).get_write_buffer_size()
    assert stuck > 1_000_000, "ciphertext that waits is in the account"
    assert connection.held_bytes >= stuck
    assert delivered(world) == 3
    below(world).end(ConnectionResetError("reset by the peer"))
    world.run(0.5)
    # The first had begun to arrive, so that its timeout decides; of the others not a byte has left.
    assert delivered(world) == 1
    other = world.open()
    for _ in range(2):
        assert len(world.pull(other.raw).value.messages) == 1
    jobs = [job for queue in world.node.in_force.groups["billing"].group_queues() for job in queue.live.values()]
    assert {job.deliveries for job in jobs} == {1}


class _Engine:
    """OpenSSL's end of a connection, and the most that its memory BIOs held."""

    def __init__(self, engine: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> None:
        self.engine, self.incoming, self.outgoing = engine, incoming, outgoing
        self.largest = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def write(self, data: Buffer) -> int:
        count = self.engine.write(data)
        self.largest = max(self.largest, self.outgoing.pending)
        return count

    def read(self, count: int) -> bytes:
        self.largest = max(self.largest, self.incoming.pending)
        return self.engine.read(count)


def test_openssl_keeps_no_more_of_a_large_reply_or_frame_than_is_counted(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory BIO keeps the largest size that it had: what passes through one is cut into small pieces."""
    world = TlsWorld(certificates)
    engines: list[_Engine] = []
    wrap = ssl.SSLContext.wrap_bio

    def wrapped(context: ssl.SSLContext, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **more: Any) -> Any:
        made = wrap(context, incoming, outgoing, **more)
        if not more.get("server_side"):
            return made
        engines.append(_Engine(made, incoming, outgoing))
        return engines[-1]

    monkeypatch.setattr(ssl.SSLContext, "wrap_bio", wrapped)
    client = world.open()
    [engine] = engines
    opened_of(world.node).store.put("orders", bytes(1_500_000))
    assert len(world.pull(client.raw).value.messages) == 1
    client.write(world.pull_frame(client.raw, acks=50_000))
    world.run(0.5)
    assert len(client.raw.replies) == 2
    assert 0 < engine.largest < TLS_BYTES


def asked(node: RunningNode) -> Any:
    """The one connection of the consumers' port."""
    [connection] = node.call(lambda: list(node.node.consumer.connections))
    return connection


def pull_frame(linger_ms: int) -> bytes:
    """A pull."""
    return consumer_codec().call(
        "pull", 1, request=consumer_idl.PullRequest(groupId="billing", maxLingerTime=linger_ms, result=None)
    )


def dial(node: RunningNode, certificates: Certificates, receive_bytes: int = 0) -> ssl.SSLSocket:
    """Connect to the consumers' port; `receive_bytes`: how much the client's system keeps of what is not read."""
    assert node.node.consumer.tls_address is not None
    plain = socket.socket()
    if receive_bytes:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    plain.settimeout(PATIENCE_SECONDS)
    plain.connect(node.node.consumer.tls_address)
    return certificates.tls().context().wrap_socket(plain, server_hostname="localhost")


def in_flight(node: RunningNode) -> int:
    """Messages that are out."""
    return node.call(lambda: node.node.in_force.groups["billing"].stats().in_flight_total)


@pytest.mark.usefixtures("both_loops")
def test_kernel_tells_of_a_peer_that_has_gone(certificates: Certificates, tmp_path: Path) -> None:
    """F9 on real sockets: its end lies unread in the socket when messages come."""
    with RunningNode(certificates.yaml(), tmp_path) as node:
        client = dial(node, certificates)
        client.sendall(pull_frame(60_000))
        until(lambda: asked(node).doing == "waiting", "the pull to be parked")
        connection = asked(node)
        node.call(transport_behind(connection).pause_reading)
        client.close()
        until(lambda: node.call(connection.outbox.peer.gone), "the system to know")
        node.call(opened_of(node.node).store.put, "orders", b"x")
        until(
            lambda: node.call(
                lambda: opened_of(node.node).consumer_service is not None and not connection.outbox.replies
            ),
            "the turn",
        )
        assert in_flight(node) == 0


@pytest.mark.usefixtures("both_loops")
def test_kernel_that_takes_no_more_is_noticed_at_once(certificates: Certificates, tmp_path: Path) -> None:
    """D18 and D40 on real sockets: of one reply at most a part is with the kernel, those behind it are ours."""
    with RunningNode(certificates.yaml(), tmp_path) as node, ExitStack() as stack:
        client = dial(node, certificates, receive_bytes=4096)
        stack.callback(client.close)
        node.call(lambda: [opened_of(node.node).store.put("orders", b"x" * BODY) for _ in range(COUNT)])
        client.sendall(pull_frame(1) * COUNT)
        until(lambda: in_flight(node) == COUNT and asked(node).doing == "writing", "the socket to be full")
        connection = asked(node)
        waiting = node.call(transport_behind(connection).get_write_buffer_size)
        assert 0 < waiting < 2 * BODY
        assert node.call(lambda: connection.outbox.stuck_replies) == 1
        ours = node.call(lambda: len(connection.outbox.replies))
        assert ours > 0
        # Given up with a reset: what is ours comes back, and what lies in the kernel without an acknowledged byte.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        until(lambda: not node.call(lambda: list(node.node.consumer.connections)), "the loss to be heard of")
        # Of a reply that had begun to arrive nobody knows: its timeout decides.
        assert COUNT - ours - CARRIED_MAX <= in_flight(node) <= COUNT - ours
