"""Work that is due every so many seconds, such as the saving of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable

from broker.runtime.seams import Handle, Scheduler


class Repeated:
    """Does something every `seconds`, from `begin` until `end`; the first time that long after `begin`."""

    def __init__(self, scheduler: Scheduler, seconds: float, work: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._seconds = seconds
        self._work = work
        self._timer: Handle | None = None
        self._on = False

    def begin(self) -> None:
        """Go on from now on; harmless twice."""
        self._on = True
        if self._timer is None:
            self._timer = self._scheduler.call_later(self._seconds, self._again)

    def end(self) -> None:
        """Do it no more."""
        self._on = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _again(self) -> None:
        self._timer = None
        self._work()
        if self._on:
            self.begin()
