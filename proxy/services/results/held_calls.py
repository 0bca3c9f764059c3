"""Calls with results that come while the node is starting: held, not refused, until their results can be taken.

Some of DDMQ's client libraries throw the results of a call away when it is answered with an exception, and the messages
come again. A call that is not answered they send again, over a new connection where this one ends (S2).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from proxy.port.connection import Connection
from proxy.port.reply_slot import ReplySlot
from proxy.wire.values import ConsumeResult
from pyddmq.codes import PullCode

RESULTS_UNANSWERED = declare(
    "pyddmq_results_unanswered_total",
    "Calls with results whose connection was closed without an answer, so that their clients retry: "
    "starting (too many wait), acks_refused, store_failed",
    ("reason",),
)
HELD_CALLS = declare("pyddmq_held_calls", "Calls with results that wait until the node is ready.", kind="gauge")

CALLS_MAX = 4_096
BYTES_MAX = 8 * 1024 * 1024
"""Bounds of what is held over all connections; a result of a usual batch takes some hundred bytes."""


class HeldCalls:
    """The calls that are held, in order of arrival, each by its place.

    Args:
        runtime: The node's; it logs connections that are closed because too much is held.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._shown = runtime.metrics.counter(HELD_CALLS)
        self._slots: list[ReplySlot] = []
        self._bytes = 0

    def hold(self, slot: ReplySlot) -> bool:
        """Keep a call unanswered; beyond the bounds its connection ends (False), unless others have gone meanwhile."""
        size = len(slot.call.frame)
        if self._full(size):
            # Who has gone sends what is unanswered again, and may have done so here.
            for each in self._slots:
                if each.connection.closed or each.connection.ended:
                    each.connection.hold(-len(each.call.frame))
                    each.connection.abort()
            self._keep([each for each in self._slots if not (each.connection.closed or each.connection.ended)])
        if self._full(size):
            leave_unanswered(slot.connection, PullCode.STARTING, self._runtime)
            return False
        self.take(slot)
        return True

    def take(self, slot: ReplySlot) -> None:
        """Keep a call, whatever the bounds."""
        size = len(slot.call.frame)
        slot.connection.hold(size)
        self._slots.append(slot)
        self._bytes += size
        self._shown.value = len(self._slots)

    def let_go(self, slots: Collection[ReplySlot]) -> None:
        """Hold these no longer."""
        gone = set(slots)
        self._keep([each for each in self._slots if each not in gone])
        for each in slots:
            each.connection.hold(-len(each.call.frame))

    def release(self) -> list[ReplySlot]:
        """Return what was held; nothing is held any more."""
        slots = self._slots
        self._keep([])
        for each in slots:
            each.connection.hold(-len(each.call.frame))
        return slots

    def _full(self, size: int) -> bool:
        return len(self._slots) >= CALLS_MAX or self._bytes + size > BYTES_MAX

    def _keep(self, slots: list[ReplySlot]) -> None:
        self._slots = slots
        self._bytes = sum(len(each.call.frame) for each in slots)
        self._shown.value = len(slots)


def carries_results(results: Iterable[ConsumeResult]) -> bool:
    """Whether a chain says anything of any message."""
    return any(each.success or each.fail for each in results)


def leave_unanswered(connection: Connection, code: PullCode, runtime: Runtime) -> None:
    """End the connection of a call whose results cannot be taken, for the reason that pulls without any receive."""
    reason = code.name.lower()
    runtime.metrics.counter(RESULTS_UNANSWERED, reason).add()
    runtime.limited_log.note(
        "results_unanswered", kind=reason, reason=reason, client=connection.address, text=code.text
    )
    connection.leave_unanswered()
