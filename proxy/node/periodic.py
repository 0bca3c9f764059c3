"""Work that a node does again and again, on the loop."""

from __future__ import annotations

from collections.abc import Callable

from broker.runtime.rate_limited_log import Notices
from broker.runtime.seams import Handle, Scheduler


class PeriodicWork:
    """Timers by name. A piece of work that raises is told of in the log and runs again all the same."""

    def __init__(self, scheduler: Scheduler, notices: Notices) -> None:
        self._scheduler = scheduler
        self._notices = notices
        self._timers: dict[str, Handle] = {}
        self.failing: dict[str, str] = {}
        """Work that raised when it ran last, by name, with what it raised."""

    def repeat(self, name: str, seconds: float, work: Callable[[], None]) -> None:
        """Run `work` `seconds` from now, and so long after each run; it replaces the work of that name."""

        def run() -> None:
            try:
                work()
                self.failing.pop(name, None)
            except Exception as error:
                self.failing[name] = f"{type(error).__name__}: {error}"
                self._notices.fault("periodic_work_failed", error, kind=name, work=name)
            self._timers[name] = self._scheduler.call_later(seconds, run)

        if name in self._timers:
            self._timers[name].cancel()
        self._timers[name] = self._scheduler.call_later(seconds, run)

    def stop(self) -> None:
        """Run nothing any more."""
        for timer in self._timers.values():
            timer.cancel()
