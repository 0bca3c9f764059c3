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
from proxy.services.sinks import ParkedCall
from upstream.budget import Budget, Pressure

SENDS_WAITED = declare("pyddmq_sends_waited_total", "Sends above a rate that were retried after a wait (R95)")

MARGIN_MS = 10
"""What is kept of a send's timeout for the answer to reach its client."""
WAIT_MS_MAX = 100
"""Longest wait that follows from a send's timeout."""


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
        self._retried: ReplySlot | None = None
        """The send whose second try is under way."""

    def wait(self, refusal: Refusal, slot: ReplySlot, timeout_ms: int | None, take: Callable[[], None]) -> bool:
        """Have a refused send tried again in a while; False when it is to be answered now.

        Args:
            refusal: Why it was refused; only a rate is a reason to wait, and only once.
            slot: Its place among its connection's requests.
            timeout_ms: How long its client waits, as sent; None without such a bound.
            take: Tries it.
        """
        wait_ms = _wait_ms(refusal, timeout_ms)
        if (
            wait_ms <= 0
            or slot is self._retried
            or self._count >= self._waiting_max()
            or self._budget.level >= Pressure.EASED
        ):
            return False
        self._count += 1
        self._waited.add()
        self._scheduler.call_later(wait_ms / 1000, self._retry, self._enter(slot, take))
        return True

    def follow(self, slot: ReplySlot, take: Callable[[], None]) -> None:
        """Have a send of a connection in `waiting` taken when those before it are answered."""
        parked = self._enter(slot, take)

        def start() -> None:
            slot.withdraw = None
            self._leave(slot)
            parked.go_on()

        def withdraw() -> None:
            # The end of what a client sends changes nothing for what it sent.
            if slot.connection.closed:
                self._leave(slot)
                parked.leave()

        slot.start, slot.withdraw = start, withdraw

    def _enter(self, slot: ReplySlot, take: Callable[[], None]) -> ParkedCall:
        connection = slot.connection
        self.waiting[connection] = self.waiting.get(connection, 0) + 1
        return ParkedCall(slot, take)

    def _leave(self, slot: ReplySlot) -> None:
        left = self.waiting.pop(slot.connection) - 1
        if left:
            self.waiting[slot.connection] = left

    def _retry(self, parked: ParkedCall) -> None:
        self._count -= 1
        self._leave(parked.slot)
        self._retried = parked.slot
        try:
            parked.go_on()
        finally:
            self._retried = None


def _wait_ms(refusal: Refusal, timeout_ms: int | None) -> int:
    """How long a send waits for its second try; 0: there is none."""
    if not isinstance(refusal, Limited):
        return 0
    if refusal.retry_ms >= 0:
        return refusal.retry_ms
    left_ms = (timeout_ms or 0) - MARGIN_MS
    return min(left_ms, WAIT_MS_MAX) if left_ms > MARGIN_MS else 0
