"""One port: which connections it takes, whose place it gives to others, and what it answers to calls that go wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from proxy.port.accepting import ServerLimits
from proxy.port.connection import CONNECTION_BYTES, Connection
from proxy.port.server import CALLS_FAILED, CONNECTIONS, CONNECTIONS_REFUSED, REQUESTS, Commons, ThriftServer
from proxy.wire.call import Call
from proxy.wire.errors import (
    APPLICATION_INTERNAL_ERROR,
    APPLICATION_PROTOCOL_ERROR,
    APPLICATION_UNKNOWN_METHOD,
    ArgumentsError,
)
from proxy.wire.replies import encode_bool_reply
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.simulation.wire import consumer_codec, consumer_idl
from tests.unit.proxy.port.test_connection_turn import Peer
from upstream.budget import Budget

FRAME = consumer_codec().call("submit", 1, result=consumer_idl.ConsumeResult(successOffsets=[1], failOffsets=[]))


class From(Peer):
    """The far end at an address, with a socket of a number."""

    def __init__(self, host: str = "10.0.0.1", descriptor: int | None = None) -> None:
        super().__init__()
        self._host, self._descriptor = host, descriptor

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket" and self._descriptor is not None:
            return self
        return (self._host, 5000) if name == "peername" else None

    def fileno(self) -> int:
        assert self._descriptor is not None
        return self._descriptor


class Port:
    """A port without sockets."""

    def __init__(self, handler: Callable[[Connection, Call], None] | None = None, **limits: Any) -> None:
        self.clock, self.metrics, self.turns = ManualClock(), Metrics(), 0
        self.budget = Budget()
        self.server = ThriftServer(
            "consumer",
            {"submit": handler or (lambda connection, call: connection.answer(encode_bool_reply(call, True)))},
            limits=ServerLimits(**limits),
            commons=Commons(
                runtime=runtime_of(SimDisk(), self.clock, metrics=self.metrics, scheduler=ManualScheduler(self.clock)),
                request_turn=self._asked,
                budget=self.budget,
            ),
        )

    def _asked(self) -> None:
        self.turns += 1

    def connect(self, host: str = "10.0.0.1", descriptor: int | None = None) -> tuple[Connection, From]:
        """Open a connection."""
        peer = From(host, descriptor)
        connection = peer.connection = Connection(self.server)
        connection.connection_made(peer)
        return connection, peer

    def refused(self, reason: str) -> int:
        """How many were closed for a reason."""
        return self.metrics.value(CONNECTIONS_REFUSED, "consumer", reason)

    @property
    def hosts(self) -> list[str]:
        """Who is connected, in the order in which they came."""
        return [each.host for each in self.server.connections]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"connections_max": 2}, "too_many"),
        ({"address_connections_max": 2}, "address"),
        ({"descriptors_max": 9}, "descriptors"),
    ],
)
def test_connection_too_many_is_closed_counted_and_told(limits: dict[str, Any], reason: str) -> None:
    """Those that are there stay, and what it would have taken is in no account."""
    port = Port(**limits)
    for descriptor in (7, 8):
        port.connect(descriptor=descriptor)
    with capture_logs() as logs:
        connection, peer = port.connect(descriptor=9)
        connection.data_received(FRAME)
    assert (peer.aborted, connection.closed, peer.written) == (True, True, [])
    assert (port.refused(reason), port.metrics.value(CONNECTIONS, "consumer")) == (1, 2)
    assert port.budget.used == 2 * CONNECTION_BYTES
    assert [line["reason"] for line in logs if line["event"] == "connection_refused"] == [reason]


@pytest.mark.parametrize(
    ("peer", "host", "address"),
    [
        ("10.0.0.1", "10.0.0.1", "10.0.0.1:5000"),
        ("::ffff:10.0.0.1", "10.0.0.1", "10.0.0.1:5000"),
        ("2001:db8::1", "2001:db8::1", "[2001:db8::1]:5000"),
        ("64:ff9b::10.0.0.1", "64:ff9b::10.0.0.1", "[64:ff9b::10.0.0.1]:5000"),
    ],
)
def test_address_has_one_form(peer: str, host: str, address: str) -> None:
    """A port on `::` sees IPv4 mapped into IPv6; bounds and rules hold for the address all the same."""
    connection, _ = Port().connect(peer)
    assert (connection.host, connection.address) == (host, address)
    assert not connection.is_encrypted
    assert connection.certificate is None


def test_place_of_a_connection_that_is_gone_is_free() -> None:
    """Of the port and of its address; being told of it twice frees one place, not two."""
    port = Port(connections_max=2, address_connections_max=1)
    first, _ = port.connect("10.0.0.1")
    port.connect("10.0.0.2")
    for _ in range(2):
        first.connection_lost(None)
    assert port.hosts == ["10.0.0.2"]
    assert not port.connect("10.0.0.1")[0].closed
    assert port.connect("10.0.0.3")[0].closed
    assert (port.hosts, port.budget.used) == (["10.0.0.2", "10.0.0.1"], 2 * CONNECTION_BYTES)


def test_idle_connection_makes_room_for_another_and_a_busy_one_never() -> None:
    """The one that is idle longest, where nothing is unanswered; of the address, where that is full."""
    held: list[Any] = []
    port = Port(lambda connection, _: held.append(connection.later()), connections_max=3, idle_seconds=10)
    busy, _ = port.connect("10.0.0.1")
    busy.data_received(FRAME)
    port.connect("10.0.0.2")
    port.clock.advance(11)
    port.connect("10.0.0.3")
    port.server.sweep()
    newcomer, _ = port.connect("10.0.0.4")
    assert not newcomer.closed
    assert (port.hosts, port.refused("idle")) == (["10.0.0.1", "10.0.0.3", "10.0.0.4"], 1)
    port.clock.advance(11)
    port.server.sweep()
    for connection in port.server.connections:
        connection.data_received(FRAME)
    assert port.connect("10.0.0.5")[0].closed
    assert (port.refused("idle"), port.refused("too_many")) == (1, 1)


def test_after_its_end_a_port_takes_nobody() -> None:
    """Who was accepted and comes later is closed; those that are there are closed after their replies, or at once."""
    for at_once in (False, True):
        port = Port()
        _, peer = port.connect()
        port.server.close_connections(at_once=at_once)
        assert (peer.closed, peer.aborted) == (not at_once, at_once)
        assert port.connect()[0].closed


def broken(_: Connection, call: Call) -> None:
    """Fail as a handler with a fault does."""
    raise RuntimeError(f"a fault in {call.method}")


def broken_late(connection: Connection, call: Call) -> None:
    """Fail after the call has taken its place among the replies."""
    connection.later(call)
    raise RuntimeError(f"a fault in {call.method}")


def misread(_: Connection, call: Call) -> None:
    """Find that the arguments do not decode."""
    raise ArgumentsError("no number where one is needed")


@pytest.mark.parametrize(
    ("handler", "method", "kind", "word"),
    [
        (broken, b"submit", APPLICATION_INTERNAL_ERROR, b"a fault in submit"),
        (broken_late, b"submit", APPLICATION_INTERNAL_ERROR, b"a fault in submit"),
        (misread, b"submit", APPLICATION_PROTOCOL_ERROR, b"no number"),
        (None, b"answer", APPLICATION_UNKNOWN_METHOD, b"producer port"),
    ],
)
def test_call_that_fails_is_answered_and_costs_no_other(
    handler: Callable[[Connection, Call], None] | None, method: bytes, kind: int, word: bytes
) -> None:
    """With a sentence, over a connection that lives on; counted by its kind."""
    port = Port(handler)
    connection, peer = port.connect()
    with capture_logs():
        connection.data_received(FRAME.replace(b"submit", method))
    port.server.flush()
    [reply] = peer.written
    assert word in reply
    assert (peer.closed, peer.aborted, connection.closed) == (False, False, False)
    assert port.metrics.value(CALLS_FAILED, "consumer", str(kind)) == 1


def test_handlers_that_come_later_serve_open_connections() -> None:
    """A port listens before its store is there; calls count under their names all the same."""
    port = Port(broken)
    connection, peer = port.connect()
    port.server.serve({"submit": lambda connection, call: connection.answer(encode_bool_reply(call, False))})
    connection.data_received(FRAME)
    assert (port.turns, peer.written) == (1, [])
    port.server.flush()
    assert len(peer.written) == 1
    assert (port.server.requests, port.metrics.value(REQUESTS, "consumer", "submit")) == (1, 1)


def test_what_stands_for_acks_that_were_not_kept_does_not_leave() -> None:
    """Those connections end; a refusal that stands for nothing still leaves (D5)."""

    def promised(connection: Connection, call: Call) -> None:
        connection.promise(connection.requests)
        connection.answer(encode_bool_reply(call, True))

    port = Port(promised)
    keeps, kept = port.connect()
    keeps.data_received(FRAME)
    port.server.serve({"submit": lambda connection, call: connection.answer(encode_bool_reply(call, False))})
    plain, answered = port.connect()
    plain.data_received(FRAME)
    port.server.abort_unkept()
    port.server.flush()
    assert (kept.aborted, kept.written) == (True, [])
    assert (answered.aborted, len(answered.written)) == (False, 1)
