"""A receiver that misbehaves by plan: what it does to a delivery follows from the event and from how often it came.

Events that are to fail (`Event.failures`) fail so often, each time in the next of many ways; some of the others are
slow, or are taken with a wish. It checks each signature before it believes anything.
"""

from __future__ import annotations

import asyncio
import hmac
import zlib
from collections import Counter
from collections.abc import Sequence

from aiohttp import web

from actions.http import signature
from proxy.demo.checker import Findings, Tamper
from proxy.demo.events import Event, Seen, read_body

FAILURES = ("status 500", "reset", "silence", "errno 7", "errno 1000002", "status 302", "endless reply", "text errno")
SLOW_ONE_IN = 50
SLOW_SECONDS = 0.2
SLOWER_ONE_IN = 2000
GIVEN_UP_ONE_IN = 1000
_REPLY_BYTES = 1 << 20


class Receiver:
    """Answers requests at both of the demo's URLs.

    Attributes:
        did: What it did, by name: how often.
        forged: Requests whose signature is not right.
        foreign: Requests without an event of the run.
    """

    def __init__(
        self, run: str, events: Sequence[Event], tamper: Tamper, *, key: bytes, silence_seconds: float
    ) -> None:
        self._run = run
        self._events = events
        self._tamper = tamper
        self._key = key
        self._silence_seconds = silence_seconds
        self._failed: Counter[int] = Counter()
        self.did: Counter[str] = Counter()
        self.forged = Findings()
        self.foreign = 0
        self._down_from: int | None = None

    def down_from(self, done: int) -> None:
        """Cut every connection of the first URL from that many done events on."""
        self._down_from = done

    def up(self) -> None:
        """Answer at the first URL again."""
        self._down_from = None

    async def first(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer at the URL that is down for a while."""
        if self._down_from is not None and self._tamper.done_count >= self._down_from:
            self.did["down"] += 1
            _cut(request)
            return web.Response()
        return await self.second(request)

    async def second(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer at the other one."""
        body = await request.read()
        self._check(request, body)
        seen = read_body(body)
        if seen is None or seen.run != self._run:
            self.foreign += 1
            return web.Response()
        if self._tamper.deliver(seen):
            return await self._fail(request, seen)
        return await self._take(seen)

    def _check(self, request: web.BaseRequest, body: bytes) -> None:
        headers = request.headers
        said = headers.get(signature.SIGNATURE, "")
        right = signature.sign(
            self._key,
            time_s=int(headers.get(signature.TIME, "0")),
            key_id=headers.get(signature.KEY_ID, ""),
            topic=headers.get(signature.TOPIC, ""),
            query=request.rel_url.raw_query_string,
            body=body,
        )
        if not hmac.compare_digest(said, right):
            self.forged.add(f"{request.method} {request.path} of {len(body)} bytes")

    async def _take(self, seen: Seen) -> web.Response:
        """Take an event, perhaps slowly, perhaps with a wish."""
        draw = zlib.crc32(f"take {seen.sequence}".encode())
        if draw % SLOW_ONE_IN == 0:
            self.did["slow"] += 1
            await asyncio.sleep(SLOW_SECONDS)
        self._tamper.note_outcome(seen, success=True)
        if draw % SLOWER_ONE_IN == 1:
            self.did["errno 1000000"] += 1
            return web.json_response({"errno": 1_000_000})
        if draw % GIVEN_UP_ONE_IN == 2:
            self.did["errno 1000001"] += 1
            return web.json_response({"errno": 1_000_001})
        self.did["taken"] += 1
        return web.json_response({"errno": 0})

    async def _fail(self, request: web.BaseRequest, seen: Seen) -> web.StreamResponse:
        way = FAILURES[(zlib.crc32(f"fail {seen.sequence}".encode()) + self._failed[seen.sequence]) % len(FAILURES)]
        self._failed[seen.sequence] += 1
        self.did[way] += 1
        self._tamper.note_outcome(seen, success=False)
        if way == "reset":
            _cut(request)
            return web.Response()
        if way == "silence":
            await asyncio.sleep(self._silence_seconds)
            return web.Response()
        if way == "status 302":
            return web.Response(status=302, headers={"Location": "http://169.254.169.254/latest/meta-data/"})
        if way == "status 500":
            return web.Response(status=500, text="out of order")
        if way == "endless reply":
            return web.Response(body=bytes(_REPLY_BYTES))
        errno = {"errno 7": 7, "errno 1000002": 1_000_002}.get(way, "no number")
        return web.json_response({"errno": errno, "errmsg": "as planned"})


def _cut(request: web.BaseRequest) -> None:
    if request.transport is not None:
        request.transport.abort()
