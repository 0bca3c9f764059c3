"""The requests of the admin port: what is read, and how each is looked at and answered.

`proxy.admin.entry.gate` says who may ask, `proxy.operate.changes` what may be changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from typing import Protocol, TypeVar

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
from proxy.access.audit import Audit
from proxy.access.rules import NODE, Permission
from proxy.access.views import AuditEntry
from proxy.admin.console.menu import PAGES
from proxy.admin.console.shell import FAULT_TEXT, Console
from proxy.admin.console.templating import environment
from proxy.admin.entry.gate import AGAIN, AdminGate, Unknown, is_private, may_see_all, refuse_removed
from proxy.admin.entry.rights import NOBODY, PROBES, READING, WITHOUT_RIGHT, check_routes, need_of
from proxy.admin.entry.sign_in import SignInPaths, forget_cookie
from proxy.admin.exposition import Exposition
from proxy.admin.guard import AdminGuard
from proxy.admin.lag_metrics import lag_text
from proxy.admin.letter_download import LetterDownload
from proxy.node.reload import Candidate
from proxy.node.views import ReloadResult
from proxy.operate import answers
from proxy.operate.attention.findings import DETAILS_MAX, judging
from proxy.operate.attention.judgement import Judgement
from proxy.operate.changes.desk import Asker, Change, ChangeDesk, ChangeRefused, ReloadBody
from proxy.operate.live_node import LiveNode
from proxy.operate.lookups import dead_letters, timers, transactions
from proxy.operate.lookups.messages import MessageSearch
from proxy.operate.moments import parse_duration
from proxy.operate.views.audit import AuditAnswer
from proxy.operate.views.dead_letters import DeadLetterGroupsAnswer
from proxy.operate.views.errors import ErrorAnswer, ErrorView
from proxy.operate.views.groups import GroupsAnswer, StuckAnswer
from proxy.operate.views.waiting import TransactionsAnswer
from upstream.views import GroupView

REFUSED = declare("pyddmq_admin_refused_total", "Requests that the admin port refused.", ("status",))

HEADERS = {
    "Server": "pyddmq",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Not `no-referrer`: with that browsers send `Origin: null` with a form of this very page.
    "Referrer-Policy": "same-origin",
}
"""Of each answer: it is not cached, run, framed or taken for another type, unless its route says more."""
_OPENING = "The store is opening; try again when /readyz reports ready."
_NO_GROUP = "Group {!r} does not exist; `pyddmq groups` and /api/groups list all groups."
BODY_BYTES_MAX = 64 * 1024
SPAN_MS_MAX = 400 * 86_400_000
"""Longest time that a question about the past may reach back: the hours of the lag journal are kept so long."""
_CHANGING = frozenset(("POST", "DELETE"))
_ASKER: web.RequestKey[Asker] = web.RequestKey("asker", Asker)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ListingRoute(Protocol):
    """An answer that lists all, or what belongs to one name."""

    def __call__(self, *, limit: int, name: str | None) -> View | None:
        """Return it; None when nothing has the name."""


Opened = TypeVar("Opened")
"""What a search looks through."""
Search = Generator[None, None, View]
"""Looks for something in steps of bounded work. Raises QueryRefused, NotFound, OSError."""


class Routes:
    """The request handlers; they share the node and what measures its loop."""

    def __init__(
        self, node: LiveNode, gate: AdminGate, audit: Audit | None, *, loop_name: str, console: Console
    ) -> None:
        self.guard: AdminGuard | None = None
        self._console = console
        self._reading = {**READING, **{each.path: each.need for each in PAGES}}
        self._node = node
        self._gate = gate
        self._audit = audit
        self._desk = ChangeDesk(node.metrics, gate, audit)
        self._exposition = Exposition(node, loop_name)
        self._judging = asyncio.Lock()
        self._searching = asyncio.Lock()
        self._kept_timers = KeptScan()

    def application(self, changes: Sequence[Change]) -> web.Application:
        """Return the application with its routes."""
        application = web.Application(middlewares=[self._guard], client_max_size=BODY_BYTES_MAX)
        application.on_response_prepare.append(_with_headers)
        application.router.add_get("/livez", self._livez)
        application.router.add_get("/healthz", self._livez)
        application.router.add_get("/readyz", self._readyz)
        application.router.add_get("/metrics", self._metrics)
        application.router.add_get("/api/audit", self._audit_trail)
        application.router.add_get("/api/topics", self._topics)
        application.router.add_get("/api/groups", self._groups)
        application.router.add_get("/api/groups/stuck", self._stuck)
        application.router.add_get("/api/offsets", self._offsets)
        application.router.add_get("/api/lag", self._judged)
        application.router.add_get("/api/lag/objectives", self._objectives)
        application.router.add_get("/api/attention", self._attention)
        application.router.add_get("/api/limits", self._limits)
        application.router.add_get("/api/losses", self._losses)
        application.router.add_get("/api/delays", self._delays)
        application.router.add_get("/api/transactions", self._transactions)
        application.router.add_get("/api/timers", self._timers)
        application.router.add_get("/api/timers/show", self._timer)
        application.router.add_get("/api/messages", self._messages)
        application.router.add_get("/api/dead-letters", self._dead_letters)
        application.router.add_get("/api/dead-letters/download", self._download, allow_head=False)
        application.router.add_get("/api/stats", self._stats)
        application.router.add_get("/api/nodes", self._nodes)
        SignInPaths(self._gate, self._audit, self._node.metrics).add_to(application.router)
        self._console.add_to(application.router, lambda request: request[_ASKER])
        every = [*changes, self._reload_change()]
        for change in every:
            application.router.add_route(change.method, change.path, self._handler_of(change))
        check_routes(application.router, every, self._reading)
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
            refuse_removed(request.path, request.query)
            self._look(request)
            _refuse_empty(request)
            if request.can_read_body:
                # All of it is here, in time, before anything is done; handlers get what was read.
                await _read(request)
                if self.guard is not None:
                    self.guard.body_read(request.protocol)
            response = await handler(request)
        except web.HTTPException as error:
            response = self._error(request, error)
        except ChangeRefused as refusal:
            response = self._refused(request, refusal)
        except Exception as error:
            # Of the route: a path may be of one's own making.
            route = request.match_info.route.resource
            kind = "" if route is None else route.canonical
            self._node.limited_log.fault("admin_request_failed", error, kind=kind, path=request.path)
            response = self._refusal(500, FAULT_TEXT)
        return response

    def _look(self, request: web.Request) -> None:
        """Look who asks, and whether he may; a change is looked at by its desk, which leaves a line of it."""
        is_open = request.path in PROBES
        if self._gate.sessions is None:
            # Scrapers ask by name, and what they get shows nothing that people sent.
            is_open = is_open or request.path == "/metrics"
        if is_open or (request.method in _CHANGING and request.path not in WITHOUT_RIGHT):
            return
        need = need_of(request, self._reading) if request.method in ("GET", "HEAD") else NOBODY
        if need.action is None:
            self._gate.check_site(request)
            return
        asker = self._gate.enter(request)
        self._gate.allow(request, asker, need)
        request[_ASKER] = asker

    def _refused(self, request: web.Request, refusal: ChangeRefused) -> web.StreamResponse:
        """Answer who is refused; a browser is led to the page to sign in, where that may help."""
        is_unknown = refusal.status == 401
        if is_unknown and _is_browser(request) and self._gate.sessions is not None and is_private(request):
            response: web.StreamResponse = web.Response(status=303, headers={"Location": "/sign-in"})
        else:
            response = self._said(request, refusal.status, refusal.text)
        if is_unknown:
            response.headers["WWW-Authenticate"] = "Bearer"
        if isinstance(refusal, Unknown) and refusal.reason == "session":
            forget_cookie(request, response)
        return response

    def _error(self, request: web.Request, error: web.HTTPException) -> web.Response:
        text = error.text or error.reason
        if error.status == 404 and error.text == "404: Not Found":
            text = f"Path {request.path} does not exist; docs/admin.md lists all paths."
        elif error.status == 405:
            text = f"{request.method} is not allowed at {request.path}; use {error.headers.get('Allow', 'GET')}."
        response = self._said(request, error.status, text)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response

    def _said(self, request: web.Request, status: int, text: str) -> web.Response:
        """Refuse, with a page for a browser."""
        if not _is_browser(request):
            return self._refusal(status, text)
        self._node.metrics.counter(REFUSED, str(status)).add()
        may_sign_in = self._gate.sessions is not None and status in (401, 403) and is_private(request)
        page = environment().get_template("refusal.html")
        shown = page.render(status=status, text=text, may_sign_in=may_sign_in)
        return web.Response(text=shown, status=status, content_type="text/html")

    def _refusal(self, status: int, text: str) -> web.Response:
        self._node.metrics.counter(REFUSED, str(status)).add()
        return _json(ErrorAnswer(error=ErrorView(status=status, message=text)), status)

    async def _livez(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, request: web.Request) -> web.Response:
        node = self._node
        is_refusing = node.state == "ready" and node.troubles().publishes_refused
        is_ready = node.state == "ready" and not (is_refusing and "publish" in request.query)
        status = 200 if is_ready else 503
        lines = ["ready"] if is_ready else [f"not ready: {node.state if not is_refusing else 'publishes are refused'}"]
        if is_refusing and is_ready:
            lines.append("publishes: refused")
        if not self._gate.may_see_all(request):
            # A probe gets yes or no; the reasons have names and paths, which need the right.
            return web.Response(text="\n".join(lines) + "\n", status=status)
        if "verbose" in request.query or node.recovery is not None:
            return _json(answers.readiness(node, await self._judge()), status)
        lines += () if node.state == "ready" else node.reasons
        if node.memory().pressure != "none":
            lines.append(f"memory: {node.memory().pressure}")
        return web.Response(text="\n".join(lines) + "\n", status=status)

    async def _judge(self, *, leisurely: bool = False, groups: Sequence[GroupView] | None = None) -> Judgement:
        """Judge the node; requests that come meanwhile share what they can."""
        async with self._judging:
            return await run_async(judging(self._node, leisurely=leisurely, groups=groups))

    async def _metrics(self, request: web.Request) -> web.Response:
        groups = await run_async(self._node.groups_in_steps(details_max=DETAILS_MAX))
        judged = await self._judge(leisurely=True, groups=groups)
        topics = self._node.topics_in_steps()
        gauges = await run_async(lag_text(judged, await run_async(topics), self._node.cluster))
        text, content_type = await self._exposition.rendered(request.headers.get("Accept", ""), gauges, groups)
        return web.Response(body=text, headers={"Content-Type": content_type})

    async def _audit_trail(self, request: web.Request) -> web.Response:
        entries, total = self._recent(_limit(request))
        return _json(AuditAnswer(now_ms=self._node.clock.wall_ms(), entries_total=total, entries=entries))

    def _recent(self, limit: int) -> tuple[Sequence[AuditEntry], int]:
        return ([], 0) if self._audit is None else self._audit.recent(limit)

    async def _limits(self, request: web.Request) -> web.Response:
        advice = "No client {!r} is counted; `pyddmq limits` and /api/limits list all clients."
        return self._listed(request, "client", self._node.limits, advice)

    async def _losses(self, request: web.Request) -> web.Response:
        try:
            answer = self._node.losses(dict(request.query))
        except ValueError as error:
            raise web.HTTPBadRequest(text=_sentence(error)) from error
        except OSError as error:
            raise web.HTTPServiceUnavailable(text=_sentence(error)) from error
        if answer is None:
            raise web.HTTPServiceUnavailable(text=_OPENING)
        return _json(answer)

    async def _topics(self, request: web.Request) -> web.Response:
        advice = "Topic {!r} does not exist; `pyddmq topics` and /api/topics list all topics."
        if (elsewhere := self._node.in_kafka.topic(request.query.get("topic", ""))) is not None:
            advice = elsewhere.replace("{", "{{").replace("}", "}}")
        return self._listed(request, "topic", partial(answers.topics, self._node), advice)

    async def _groups(self, request: web.Request) -> web.Response:
        listing = partial(answers.groups, self._node, await self._judge())
        return self._listed(request, "group", listing, _NO_GROUP)

    async def _stuck(self, request: web.Request) -> web.Response:
        listing = partial(answers.stuck, self._node, await self._judge())
        return self._listed(request, "group", listing, _NO_GROUP)

    async def _offsets(self, request: web.Request) -> web.Response:
        advice = "No offsets of group {!r} are known; `pyddmq offsets show` and /api/offsets list all groups."
        return self._listed(request, "group", partial(answers.offsets, self._node), advice)

    async def _judged(self, request: web.Request) -> web.Response:
        name = request.query.get("group")
        if name is not None and not self._node.has_group(name):
            raise web.HTTPNotFound(text=_NO_GROUP.format(name))
        document = (await self._judge()).as_lag(limit=_limit(request), group=name)
        if not may_see_all(request[_ASKER]):
            # What is about the node names groups and topics of others.
            document = replace(document, findings=[each for each in document.findings if each.group == name])
        if "trend" in request.query:
            span_ms = _span(request, "trend")
            async with self._searching:
                trend = await run_async(self._node.trend(group=name, span_ms=span_ms))
            document = replace(document, trend=trend)
        return _json(document)

    async def _objectives(self, request: web.Request) -> web.Response:
        name = request.query.get("group")
        if name is not None and not self._node.has_group(name):
            raise web.HTTPNotFound(text=_NO_GROUP.format(name))
        target_ms, span_ms = _span(request, "objective"), _span(request, "since")
        at_least = _share_of(request, "atLeast")
        steps = self._node.objectives(group=name, span_ms=span_ms, target_ms=target_ms, at_least=at_least)
        async with self._searching:
            return _json(await run_async(steps))

    def _listed(self, request: web.Request, kind: str, listing: ListingRoute, advice: str) -> web.Response:
        """Answer with all of a kind, or what belongs to the one that the request names."""
        name = request.query.get(kind)
        document = listing(limit=_limit(request), name=name)
        if document is None:
            raise web.HTTPNotFound(text=advice.format(name))
        if isinstance(document, GroupsAnswer | StuckAnswer) and not may_see_all(request[_ASKER]):
            # What is about the node names groups and topics of others.
            document = replace(document, findings=[each for each in document.findings if each.group == name])
        return _json(document)

    async def _attention(self, _: web.Request) -> web.Response:
        return _json(answers.attention(await self._judge()))

    async def _delays(self, request: web.Request) -> web.Response:
        node, given, now_ms = self._node.delays(), dict(request.query), self._node.clock.wall_ms()
        limit = _limit(request)
        search = partial(self._node.waiting_in_kafka.delays, node, given, limit=limit, now_ms=now_ms)
        return await self._searched(request, lambda: run_async(search()))

    async def _transactions(self, request: web.Request) -> web.Response:
        node = self._node.transactions()
        try:
            asked = transactions.TransactionQuery.of(request.query, limit=_limit(request))
        except ValueError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        now_ms = self._node.clock.wall_ms()

        async def search() -> TransactionsAnswer:
            found = self._node.waiting_in_kafka.transactions(asked, now_ms)
            return await run_async(transactions.search(node, asked, now_ms=now_ms)) if found is None else found

        return await self._searched(request, search)

    async def _timers(self, request: web.Request) -> web.Response:
        if topic := request.query.get("topic"):
            given, limit = dict(request.query), min(_limit(request), timers.LIMIT_MAX)
            try:
                found = self._node.waiting_in_kafka.timers(topic, given, limit=limit, now_ms=self._node.clock.wall_ms())
            except QueryRefused as error:
                raise web.HTTPBadRequest(text=_sentence(error)) from error
            if found is not None:
                return _json(await run_async(found))
        search = partial(
            timers.search,
            given=dict(request.query),
            limit=_limit(request),
            now_ms=self._node.clock.wall_ms(),
            kept=self._kept_timers,
        )
        return await self._stepwise(request, self._node.timers(), search)

    async def _timer(self, request: web.Request) -> web.Response:
        given, name, now_ms = dict(request.query), self._node.broker_name, self._node.clock.wall_ms()
        show = partial(timers.show, given=given, broker_name=name, now_ms=now_ms)
        return await self._stepwise(request, self._node.searchable(), show)

    async def _stats(self, request: web.Request) -> web.Response:
        return _json(answers.stats(self._node, await self._judge(), limit=_limit(request)))

    async def _nodes(self, _: web.Request) -> web.Response:
        return _json(self._node.nodes_in_kafka())

    async def _messages(self, request: web.Request) -> web.Response:
        # The live tail of the console says that it asks by itself.
        given = {name: value for name, value in request.query.items() if name != AGAIN}
        now_ms, in_kafka = self._node.clock.wall_ms(), self._node.in_kafka
        if in_kafka.cluster_of(given.get("topic", "")) is not None:
            return await self._found(partial(self._node.messages_in_kafka, given))
        return await self._stepwise(
            request,
            self._node.searchable(),
            lambda store: MessageSearch(
                store, given, now_ms=now_ms, tracing=self._node.tracing, masks=self._node.masks
            ).steps(),
            elsewhere=None if "topic" in given else in_kafka.other_messages(),
        )

    async def _dead_letters(self, request: web.Request) -> web.Response:
        node, given = self._node, dict(request.query)
        if node.in_kafka.cluster_of_letters(given.get("group", "")) is not None:
            return await self._found(partial(node.letters_in_kafka, given))
        opened = node.dead_letters()

        async def search() -> View:
            if opened is None:
                raise web.HTTPServiceUnavailable(text=_OPENING)
            found = await dead_letters.search(*opened, given, now_ms=node.clock.wall_ms())
            if isinstance(found, DeadLetterGroupsAnswer):
                return replace(found, in_kafka=node.in_kafka.all_letters())
            return found

        return await self._searched(request, search)

    async def _stepwise(
        self,
        request: web.Request,
        opened: Opened | None,
        begin: Callable[[Opened], Search],
        *,
        elsewhere: str | None = None,
    ) -> web.Response:
        """Answer with what a search in steps finds; `opened` is None while the store is being opened."""

        async def search() -> View:
            if opened is None:
                raise web.HTTPServiceUnavailable(text=_OPENING)
            return await run_async(begin(opened))

        return await self._searched(request, search, elsewhere=elsewhere)

    async def _searched(
        self, request: web.Request, search: Callable[[], Awaitable[View]], *, elsewhere: str | None = None
    ) -> web.Response:
        """Answer with what is found, by one search at a time; where nothing is, with where it is `elsewhere`.

        A search may read much, and each gives way to the node's own work after every step.
        """
        async with self._searching:
            return await self._found(search, elsewhere=elsewhere)

    async def _download(self, request: web.Request) -> web.StreamResponse:
        download = LetterDownload(self._node, dict(request.query), self._searching)
        if download.need is not None:
            self._gate.allow(request, request[_ASKER], download.need)
        return await download.send(request, await self._asked(download.begin))

    async def _found(
        self, search: Callable[[], Awaitable[View | None]], *, elsewhere: str | None = None
    ) -> web.Response:
        found = await self._asked(search, elsewhere=elsewhere)
        assert found is not None, "it is where it is looked for"
        return _json(found)

    async def _asked(self, search: Callable[[], Awaitable[Opened]], *, elsewhere: str | None = None) -> Opened:
        try:
            return await search()
        except NotFound as error:
            raise web.HTTPNotFound(text=elsewhere or _sentence(error)) from error
        except QueryRefused as error:
            raise web.HTTPBadRequest(text=_sentence(error)) from error
        except StoreError as error:
            raise web.HTTPServiceUnavailable(text=_sentence(error)) from error

    def _handler_of(self, change: Change) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            result = await self._desk.run(request, change)
            is_refused = isinstance(result, ReloadResult) and not result.accepted
            return _json(result, 409 if is_refused else 200)

        return handle

    def _reload_change(self) -> Change:
        async def reload(body: ReloadBody) -> ReloadResult:
            if body.dry_run:
                candidate = None if body.text is None else Candidate(body.text, body.file)
                return await self._node.preview_reload(accept_loss=body.accept_loss, candidate=candidate)
            if body.text is not None:
                raise ChangeRefused(400, "A text can only be tried: pass dryRun, or write it to the node's file.")
            return await self._node.reload(accept_loss=body.accept_loss)

        return Change(
            name="reload",
            path="/api/reload",
            body=ReloadBody,
            action=Permission.ADMINISTER,
            on=lambda _: (NODE,),
            run=reload,
        )


def _json(answer: View, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(answer) + b"\n", status=status, content_type="application/json", charset="utf-8"
    )


async def _with_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Server"] = HEADERS["Server"]


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}."


def _refuse_empty(request: web.Request) -> None:
    """Refuse parameters without a value, before a parser complains about ''."""
    empty = [name for name, value in request.query.items() if not value]
    if request.path == "/api/losses":
        empty = [name for name in empty if name == "topic"]  # An empty limit means no limit.
    if empty and request.path.startswith("/api/"):
        raise web.HTTPBadRequest(text=f"Parameter {empty[0]} is empty; pass a value or leave the parameter out.")


def _span(request: web.Request, name: str) -> int:
    """Return the time span that a request names, in ms."""
    text = request.query.get(name)
    if text is None:
        raise web.HTTPBadRequest(text=f"Parameter {name} is missing; pass a time span, such as {name}=60s.")
    try:
        span_ms = parse_duration(text)
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"{name}: {error}.") from error
    if not 0 < span_ms <= SPAN_MS_MAX:
        raise web.HTTPBadRequest(text=f"{name} must be above 0 and at most 400d, got {text!r}.")
    return span_ms


def _share_of(request: web.Request, name: str) -> float | None:
    """Return the percentage that a request names as a share, 0.0 to 1.0; null: it names none."""
    text = request.query.get(name)
    if text is None:
        return None
    try:
        percent = float(text)
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise web.HTTPBadRequest(text=f"{name} is {text!r}; it must be a percentage such as 99.9.")
    return percent / 100


def _limit(request: web.Request) -> int:
    text = request.query.get("limit", str(answers.LIMIT_DEFAULT))
    limit = whole_number(text, 9)
    if limit is None:
        raise web.HTTPBadRequest(text=f"limit must be an integer from 0 to {answers.LIMIT_MAX}, got {text!r}.")
    return min(limit, answers.LIMIT_MAX)


def _is_browser(request: web.Request) -> bool:
    return request.method in ("GET", "HEAD") and "text/html" in request.headers.get("Accept", "")


async def _read(request: web.Request) -> None:
    """Read a body. Raises HTTPBadRequest: its sender went away in the middle of it, or it is not what its head says."""
    try:
        await request.read()
    except web.HTTPException:
        raise
    except Exception as error:
        raise web.HTTPBadRequest(text="The body does not match its headers; send all of it.") from error
