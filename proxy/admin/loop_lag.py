"""How late the event loop runs: the worst delay of a small timer over the last 10 to 20 seconds.

A loop that is late answers everybody late, whatever the cause: a slow disk, a slow action, too much load. Two windows
are kept instead of a value that a scrape resets, so that several scrapers see the same figure.
"""

from __future__ import annotations

from broker.runtime.seams import Clock, Handle, Scheduler

TICK_SECONDS = 0.25
WINDOW_SECONDS = 10.0


class LoopLag:
    """Measures one loop from `start` to `stop`.

    Args:
        scheduler: The loop.
        clock: Its monotonic part; equal to the loop's time.
    """

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._handle: Handle | None = None
        self._due = 0.0
        self._window_ends = 0.0
        self._worst = 0.0
        self._worst_before = 0.0

    @property
    def seconds(self) -> float:
        """Worst lateness in seconds of the current and the previous window; a tick that is overdue now counts too."""
        overdue = self._clock.monotonic() - self._due if self._handle is not None else 0.0
        return max(self._worst, self._worst_before, overdue, 0.0)

    def start(self) -> None:
        """Begin to measure."""
        self._window_ends = self._clock.monotonic() + WINDOW_SECONDS
        self._plan()

    def stop(self) -> None:
        """End measuring; harmless when it never began."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _plan(self) -> None:
        self._due = self._clock.monotonic() + TICK_SECONDS
        self._handle = self._scheduler.call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        now = self._clock.monotonic()
        self._worst = max(self._worst, now - self._due)
        if now >= self._window_ends:
            self._worst_before, self._worst = self._worst, 0.0
            self._window_ends = now + WINDOW_SECONDS
        self._plan()
