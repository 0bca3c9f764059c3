"""Sends above a rate: each is tried once more, as DDMQ's proxy does it (R95).

A send that waits keeps its place among those of its connection: what its client sends meanwhile is checked after it
(D18), so a message that waits is not overtaken by the next one of its producer.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from proxy.port.connection import Connection
from proxy.port.reply_slot import ReplySlot
from proxy.services.message_rules import Limited, Refusal
from proxy.wire.call import Call
from upstream.budget import Budget, Pressure

SENDS_WAITED = declare("pyddmq_sends_waited_total", "Sends above a rate that were retried after a wait (R95)")

MARGIN_MS = 10
"""What is kept of a send's timeout for the answer to reach its client."""
WAIT_MS_MAX = 100
"""Longest wait that follows from a send's timeout."""

Again = Callable[[ReplySlot], None]
"""Takes a send another time; it is answered through the slot."""


class LimitedSends:
    """The sends that wait for their second try.

    Args:
        runtime: Its scheduler runs the second tries.
        budget: The node's account of memory; from its first measure on nothing waits.
        waiting_max: How many may wait (limiterFailureRetryQueueSize); asked each time, so that a reload shows.

    Attributes:
        waiting: Of each connection with sends that wait or stand behind such ones, how many.
    """

    def __init__(self, runtime: Runtime, *, budget: Budget, waiting_max: Callable[[], int]) -> None:
        self.waiting: dict[Connection, int] = {}
        self._scheduler = runtime.scheduler
        self._budget = budget
        self._waited = runtime.metrics.counter(SENDS_WAITED)
        self._waiting_max = waiting_max
        self._count = 0

    def wait(
        self,
        refusal: Refusal,
        connection: Connection,
        call: Call,
        *,
        timeout_ms: int | None,
        slot: ReplySlot | None,
        again: Again,
    ) -> bool:
        """Have a refused send tried again in a while; False when it is to be answered now.

        Args:
            refusal: Why it was refused; only a rate is a reason to wait.
            connection: Who sent it.
            call: What was sent.
            timeout_ms: How long its client waits, as sent; None without such a bound.
            slot: Its place among its connection's requests, where it has one already.
            again: Tries it.
        """
        wait_ms = _wait_ms(refusal, timeout_ms)
        if wait_ms <= 0 or self._count >= self._waiting_max() or self._budget.level >= Pressure.EASED:
            return False
        self._count += 1
        self._waited.add()
        place = self._enter(connection, call, slot)
        self._scheduler.call_later(wait_ms / 1000, self._retry, connection, call, place, again)
        return True

    def follow(self, connection: Connection, call: Call, again: Again, *, slot: ReplySlot | None = None) -> None:
        """Have a send of a connection in `waiting` taken when those before it are answered."""
        slot = self._enter(connection, call, slot)

        def start() -> None:
            slot.withdraw = None
            self._leave(connection, call)
            again(slot)

        def withdraw() -> None:
            # The end of what a client sends changes nothing for what it sent.
            if connection.closed:
                self._leave(connection, call)

        slot.start, slot.withdraw = start, withdraw

    def _enter(self, connection: Connection, call: Call, slot: ReplySlot | None) -> ReplySlot:
        self.waiting[connection] = self.waiting.get(connection, 0) + 1
        connection.hold(len(call.frame))
        return connection.later() if slot is None else slot

    def _leave(self, connection: Connection, call: Call) -> None:
        connection.hold(-len(call.frame))
        left = self.waiting.pop(connection) - 1
        if left:
            self.waiting[connection] = left

    def _retry(self, connection: Connection, call: Call, slot: ReplySlot, again: Again) -> None:
        self._count -= 1
        self._leave(connection, call)
        # Who has gone sends it again elsewhere.
        if not connection.closed:
            again(slot)


def _wait_ms(refusal: Refusal, timeout_ms: int | None) -> int:
    """How long a send waits for its second try; 0: there is none."""
    if not isinstance(refusal, Limited):
        return 0
    if refusal.retry_ms >= 0:
        return refusal.retry_ms
    left_ms = (timeout_ms or 0) - MARGIN_MS
    return min(left_ms, WAIT_MS_MAX) if left_ms > MARGIN_MS else 0
