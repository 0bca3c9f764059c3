"""Bounds on the admin port's connections: slow heads, endless heads, too many of them."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import Any

from broker.runtime.metrics import Metrics
from proxy.admin import guard as guard_module
from proxy.admin.guard import (
    BODY_SECONDS_MAX,
    CLOSED,
    HEAD_SECONDS_MAX,
    REQUEST_BYTES_MAX,
    RESERVE_MAX,
    WRITE_SECONDS_MAX,
    AdminGuard,
    GuardedConnection,
)
from pyddmq.testing import NetworkFaults, SimNetwork, VirtualLoop
from tests.insides import transport_behind

ADDRESS = ("127.0.0.1", 9813)


class Inner(asyncio.Protocol):
    """What stands behind the guard: a request head ends with `!`, its answer comes with `answer`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.data = b""
        self.lost = False

    def data_received(self, data: bytes) -> None:
        self.data += data
        if data.endswith(b"!"):
            self.world.guard.began(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Client(asyncio.Protocol):
    """A client that says what it is told to."""

    def __init__(self) -> None:
        self.lost = False
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class World:
    """A guard on a simulated network."""

    def __init__(self, **options: int) -> None:
        self.loop = VirtualLoop()
        self.network = SimNetwork(self.loop, Random(1), NetworkFaults(delay_ms_max=0.1))
        self.metrics = Metrics()
        self.inner: list[Inner] = []
        self.guard = AdminGuard(self._make, self.metrics, **options)
        task = self.loop.create_task(self.network.listen(self.guard, *ADDRESS, backlog=1))
        self.loop.run(task.done, seconds=1)

    def _make(self) -> Inner:
        self.inner.append(Inner(self))
        return self.inner[-1]

    def connect(self) -> Client:
        """Open a connection."""
        client = Client()
        self.network.connect(client, ADDRESS)
        self.run(0.1)
        return client

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.loop.run(None, seconds=seconds)
        assert not self.loop.errors


def test_head_that_drips_in_ends_its_connection() -> None:
    """A byte a second extends nothing, and a connection that says nothing ends as well."""
    world = World()
    slow, silent = world.connect(), world.connect()
    for _ in range(int(HEAD_SECONDS_MAX)):
        slow.transport.write(b"x")
        world.run(1.0)
    world.run(1.0)
    assert (slow.lost, silent.lost) == (True, True)
    assert world.metrics.value(CLOSED, "slow_head") == 2
    assert world.guard.connections == {}


def test_idle_connection_after_a_request_and_a_long_answer_live() -> None:
    """The clock runs for heads alone: not while a request is answered, and not between requests."""
    world = World()
    client = world.connect()
    client.transport.write(b"GET!")
    world.run(5 * HEAD_SECONDS_MAX)
    client.transport.write(b"a body that came later")
    world.run(5 * HEAD_SECONDS_MAX)
    world.guard.ended(world.inner[0])
    world.run(5 * HEAD_SECONDS_MAX)
    assert not client.lost
    client.transport.write(b"half of the next")
    world.run(2 * HEAD_SECONDS_MAX)
    assert client.lost


def test_endless_head_ends_at_its_bound() -> None:
    """More than the bound without a request's end closes the connection; what came before was passed on."""
    world = World()
    client = world.connect()
    client.transport.write(b"x" * (REQUEST_BYTES_MAX + 100_000))
    world.run(2.0)
    assert client.lost
    assert len(world.inner[0].data) <= REQUEST_BYTES_MAX
    assert world.metrics.value(CLOSED, "too_long") == 1


def test_connections_beyond_the_bound_may_ask_for_health_alone(monkeypatch: Any) -> None:
    """Slow requests hold all places: one more is closed when it asks for something else, and liveness is answered."""
    monkeypatch.setattr(guard_module, "CONNECTIONS_MAX", 2)
    world = World()
    slow = [world.connect() for _ in range(2)]
    for each in slow:
        each.transport.write(b"POST and a body that never comes!")
    other, watcher = world.connect(), world.connect()
    other.transport.write(b"GET /api/groups!")
    watcher.transport.write(b"GET /livez!")
    world.run(0.5)
    assert (other.lost, watcher.lost) == (True, False)
    assert world.inner[3].data == b"GET /livez!"
    assert world.inner[2].data == b""
    assert world.metrics.value(CLOSED, "too_many") == 1
    slow[0].transport.abort()
    world.run(0.5)
    next_one = world.connect()
    next_one.transport.write(b"GET /api/groups!")
    world.run(0.5)
    assert not next_one.lost


def test_places_in_reserve_are_given_to_the_newest(monkeypatch: Any) -> None:
    """Those who hold the reserve, too, make room one by one: a probe is answered however many hold the port."""
    monkeypatch.setattr(guard_module, "CONNECTIONS_MAX", 2)
    world = World()
    holders = [world.connect() for _ in range(2 + RESERVE_MAX)]
    probe = world.connect()
    probe.transport.write(b"GET /livez!")
    world.run(0.5)
    assert world.inner[-1].data == b"GET /livez!"
    assert [each.lost for each in holders].count(True) == 1
    assert holders[2].lost
    assert len(world.guard.reserve) == RESERVE_MAX


def test_body_that_never_comes_ends_its_connection() -> None:
    """A request's body has its time from the head's end on; an answer that takes long has none."""
    world = World()
    slow, whole = world.connect(), world.connect()
    slow.transport.write(b"POST!")
    whole.transport.write(b"POST!")
    world.run(0.1)
    for inner in world.inner:
        world.loop.call_soon(partial(world.guard.began, inner, body=True))
    world.loop.call_soon(world.guard.body_read, world.inner[1])
    for _ in range(int(BODY_SECONDS_MAX) + 1):
        slow.transport.write(b"x")
        world.run(1.0)
    assert (slow.lost, whole.lost) == (True, False)
    assert world.metrics.value(CLOSED, "slow_body") == 1


def test_idle_connection_makes_room_for_the_next(monkeypatch: Any) -> None:
    """Where all places are taken, one that waits between two requests goes, and none that has a request under way."""
    monkeypatch.setattr(guard_module, "CONNECTIONS_MAX", 2)
    world = World()
    busy, idle = world.connect(), world.connect()
    for each in (busy, idle):
        each.transport.write(b"GET!")
    world.run(0.1)
    world.guard.ended(world.inner[1])
    third = world.connect()
    world.run(0.1)
    assert (busy.lost, idle.lost, third.lost) == (False, True, False)
    assert world.metrics.value(CLOSED, "idle") == 1


def test_one_foreign_address_has_its_share(monkeypatch: Any) -> None:
    """The simulated clients come from 10.0.0.1: the port closes what is beyond the share of one address."""
    monkeypatch.setattr(guard_module, "ADDRESS_MAX", 3)
    world = World()
    clients = [world.connect() for _ in range(5)]
    assert [each.lost for each in clients] == [False, False, False, True, True]


def test_answer_that_nobody_takes_ends_its_connection() -> None:
    """A client that reads no more has a while to go on."""
    world = World()
    client = world.connect()
    client.transport.write(b"GET!")
    world.run(0.1)
    client.transport.pause_reading()
    ((_, connection),) = world.guard.connections.items()
    world.loop.call_soon(transport_behind(connection).write, bytes(1_000_000))
    world.run(WRITE_SECONDS_MAX + 2)
    assert world.guard.connections == {}
    assert world.metrics.value(CLOSED, "slow_reader") == 1


def test_descriptors_of_the_store_are_for_health_checks_alone(monkeypatch: Any) -> None:
    """A connection with a number that is kept may ask for health; an idle one leaves, so that the next has another."""
    world = World(descriptors_max=100)
    client = world.connect()
    client.transport.write(b"GET!")
    world.run(0.1)
    world.loop.call_soon(world.guard.ended, world.inner[0])
    world.run(0.1)
    monkeypatch.setattr(GuardedConnection, "descriptor", 100)
    other, probe = world.connect(), world.connect()
    other.transport.write(b"GET /metrics!")
    probe.transport.write(b"GET /readyz!")
    world.run(0.5)
    assert (client.lost, other.lost, probe.lost) == (True, True, False)
