"""What a receiver answers, and the URLs that messages name.

`reply`: the bytes are what a receiver sends back, over the simulated network and through aiohttp. Whatever they are,
the message has one of the outcomes that a receiver may decide, nobody else is asked, and it is over within the time
limit. `callback`: the bytes are the property's value. A URL that is taken names, to the library that connects, the very
host and port that were looked at, and no address that is not public.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random

from yarl import URL

from actions.client_factories import Outside
from actions.http import callback
from actions.http.addresses import refusal
from actions.http.client import PushFailed
from pyddmq.actions import Failed, RetryLater, Status
from pyddmq.testing import NetworkFaults, SimNetwork, VirtualLoop
from tests.fakes.http import SimHttp, forget_connectors
from tests.push_tools import HandContext, HandJob, push, pusher

HOST, PORT = "10.0.0.50", 80
TIMEOUT_MS = 2000
ORIGINS = [callback.parse_origin(text) for text in ("http://*:*", "https://*:*")]


class _Says(asyncio.Protocol):
    """Answers the first bytes with what it was given, and closes."""

    def __init__(self, answer: bytes, calls: list[bytes]) -> None:
        self._answer = answer
        self._calls = calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._calls.append(data)
        self._transport.write(self._answer)
        self._transport.close()


def reply(data: bytes) -> None:
    """Push a message to a receiver that answers with these bytes."""
    loop = VirtualLoop()
    network = SimNetwork(loop, Random(1), NetworkFaults(fragment_share=0.5))
    http = SimHttp(network)
    calls: list[bytes] = []

    async def story() -> tuple[object, float]:
        await network.listen(lambda: _Says(data, calls), HOST, PORT, backlog=1)
        context = HandContext(timeout_ms=TIMEOUT_MS)
        action = pusher(context, outside=Outside(http=http), urls=[f"http://{HOST}/hook"])
        began = loop.time()
        answered = await push(action, HandJob())
        took = loop.time() - began
        await action.close()
        return answered, took

    answered, took = loop.run_task(story())
    forget_connectors()
    assert answered is Status.FINISH or isinstance(answered, PushFailed | Failed | RetryLater), repr(answered)
    assert took <= TIMEOUT_MS / 1000 + 0.1
    assert len([each for each in calls if each.startswith(b"POST /hook HTTP/1.1")]) == 1
    assert network.counts["refused"] == 0


def callback_url(data: bytes) -> None:
    """Look at the URLs of a message."""
    with contextlib.suppress(callback.UrlRefused):
        for text in callback.split(data.decode("utf-8", "replace")):
            with contextlib.suppress(callback.UrlRefused):
                _taken(text, callback.check(text, ORIGINS, []))


def _taken(text: str, url: str) -> None:
    """Hold a URL that is taken against what the library that connects makes of it."""
    try:
        found = URL(url, encoded=True)
        host, port = found.raw_host, found.port
    except ValueError:
        return  # Refused by the action as well.
    assert host is not None
    assert any(origin.matches(found.scheme, host.lower(), port or 0) for origin in ORIGINS), text
    assert found.user is None, text
    assert found.password is None, text
    assert not set(host) & set("@/\\#?% \r\n\t"), text
    numeric = ":" in host or host.replace(".", "").isdigit()
    assert not numeric or refusal(host) is None, text
