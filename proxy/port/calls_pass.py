"""One turn, one pass: calls that arrive in a turn of the loop are gathered, and their service handles them as a list.

What a call costs is not its bytes but that it is handled alone. So what most clients send all the time (sends, pulls,
results) is only read and put on a list when it arrives. The node's turn, which comes after everything that arrived with
it, begins with the pass: one list, handled station by station, one append to the log, and the flush begins.

========= ===========================================================================================================
station   what happens
========= ===========================================================================================================
collect   `ThriftServer.handle`: header, rights and the client's own rate, frame by frame as they arrive: it may stop
          its connection. The call gets its place in its connection's order of replies
scan      arguments; what cannot be read is answered
authorize rights to topics and groups, as they are now
loop      in order of arrival, each call seeing what those before it did: numbers, checks, queues, rates, memory;
          results of messages are applied
stage     what goes to the log is staged at once, all or nothing for each call; pulls take their messages
write     the replies of the turn leave with its end; those of sends after the flush that covers them
========= ===========================================================================================================

The services have the stations from scan on (`proxy.services.producer_service`, `proxy.services.consumer_service`); what
a call that is taken by itself shares with others is in `proxy.services.stations`.

Other calls (`authenticate`, transactions, delays, fetches, statistics, long chains of results) are handled alone when
they arrive: the pass is run before, so that effects on a connection keep their order. While a flush is under way, sends
gather for the one behind it, which is all that they could be part of: the pass is run at its end, or when there are
`GATHERED_CALLS`. A call that waits has left the list, and is its `ReplySlot` alone. A pass is cut by calls and bytes,
so that other connections do not wait long; one larger call is a pass by itself. What arrived before its connection's
end takes effect; its pull takes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from proxy.port.reply_slot import ReplySlot
from proxy.port.shares import Shares
from proxy.wire.call import Call

if TYPE_CHECKING:
    from proxy.port.connection import Connection

CALLS_MAX = 256
"""Calls of one pass."""
BYTES_MAX = 256 * 1024
"""Bytes of their frames; the call that reaches it is the last one."""

GATHERED_CALLS = 16
"""Calls that are handled at once while the disk is at work: from here on one by one costs hardly more than together."""

CALL_BYTES = 2048
"""So much of a pass' time is a call charged for besides its bytes."""


class PassLine(NamedTuple):
    """How the calls of a pass are handled.

    Attributes:
        methods: Names of the calls that are gathered.
        take: Handles a list of them; does not raise.
        is_one_each: At most one call of a connection in a pass.
        awaits_disk: What they bring goes to the log: while a flush is under way it could only wait for the next one.
    """

    methods: Collection[str]
    take: Callable[[list[ReplySlot]], None]
    is_one_each: bool = False
    awaits_disk: bool = False


class CallsPass:
    """The calls of one port that wait for the pass of their turn."""

    def __init__(
        self,
        line: PassLine,
        abandon: Callable[[Connection, Exception], None],
        request_turn: Callable[[], None],
        shares: Shares,
        *,
        disk_at_work: Callable[[], bool],
    ) -> None:
        """Set up.

        Args:
            line: Handles the calls.
            abandon: Ends a connection whose call was in a pass that broke: how far it came is unknown.
            request_turn: Has `run` called, after all that arrives in this turn.
            shares: Are charged with the time of a pass.
            disk_at_work: Whether a flush is under way; its end calls `run`.
        """
        self._line = line
        self._abandon = abandon
        self._request_turn = request_turn
        self._shares = shares
        self._disk_at_work = disk_at_work
        self._slots: list[ReplySlot] = []
        self._bytes = 0

    def ends_before(self, call: Call) -> bool:
        """Whether what is gathered has to be handled before a call of which others of its connection may be there."""
        return bool(self._slots) and (self._line.is_one_each or call.method not in self._line.methods)

    def add(self, connection: Connection, call: Call) -> None:
        """Gather a call."""
        slot = connection.later(call)
        slot.heard = connection.heard
        slots = self._slots
        slots.append(slot)
        self._bytes += len(call.frame)
        if self._bytes >= BYTES_MAX or len(slots) >= CALLS_MAX:
            self.run()
        elif (len(slots) == 1 and not self.gathers) or len(slots) == GATHERED_CALLS:
            self._request_turn()

    @property
    def has_calls(self) -> bool:
        """Whether any were gathered."""
        return bool(self._slots)

    @property
    def gathers(self) -> bool:
        """Whether calls are few, and wait for the flush that is under way: none of them loses time by that."""
        return self._line.awaits_disk and len(self._slots) < GATHERED_CALLS and self._disk_at_work()

    def run_ready(self) -> None:
        """Handle it, unless it gathers for the flush that follows the one under way."""
        if self._slots and not self.gathers:
            self.run()

    def run(self) -> None:
        """Handle what was gathered."""
        if self._slots:
            slots, weight = self._slots, self._bytes + len(self._slots) * CALL_BYTES
            self._slots, self._bytes = [], 0
            charges = [(slot.connection.share, len(slot.call.frame) + CALL_BYTES) for slot in slots]
            began = self._shares.now()
            try:
                self._line.take(slots)
            except Exception as error:
                # It guards each call by itself; what is left must not keep the turn from its end.
                for slot in slots:
                    if slot.data is None:
                        self._abandon(slot.connection, error)
            self._shares.charge_all(charges, weight, began)
