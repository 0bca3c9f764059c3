"""Who gives memory up first when it is short: strangers' unfinished frames, idle connections, shares of an address."""

from __future__ import annotations

import socket
import struct
from typing import Any

from proxy.port.connection import CONNECTION_BYTES
from proxy.port.network import SocketPeer
from proxy.port.server import CONNECTIONS_REFUSED
from pyddmq.codes import ResultCode
from tests.access.world import AccessWorld, Client, message
from tests.hostile.sim import MIB, HostileWorld, Raw
from tests.insides import is_read
from tests.simulation.wire import producer_codec
from upstream.budget import Pressure

FRAME = struct.pack(">i", 4_900_000)
ACCESS = """
access:
  networks: [{cidr: 10.0.1.0/24, principal: shop}]
  rules: [{principals: [shop], produce: [orders]}]
"""


def at(world: HostileWorld, host: str) -> Raw:
    """Open a connection to the producers' port from an address."""
    client = Raw(producer_codec())
    world.network.connect(client, ("127.0.0.1", 9613), host=host)
    world.run(0.01)
    return client


def begin_frame(world: HostileWorld, client: Raw, size: int = 4_000_000) -> None:
    """Send so much of a frame that never ends."""
    client.transport.write(FRAME + bytes(size))
    world.run(0.2)


def closed(world: HostileWorld) -> float:
    """Connections of the producers' port that were closed for memory."""
    return world.node.runtime.metrics.value(CONNECTIONS_REFUSED, "producer", "memory")


def test_unfinished_frames_of_strangers_go_before_anybody_is_refused() -> None:
    """A hundred of them, four times the ceiling: every publish in between is taken, at no point is it refused."""
    world = HostileWorld()
    healthy = world.connect("producer")
    for number in range(100):
        begin_frame(world, at(world, f"10.0.2.{number % 8}"))
        assert world.node.parts.memory.budget.level < Pressure.REFUSING
        if not number % 10:
            assert world.publish(healthy, bytes(100_000)) == ResultCode.OK
    assert closed(world) > 50
    assert not healthy.lost


def test_peer_that_completed_a_call_keeps_its_unfinished_frame() -> None:
    """Where there are no rules a peer that never completed a call goes first, though it came later."""
    world = HostileWorld()
    known = world.connect("producer")
    assert world.publish(known, b"x") == ResultCode.OK
    begin_frame(world, known)
    strangers = [at(world, "10.0.2.1") for _ in range(12)]
    for each in strangers:
        begin_frame(world, each)
    assert any(each.lost for each in strangers)
    assert not known.lost


def test_peer_without_rights_goes_first_where_there_are_rules() -> None:
    """Calls that were denied make nobody known."""
    world = AccessWorld(ACCESS)
    client: Client = world.client("producer", "10.0.1.1")
    begin_frame(world, client)
    strangers = [world.client("producer", "10.9.9.9") for _ in range(12)]
    for each in strangers:
        assert each.call("sendSync", message=message("orders"), timeout=1000).value.code != ResultCode.OK
        begin_frame(world, each)
    assert any(each.lost for each in strangers)
    assert not client.lost


def test_idle_connections_above_their_address_share_go_next() -> None:
    """Of one address with 1,500 idle connections many are closed, of one with ten none; then the rest stays."""
    world = HostileWorld()
    few = [at(world, "10.0.1.1") for _ in range(10)]
    many = [at(world, "10.0.2.1") for _ in range(1500)]
    world.run(2.0)
    budget = world.node.parts.memory.budget
    budget.add(budget.begins(Pressure.SLOWED) - budget.used)
    world.run(2.0)
    assert not any(each.lost for each in few)
    left = sum(not each.lost for each in many)
    share = world.node.parts.memory.budget.limit // 8 // 2
    assert left * CONNECTION_BYTES <= share < (left + 1) * CONNECTION_BYTES
    assert closed(world) == 1500 - left


def test_idle_connections_stay_while_there_is_no_pressure() -> None:
    """However many: memory that is there is for them."""
    world = HostileWorld()
    many = [at(world, "10.0.2.1") for _ in range(300)]
    world.run(60.0)
    assert not any(each.lost for each in many)


def test_known_peers_give_up_what_is_above_their_address_share_when_calls_are_refused() -> None:
    """Three addresses of completed calls, one with most of the memory: that one loses, and refusing ends at once."""
    world = HostileWorld()
    modest = [at(world, host) for host in ("10.0.1.1", "10.0.1.2")]
    greedy = [at(world, "10.0.2.1") for _ in range(8)]
    for each in [*modest, *greedy]:
        assert world.publish(each, b"x") == ResultCode.OK
    for each in [*modest, *greedy]:
        begin_frame(world, each)
    budget = world.node.parts.memory.budget
    budget.add(budget.begins(Pressure.REFUSING) - budget.used)
    world.run(2.0)
    assert budget.level < Pressure.REFUSING
    assert sum(each.lost for each in greedy) >= 1
    assert not any(each.lost for each in modest)


def paused_frame(world: HostileWorld, size: int = 4_900_000) -> tuple[Raw, Any]:
    """Return a client with an unfinished frame of which nothing is read for pressure, and the node's end."""
    blockers = [at(world, "10.0.3.1") for _ in range(2)]
    for each in blockers:
        assert world.publish(each, b"x") == ResultCode.OK
    world.node.parts.memory.budget.add(world.node.parts.memory.budget.begins(Pressure.REFUSING) - MIB)
    for each in blockers:
        each.transport.write(struct.pack(">i", size) + bytes(200_000))
    world.run(0.2)
    world.run(1.5)  # One of them may go on: there is room for one frame.
    connections = list(world.node.producer.connections)
    [paused] = [each for each in connections if not is_read(each)]
    return blockers[connections.index(paused)], paused


def test_peer_that_died_in_a_frame_is_noticed_while_its_reading_is_paused() -> None:
    """Its memory is free at the next look: the rest of its frame can never come."""
    world = HostileWorld()
    client, connection = paused_frame(world)
    client.transport.write_eof()
    world.run(2.5)
    assert connection.closed


def test_peer_that_finished_its_frame_and_left_has_it_handled_though_reading_was_paused() -> None:
    """What was sent whole before the end counts."""
    world = HostileWorld()
    client, connection = paused_frame(world, 700_000)
    handled = connection.requests
    client.transport.write(bytes(500_000))
    client.transport.write_eof()
    world.run(5.0)
    assert connection.closed
    assert connection.requests == handled + 1


def test_system_says_how_much_of_a_peer_is_unread() -> None:
    """Of a real socket, in one call."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
        listening.accept()[0] as served,
    ):
        peer = SocketPeer(served.fileno())
        assert peer.unread() == 0
        client.sendall(bytes(1000))
        served.recv(1, socket.MSG_PEEK)
        assert peer.unread() == 1000


def test_looking_for_what_to_give_up_is_rare() -> None:
    """While nothing can be given up it is looked for again once a second, or after a good part of the ceiling."""
    world = HostileWorld()
    client = at(world, "10.0.1.1")
    assert world.publish(client, b"x") == ResultCode.OK
    world.node.parts.memory.budget.add(world.node.parts.memory.budget.begins(Pressure.SLOWED))
    world.run(1.5)
    watch = world.node.parts.memory
    looked: list[None] = []
    shed = watch._shed
    watch._shed = lambda: looked.append(shed())  # type: ignore[method-assign]
    for _ in range(50):
        world.publish(client, b"x")
    assert len(looked) <= 50 * 0.5 + 2
    assert world.node.parts.memory.budget.used < world.node.parts.memory.budget.limit - MIB
