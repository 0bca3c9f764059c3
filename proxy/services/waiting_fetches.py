"""Fetches that wait until something arrives, their linger ends, or their client goes: of messages, and of checks.

A fetch takes what is there when its turn on its connection has come (D18). Where that is nothing, it waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from broker.runtime.later import Later
from broker.runtime.seams import Scheduler
from conf.sections.node import NodeConfig
from proxy.limits.meter import Meter
from proxy.limits.quota import AFTER_MS, LimitExceeded, unpark
from proxy.port.reply_slot import Lost, ReplySlot
from proxy.services.waiting_pulls import LINGER_MS_MIN

Found = tuple[bytes, Lost | None]
"""A reply, and what takes back what it carries."""


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

    def linger_seconds(self, linger_ms: int | None) -> float:
        """Return how long a fetch waits, given what was sent."""
        return min(max(linger_ms or 0, LINGER_MS_MIN), self._settings().max_linger_time) / 1000


class WaitingFetch(ABC):
    """A fetch that waits: for its turn on its connection, then until something arrives; it is answered once.

    Args:
        line: Where it waits.
        slot: Its place.
        linger_ms: How long it may wait, as sent.

    Attributes:
        slot: Its place.
    """

    __slots__ = ("_counted", "_line", "_linger_ms", "_timer", "_waits", "slot")

    def __init__(self, line: FetchLine, slot: ReplySlot, linger_ms: int | None) -> None:
        self.slot = slot
        self._line = line
        self._linger_ms = linger_ms
        self._counted: Sequence[Meter] = ()
        self._timer = Later(line.scheduler, self.withdraw)
        self._waits = False

    # What one fetch asks for: messages of a low-level group, or checks of a producer group.

    @abstractmethod
    def read(self) -> Found | None:
        """Return the reply with what is there, or with why it is refused; None while there is nothing."""

    @abstractmethod
    def empty(self) -> bytes:
        """Return the reply of a fetch that gets nothing."""

    def last(self) -> Found:
        """Return the reply when the wait has ended."""
        return self.empty(), None

    def over(self, exceeded: LimitExceeded) -> bytes:
        """Return the reply for a client that has as many waiting fetches as it may."""
        return self.empty()

    @abstractmethod
    def listen(self) -> None:
        """Begin to wait: have `wake` called when something may be there."""

    @abstractmethod
    def leave(self) -> None:
        """End that."""

    # How it waits.

    def serve(self) -> None:
        """Answer when its turn on its connection comes, or wait."""
        if self.slot.connection.may_start(self.slot):
            self._start()
        else:
            self.slot.start, self.slot.withdraw = self._start_later, self.withdraw

    # Who calls these answers for others: a fault costs its own call alone.

    def _start_later(self) -> None:
        try:
            self._start()
        except Exception as error:
            self.slot.connection.fail(self.slot, error)

    def _start(self) -> None:
        slot, line, connection = self.slot, self._line, self.slot.connection
        found = self.read()
        if found is None and connection.ended:
            found = self.last()
        if found is not None:
            slot.answer(*found)
            return
        quota = connection.quota
        if quota is not None:
            over = quota.full(line.name, line.free)
            if over is not None:
                quota.refused(over)
                connection.rest(AFTER_MS / 1000)
                slot.answer(self.over(over))
                return
            self._counted = quota.park(line.name)
        self._waits = True
        line.count += 1
        self.listen()
        self._timer.after(line.linger_seconds(self._linger_ms))
        slot.withdraw = self.withdraw

    def wake(self) -> None:
        """Answer with what came."""
        slot = self.slot
        if slot.data is not None or slot.connection.closed:
            return
        try:
            found = self.read()
        except Exception as error:
            self._end()
            slot.connection.fail(slot, error)
            return
        if found is not None:
            self._end()
            slot.answer(*found)

    def withdraw(self) -> None:
        """Wait no longer: answer, where there is still a client to answer."""
        waited = self._waits
        if waited:
            self._end()
        if self.slot.connection.closed:
            return
        try:
            found = self.last() if waited else (self.empty(), None)
        except Exception as error:
            self.slot.connection.fail(self.slot, error)
            return
        self.slot.answer(*found)

    def _end(self) -> None:
        self._timer.cancel()
        self.leave()
        self.slot.withdraw = None
        unpark(self._counted, self._line.name)
        self._line.count -= 1
