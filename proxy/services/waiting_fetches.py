"""Fetches that wait until something arrives, their linger ends, or their client goes: of messages, and of checks.

A fetch takes what is there when its turn on its connection has come (D18). Where that is nothing, it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from broker.runtime.later import Later
from broker.runtime.seams import Scheduler
from conf.sections.node import NodeConfig
from proxy.limits.meter import Meter
from proxy.limits.quota import AFTER_MS, LimitExceeded, unpark
from proxy.port.reply_slot import Lost, ReplySlot
from proxy.services.waiting_pulls import LINGER_MS_MIN

Found = tuple[bytes, Lost | None]
"""A reply, and what takes back what it carries."""


class Fetch(Protocol):
    """What one fetch asks for: messages of a low-level group, or checks of a producer group."""

    def read(self) -> Found | None:
        """Return the reply with what is there, or with why it is refused; None while there is nothing."""
        ...

    def last(self) -> Found:
        """Return the reply when the wait has ended."""
        ...

    def over(self, exceeded: LimitExceeded) -> bytes:
        """Return the reply for a client that has as many waiting fetches as it may."""
        ...

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Begin to wait: have `wake` called when something may be there; returns what ends that."""
        ...


class FetchLine:
    """The fetches of one service that wait.

    Args:
        name: Of its line in the limits: FETCHES or CHECKS.
        scheduler: Ends lingers.
        settings: The node's, as they are now: maxLingerTime, maxParkedPulls.

    Attributes:
        count: How many wait.
    """

    def __init__(self, name: str, scheduler: Scheduler, settings: Callable[[], NodeConfig]) -> None:
        self.name = name
        self.count = 0
        self.scheduler = scheduler
        self._settings = settings

    @property
    def free(self) -> int:
        """How many more may wait."""
        return self._settings().max_parked_pulls - self.count

    def serve(self, slot: ReplySlot, fetch: Fetch, linger_ms: int | None, empty: bytes) -> None:
        """Answer a fetch when its turn on its connection comes, or have it wait.

        Args:
            slot: Its place.
            fetch: What it asks for.
            linger_ms: How long it may wait, as sent.
            empty: Its reply where its client has gone before its turn.
        """
        linger_ms = min(max(linger_ms or 0, LINGER_MS_MIN), self._settings().max_linger_time)
        waiting = _WaitingFetch(self, slot, fetch, linger_ms / 1000, empty)
        if slot.connection.may_start(slot):
            waiting.start()
        else:
            slot.start, slot.withdraw = waiting.start, waiting.withdraw


class _WaitingFetch:
    """A fetch that waits: for its turn on its connection, then until something arrives; it is answered once."""

    __slots__ = ("_counted", "_empty", "_fetch", "_line", "_linger_seconds", "_slot", "_timer", "_unlisten", "_waits")

    def __init__(self, line: FetchLine, slot: ReplySlot, fetch: Fetch, linger_seconds: float, empty: bytes) -> None:
        self._line = line
        self._slot = slot
        self._fetch = fetch
        self._linger_seconds = linger_seconds
        self._empty = empty
        self._waits = False

    def start(self) -> None:
        """Answer with what is there, or begin to wait."""
        slot, fetch, line, connection = self._slot, self._fetch, self._line, self._slot.connection
        found = fetch.read()
        if found is None and connection.ended:
            found = fetch.last()
        if found is not None:
            slot.answer(*found)
            return
        self._counted: Sequence[Meter] = ()
        quota = connection.quota
        if quota is not None:
            over = quota.full(line.name, line.free)
            if over is not None:
                quota.refused(over)
                connection.rest(AFTER_MS / 1000)
                slot.answer(fetch.over(over))
                return
            self._counted = quota.park(line.name)
        self._waits = True
        line.count += 1
        self._unlisten = fetch.listen(self.wake)
        self._timer = Later(line.scheduler, self.withdraw)
        self._timer.after(self._linger_seconds)
        slot.withdraw = self.withdraw

    def wake(self) -> None:
        """Answer with what came."""
        slot = self._slot
        if slot.data is None and not slot.connection.closed and (found := self._fetch.read()) is not None:
            self._end()
            slot.answer(*found)

    def withdraw(self) -> None:
        """Wait no longer: answer, where there is still a client to answer."""
        slot, waited = self._slot, self._waits
        if waited:
            self._end()
        if not slot.connection.closed:
            found = self._fetch.last() if waited else (self._empty, None)
            slot.answer(*found)

    def _end(self) -> None:
        self._timer.cancel()
        self._unlisten()
        self._slot.withdraw = None
        unpark(self._counted, self._line.name)
        self._line.count -= 1
