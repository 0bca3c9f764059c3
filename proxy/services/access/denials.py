"""Denied calls: counted, logged, and those that would have waited answered late.

A client that pulls without the right comes again at once, as often as it is answered; so its answer waits as long as it
asked for, a second at most. What waits is bounded in number, for it costs memory: beyond that answers come at once.
"""

from __future__ import annotations

from broker.runtime.metrics import Metrics, declare
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import Scheduler
from proxy.access.access import DENIED
from proxy.access.audit import Audit, Who
from proxy.port.connection import Connection
from proxy.port.reply_slot import ReplySlot
from proxy.services.waiting_pulls import LINGER_MS_MIN

LINGER_MS_MAX = 1_000
HELD_MAX = 1_024
"""Denied calls that wait at a time, over all connections."""

PRINCIPALS_MAX = 500
"""Principals whose denials are counted apart."""

HELD = declare("pyddmq_access_denied_held", "Denied calls whose answer is delayed", kind="gauge")

_TEXT_MAX = 255


class Denials:
    """The denials of one node.

    Attributes:
        held: Answers that wait.
    """

    def __init__(
        self, scheduler: Scheduler, metrics: Metrics, limited_log: RateLimitedLog, audit: Audit | None = None
    ) -> None:
        self._scheduler = scheduler
        self._audit = audit
        self._metrics = metrics
        self._limited_log = limited_log
        self._shown = metrics.counter(HELD)
        self.held = 0
        self._principals: set[str] = set()

    def note(
        self, connection: Connection, method: str, resource: str, *, reason: str = "right", count: int = 1
    ) -> None:
        """Count something that is denied and log it, once a minute for each method, reason and principal.

        Args:
            connection: Whose.
            method: What was called.
            resource: On what, as the client says it.
            reason: `right`, `owner` or `proof`.
            count: How many.
        """
        rights = connection.rights
        assert rights is not None, "without rules nothing is denied"
        self._metrics.counter(DENIED, method, reason).add(count)
        self._limited_log.note(
            "access_denied",
            "",
            count,
            kind=f"{method} {reason} {self._kind_of(rights.principal)}",
            method=method,
            reason=reason,
            principal=rights.principal,
            way=rights.way,
            client=connection.address,
            resource=resource[:_TEXT_MAX],
        )
        if self._audit is not None:
            who = Who(rights.principal, rights.way, rights.proof, connection.address)
            self._audit.denied(method, who, resource=resource[:_TEXT_MAX], reason=reason, count=count)

    def _kind_of(self, principal: str) -> str:
        """Return by what the denials of a principal are counted apart; those above a number are counted together."""
        if principal not in self._principals:
            if len(self._principals) >= PRINCIPALS_MAX:
                return ""
            self._principals.add(principal)
        return principal

    def hold(self, connection: Connection, reply: bytes, linger_ms: int | None, slot: ReplySlot | None = None) -> None:
        """Answer a request (that of a slot, or the present one) when its linger has passed, or its client is lost."""
        slot = slot or connection.later()
        if self.held >= HELD_MAX or connection.ended:
            slot.answer(reply)
            return
        self._count(1)

        def end() -> None:
            timer.cancel()
            slot.withdraw = None
            self._count(-1)
            if not connection.closed:
                slot.answer(reply)

        wait_ms = min(max(linger_ms or 0, LINGER_MS_MIN), LINGER_MS_MAX)
        timer = self._scheduler.call_later(wait_ms / 1000, end)
        slot.withdraw = end

    def _count(self, change: int) -> None:
        self.held += change
        self._shown.value = self.held


def denied_text(connection: Connection, action: str, resource: str) -> str:
    """Say what was denied; the name is the client's own, and nothing is said about whether there is such a thing."""
    rights = connection.rights
    principal = "" if rights is None else rights.principal
    return f"{principal} is not allowed to {action} {resource[:_TEXT_MAX]!r}; ask the operator of the node for a rule"
