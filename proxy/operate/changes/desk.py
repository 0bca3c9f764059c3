"""Requests that change something: what may set one off, how its body is checked, and what it leaves behind.

A change is a `Change`: a method, a path, the model of its JSON body, and a function. `ChangeDesk` runs it, and gives
every change the same treatment:

1. a page of another site is refused (403), a missing or wrong token too (401);
2. the body must be JSON, said to be so (415), and fit the model, unknown names refused (400);
3. the function runs on the loop's thread, one change at a time, and what it did is durable before the answer leaves;
   one that waits for clients lets others go first meanwhile (`others_first`);
4. the outcome is counted and logged with who asked, for what.

A function raises `ChangeRefused` to say no; then it has changed nothing.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec
import structlog
from aiohttp import web

from broker.errors import StoreError
from broker.runtime.metrics import Metrics, declare
from broker.views import View
from proxy.node.views import ReloadResult

CHANGES = declare(
    "pyddmq_admin_changes_total",
    "Requests to the admin port that change something; outcome: done, refused, failed",
    ("change", "outcome"),
)

ASKER: ContextVar[str] = ContextVar("asker", default="unknown")
"""Address that the change which is being run was asked from."""

Run = Callable[[Any], View | Awaitable[View]]

log = structlog.get_logger()


class Turn:
    """The turn of one change among all.

    Args:
        one: Held by whose turn it is.
    """

    def __init__(self, one: asyncio.Lock) -> None:
        self._one = one
        self._has = False

    async def take(self) -> None:
        """Wait for it."""
        await self._one.acquire()
        self._has = True

    def give_up(self) -> None:
        """Let the next one go; harmless without it."""
        if self._has:
            self._has = False
            self._one.release()


_TURN: ContextVar[Turn | None] = ContextVar("turn", default=None)


@asynccontextmanager
async def others_first() -> AsyncIterator[None]:
    """Let other changes go first while this one waits; what it knew may be otherwise when its turn comes again."""
    turn = _TURN.get()
    if turn is None:
        yield
        return
    turn.give_up()
    try:
        yield
    finally:
        await turn.take()


class ChangeBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """Base of the bodies: camelCase names, no others than those of the model."""


class NoBody(ChangeBody, frozen=True):
    """Body of a change that needs to be told nothing."""


class ChangeRefused(Exception):
    """A change is not made; nothing has happened.

    Attributes:
        status: HTTP status: 400 for a request that can never be right, 404 for an unknown name, 409 when things stand
            otherwise than the request says, 503 when the node cannot now.
        text: A sentence that says why, and what to do.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One changing request.

    Attributes:
        name: snake_case, for counter and log.
        method: `POST` or `DELETE`.
        path: Below `/api/`.
        body: Model of the JSON body.
        run: Is handed the body and returns the result, which is answered. Runs on the loop's thread. Raises
            ChangeRefused, or StoreError when it could not be made durable.
    """

    name: str
    path: str
    run: Run
    body: type[ChangeBody] = NoBody
    method: str = "POST"


class AdminToken:
    """The bearer token that changing requests must bring, read anew for each of them.

    Args:
        read: Returns the token, None when none is configured; raises OSError when its file cannot be read.
    """

    def __init__(self, read: Callable[[], str | None]) -> None:
        self._read = read

    def check(self, authorization: str | None) -> None:
        """Pass a request with this `Authorization` header on; it may hold any bytes.

        Raises:
            ChangeRefused: It lacks the token (401), or the node cannot read its own (503).
        """
        try:
            token = self._read()
        except OSError as error:
            text = f"The token file cannot be read ({error.strerror}); look at node.adminTokenFile."
            raise ChangeRefused(503, text) from error
        if token is None:
            return
        if not token:
            raise ChangeRefused(503, "The token file is empty; put a token into the file of node.adminTokenFile.")
        given = (authorization or "").removeprefix("Bearer ").strip()
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode()):
            text = (
                "Changes on this node, and bodies of messages, need its token: send `Authorization: Bearer <token>`, "
                "or give pyddmq PYDDMQ_ADMIN_TOKEN or PYDDMQ_ADMIN_TOKEN_FILE."
            )
            raise ChangeRefused(401, text)


class ChangeDesk:
    """Runs changes, one at a time.

    Args:
        metrics: Counts them.
        own_host: Name or address that the port was told to listen on.
        token: What requests must bring.
    """

    def __init__(self, metrics: Metrics, own_host: str, token: AdminToken) -> None:
        self._metrics = metrics
        self._own_host = own_host
        self._token = token
        self._one = asyncio.Lock()

    def refuse_other_sites(self, request: web.Request) -> None:
        """Refuse what a web page of another site asks for: for answers that hold what people sent.

        Raises:
            ChangeRefused: It names another host, or comes from a page of another origin.
        """
        refuse_other_sites(request, self._own_host)

    def check_token(self, request: web.Request) -> None:
        """Pass a request on that has the node's token, where it has one. Raises ChangeRefused."""
        self._token.check(request.headers.get("Authorization"))

    async def run(self, request: web.Request, change: Change) -> View:
        """Run one change and return its result.

        Raises:
            ChangeRefused: The request, or the function, was refused.
        """
        who = request.remote or "unknown"
        ASKER.set(who)
        body: ChangeBody | None = None
        try:
            refuse_other_sites(request, self._own_host)
            self._token.check(request.headers.get("Authorization"))
            body = decode(await request.read(), request.content_type, change)
            turn = Turn(self._one)
            _TURN.set(turn)
            await turn.take()
            try:
                answer = change.run(body)
                result: View = await answer if inspect.isawaitable(answer) else answer
            finally:
                turn.give_up()
        except ChangeRefused as refusal:
            self._tell(change, "refused", who, body, reason=refusal.text)
            raise
        except StoreError as error:
            self._tell(change, "failed", who, body, reason=str(error))
            raise ChangeRefused(503, f"It could not be made durable: {error}.") from error
        except Exception:
            self._metrics.counter(CHANGES, change.name, "failed").add()
            raise
        # A reload answers with why nothing was changed.
        outcome = "refused" if isinstance(result, ReloadResult) and not result.accepted else "done"
        self._tell(change, outcome, who, body, result=msgspec.to_builtins(result))
        return result

    def _tell(self, change: Change, outcome: str, who: str, body: ChangeBody | None, **more: object) -> None:
        self._metrics.counter(CHANGES, change.name, outcome).add()
        asked = msgspec.to_builtins(body) if body is not None else None
        log.warning("admin_change", change=change.name, outcome=outcome, who=who, asked=asked, **more)


def decode(raw: bytes, content_type: str, change: Change) -> ChangeBody:
    """Return the body of a request, checked.

    Raises:
        ChangeRefused: It is not said to be JSON (415), or it is not what the model says (400).
    """
    if change.body is NoBody and not raw:
        return NoBody()
    if content_type != "application/json":
        # A form of another site can be sent without being asked for leave; application/json cannot.
        text = f"{change.path} takes JSON; send Content-Type: application/json."
        raise ChangeRefused(415, text)
    try:
        return msgspec.json.decode(raw or b"{}", type=change.body)
    except msgspec.ValidationError as error:
        text = f"The body is not what {change.path} takes: {error}; docs/admin.md has its shape."
        raise ChangeRefused(400, text) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ChangeRefused(400, f"The body is no JSON: {error}.") from error


def refuse_other_sites(request: web.Request, own_host: str) -> None:
    """Refuse what a web page of another site could send through a person's browser, DNS rebinding included.

    Raises:
        ChangeRefused: It names another host, or comes from a page of another origin.
    """
    name = _host_name(f"//{request.host}")
    if name not in ("localhost", own_host) and not _is_address(name):
        raise ChangeRefused(403, f"The Host header names {name!r}; use the node's address or localhost.")
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"{request.scheme}://{request.host}":
        raise ChangeRefused(403, f"A page of {origin!r} may change nothing and read nothing on this node.")
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise ChangeRefused(403, "A page of another site may change nothing and read nothing on this node.")


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
