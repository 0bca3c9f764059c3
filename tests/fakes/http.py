"""HTTP over the simulated network: aiohttp's own client and server, with connections in memory.

So what is simulated is the code that runs: pools, parsers, time limits. Only the making of a connection is replaced.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.client_proto import ResponseHandler

from actions.http.connection_options import HttpWish
from pyddmq.testing.network import SimListener, SimNetwork

_alive: weakref.WeakSet[SimConnector] = weakref.WeakSet()
"""Connectors that were made and perhaps never closed."""
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class SimConnector(aiohttp.BaseConnector):
    """Connects to who listens in a simulated network, under the numeric host of the URL."""

    def __init__(self, network: SimNetwork, wish: HttpWish) -> None:
        # A time of the real clock would decide what is kept; in virtual time all is.
        super().__init__(limit=wish.connections_max, keepalive_timeout=None, force_close=not wish.keep)
        self._network = network

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> ResponseHandler:  # noqa: ASYNC109 - aiohttp's
        protocol: ResponseHandler = self._factory()
        address = (str(req.url.raw_host), int(req.url.port))
        if self._network.connect(protocol, address, host="10.0.0.9") is None:
            raise aiohttp.ClientConnectorError(req.connection_key, ConnectionRefusedError(111, "refused"))
        return protocol


class SimHttp:
    """What an `Outside` takes for `http`: makes connectors to one simulated network.

    Args:
        network: The network.
    """

    def __init__(self, network: SimNetwork) -> None:
        self._network = network

    def __call__(self, wish: HttpWish) -> aiohttp.BaseConnector:
        """Make a connector."""
        connector = SimConnector(self._network, wish)
        _alive.add(connector)
        return connector


def forget_connectors() -> None:
    """Close the connectors of killed and dropped nodes, which nobody else does, so that nothing warns of them."""
    for connector in _alive:
        connector._conns.clear()
        connector._closed = True
    _alive.clear()


async def serve_http(network: SimNetwork, handler: Handler, host: str, port: int) -> SimListener:
    """Answer HTTP requests at an address of the simulated network, by aiohttp's server."""
    server = web.Server(handler, access_log=None)
    return await network.listen(server, host, port, backlog=128)
