"""Calls that are to come: one, one at the earliest requested moment, and one repeatedly.

A scheduler (`broker.runtime.seams`) makes a call and gives a handle; who keeps that has to forget it when the call is
made, and to withdraw it before another takes its place. That is done here, once.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.runtime.seams import Clock, ScheduledCall, Scheduler


class Later:
    """One call of `work` that is to come, or none."""

    def __init__(self, scheduler: Scheduler, work: Callable[[], object]) -> None:
        self._scheduler = scheduler
        self._work = work
        self._handle: ScheduledCall | None = None

    @property
    def is_due(self) -> bool:
        """Whether a call is to come."""
        return self._handle is not None

    def after(self, seconds: float) -> None:
        """Call it in so many seconds, and not when it was to be called before."""
        self.cancel()
        self._handle = self._scheduler.call_later(seconds, self._run)

    def unless_due(self, seconds: float) -> None:
        """Call it in so many seconds, unless a call is to come."""
        if self._handle is None:
            self._handle = self._scheduler.call_later(seconds, self._run)

    def cancel(self) -> None:
        """Call it no more, until it is asked for again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self) -> None:
        self._handle = None
        self._work()


class Earliest:
    """Calls `work` once, at the earliest of the moments that were asked for since the last call."""

    def __init__(self, clock: Clock, scheduler: Scheduler, work: Callable[[], object]) -> None:
        self._clock = clock
        self._call = Later(scheduler, work)
        self._moment = 0.0

    @property
    def is_scheduled(self) -> bool:
        """Whether a call is to come."""
        return self._call.is_due

    def within(self, seconds: float) -> None:
        """Call it in so many seconds, or sooner where that was asked for."""
        self.at(self._clock.monotonic() + seconds)

    def at(self, moment: float) -> None:
        """Call it at a moment (monotonic seconds), or sooner where that was asked for."""
        if self._call.is_due and self._moment <= moment:
            return
        self._moment = moment
        self._call.after(max(0.0, moment - self._clock.monotonic()))

    def end(self) -> None:
        """Call it no more, until it is asked for again."""
        self._call.cancel()


class Repeated:
    """Calls `work` every `seconds`, from `begin` until `end`; the first time that long after `begin`.

    What it raises goes to who makes the calls, and ends nothing.
    """

    def __init__(self, scheduler: Scheduler, seconds: float, work: Callable[[], object]) -> None:
        self._seconds = seconds
        self._work = work
        self._call = Later(scheduler, self._again)
        self.is_on = False
        """Whether calls are to come."""

    def begin(self) -> None:
        """Go on from now on; harmless twice."""
        self.is_on = True
        self._call.unless_due(self._seconds)

    def end(self) -> None:
        """Do it no more."""
        self.is_on = False
        self._call.cancel()

    def _again(self) -> None:
        try:
            self._work()
        finally:
            if self.is_on:
                self.begin()
