"""Flushes whose syncs have ended: shown at once, or at their moment, and then told.

A sync takes a good part of a millisecond, now and then several, and what is due at a moment would be late by it. So it
may be appended before, and is shown once the wall clock says so: the disk works while it waits anyway (the *commit
wait* of Spanner). How long before follows from the syncs: nine of ten end in time. What was flushed with it or after it
is shown with it, in the order of the log, so that others wait for what is left of that time.

A clock that is set back by more than AHEAD_MAX_US meanwhile holds nothing: what was begun is shown. A process may stop
in between: `seconds_early` tells how long the next one has to wait with what it finds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from broker.log.flight import Flight, tell_all
from broker.runtime.seams import Clock, Handle, Scheduler

AHEAD_MAX_US = 4000
"""How long before its moment something is appended at most: what is asked of a disk in between, and of a restart."""
_FIRST_US = 1000
_LATE_US, _IN_TIME_US = 27, 3
"""By how much that grows with each flight that lands after its moment, and shrinks with each other."""


class Landed:
    """Flights of one store that are durable and not told, in the order of the log.

    Attributes:
        alarms: Calls at a moment. Without it nothing may be appended before its moment.
        on_shown: Called when flights were shown; is to call `Store.settle`, and is `tell` until it is set.
        on_early: Called when a sync has ended and its flight is not shown yet: the disk can go on.
        ahead_us: How long before its moment something may be appended now, in microseconds (`broker.log.staged`).

    Args:
        clock: Its wall clock has the moments.
        show: Makes a flight visible.
    """

    def __init__(self, clock: Clock, show: Callable[[Flight], None]) -> None:
        self.alarms: Scheduler | None = None
        self.on_shown: Callable[[], None] = self.tell
        self.on_early: Callable[[], None] = lambda: None
        self._ahead_us = _FIRST_US
        self._clock = clock
        self._show = show
        self._early: deque[Flight] = deque()
        self._shown: list[Flight] = []
        self._alarm: Handle | None = None

    @property
    def ahead_us(self) -> int:
        """See the class."""
        return 0 if self.alarms is None else self._ahead_us

    @property
    def count(self) -> int:
        """Flushes that are wholly shown and not told."""
        return sum([flight.is_last for flight in self._shown])

    @property
    def last(self) -> Flight | None:
        """The last flight that is not told."""
        return self._early[-1] if self._early else self._shown[-1] if self._shown else None

    def add(self, flights: Sequence[Flight]) -> None:
        """Show flights whose sync has ended, or keep them until their moment."""
        for flight in flights:
            seconds = 0.0
            if flight.not_before_ms:
                seconds = self._seconds_left(flight)
                self._learn(in_time=seconds > 0)
            if seconds or self._early:
                self._early.append(flight)
            else:
                self._show(flight)
                self._shown.append(flight)
        if self._early:
            if self._alarm is None:
                self._set()
            self.on_early()
        if self._shown:
            self.on_shown()

    def _learn(self, *, in_time: bool) -> None:
        ahead_us = self._ahead_us - _IN_TIME_US if in_time else self._ahead_us + _LATE_US
        self._ahead_us = min(max(ahead_us, 0), AHEAD_MAX_US)

    def tell(self) -> None:
        """Run `done`s and topic listeners of what was shown; raises the first exception after all were told."""
        if self._shown:
            shown, self._shown = self._shown, []
            tell_all(shown, None)

    def take_early(self) -> list[Flight]:
        """Give up those that are not shown: their moment is waited for otherwise, or they will not be shown."""
        flights = list(self._early)
        self._early.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        return flights

    def forget(self) -> None:
        """Show and tell nothing any more."""
        self.take_early()
        self._shown.clear()

    def wait(self, flights: Sequence[Flight]) -> None:
        """Let time pass until the moment of all of these has come."""
        seconds = max((self._seconds_left(flight) for flight in flights), default=0.0)
        if seconds:
            self._clock.sleep(seconds)

    def _set(self) -> None:
        assert self.alarms is not None
        self._alarm = self.alarms.call_later(self._seconds_left(self._early[0]), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        while self._early and not self._seconds_left(self._early[0]):
            flight = self._early.popleft()
            self._show(flight)
            self._shown.append(flight)
        if self._early:
            self._set()
        if self._shown:
            self.on_shown()

    def _seconds_left(self, flight: Flight) -> float:
        return _seconds_until(flight.not_before_ms, self._clock)


def seconds_early(stored_ms: int, clock: Clock) -> float:
    """Seconds until the moment of all that was durable before it when a process stopped; 0 after a clock's step back.

    Args:
        stored_ms: Latest store timestamp that recovery found: nothing is shown before its own.
        clock: As for `Landed`.
    """
    return _seconds_until(stored_ms, clock)


def _seconds_until(moment_ms: int, clock: Clock) -> float:
    left_us = moment_ms * 1000 - clock.wall_us()
    return left_us / 1e6 if 0 < left_us <= AHEAD_MAX_US else 0.0
