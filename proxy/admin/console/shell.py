"""The shell of the console: routes, headers, the page around a fragment, and fragments shared by viewers alike."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import urlencode

from aiohttp import web
from markupsafe import escape

from broker.runtime.seams import Clock
from broker.runtime.steps import StepsEnd, step
from conf.sections.admin import AdminConfig
from proxy.access.audit import Audit
from proxy.access.rules import EVERYTHING, NODE, Permission
from proxy.admin.console.calls import ConsolePage, Made, PageCall
from proxy.admin.console.menu import PAGES
from proxy.admin.console.rates import SecondRates
from proxy.admin.console.templating import environment, load, resource
from proxy.admin.entry.gate import AGAIN, is_private
from proxy.admin.entry.rights import OWN
from proxy.operate.attention.findings import judging
from proxy.operate.attention.judgement import Judgement
from proxy.operate.changes.desk import AdminToken, Asker
from proxy.operate.live_node import LiveNode

KEEP_SECONDS = 2.0
"""How long a fragment is shown to others with the same rights; pages request theirs again as often."""
KEPT_MAX = 256
PARTS_AT_ONCE = 500
"""Parts of a page, such as the text before a figure, that are made in one turn of the loop."""
JUDGED_SECONDS = 1.0
JUDGING_SHARE = 0.02
"""A judgement is good for this time, or for longer: pages spend this part of the loop's time on judging."""
CHEAP_SECONDS = 0.05
STALE_SECONDS = 120.0
"""A page waits the one for a new judgement; longer only where the last one is as old as the other."""
STATIC: Mapping[str, tuple[str, str]] = {
    "console.css": ("console.css", "text/css"),
    "plain.css": ("plain.css", "text/css"),
    "console.js": ("console.js", "text/javascript"),
    "pages.js": ("pages.js", "text/javascript"),
    "htmx.min.js": ("vendor/htmx.min.js", "text/javascript"),
    "hx-csp.min.js": ("vendor/hx-csp.min.js", "text/javascript"),
    "uPlot.iife.min.js": ("vendor/uPlot.iife.min.js", "text/javascript"),
    "uPlot.min.css": ("vendor/uPlot.min.css", "text/css"),
}
"""By name in the address: the file, and its type."""
FIRST_BYTE_SECONDS = 0.05
"""A browser gets the page around a fragment that takes longer before the fragment is made."""
SHELL = "Shell"
"""A header of fragments (`Console._shell`)."""
FAULT_TEXT = "The node could not produce this answer; the cause is in its log."
_NONCE_BYTES = 16
_CONTENT, _ETAG = "(content)", "(etag)"
"""Where a fragment and its tag go in the page around it; names cannot be taken for them, as these come first."""


class Fragment(NamedTuple):
    """What a page shows, without the shell."""

    text: str
    etag: str


class Viewer(NamedTuple):
    """Who looks at a page, where there are rules.

    Attributes:
        principal: The name.
        way: How that is known.
        by_session: Whether it is by a session, which can be ended.
        may_sign_in: Whether the page to sign in is offered.
    """

    principal: str
    way: str
    by_session: bool
    may_sign_in: bool


class _KeptResult:
    """What is made, or was: good for so long from its begin, and for as long as it took."""

    def __init__(self, clock: Clock, seconds: float, making: Coroutine[Any, Any, Any]) -> None:
        self._clock = clock
        self._begun = clock.monotonic()
        self._until = self._begun + seconds
        self.task = asyncio.ensure_future(making)
        self.task.add_done_callback(self._made)

    def _made(self, _: object) -> None:
        now = self._clock.monotonic()
        self._until = max(self._until, now + now - self._begun)

    def is_good(self, now: float) -> bool:
        """Whether it need not be made again."""
        return now < self._until or not self.task.done()


class _Around(NamedTuple):
    """A page without its fragment: text before and after it, and headers."""

    before: str
    after: str
    headers: Mapping[str, str]

    def end(self, etag: str) -> str:
        """Return what follows the fragment."""
        return self.after.replace(_ETAG, escape(etag))


class Console:
    """Serves all pages.

    Args:
        node: The node.
        rates: What it did in the last minutes.
        audit: The audit trail.
        settings: The section `admin`.
        random_bytes: Makes nonces.
        keep_seconds: How long a fragment is kept.
        token: That of a node without rules: with one, the console makes no changes.
    """

    def __init__(
        self,
        node: LiveNode,
        rates: SecondRates,
        *,
        audit: Audit | None,
        settings: Callable[[], AdminConfig],
        random_bytes: Callable[[int], bytes],
        token: AdminToken,
        keep_seconds: float = KEEP_SECONDS,
    ) -> None:
        self._node = node
        self._rates = rates
        self._audit = audit
        self._settings = settings
        self._random_bytes = random_bytes
        self._token = token
        self._keep_seconds = keep_seconds
        self._kept: dict[tuple[object, ...], _KeptResult] = {}
        self._searching = asyncio.Lock()
        self._loaded: set[str] = set()
        self._judging: asyncio.Future[Judgement] | None = None
        self._judged_for = 0.0
        self._files = {name: _file(*of) for name, of in STATIC.items()}
        self._versions = {name: each.etag.strip('"')[:12] for name, each in self._files.items()}

    def add_to(self, router: web.UrlDispatcher, asker_of: Callable[[web.Request], Asker]) -> None:
        """Add a route for each page, and one for the static files."""
        for page in PAGES:
            router.add_get(page.path, self._handler(page, asker_of))
        router.add_get("/static/{name}", self._static)

    def _handler(
        self, page: ConsolePage, asker_of: Callable[[web.Request], Asker]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            asker = asker_of(request)
            if AGAIN in request.query:
                answer = _fragment_answer(request, await self._fragment(page, request, asker))
                answer.headers[SHELL] = self._shell(asker)
                return answer
            making = asyncio.ensure_future(self._fragment(page, request, asker))
            try:
                done, _ = await asyncio.wait((making,), timeout=FIRST_BYTE_SECONDS)
                if done:
                    return _whole(self._around(page, request, asker), making.result())
                return await self._in_parts(request, self._around(page, request, asker), making)
            finally:
                making.cancel()

        return handle

    async def _fragment(self, page: ConsolePage, request: web.Request, asker: Asker) -> Fragment:
        """Return the fragment of a page: computed once in two seconds for all who may see the same."""
        query = {name: request.query[name] for name in page.parameters if name in request.query}
        read_only = self._is_read_only(asker)
        alike = None if asker.rights is None else asker.rights.alike
        key = (page.path, tuple(query.items()), alike, read_only)
        return await self.kept(key, self._keep_seconds, lambda: self._made(page, query, asker, read_only=read_only))

    async def kept(
        self, name: tuple[object, ...], seconds: float, make: Callable[[], Coroutine[Any, Any, Made]]
    ) -> Made:
        """Return the kept result of this name, as `KeepMade`; callers that wait at the same time share one `make`."""
        now = self._node.clock.monotonic()
        kept = self._kept.get(name)
        if kept is None or not kept.is_good(now):
            self._kept = {each: old for each, old in self._kept.items() if old.is_good(now)}
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            kept = self._kept[name] = _KeptResult(self._node.clock, seconds, make())
        try:
            made: Made = await asyncio.shield(kept.task)
        except BaseException:
            if kept.task.done() and self._kept.get(name) is kept:
                del self._kept[name]
            raise
        return made

    async def _judged(self) -> Judgement:
        """Return the last judgement; where it is expensive that may be an older one while a new one is made beside."""
        node, now = self._node, self._node.clock.monotonic()
        age = STALE_SECONDS if node.last_judgement is None else now - node.last_judgement[0]
        task = self._judging
        if task is None and age >= min(max(JUDGED_SECONDS, self._judged_for / JUDGING_SHARE), STALE_SECONDS):
            task = self._judging = asyncio.ensure_future(self._judge())
        if task is not None and (age >= STALE_SECONDS or self._judged_for < CHEAP_SECONDS):
            # What the first one costs is not known before it is made.
            seconds = None if age >= STALE_SECONDS else CHEAP_SECONDS
            with suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.shield(task), seconds)
        assert node.last_judgement is not None, "without one a page waits"
        return node.last_judgement[1]

    async def _judge(self) -> Judgement:
        clock, busy, steps = self._node.clock, 0.0, judging(self._node, leisurely=True)
        try:
            while True:
                began = clock.monotonic()
                made = step(steps)
                busy += clock.monotonic() - began
                if isinstance(made, StepsEnd):
                    self._judged_for = busy
                    return made.result
                await asyncio.sleep(0)
        finally:
            self._judging = None

    async def _made(self, page: ConsolePage, query: Mapping[str, str], asker: Asker, *, read_only: bool) -> Fragment:
        call = PageCall(
            node=self._node,
            judged=await self._judged(),
            rates=self._rates,
            audit=self._audit,
            query=query,
            rights=asker.rights,
            kept=self.kept,
            read_only=read_only,
            needs_token=asker.rights is None and self._token.is_set,
            searching=self._searching,
        )
        if page.template not in self._loaded:
            # The first time the page is opened.
            await asyncio.to_thread(load, page.template)
            self._loaded.add(page.template)
        parts: list[str] = []
        for part in environment().get_template(page.template).generate(view=await page.view(call)):
            parts.append(part)
            if len(parts) % PARTS_AT_ONCE == 0:
                await asyncio.sleep(0)
        text = "".join(parts)
        return Fragment(text, f'"{hashlib.sha256(text.encode()).hexdigest()[:24]}"')

    def _shell(self, asker: Asker) -> str:
        """Return what the page around a fragment depends on: a browser whose page has another one loads it again."""
        return f"{self._node.version} {self._node.state}{' read-only' if self._is_read_only(asker) else ''}"

    def _is_read_only(self, asker: Asker) -> bool:
        return self._settings().read_only or (asker.rights is None and self._token.is_set)

    async def _in_parts(self, request: web.Request, around: _Around, making: Awaitable[Fragment]) -> web.StreamResponse:
        """Send what is around a fragment while that is made; the status is 200 even where it is refused then."""
        response = web.StreamResponse(headers=around.headers)
        response.content_type, response.charset = "text/html", "utf-8"
        # The browser may leave meanwhile.
        with suppress(ConnectionError):
            await response.prepare(request)
            await response.write(around.before.encode())
            fragment = await self._made_or_refused(request, making)
            await response.write((fragment.text + around.end(fragment.etag)).encode())
            await response.write_eof()
        return response

    async def _made_or_refused(self, request: web.Request, making: Awaitable[Fragment]) -> Fragment:
        try:
            return await making
        except web.HTTPException as refused:
            return _refusal(refused.status, refused.text or refused.reason)
        except Exception as error:
            self._node.limited_log.fault("admin_request_failed", error, kind=request.path, path=request.path)
            return _refusal(500, FAULT_TEXT)

    def _around(self, page: ConsolePage, request: web.Request, asker: Asker) -> _Around:
        """Return what is around the fragment of a page."""
        nonce = self._random_bytes(_NONCE_BYTES).hex()
        named = request.query.get(page.named_by, "") if page.named_by else ""
        parameters = {name: request.query[name] for name in page.parameters if name in request.query}
        text = (
            environment()
            .get_template("shell.html")
            .render(
                page=page,
                heading=named or page.title,
                pages=[each for each in PAGES if not each.menu_of and self._may_open(each, asker)],
                again=f"{page.path}?{urlencode({**parameters, AGAIN: '1'})}",
                content=_CONTENT,
                etag=_ETAG,
                node=self._node,
                shell=self._shell(asker),
                viewer=_viewer(request, asker),
                read_only=self._is_read_only(asker),
                nonce=nonce,
                versions=self._versions,
            )
        )
        before, _, after = text.rpartition(_CONTENT)
        return _Around(before, after, {"Content-Security-Policy": policy(nonce)})

    def _may_open(self, page: ConsolePage, asker: Asker) -> bool:
        """Whether the menu shows a page; those about one name show what the viewer may see."""
        if asker.rights is None or page.need.action is None:
            return True
        if page.need.action is Permission.ADMINISTER:
            return asker.rights.may(Permission.ADMINISTER, NODE)
        return page.need is OWN or asker.rights.may(page.need.action, EVERYTHING)

    async def _static(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        found = self._files.get(name)
        if found is None:
            raise web.HTTPNotFound(text=f"File {name!r} does not exist.")
        if request.headers.get("If-None-Match") == found.etag:
            response = web.Response(status=304)
        else:
            response = web.Response(body=found.body, content_type=found.kind, charset="utf-8")
        response.headers["ETag"] = found.etag
        # Where the address has the file's sum as its version; else, as of the page to sign in, it is asked for again.
        is_lasting = request.query.get("v") == self._versions[name]
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if is_lasting else "no-cache"
        return response


class _File(NamedTuple):
    body: bytes
    kind: str
    etag: str


def _file(place: str, kind: str) -> _File:
    body = resource(f"static/{place}")
    return _File(body, kind, f'"{hashlib.sha256(body).hexdigest()}"')


def policy(nonce: str) -> str:
    """Return the Content-Security-Policy of a page: no script but the files of the console, none inline."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; "
        "trusted-types htmx"
    )


def _whole(around: _Around, fragment: Fragment) -> web.Response:
    text = around.before + fragment.text + around.end(fragment.etag)
    return web.Response(text=text, content_type="text/html", headers=around.headers)


def _refusal(status: int, text: str) -> Fragment:
    return Fragment(environment().get_template("refused.html").render(status=status, text=text), "")


def _fragment_answer(request: web.Request, fragment: Fragment) -> web.Response:
    if request.headers.get("If-None-Match") == fragment.etag:
        response = web.Response(status=304)
    else:
        response = web.Response(text=fragment.text, content_type="text/html")
    response.headers["ETag"] = fragment.etag
    return response


def _viewer(request: web.Request, asker: Asker) -> Viewer | None:
    if asker.rights is None:
        return None
    return Viewer(asker.who.principal, asker.who.way, asker.by_session, is_private(request))
