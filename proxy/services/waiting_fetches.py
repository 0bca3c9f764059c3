"""Fetches that wait until something arrives, their linger ends, or their client goes: of messages, and of checks.

A fetch takes what is there when its turn on its connection has come (D18). Where that is nothing, it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
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
        if slot.connection.may_start(slot):
            self._start(slot, fetch, linger_ms)
        else:
            slot.start = partial(self._start, slot, fetch, linger_ms)
            slot.withdraw = partial(slot.answer, empty)

    def _start(self, slot: ReplySlot, fetch: Fetch, linger_ms: int | None) -> None:
        connection = slot.connection
        found = fetch.read()
        if found is None and connection.ended:
            found = fetch.last()
        if found is not None:
            slot.answer(*found)
            return
        quota = connection.quota
        counted: Sequence[Meter] = ()
        if quota is not None:
            over = quota.full(self.name, self.free)
            if over is not None:
                quota.refused(over)
                connection.rest(AFTER_MS / 1000)
                slot.answer(fetch.over(over))
                return
            counted = quota.park(self.name)
        linger_ms = min(max(linger_ms or 0, LINGER_MS_MIN), self._settings().max_linger_time)
        _WaitingFetch(self, slot, fetch, counted).begin(linger_ms / 1000)


class _WaitingFetch:
    """One fetch that waits; it ends once, by `wake` or by `withdraw`."""

    __slots__ = ("_counted", "_fetch", "_line", "_slot", "_timer", "_unlisten")

    def __init__(self, line: FetchLine, slot: ReplySlot, fetch: Fetch, counted: Sequence[Meter]) -> None:
        self._line = line
        self._slot = slot
        self._fetch = fetch
        self._counted = counted
        self._timer = Later(line.scheduler, self.withdraw)

    def begin(self, seconds: float) -> None:
        """Wait for at most this number of seconds."""
        self._line.count += 1
        self._unlisten = self._fetch.listen(self.wake)
        self._timer.after(seconds)
        self._slot.withdraw = self.withdraw

    def wake(self) -> None:
        """Answer with what came."""
        slot = self._slot
        if slot.data is None and not slot.connection.closed and (found := self._fetch.read()) is not None:
            self._end()
            slot.answer(*found)

    def withdraw(self) -> None:
        """Wait no longer: answer, where there is still a client to answer."""
        self._end()
        if not self._slot.connection.closed:
            self._slot.answer(*self._fetch.last())

    def _end(self) -> None:
        self._timer.cancel()
        self._unlisten()
        self._slot.withdraw = None
        unpark(self._counted, self._line.name)
        self._line.count -= 1
