"""Bounds on the admin port's connections: slow heads, endless heads, too many of them."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from broker.metrics import Metrics
from proxy.admin import guard as guard_module
from proxy.admin.guard import CLOSED, HEAD_SECONDS_MAX, REQUEST_BYTES_MAX, AdminGuard
from proxy.testing import NetworkFaults, SimNetwork, VirtualLoop

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

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.network = SimNetwork(self.loop, Random(1), NetworkFaults(delay_ms_max=0.1))
        self.metrics = Metrics()
        self.inner: list[Inner] = []
        self.guard = AdminGuard(self._make, self.metrics)
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


def test_connections_beyond_the_bound_are_closed(monkeypatch: Any) -> None:
    """One more than there may be is closed and counted; when one leaves, the next is taken."""
    monkeypatch.setattr(guard_module, "CONNECTIONS_MAX", 2)
    world = World()
    first, second, third = (world.connect() for _ in range(3))
    world.run(0.1)
    assert (first.lost, second.lost, third.lost) == (False, False, True)
    assert world.metrics.value(CLOSED, "too_many") == 1
    first.transport.abort()
    world.run(0.1)
    fourth = world.connect()
    world.run(0.1)
    assert not fourth.lost
