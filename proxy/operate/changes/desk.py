"""Requests that change something: what may set one off, how its body is checked, and what it leaves behind.

A change is a `Change`: a method, a path, the model of its JSON body, and a function. `ChangeDesk` runs it, and gives
every change the same treatment:

1. a page of another site is refused (403), a missing or wrong token too (401);
2. the body must be JSON, said to be so (415), and fit the model, unknown names refused (400);
3. who has not the right that the change says is refused (403);
4. it is written into the audit trail, durably, or refused (503);
5. the function runs on the loop's thread, one change at a time, and what it did is durable before the answer leaves;
   one that waits for clients or for Kafka lets others go first meanwhile (`others_first`);
6. the outcome is counted, logged and audited with who asked, for what.

A function raises `ChangeRefused` to say no; then it has changed nothing.
"""

from __future__ import annotations

import asyncio
import hmac
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec
import structlog
from aiohttp import web
from msgspec.structs import replace

from broker.errors import StoreError
from broker.runtime.metrics import Metrics, declare
from broker.views import View
from conf.file_faults import file_fault
from proxy.access.audit import Audit, AuditUnwritable, Who
from proxy.access.rights import Rights
from proxy.access.rules import Permission
from proxy.node.views import ReloadResult

CHANGES = declare(
    "pyddmq_admin_changes_total",
    "Requests to the admin port that change the node; outcome: done, refused, failed",
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

    @property
    def noted(self) -> ChangeBody:
        """The body as the log and the audit trail have it."""
        return self


class NoBody(ChangeBody, frozen=True):
    """Body of a change without arguments."""


class ReloadBody(ChangeBody, frozen=True):
    """How to reload.

    Attributes:
        accept_loss: Whether limits of retention come into force although they delete messages that are not finished.
        dry_run: Whether the node only shows what would change.
        text: With `dryRun`, a configuration to be tried in place of the node's file.
        file: What problems call it.
    """

    accept_loss: bool = False
    dry_run: bool = False
    text: str | None = None
    file: str = "candidate"

    @property
    def noted(self) -> ReloadBody:
        """Without the text: somebody may have written a secret into it."""
        return self if self.text is None else replace(self, text=f"({len(self.text)} characters)")


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
        name: snake_case, for counter, log and audit trail.
        path: Below `/api/`.
        action: The right that it needs.
        on: Returns the topics and groups on which, of a body.
        run: Is handed the body and returns the result, which is answered. Runs on the loop's thread. Raises
            ChangeRefused, or StoreError when it could not be made durable.
        body: Model of the JSON body.
        method: `POST` or `DELETE`.
    """

    name: str
    path: str
    action: Permission
    on: Callable[[Any], Sequence[str]]
    run: Run
    body: type[ChangeBody] = NoBody
    method: str = "POST"


class AdminToken:
    """The bearer token that changing requests must bring, read again for each of them.

    Args:
        read: Returns the token, None when none is configured; raises OSError when its file cannot be read.
    """

    def __init__(self, read: Callable[[], str | None]) -> None:
        self._read = read

    @property
    def is_set(self) -> bool:
        """Whether changes need a token, also while its file cannot be read."""
        try:
            return self._read() is not None
        except OSError:
            return True

    def check(self, authorization: str | None) -> bool:
        """Pass a request with this `Authorization` header on; it may hold any bytes.

        Returns:
            Whether there is a token, which it has then.

        Raises:
            ChangeRefused: It lacks the token (401), or the node cannot read its own (503).
        """
        try:
            token = self._read()
        except OSError as error:
            text = f"The token file cannot be read ({file_fault(error)}); check node.adminTokenFile."
            raise ChangeRefused(503, text) from error
        if token is None:
            return False
        if not token:
            raise ChangeRefused(503, "The token file is empty; write a token to the file of node.adminTokenFile.")
        given = (authorization or "").removeprefix("Bearer ").strip()
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode()):
            text = (
                "Changes on this node, and bodies of messages, need its token: send `Authorization: Bearer "
                "<token>`, or set PYDDMQ_ADMIN_TOKEN or PYDDMQ_ADMIN_TOKEN_FILE for pyddmq."
            )
            raise ChangeRefused(401, text)
        return True


class Asker(NamedTuple):
    """Who asks for something.

    Attributes:
        who: As the audit trail shows it.
        rights: What that one may do; None where there are no rules.
        by_session: Whether a browser's session says so.
    """

    who: Who
    rights: Rights | None
    by_session: bool = False


class ChangeGate(Protocol):
    """Says who asks and whether he may; `proxy.admin.gate` does."""

    def enter(self, request: web.Request, *, is_change: bool = False) -> Asker:
        """Find out who asks. Raises ChangeRefused."""

    def allow_change(self, request: web.Request, asker: Asker, change: Change, body: ChangeBody) -> None:
        """Pass on who may change something. Raises ChangeRefused."""


class ChangeDesk:
    """Runs changes, one at a time.

    Args:
        metrics: Counts them.
        gate: Says who asks and whether he may.
        audit: Where they are written down before they are made; None, for tests: nowhere.
    """

    def __init__(self, metrics: Metrics, gate: ChangeGate, audit: Audit | None) -> None:
        self._metrics = metrics
        self._gate = gate
        self._audit = audit
        self._one = asyncio.Lock()

    async def run(self, request: web.Request, change: Change) -> View:
        """Run one change and return its result.

        Raises:
            ChangeRefused: The request, or the function, was refused.
        """
        who = Who(address=request.remote or "unknown")
        ASKER.set(who.address)
        body: ChangeBody | None = None
        line = 0
        try:
            asker = self._gate.enter(request, is_change=True)
            who = asker.who
            body = decode(await request.read(), request.content_type, change)
            self._gate.allow_change(request, asker, change, body)
            turn = Turn(self._one)
            _TURN.set(turn)
            await turn.take()
            try:
                line = await self._audited(change, who, body)
                answer = change.run(body)
                result: View = await answer if inspect.isawaitable(answer) else answer
            finally:
                turn.give_up()
        except ChangeRefused as refusal:
            self._report(change, "refused", who, body, line, reason=refusal.text)
            raise
        except StoreError as error:
            self._report(change, "failed", who, body, line, reason=str(error))
            raise ChangeRefused(503, f"It could not be made durable: {error}.") from error
        except BaseException as error:
            # A fault, which has its own line in the log, or the caller went away.
            self._metrics.counter(CHANGES, change.name, "failed").add()
            self._audit_end(change, "failed", who, line, type(error).__name__)
            raise
        # A reload answers with why nothing was changed.
        reported = msgspec.to_builtins(result)
        if isinstance(result, ReloadResult) and not result.accepted:
            self._report(change, "refused", who, body, line, result=reported, reason="; ".join(result.problems))
        else:
            self._report(change, "done", who, body, line, result=reported)
        return result

    async def _audited(self, change: Change, who: Who, body: ChangeBody) -> int:
        """Write down what is about to be changed; returns the number of the line. Raises ChangeRefused."""
        if self._audit is None:
            return 0
        try:
            return await self._audit.begin(change.name, who, msgspec.json.encode(body.noted).decode())
        except AuditUnwritable as error:
            raise ChangeRefused(503, f"{error.text} Free space in the data directory, and try again.") from error

    def _report(
        self, change: Change, outcome: str, who: Who, body: ChangeBody | None, line: int, **more: object
    ) -> None:
        self._metrics.counter(CHANGES, change.name, outcome).add()
        asked = msgspec.to_builtins(body.noted) if body is not None else None
        log.warning(
            "admin_change",
            change=change.name,
            outcome=outcome,
            who=who.address,
            principal=who.principal,
            asked=asked,
            **more,
        )
        self._audit_end(change, outcome, who, line, str(more.get("reason", "")))

    def _audit_end(self, change: Change, outcome: str, who: Who, line: int, why: str) -> None:
        """Write down how it ended what was begun; what was refused before is among the denials, or no change."""
        if self._audit is not None and line:
            self._audit.ended(change.name, outcome, who, of=line, why=why)


def decode(raw: bytes, content_type: str, change: Change) -> ChangeBody:
    """Return the body of a request, checked.

    Raises:
        ChangeRefused: It is not said to be JSON (415), or it is not what the model says (400).
    """
    if change.body in (NoBody, ReloadBody) and not raw:
        return change.body()
    if content_type != "application/json":
        # A form of another site can be sent without being asked for leave; application/json cannot.
        text = f"{change.path} accepts JSON; send Content-Type: application/json."
        raise ChangeRefused(415, text)
    try:
        return msgspec.json.decode(raw or b"{}", type=change.body)
    except msgspec.ValidationError as error:
        text = f"The body is not valid for {change.path}: {error}; docs/admin.md describes it."
        raise ChangeRefused(400, text) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ChangeRefused(400, f"The body is not valid JSON: {error}.") from error
