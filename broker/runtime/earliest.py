"""A step that runs at the earliest moment that anybody asked for."""

from __future__ import annotations

from collections.abc import Callable

from broker.runtime.seams import Clock, Handle, Scheduler


class Earliest:
    """Calls `work` once, at the earliest of the moments that were asked for since the last call."""

    def __init__(self, clock: Clock, scheduler: Scheduler, work: Callable[[], None]) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._work = work
        self._timer: Handle | None = None
        self._at = 0.0

    @property
    def is_asked(self) -> bool:
        """Whether a call is to come."""
        return self._timer is not None

    def within(self, seconds: float) -> None:
        """Call it in so many seconds, or sooner where that was asked for."""
        at = self._clock.monotonic() + seconds
        if self._timer is not None:
            if self._at <= at:
                return
            self._timer.cancel()
        self._at = at
        self._timer = self._scheduler.call_later(seconds, self._run)

    def end(self) -> None:
        """Call it no more, until it is asked for again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = None
        self._work()
