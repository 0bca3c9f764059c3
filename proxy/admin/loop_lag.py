"""How late the event loop runs: the worst delay of a small timer over the last 10 to 20 seconds.

A loop that is late answers everybody late, whatever the cause: a slow disk, a slow action, too much load. Two windows
are kept instead of a value that a scrape resets, so that several scrapers see the same figure.
"""

from __future__ import annotations

from broker.runtime.later import Repeated
from broker.runtime.seams import Clock, Scheduler

TICK_SECONDS = 0.25
WINDOW_SECONDS = 10.0


class LoopLag:
    """Measures one loop from `start` to `stop`.

    Args:
        scheduler: The loop.
        clock: Its monotonic part; equal to the loop's time.
    """

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._clock = clock
        self._ticks = Repeated(scheduler, TICK_SECONDS, self._tick)
        self._due = 0.0
        self._window_ends = 0.0
        self._worst = 0.0
        self._worst_before = 0.0

    @property
    def seconds(self) -> float:
        """Worst lateness in seconds of the current and the previous window; a tick that is overdue now counts too."""
        overdue = self._clock.monotonic() - self._due if self._ticks.is_on else 0.0
        return max(self._worst, self._worst_before, overdue, 0.0)

    def start(self) -> None:
        """Begin to measure."""
        now = self._clock.monotonic()
        self._due, self._window_ends = now + TICK_SECONDS, now + WINDOW_SECONDS
        self._ticks.begin()

    def stop(self) -> None:
        """End measuring; harmless when it never began."""
        self._ticks.end()

    def _tick(self) -> None:
        now = self._clock.monotonic()
        self._worst = max(self._worst, now - self._due)
        if now >= self._window_ends:
            self._worst_before, self._worst = self._worst, 0.0
            self._window_ends = now + WINDOW_SECONDS
        self._due = now + TICK_SECONDS
