"""Bounds on the connections of the admin port, in front of aiohttp, which has none on slow or endless requests.

A connection has `HEAD_SECONDS_MAX` from its opening, and from the first byte of each further request, until a whole
request head is there, `BODY_SECONDS_MAX` for the body behind it, and `WRITE_SECONDS_MAX` to continue taking its answer;
it may send `REQUEST_BYTES_MAX` for a head, and again while the request is answered.

There are at most `CONNECTIONS_MAX` of them, and `ADDRESS_MAX` from one address that is not this machine's own. Where
all places are taken, a connection that idles between two requests makes room. Where none does, `RESERVE_MAX` more may
ask for the node's health and nothing else, and the oldest of these makes room for the next: who watches a node gets an
answer; another process may hold its port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from broker.runtime.metrics import Metrics, declare
from proxy.port.network import DESCRIPTORS_UNBOUNDED
from proxy.tls.peer_certificate import PeerCertificate

CLOSED = declare(
    "pyddmq_admin_connections_closed_total",
    "Connections of the admin port that were closed: too_many, slow_head, slow_body, slow_reader, too_long, idle.",
    ("reason",),
)

HEAD_SECONDS_MAX = 10.0
REQUEST_BYTES_MAX = 256 * 1024
CONNECTIONS_MAX = 256
BODY_SECONDS_MAX = 10.0
WRITE_SECONDS_MAX = 30.0
ADDRESS_MAX = 64
RESERVE_MAX = 16
HEALTH = (b"GET /livez", b"GET /healthz", b"GET /readyz", b"HEAD /livez", b"HEAD /healthz", b"HEAD /readyz")
"""How the requests begin that the places in reserve are for."""


class AdminGuard:
    """Makes guarded connections; `began` and `ended` are called for requests on them."""

    def __init__(
        self, factory: Callable[[], asyncio.Protocol], metrics: Metrics, *, descriptors_max: int = DESCRIPTORS_UNBOUNDED
    ) -> None:
        """Set up.

        Args:
            factory: Makes the protocol that does the work.
            metrics: Where closed connections are counted.
            descriptors_max: File descriptors from this number on are the store's and those of the places in reserve.
        """
        self._descriptors_max = descriptors_max
        self._factory = factory
        self._metrics = metrics
        self.connections: dict[asyncio.Protocol, GuardedConnection] = {}
        self.reserve: dict[asyncio.Protocol, GuardedConnection] = {}

    def __call__(self) -> GuardedConnection:
        """Make the protocol of a connection that was just accepted."""
        return GuardedConnection(self, self._factory())

    def began(self, inner: object, *, body: bool = False) -> None:
        """Note that the head of a request has arrived on this inner protocol's connection, its body perhaps not."""
        self._report(inner, busy=True, body=body)

    def body_read(self, inner: object) -> None:
        """Note that all of a request has arrived."""
        self._report(inner, busy=True)

    def ended(self, inner: object) -> None:
        """Note that a request is answered."""
        self._report(inner, busy=False)

    def _report(self, inner: object, *, busy: bool, body: bool = False) -> None:
        protocol = cast("asyncio.Protocol", inner)
        connection = self.connections.get(protocol) or self.reserve.get(protocol)
        if connection is not None:
            connection.head_arrived(busy=busy, body=body)

    def admit(self, inner: asyncio.Protocol, connection: GuardedConnection) -> bool:
        """Take a connection in, perhaps to a place in reserve; False when there are too many from its address."""
        host = connection.host
        if not _is_own(host) and sum(each.host == host for each in self.connections.values()) >= ADDRESS_MAX:
            return False
        if len(self.connections) >= CONNECTIONS_MAX or connection.descriptor >= self._descriptors_max:
            idle = next((each for each in self.connections.values() if each.idles), None)
            if idle is not None:
                idle.close("idle")
            if idle is None or connection.descriptor >= self._descriptors_max:
                self._admit_in_reserve(inner, connection)
                return True
        self.connections[inner] = connection
        return True

    def _admit_in_reserve(self, inner: asyncio.Protocol, connection: GuardedConnection) -> None:
        if len(self.reserve) >= RESERVE_MAX:
            next(iter(self.reserve.values())).close("too_many")
        connection.in_reserve = True
        self.reserve[inner] = connection

    def forget(self, inner: asyncio.Protocol) -> None:
        """Leave out a connection that is closed; harmless twice."""
        self.connections.pop(inner, None)
        self.reserve.pop(inner, None)

    def count(self, reason: str) -> None:
        """Count a connection that was closed."""
        self._metrics.counter(CLOSED, reason).add()


class GuardedConnection(asyncio.Protocol):
    """Passes everything on to the inner protocol and closes what keeps to no bound."""

    def __init__(self, guard: AdminGuard, inner: asyncio.Protocol) -> None:
        self._guard = guard
        self._inner = inner
        self._transport: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._bytes = 0
        self._admitted = False
        self._busy = False
        self._writing: asyncio.TimerHandle | None = None
        self.in_reserve = False
        """Whether it may ask for the node's health alone."""

    @property
    def host(self) -> str:
        """Address of the other end, without its port."""
        peer = self._transport.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) else ""

    @property
    def descriptor(self) -> int:
        """Number of its file descriptor, the lowest that was free; -1 where there is none."""
        socket = self._transport.get_extra_info("socket")
        return -1 if socket is None else int(socket.fileno())

    @property
    def idles(self) -> bool:
        """Whether it is between two requests."""
        return not self._busy and self._timer is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass it on, unless there are too many."""
        self._transport = transport
        if not self._guard.admit(self._inner, self):
            self.close("too_many")
            return
        self._admitted = True
        self._inner.connection_made(transport)
        self._watch(HEAD_SECONDS_MAX, "slow_head")

    def secured(self, certificate: PeerCertificate | None) -> None:
        """The handshake of a TLS port has ended (`proxy.tls.channel.Above`); the transport has the certificate."""

    def data_received(self, data: bytes) -> None:
        """Pass it on while the request is not too long."""
        if not self._admitted:
            return
        if self.in_reserve and not self._busy and not (self._bytes or data.startswith(HEALTH)):
            self.close("too_many")
            return
        self._bytes += len(data)
        if self._bytes > REQUEST_BYTES_MAX:
            self.close("too_long")
            return
        if self._timer is None and not self._busy:
            self._watch(HEAD_SECONDS_MAX, "slow_head")
        self._inner.data_received(data)

    def head_arrived(self, *, busy: bool, body: bool = False) -> None:
        """Stop the clock of the head, and start that of the body where one follows.

        The next request has its own, from its first byte on once this one is answered.
        """
        self._busy = busy
        self._bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if body:
            self._watch(BODY_SECONDS_MAX, "slow_body")

    def eof_received(self) -> bool | None:
        """Pass it on."""
        return self._inner.eof_received() if self._admitted else None

    def pause_writing(self) -> None:
        """Pass it on, and wait so long for the client to take more of its answer."""
        self._inner.pause_writing()
        if self._writing is None:
            self._writing = asyncio.get_running_loop().call_later(WRITE_SECONDS_MAX, self.close, "slow_reader")

    def resume_writing(self) -> None:
        """Pass it on."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on and forget the connection."""
        for timer in (self._timer, self._writing):
            if timer is not None:
                timer.cancel()
        if self._admitted:
            self._guard.forget(self._inner)
            self._inner.connection_lost(exc)

    def _watch(self, seconds: float, reason: str) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self.close, reason)

    def close(self, reason: str) -> None:
        """Count the connection as closed for this reason, and end it at once."""
        self._guard.count(reason)
        self._guard.forget(self._inner)
        self._transport.abort()


def _is_own(host: str) -> bool:
    """Whether an address is this machine's own: loopback, which all of its users share."""
    return host.startswith("127.") or host in ("::1", "")
