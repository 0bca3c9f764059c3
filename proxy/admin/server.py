"""The admin port: an aiohttp server on the node's own loop, loopback by default, never on a Thrift port.

It reads the node's view, and runs the changes that it is given (`proxy.operate.changes`). Import this module only where
the port is started: aiohttp and prometheus_client cost half a second and tens of megabytes (D38).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Protocol

import msgspec
from aiohttp import web
from msgspec.structs import replace

from broker.errors import StoreError
from broker.format.numbers import whole_number
from broker.query import NotFound, QueryRefused
from broker.runtime.async_steps import run_async
from broker.runtime.metrics import declare
from broker.scheduled.timer.listing import KeptScan
from broker.views import View
from proxy.admin import page
from proxy.admin.burrow import PREFIX, BurrowPaths
from proxy.admin.exposition import Exposition
from proxy.admin.guard import AdminGuard
from proxy.admin.lag_metrics import lag_text
from proxy.admin.lag_verdicts import LastLag
from proxy.admin.loop_lag import LoopLag
from proxy.admin.style import CSS_SHA256
from proxy.node.views import ReloadResult
from proxy.operate import answers
from proxy.operate.changes.desk import AdminToken, Change, ChangeBody, ChangeDesk, ChangeRefused
from proxy.operate.lookups import dead_letters, delays, timers, transactions
from proxy.operate.lookups.messages import MessageSearch
from proxy.operate.moments import parse_duration
from proxy.operate.node_view import NodeView
from proxy.operate.views.errors import ErrorAnswer, ErrorView
from proxy.operate.views.lag import MODES, LagAnswer
from proxy.port.network import DESCRIPTORS_UNBOUNDED, ListenError
from proxy.tls.port import TlsPort

REFUSED = declare("pyddmq_admin_refused_total", "Requests that the admin port refused.", ("status",))

_HEADERS = {
    "Server": "pyddmq",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": f"default-src 'none'; style-src '{CSS_SHA256}'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
}
_OPENING = "The store is being opened; ask again when /readyz says ready."
_NO_GROUP = "There is no group {!r}; `pyddmq groups` and /api/groups list all groups."
_BODY_BYTES_MAX = 64 * 1024
SPAN_MS_MAX = 400 * 86_400_000
"""Longest time that a question about the past may reach back: the hours of the lag journal are kept so long."""
_OPEN = frozenset(("/livez", "/healthz", "/readyz", "/metrics"))
"""What is answered under any host name, besides Burrow's paths: it is asked for by name, and shows nothing that people
sent."""
_CHANGING = frozenset(("POST", "DELETE"))

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Listing(Protocol):
    """An answer that lists all, or what belongs to one name."""

    def __call__(self, node: NodeView, *, limit: int, name: str | None) -> View | None:
        """Return it; None when nothing has the name."""
        ...


class Search(Protocol):
    """Something that is looked for in steps."""

    def steps(self) -> Generator[None, None, None]:
        """Search, yielding after each bounded piece of work. Raises QueryRefused, NotFound, OSError."""
        ...

    def answer(self) -> View:
        """Return what was found."""
        ...


class AdminServer:
    """Serves one node from `start` to `stop`.

    Args:
        node: What is shown.
        changes: What may be changed, besides a reload.
        token: What requests that change something must bring; nothing when left out.
        descriptors_max: As in `AdminGuard`.
    """

    def __init__(
        self,
        node: NodeView,
        *,
        changes: Sequence[Change] = (),
        token: AdminToken | None = None,
        descriptors_max: int = DESCRIPTORS_UNBOUNDED,
    ) -> None:
        self._node = node
        self._descriptors_max = descriptors_max
        self._changes = changes
        self._token = token or AdminToken(lambda: None)
        self._runner: web.AppRunner | None = None
        self._plain: asyncio.Server | None = None
        self._encrypted: asyncio.Server | None = None
        self._lag: LoopLag | None = None

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
        self._lag = LoopLag(loop, self._node.clock)
        desk = ChangeDesk(self._node.metrics, host, self._token)
        routes = _Routes(self._node, self._lag, desk, f"{type(loop).__module__}.{type(loop).__name__}")
        application = routes.application(self._changes)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
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
        for listening in (self._plain, self._encrypted):
            if listening is not None:
                listening.close()
        self._plain = self._encrypted = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


def _address_of(listening: asyncio.Server) -> tuple[str, int]:
    host, port = listening.sockets[0].getsockname()[:2]
    return str(host), int(port)


class _Routes:
    """The request handlers; they share the node and what measures its loop."""

    def __init__(self, node: NodeView, lag: LoopLag, desk: ChangeDesk, loop_name: str) -> None:
        self.guard: AdminGuard | None = None
        self._node = node
        self._lag = lag
        self._desk = desk
        self._last_lag = LastLag(node)
        self._lag_text: tuple[LagAnswer | None, bytes] = (None, b"")
        """The last judgement, and its gauges as they were written."""
        self._exposition = Exposition(node, lag, loop_name)
        self._searching = asyncio.Lock()
        self._kept_timers = KeptScan()

    def application(self, changes: Sequence[Change]) -> web.Application:
        """Return the application with its routes."""
        application = web.Application(middlewares=[self._guard], client_max_size=_BODY_BYTES_MAX)
        application.router.add_get("/", self._page)
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/healthz", self._livez)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/api/topics", self._topics)
        application.router.add_get("/api/groups", self._groups)
        application.router.add_get("/api/groups/stuck", self._stuck)
        application.router.add_get("/api/offsets", self._offsets)
        application.router.add_get("/api/lag", self._judged)
        application.router.add_get("/api/lag/alarms", self._lag_alarms)
        application.router.add_get("/api/lag/objectives", self._objectives)
        application.router.add_get("/api/attention", self._attention)
        application.router.add_get("/api/limits", self._limits)
        application.router.add_get("/api/delays", self._delays)
        application.router.add_get("/api/transactions", self._transactions)
        application.router.add_get("/api/timers", self._timers)
        application.router.add_get("/api/timers/show", self._timer)
        application.router.add_get("/api/messages", self._messages)
        application.router.add_get("/api/dead-letters", self._dead_letters)
        application.router.add_get("/api/stats", self._stats)
        application.router.add_post("/api/reload", self._reload)
        BurrowPaths(self._node).add_to(application.router)
        for change in changes:
            application.router.add_route(change.method, change.path, self._handler_of(change))
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn refusals and faults into JSON with a sentence, and put the common headers on every answer."""
        if self.guard is not None:
            self.guard.began(request.protocol, body=request.can_read_body)
        try:
            return await self._answer(request, handler)
        finally:
            if self.guard is not None:
                self.guard.ended(request.protocol)

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            is_open = request.path in _OPEN or request.path.startswith(PREFIX)
            if not is_open and request.method not in _CHANGING:
                # A change is refused by its desk, which leaves a line of it.
                self._desk.refuse_other_sites(request)
            if request.can_read_body:
                # All of it is here, in time, before anything is done; handlers get what was read.
                await request.read()
                if self.guard is not None:
                    self.guard.body_read(request.protocol)
            response = await handler(request)
        except web.HTTPException as error:
            response = self._error(request, error)
        except ChangeRefused as refusal:
            response = self._refusal(refusal.status, refusal.text)
            if refusal.status == 401:
                response.headers["WWW-Authenticate"] = "Bearer"
        except Exception as error:
            # Of the route: a path may be of one's own making.
            route = request.match_info.route.resource
            kind = "" if route is None else route.canonical
            self._node.limited_log.fault("admin_request_failed", error, kind=kind, path=request.path)
            text = "The node could not put this answer together; its log has the cause."
            response = self._refusal(500, text)
        response.headers.update(_HEADERS)
        return response

    def _error(self, request: web.Request, error: web.HTTPException) -> web.Response:
        text = error.text or error.reason
        if error.status == 404 and error.text == "404: Not Found":
            text = f"There is nothing at {request.path}; / lists what there is, docs/admin.md describes it."
        elif error.status == 405:
            text = f"{request.method} is not answered at {request.path}; use {error.headers.get('Allow', 'GET')}."
        response = self._said(request, error.status, text)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response

    def _said(self, request: web.Request, status: int, text: str) -> web.Response:
        """Refuse, with a page for somebody who looks with a browser."""
        if request.method not in ("GET", "HEAD") or "text/html" not in request.headers.get("Accept", ""):
            return self._refusal(status, text)
        self._node.metrics.counter(REFUSED, str(status)).add()
        return web.Response(text=page.refusal(status, text), status=status, content_type="text/html")

    def _refusal(self, status: int, text: str) -> web.Response:
        self._node.metrics.counter(REFUSED, str(status)).add()
        return _json(ErrorAnswer(error=ErrorView(status=status, message=text)), status)

    async def _livez(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        node = self._node
        status = 200 if node.state == "ready" else 503
        if "verbose" in request.query or node.recovery is not None:
            return _json(answers.readiness(node, loop_lag_seconds=self._lag.seconds), status)
        lines = ["ready"] if status == 200 else [f"not ready: {node.state}", *node.reasons]
        if node.memory().pressure != "none":
            lines.append(f"memory: {node.memory().pressure}")
        return web.Response(text="\n".join(lines) + "\n", status=status)

    async def _metrics(self, request: web.Request) -> web.Response:
        judged = await self._last_lag.answer()
        if judged is None or self._lag_text[0] is not judged:
            gauges = await run_async(lag_text(judged, list(self._node.topics()), self._node.cluster))
            self._lag_text = (judged, gauges)
        text, content_type = self._exposition.render(request.headers.get("Accept", ""), self._lag_text[1])
        return web.Response(body=text, headers={"Content-Type": content_type})

    async def _page(self, request: web.Request) -> web.Response:
        group = request.query.get("group")
        refresh = request.query.get("refresh") != "0"
        judged = await self._last_lag.answer()
        text = page.render(self._node, loop_lag_seconds=self._lag.seconds, lag=judged, group=group, refresh=refresh)
        if text is None:
            raise web.HTTPNotFound(text=f"There is no group {group!r}; / lists all groups.")
        return web.Response(text=text, content_type="text/html")

    async def _limits(self, request: web.Request) -> web.Response:
        advice = "No client {!r} is counted; `pyddmq limits` and /api/limits list all."
        return self._listed(request, "client", answers.limits, advice)

    async def _topics(self, request: web.Request) -> web.Response:
        advice = "There is no topic {!r}; `pyddmq topics` and /api/topics list all topics."
        return self._listed(request, "topic", answers.topics, advice)

    async def _groups(self, request: web.Request) -> web.Response:
        return self._listed(request, "group", partial(answers.groups, loop_lag_seconds=self._lag.seconds), _NO_GROUP)

    async def _stuck(self, request: web.Request) -> web.Response:
        return self._listed(request, "group", partial(answers.stuck, loop_lag_seconds=self._lag.seconds), _NO_GROUP)

    async def _offsets(self, request: web.Request) -> web.Response:
        advice = "No offsets of a group {!r} are known; `pyddmq offsets show` and /api/offsets list all."
        return self._listed(request, "group", answers.offsets, advice)

    async def _judged(self, request: web.Request) -> web.Response:
        name, mode = request.query.get("group"), request.query.get("mode", MODES[0])
        known = next((each for each in MODES if each == mode), None)
        if known is None:
            raise web.HTTPBadRequest(text=f"mode is {mode!r}; it must be one of {', '.join(MODES)}.")
        document = await run_async(self._node.lag(group=name, limit=_limit(request), mode=known))
        if document is None:
            raise web.HTTPNotFound(text=_NO_GROUP.format(name))
        if "trend" in request.query:
            span_ms = _span(request, "trend")
            async with self._searching:
                trend = await run_async(self._node.trend(group=name, span_ms=span_ms))
            document = replace(document, trend=trend)
        return _json(document)

    async def _lag_alarms(self, request: web.Request) -> web.Response:
        return self._listed(request, "group", _lag_alarms, _NO_GROUP)

    async def _objectives(self, request: web.Request) -> web.Response:
        name = request.query.get("group")
        if name is not None and self._node.samples(name) is None:
            raise web.HTTPNotFound(text=_NO_GROUP.format(name))
        target_ms, span_ms = _span(request, "objective"), _span(request, "since")
        steps = self._node.objectives(group=name, span_ms=span_ms, target_ms=target_ms)
        async with self._searching:
            return _json(await run_async(steps))

    def _listed(self, request: web.Request, kind: str, listing: Listing, advice: str) -> web.Response:
        """Answer with all of a kind, or what belongs to the one that the request names."""
        name = request.query.get(kind)
        document = listing(self._node, limit=_limit(request), name=name)
        if document is None:
            raise web.HTTPNotFound(text=advice.format(name))
        return _json(document)

    async def _attention(self, _: web.Request) -> web.Response:
        return _json(answers.attention(self._node, loop_lag_seconds=self._lag.seconds))

    async def _delays(self, request: web.Request) -> web.Response:
        node, given, now_ms = self._node.delays(), dict(request.query), self._node.clock.wall_ms()
        limit = _limit(request)
        return await self._searched(request, lambda: run_async(delays.search(node, given, limit=limit, now_ms=now_ms)))

    async def _transactions(self, request: web.Request) -> web.Response:
        node = self._node.transactions()
        try:
            asked = transactions.Asked.of(request.query, limit=_limit(request))
        except ValueError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        now_ms = self._node.clock.wall_ms()
        return await self._searched(request, lambda: run_async(transactions.search(node, asked, now_ms=now_ms)))

    async def _timers(self, request: web.Request) -> web.Response:
        opened, given = self._node.timers(), dict(request.query)
        limit, now_ms = _limit(request), self._node.clock.wall_ms()
        return await self._stepwise(
            request,
            None if opened is None else lambda: timers.TimerSearch(opened, given, limit, now_ms, self._kept_timers),
        )

    async def _timer(self, request: web.Request) -> web.Response:
        store, name = self._node.searchable(), self._node.broker_name
        given, now_ms = dict(request.query), self._node.clock.wall_ms()
        return await self._stepwise(
            request, None if store is None else lambda: timers.TimerShow(store, given, name, now_ms)
        )

    async def _stats(self, request: web.Request) -> web.Response:
        return _json(answers.stats(self._node, limit=_limit(request), loop_lag_seconds=self._lag.seconds))

    async def _messages(self, request: web.Request) -> web.Response:
        if request.query.get("body") != "none":
            self._desk.check_token(request)
        store = self._node.searchable()
        now_ms = self._node.clock.wall_ms()
        return await self._stepwise(
            request, None if store is None else lambda: MessageSearch(store, dict(request.query), now_ms=now_ms)
        )

    async def _dead_letters(self, request: web.Request) -> web.Response:
        opened = self._node.dead_letters()

        async def search() -> View:
            if opened is None:
                raise web.HTTPServiceUnavailable(text=_OPENING)
            return await dead_letters.search(*opened, dict(request.query), now_ms=self._node.clock.wall_ms())

        return await self._searched(request, search)

    async def _stepwise(self, request: web.Request, begin: Callable[[], Search] | None) -> web.Response:
        """Answer with what a search in steps finds; None while the store is being opened."""

        async def search() -> View:
            if begin is None:
                raise web.HTTPServiceUnavailable(text=_OPENING)
            found = begin()
            await run_async(found.steps())
            return found.answer()

        return await self._searched(request, search)

    async def _searched(self, request: web.Request, search: Callable[[], Awaitable[View]]) -> web.Response:
        """Answer with what people sent: not to a page of another site, and one search at a time.

        A search may read much, and each gives way to the node's own work after every step.
        """
        self._desk.refuse_other_sites(request)
        async with self._searching:
            try:
                return _json(await search())
            except NotFound as error:
                raise web.HTTPNotFound(text=_sentence(error)) from error
            except QueryRefused as error:
                raise web.HTTPBadRequest(text=_sentence(error)) from error
            except StoreError as error:
                raise web.HTTPServiceUnavailable(text=_sentence(error)) from error

    def _handler_of(self, change: Change) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            return _json(await self._desk.run(request, change))

        return handle

    async def _reload(self, request: web.Request) -> web.Response:
        async def reload(_: ChangeBody) -> ReloadResult:
            return await self._node.reload()

        result = await self._desk.run(request, Change(name="reload", path="/api/reload", run=reload))
        return _json(result, 200 if isinstance(result, ReloadResult) and result.accepted else 409)


def _json(answer: View, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(answer) + b"\n", status=status, content_type="application/json", charset="utf-8"
    )


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def _lag_alarms(node: NodeView, *, limit: int, name: str | None) -> View | None:
    return node.lag_alarms(group=name, limit=limit)


def _span(request: web.Request, name: str) -> int:
    """Return the time span that a request names, in ms."""
    text = request.query.get(name, "")
    try:
        span_ms = parse_duration(text)
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"{name}: {error}.") from error
    if not 0 < span_ms <= SPAN_MS_MAX:
        raise web.HTTPBadRequest(text=f"{name} is {text!r}; it must be above 0 and at most 400d.")
    return span_ms


def _limit(request: web.Request) -> int:
    text = request.query.get("limit", str(answers.LIMIT_DEFAULT))
    limit = whole_number(text, 9)
    if limit is None:
        raise web.HTTPBadRequest(text=f"limit is {text!r}; it must be a whole number from 0 to {answers.LIMIT_MAX}.")
    return min(limit, answers.LIMIT_MAX)
