"""Bounds on the connections of the admin port, in front of aiohttp, which has none on slow or endless request heads.

A connection has `HEAD_SECONDS_MAX` from its opening, and from the first byte of each further request, until a whole
request head is there; it may send `REQUEST_BYTES_MAX` for a head, and again while the request is answered; and there
are at most `CONNECTIONS_MAX` of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from broker.metrics import Metrics, declare

CLOSED = declare(
    "pyddmq_admin_connections_closed_total",
    "Connections of the admin port that were closed: too_many, slow_head, too_long.",
    ("reason",),
)

HEAD_SECONDS_MAX = 10.0
REQUEST_BYTES_MAX = 256 * 1024
CONNECTIONS_MAX = 256


class AdminGuard:
    """Makes guarded connections; `began` and `ended` tell of the requests on them."""

    def __init__(self, factory: Callable[[], asyncio.Protocol], metrics: Metrics) -> None:
        """Set up.

        Args:
            factory: Makes the protocol that does the work.
            metrics: Where closed connections are counted.
        """
        self._factory = factory
        self._metrics = metrics
        self.connections: dict[asyncio.Protocol, GuardedConnection] = {}

    def __call__(self) -> asyncio.Protocol:
        """Make the protocol of a connection that was just accepted."""
        return GuardedConnection(self, self._factory())

    def began(self, inner: object) -> None:
        """Note that the head of a request has arrived on the connection of this inner protocol."""
        self._tell(inner, busy=True)

    def ended(self, inner: object) -> None:
        """Note that a request is answered."""
        self._tell(inner, busy=False)

    def _tell(self, inner: object, *, busy: bool) -> None:
        connection = self.connections.get(cast("asyncio.Protocol", inner))
        if connection is not None:
            connection.head_arrived(busy=busy)

    def admit(self, inner: asyncio.Protocol, connection: GuardedConnection) -> bool:
        """Take a connection in; False when there are too many."""
        if len(self.connections) >= CONNECTIONS_MAX:
            return False
        self.connections[inner] = connection
        return True

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

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Pass it on, unless there are too many."""
        self._transport = transport
        if not self._guard.admit(self._inner, self):
            self._close("too_many")
            return
        self._admitted = True
        self._inner.connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Pass it on while the request is not too long."""
        if not self._admitted:
            return
        self._bytes += len(data)
        if self._bytes > REQUEST_BYTES_MAX:
            self._close("too_long")
            return
        if self._timer is None and not self._busy:
            self._watch()
        self._inner.data_received(data)

    def head_arrived(self, *, busy: bool) -> None:
        """Stop the clock; the next request has its own, from its first byte on once this one is answered."""
        self._busy = busy
        self._bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def eof_received(self) -> bool | None:
        """Pass it on."""
        return self._inner.eof_received() if self._admitted else None

    def pause_writing(self) -> None:
        """Pass it on."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on and forget the connection."""
        if self._timer is not None:
            self._timer.cancel()
        if self._admitted:
            self._guard.connections.pop(self._inner, None)
            self._inner.connection_lost(exc)

    def _watch(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(HEAD_SECONDS_MAX, self._close, "slow_head")

    def _close(self, reason: str) -> None:
        self._guard.count(reason)
        self._transport.abort()
