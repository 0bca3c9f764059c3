"""Sends above a rate: each is tried once more, as DDMQ's proxy does it (R95).

A send that waits keeps its place among those of its connection: what its client sends meanwhile is checked after it
(D18), so a message that waits is not overtaken by the next one of its producer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from proxy.port.connection import Connection
from proxy.port.reply_slot import ReplySlot
from proxy.services.message_rules import Limited, Refusal
from proxy.services.send_call import TakenSend
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

    def wait(self, refusal: Refusal, send: TakenSend) -> bool:
        """Have a refused send tried again in a while; False when it is to be answered now.

        Only a rate is a reason to wait, and only once.
        """
        wait_ms = _wait_ms(refusal, send.timeout_ms)
        if (
            wait_ms <= 0
            or send.slot is self._retried
            or self._count >= self._waiting_max()
            or self._budget.level >= Pressure.EASED
        ):
            return False
        self._count += 1
        self._waited.add()
        self._enter(send)
        self._scheduler.call_later(wait_ms / 1000, self._retry, send)
        return True

    def follow(self, send: TakenSend) -> None:
        """Have a send of a connection in `waiting` taken when those before it are answered."""
        self._enter(send)
        follower = _Follower(self, send)
        send.slot.start, send.slot.withdraw = follower.start, follower.withdraw

    def _enter(self, send: TakenSend) -> None:
        connection = send.slot.connection
        self.waiting[connection] = self.waiting.get(connection, 0) + 1
        send.park()

    def leave(self, connection: Connection) -> None:
        """One of a connection's sends waits no longer."""
        left = self.waiting.pop(connection) - 1
        if left:
            self.waiting[connection] = left

    def _retry(self, send: TakenSend) -> None:
        self._count -= 1
        self.leave(send.slot.connection)
        self._retried = send.slot
        try:
            send.go_on()
        finally:
            self._retried = None


class _Follower(NamedTuple):
    """A send behind those of its connection that wait."""

    limited: LimitedSends
    send: TakenSend

    def start(self) -> None:
        """Take it: those before it are answered."""
        slot = self.send.slot
        slot.withdraw = None
        self.limited.leave(slot.connection)
        self.send.go_on()

    def withdraw(self) -> None:
        """Forget it where its client is gone; the end of what a client sends changes nothing for what it sent."""
        if self.send.slot.connection.closed:
            self.limited.leave(self.send.slot.connection)
            self.send.unpark()


def _wait_ms(refusal: Refusal, timeout_ms: int | None) -> int:
    """How long a send waits for its second try; 0: there is none."""
    if not isinstance(refusal, Limited):
        return 0
    if refusal.retry_ms >= 0:
        return refusal.retry_ms
    left_ms = (timeout_ms or 0) - MARGIN_MS
    return min(left_ms, WAIT_MS_MAX) if left_ms > MARGIN_MS else 0
