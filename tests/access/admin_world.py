"""An admin port with rules, over real sockets: people with a token each, and what they ask."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web

from broker.runtime.bundle import runtime_of
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.views import View
from conf.sections.access import AccessConfig, AccessRule, NetworkRule
from conf.sections.access_files import AccessFiles, Signature, StoredToken
from conf.sections.admin import AdminConfig
from proxy.access.access import Access
from proxy.access.audit import Audit
from proxy.access.tokens import made
from proxy.admin.server import AdminServer
from proxy.operate.changes.desk import AdminToken, Change
from pyddmq.testing import ManualClock, SimDisk
from tests.admin_node import NOW_MS, PlainNode, busy_node
from tests.integration.proxy.admin.test_admin_messages import filled

FAR_MS = 1 << 50
RULES = (
    AccessRule(principals=["viewer", "all"], view=["*"]),
    AccessRule(principals=["narrow"], view=["permits*", "billing"], operate=["billing"], read_bodies=["permits"]),
    AccessRule(principals=["operator", "all"], operate=["*"]),
    AccessRule(principals=["reader", "all"], read_bodies=["*"]),
    AccessRule(principals=["admin", "all"], administer=True),
    AccessRule(principals=["producer", "all"], produce=["*"]),
)
HOME = NetworkRule(cidr="127.0.0.0/8", principal="home")


class Answer(NamedTuple):
    """What the port answered."""

    status: int
    text: str
    headers: Any
    cookies: Any

    @property
    def error(self) -> str:
        """Its sentence."""
        return str(json.loads(self.text)["error"]["message"])


class Done(View, frozen=True, kw_only=True):
    """Result of each change here."""

    name: str


class AdminWorld:
    """One port.

    Args:
        rules: Who may do what; None: there are no rules.
        networks: Who is who without a token.
        changes: What may be changed; what they do is replaced, and noted in `done`.
        token: Of a node without rules.
        hosts: Further names.
        random_bytes: Of secrets.
    """

    def __init__(
        self,
        *,
        rules: tuple[AccessRule, ...] | None = RULES,
        networks: tuple[NetworkRule, ...] = (),
        changes: tuple[Change, ...] = (),
        token: str | None = None,
        hosts: tuple[str, ...] = (),
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.clock, self.disk = ManualClock(NOW_MS), SimDisk()
        self.node: PlainNode = busy_node()
        self.node.messages = filled()
        self.node.clock = self.clock
        self.tokens: dict[str, StoredToken] = {}
        self.done: list[tuple[str, Any]] = []
        self.before: Callable[[], object] = lambda: None
        self.settings = AdminConfig(hosts=list(hosts))
        self.access: Access | None = None
        if rules is not None:
            config = AccessConfig(tokens="tokens.json", rules=list(rules), networks=list(networks))
            self.access = Access(config, clock=self.clock, limited_log=RateLimitedLog(self.clock), files=self)
        self.audit = Audit(runtime_of(self.disk, self.clock, metrics=self.node.metrics), AdminConfig)
        self.audit.open("/data")
        self.server = AdminServer(
            self.node,
            changes=[self._noted(each) for each in changes],
            token=AdminToken(lambda: token),
            access=self.access,
            audit=self.audit,
            settings=lambda: self.settings,
            random_bytes=random_bytes,
        )
        self.port = 0
        self.session: aiohttp.ClientSession | None = None

    def _noted(self, change: Change) -> Change:
        def run(body: Any) -> Done:
            self.before()
            self.done.append((change.name, body))
            return Done(name=change.name)

        return replace(change, run=run)

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        """Serve while a scenario lasts."""

        async def serve() -> None:
            await self.server.start("127.0.0.1", 0)
            _, self.port = self.server.address
            try:
                async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as self.session:
                    await scenario()
            finally:
                await self.server.stop()

        asyncio.run(serve())

    async def ask(
        self, path: str, *, method: str = "GET", by: str | None = None, cookie: str | None = None, **more: Any
    ) -> Answer:
        """Ask, by somebody's token, by a cookie, or as nobody."""
        headers = {**more.pop("headers", {})}
        if by is not None:
            headers["Authorization"] = f"Bearer {self.token(by)}"
        if cookie is not None:
            headers["Cookie"] = f"pyddmq-{self.port}={cookie}"
        assert self.session is not None
        url = f"http://127.0.0.1:{self.port}{path}"
        async with self.session.request(method, url, headers=headers, allow_redirects=False, **more) as response:
            return Answer(response.status, await response.text(), response.headers, response.cookies)

    async def sign_in(self, by: str) -> str:
        """Sign in as a browser does; returns what the cookie holds."""
        answer = await self.ask("/sign-in", method="POST", data={"token": self.token(by)}, headers=self.origin())
        assert answer.status == 303, answer.text
        return str(answer.cookies[f"pyddmq-{self.port}"].value)

    def origin(self) -> dict[str, str]:
        """The header that a browser sends from a page of this port."""
        return {"Origin": f"http://127.0.0.1:{self.port}"}

    def token(self, principal: str, *, expires_ms: int = FAR_MS) -> str:
        """Return somebody's token, which the node knows from now on."""
        name, text, digest = made(hashlib.shake_128(principal.encode()).digest(40))
        if name not in self.tokens and self.access is not None:
            self.tokens[name] = StoredToken(
                id=name, digest=digest, principal=principal, created_ms=0, expires_ms=expires_ms
            )
            self.look()
        return text

    def revoke(self, principal: str) -> None:
        """Take somebody's tokens out."""
        self.tokens = {name: each for name, each in self.tokens.items() if each.principal != principal}
        self.look()

    def look(self) -> None:
        """Have the files read again, as a node does when they change."""
        access = self.access
        assert access is not None

        def changed(before: Any) -> None:
            for follower in access.followers:
                follower(before)

        access.look(lambda work, done: done(work()), changed)

    def reported(self) -> list[tuple[str, str, str]]:
        """What the audit trail has, the eldest first: who, what, outcome."""
        return [(each.principal, each.what, each.outcome) for each in reversed(self.audit.recent(1_000)[0])]

    # What names the tokens

    def read(self, config: AccessConfig) -> AccessFiles:
        return AccessFiles(tokens=dict(self.tokens), keys={})

    def signature(self, config: AccessConfig) -> Signature:
        return ((hash(frozenset(self.tokens)), 0, 0),)


def routes_of(server: AdminServer) -> list[tuple[str, str]]:
    """Return method and path of every route of a port that is open."""
    runner: Any = server._runner
    application: web.Application = runner.app
    found = set()
    for route in application.router.routes():
        assert route.resource is not None
        found.add((route.method, route.resource.canonical))
    return sorted(found)
