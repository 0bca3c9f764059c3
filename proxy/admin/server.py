"""The admin port: an aiohttp server on the node's own loop, loopback by default, never on a Thrift port.

It reads the node's view and sets off nothing but a reload. Import this module only where the port is started: aiohttp
and prometheus_client cost half a second and tens of megabytes (D38).
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import structlog
from aiohttp import web

from broker.metrics import declare
from proxy.admin import api, page
from proxy.admin.exposition import Exposition
from proxy.admin.loop_lag import LoopLag
from proxy.admin.style import CSS_SHA256
from proxy.admin.view import NodeView
from proxy.network import ListenError

REFUSED = declare("pyddmq_admin_refused_total", "Requests that the admin port refused.", ("status",))

_HEADERS = {
    "Server": "pyddmq",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": f"default-src 'none'; style-src '{CSS_SHA256}'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
}
_BODY_BYTES_MAX = 64 * 1024

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = structlog.get_logger()


class AdminServer:
    """Serves one node from `start` to `stop`.

    Args:
        node: What is shown.
    """

    def __init__(self, node: NodeView) -> None:
        self._node = node
        self._runner: web.AppRunner | None = None
        self._lag: LoopLag | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port in use; valid between `start` and `stop`."""
        assert self._runner is not None, "the admin port is not open"
        host, port = self._runner.addresses[0][:2]
        return str(host), int(port)

    async def start(self, host: str, port: int) -> None:
        """Listen.

        Args:
            host: Address to listen on; anything but loopback lets others read the node's state.
            port: 0 takes a free one.

        Raises:
            ListenError: Somebody listens there already, or the address cannot be used.
        """
        loop = asyncio.get_running_loop()
        self._lag = LoopLag(loop, self._node.clock)
        routes = _Routes(self._node, self._lag, host, f"{type(loop).__module__}.{type(loop).__name__}")
        self._runner = web.AppRunner(routes.application(), access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port, backlog=64).start()
        except OSError as error:
            await self.stop()
            raise ListenError(host, port, error) from error
        self._lag.start()

    async def stop(self) -> None:
        """Close the port and what is open on it; harmless when it never listened."""
        if self._lag is not None:
            self._lag.stop()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


class _Routes:
    """The request handlers; they share the node and what measures its loop."""

    def __init__(self, node: NodeView, lag: LoopLag, host: str, loop_name: str) -> None:
        self._node = node
        self._lag = lag
        self._host = host
        self._exposition = Exposition(node, lag, loop_name)
        self._reloading = asyncio.Lock()

    def application(self) -> web.Application:
        """Return the application with its routes."""
        application = web.Application(middlewares=[self._guard], client_max_size=_BODY_BYTES_MAX)
        application.router.add_get("/", self._page)
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/api/topics", self._topics)
        application.router.add_get("/api/groups", self._groups)
        application.router.add_get("/api/stats", self._stats)
        application.router.add_post("/api/reload", self._reload)
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn refusals and faults into JSON with a sentence, and put the common headers on every answer."""
        try:
            response = await handler(request)
        except web.HTTPException as error:
            response = self._error(request, error)
        except Exception:
            log.exception("admin_request_failed", path=request.path)
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
        response = self._refusal(error.status, text)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response

    def _refusal(self, status: int, text: str) -> web.Response:
        self._node.metrics.counter(REFUSED, str(status)).add()
        return _json({"error": {"status": status, "message": text}}, status)

    async def _livez(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        node = self._node
        status = 200 if node.state == "ready" else 503
        if "verbose" in request.query:
            return _json({"ready": status == 200, "state": node.state, "reasons": list(node.reasons)}, status)
        lines = ["ready"] if status == 200 else [f"not ready: {node.state}", *node.reasons]
        return web.Response(text="\n".join(lines) + "\n", status=status)

    async def _metrics(self, request: web.Request) -> web.Response:
        text, content_type = self._exposition.render(request.headers.get("Accept", ""))
        return web.Response(body=text, headers={"Content-Type": content_type})

    async def _page(self, request: web.Request) -> web.Response:
        group = request.query.get("group")
        refresh = request.query.get("refresh") != "0"
        text = page.render(self._node, loop_lag_seconds=self._lag.seconds, group=group, refresh=refresh)
        if text is None:
            raise web.HTTPNotFound(text=f"There is no group {group!r}; / lists all groups.")
        return web.Response(text=text, content_type="text/html")

    async def _topics(self, request: web.Request) -> web.Response:
        name = request.query.get("topic")
        document = api.topics(self._node, limit=_limit(request), name=name)
        if document is None:
            raise web.HTTPNotFound(text=f"There is no topic {name!r}; /api/topics lists all topics.")
        return _json(document)

    async def _groups(self, request: web.Request) -> web.Response:
        name = request.query.get("group")
        document = api.groups(self._node, limit=_limit(request), name=name)
        if document is None:
            raise web.HTTPNotFound(text=f"There is no group {name!r}; /api/groups lists all groups.")
        return _json(document)

    async def _stats(self, request: web.Request) -> web.Response:
        return _json(api.stats(self._node, limit=_limit(request), loop_lag_seconds=self._lag.seconds))

    async def _reload(self, request: web.Request) -> web.Response:
        _refuse_other_sites(request, self._host)
        # One at a time: two that overlap could each apply half of what the other read.
        async with self._reloading:
            outcome = await self._node.reload()
        return _json(api.reload(outcome), 200 if outcome.accepted else 409)


def _json(document: object, status: int = 200) -> web.Response:
    return web.Response(
        text=json.dumps(document, ensure_ascii=False) + "\n", status=status, content_type="application/json"
    )


def _limit(request: web.Request) -> int:
    text = request.query.get("limit", str(api.LIMIT_DEFAULT))
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise web.HTTPBadRequest(text=f"limit is {text!r}; it must be a whole number from 0 to {api.LIMIT_MAX}.")
    return min(int(text), api.LIMIT_MAX)


def _refuse_other_sites(request: web.Request, own_host: str) -> None:
    """Refuse what a web page of another site could send through a person's browser, DNS rebinding included."""
    name = _host_name(f"//{request.host}")
    if name not in ("localhost", own_host) and not _is_address(name):
        raise web.HTTPForbidden(text=f"The Host header names {name!r}; use the node's address or localhost.")
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"{request.scheme}://{request.host}":
        raise web.HTTPForbidden(text=f"A page of {origin!r} may not reload this node.")


def _host_name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
