"""What tests of AsyncHttp share: its surroundings by hand, and receivers that answer as they are told."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import parse_qsl

from aiohttp import web

from actions.client_factories import Outside
from actions.http.action import AsyncHttp
from actions.http.options import AsyncHttpOptions
from pyddmq.actions import Job, Message, Outgoing, Status


class HandContext:
    """An action's surroundings; the test may put its clock `ahead`, in seconds."""

    def __init__(self, *, timeout_ms: int = 2000, tps_max: float | None = None) -> None:
        self.group, self.topic = "g", "t"
        self.timeout_ms = timeout_ms
        self.tps_max = tps_max
        self.ahead = 0.0
        self.events: Counter[str] = Counter()
        self.notes: list[tuple[str, dict[str, object]]] = []

    def wall_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead

    def count(self, event: str, amount: int = 1) -> None:
        self.events[event] += amount

    def note(self, event: str, **facts: object) -> None:
        self.notes.append((event, facts))


@dataclass
class HandHistory:
    """What went wrong so far."""

    fails: int = 0
    errors: int = 0
    timeouts: int = 0
    reason: str = ""


@dataclass
class HandJob:
    """A job for one call of an action."""

    body: bytes = b"{}"
    key: str | None = "k"
    properties: dict[str, str] = field(default_factory=dict)
    data: Any = None
    offset: int = 7
    group: str = "g"
    topic: str = "t"
    qid: str = "c_b_0"
    history: HandHistory | None = None
    outgoing: Outgoing = field(default_factory=Outgoing)

    def __post_init__(self) -> None:
        if self.data is None:
            self.data = self.body

    @property
    def message(self) -> Message:
        return Message(self.key, None, self.body, self.properties, 0)

    @property
    def attempts(self) -> int:
        history = self.history
        return 0 if history is None else history.fails + history.errors + history.timeouts

    def form(self, *pairs: tuple[str, str]) -> HandJob:
        self.outgoing.form += pairs
        return self


@dataclass
class Seen:
    """A request as the receiver saw it."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))


Answer = web.StreamResponse | str | int | Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Receiver:
    """A server on a loopback port that gives its answers in turn, the last one for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers) or [""]
        self.seen: list[Seen] = []
        self.port = 0
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(Seen(request.method, request.path, request.rel_url.raw_query_string, headers, body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, str):
            return web.Response(text=answer)
        if isinstance(answer, int):
            return web.Response(status=answer)
        if isinstance(answer, web.StreamResponse):
            return answer
        return await answer(request)


@contextlib.asynccontextmanager
async def serving(*receivers: Receiver, ssl: Any = None) -> AsyncIterator[None]:
    """Serve receivers on free loopback ports."""
    async with contextlib.AsyncExitStack() as stack:
        for receiver in receivers:
            runner = web.ServerRunner(web.Server(receiver.handle, access_log=None), shutdown_timeout=0.05)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl)
            await site.start()
            receiver.port = runner.addresses[0][1]
        yield


def pusher(context: HandContext | None = None, *, outside: Outside | None = None, **options: Any) -> AsyncHttp:
    """Return an opened action; options in YAML's names."""
    action = AsyncHttp()
    action.name = "AsyncHttp"
    action.options = AsyncHttpOptions.model_validate(options)
    action.context = context or HandContext()
    action.outside = outside or Outside(random=random.Random(1))
    action.open()
    return action


async def push(action: AsyncHttp, job: HandJob | None = None) -> Status | Exception:
    """Run one attempt; returns what it answered or raised."""
    try:
        return await action.act(cast("Job", job or HandJob()))
    except Exception as error:
        return error
