"""The admin port: an aiohttp server on the node's own loop, loopback by default, never on a Thrift port.

It reads the node's view, and runs the changes that it is given (`proxy.operate.changes`). Import this module only where
the port is started: aiohttp and prometheus_client cost half a second and tens of megabytes (D38).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
from collections.abc import Callable, Sequence
from functools import partial

from aiohttp import web

from broker.runtime.later import Repeated
from broker.runtime.seams import Clock, Scheduler
from conf.sections.admin import AdminConfig
from proxy.access.access import Access
from proxy.access.audit import Audit
from proxy.admin.console.rates import SecondRates
from proxy.admin.console.shell import Console
from proxy.admin.entry.gate import AdminGate
from proxy.admin.guard import AdminGuard
from proxy.admin.routes import REFUSED, Routes
from proxy.operate.attention.findings import verdicts
from proxy.operate.changes.desk import AdminToken, Change
from proxy.operate.live_node import LiveNode
from proxy.port.network import DESCRIPTORS_UNBOUNDED, ListenError
from proxy.tls.port import TlsPort

# How late the event loop runs: the worst delay of a small timer over the last 10 to 20 seconds.
#
# A loop that is late answers all clients late, whatever the cause: a slow disk, a slow action, too much load. Two
# windows are kept instead of a value that a scrape resets, so that several scrapers see the same figure.

TICK_SECONDS = 0.25
WINDOW_SECONDS = 10.0


class LoopLag:
    """Measures one loop from `start` to `stop`.

    Args:
        scheduler: The loop.
        clock: Its monotonic part; equal to the loop's time.
    """

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._clock = clock
        self._ticks = Repeated(scheduler, TICK_SECONDS, self._tick)
        self._due = 0.0
        self._window_ends = 0.0
        self._worst = 0.0
        self._worst_before = 0.0

    @property
    def seconds(self) -> float:
        """Worst lateness in seconds of the current and the previous window; a tick that is overdue now counts too."""
        overdue = self._clock.monotonic() - self._due if self._ticks.is_on else 0.0
        return max(self._worst, self._worst_before, overdue, 0.0)

    def start(self) -> None:
        """Begin to measure."""
        now = self._clock.monotonic()
        self._due, self._window_ends = now + TICK_SECONDS, now + WINDOW_SECONDS
        self._ticks.begin()

    def stop(self) -> None:
        """End measuring; harmless when it never began."""
        self._ticks.end()

    def _tick(self) -> None:
        now = self._clock.monotonic()
        self._worst = max(self._worst, now - self._due)
        if now >= self._window_ends:
            self._worst_before, self._worst = self._worst, 0.0
            self._window_ends = now + WINDOW_SECONDS
        self._due = now + TICK_SECONDS


class AdminServer:
    """Serves one node from `start` to `stop`.

    Args:
        node: What is shown.
        changes: What may be changed, besides a reload.
        token: What requests that change something must bring where there are no rules; nothing when left out.
        access: Who may do what; None where there are no rules.
        audit: What is kept of who did what; None, for tests: nothing.
        settings: The section `admin`.
        random_bytes: Returns N random bytes that cannot be guessed, for sessions.
        descriptors_max: As in `AdminGuard`.
    """

    def __init__(
        self,
        node: LiveNode,
        *,
        changes: Sequence[Change] = (),
        token: AdminToken | None = None,
        access: Access | None = None,
        audit: Audit | None = None,
        settings: Callable[[], AdminConfig] = AdminConfig,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
        descriptors_max: int = DESCRIPTORS_UNBOUNDED,
    ) -> None:
        self._node = node
        self._descriptors_max = descriptors_max
        self._changes = changes
        self._token = token or AdminToken(lambda: None)
        self._access = access
        self._audit = audit
        self._settings = settings
        self._random_bytes = random_bytes
        self._runner: web.AppRunner | None = None
        self._plain: asyncio.Server | None = None
        self._encrypted: asyncio.Server | None = None
        self._lag: LoopLag | None = None
        self._rates: SecondRates | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the plain port, which there is; valid between `start` and `stop`."""
        assert self._plain is not None, "the admin port is not open"
        return _address_of(self._plain)

    @property
    def plain_address(self) -> tuple[str, int] | None:
        """The same; None where there is none."""
        return None if self._plain is None else _address_of(self._plain)

    @property
    def tls_address(self) -> tuple[str, int] | None:
        """Host and port of the TLS port; None where there is none."""
        return None if self._encrypted is None else _address_of(self._encrypted)

    async def start(self, host: str, port: int | None, *, tls: tuple[TlsPort, str, int] | None = None) -> None:
        """Listen.

        Args:
            host: Address to listen on; anything but loopback lets others read the node's state.
            port: 0 takes a free one; None: there is no plain port.
            tls: The encrypted port, with host and port number.

        Raises:
            ListenError: Somebody listens there already, or the address cannot be used.
        """
        loop = asyncio.get_running_loop()
        self._lag = lag = LoopLag(loop, self._node.clock)
        self._node.observe(loop_lag=lambda: lag.seconds, judging=partial(verdicts, self._node))
        gate = AdminGate(
            self._node,
            host,
            self._token,
            access=self._access,
            audit=self._audit,
            settings=self._settings,
            random_bytes=self._random_bytes,
        )
        loop_name = f"{type(loop).__module__}.{type(loop).__name__}"
        self._rates = rates = SecondRates(self._node, loop)
        console = Console(
            self._node,
            rates,
            audit=self._audit,
            settings=self._settings,
            random_bytes=self._random_bytes,
            token=self._token,
        )
        routes = Routes(self._node, gate, self._audit, loop_name=loop_name, console=console)
        application = routes.application(self._changes)
        self._runner = web.AppRunner(
            application, access_log=None, logger=Unreadable(self._node), handle_signals=False, shutdown_timeout=1.0
        )
        await self._runner.setup()
        assert self._runner.server is not None, "it has been set up"
        guard = AdminGuard(self._runner.server, self._node.metrics, descriptors_max=self._descriptors_max)
        routes.guard = guard
        if port is not None:
            self._plain = await self._listen(guard, host, port)
        if tls is not None:
            encrypted, host, port = tls
            self._encrypted = await self._listen(lambda: encrypted.channel(guard()), host, port)
        self._lag.start()
        rates.start()

    async def _listen(self, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> asyncio.Server:
        try:
            return await asyncio.get_running_loop().create_server(factory, host, port, backlog=64)
        except OSError as error:
            await self.stop()
            raise ListenError(host, port, error) from error

    async def stop(self) -> None:
        """Close the port and what is open on it; harmless when it never listened."""
        if self._lag is not None:
            self._lag.stop()
        if self._rates is not None:
            self._rates.stop()
        for listening in (self._plain, self._encrypted):
            if listening is not None:
                listening.close()
        self._plain = self._encrypted = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


class Unreadable(logging.Logger):
    """Takes what aiohttp would log of requests that cannot be read: they are counted, and logged once a minute.

    Its own line would have a traceback for each, and in that the header that is wrong, be it a token with one wrong
    character. `Routes` reports faults inside the node.
    """

    def __init__(self, node: LiveNode) -> None:
        super().__init__("pyddmq.admin")
        self.disabled = True
        self._node = node

    def exception(self, *_: object, exc_info: object = None, **__: object) -> None:
        """Count one."""
        kind = type(exc_info if isinstance(exc_info, BaseException) else sys.exc_info()[1]).__name__
        self._node.metrics.counter(REFUSED, "400").add()
        self._node.limited_log.note("admin_request_unreadable", kind=kind, error=kind)


def _address_of(listening: asyncio.Server) -> tuple[str, int]:
    host, port = listening.sockets[0].getsockname()[:2]
    return str(host), int(port)
