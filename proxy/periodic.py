"""Work that a node does again and again, on the loop."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from broker.seams import Handle, Scheduler

_log = structlog.get_logger(__name__)


class PeriodicWork:
    """Timers by name. A piece of work that raises has its line in the log and runs again all the same."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._timers: dict[str, Handle] = {}

    def repeat(self, name: str, seconds: float, work: Callable[[], None]) -> None:
        """Run `work` `seconds` from now, and so long after each run; it replaces the work of that name."""

        def run() -> None:
            try:
                work()
            except Exception:
                _log.exception("periodic_work_failed", work=name)
            self._timers[name] = self._scheduler.call_later(seconds, run)

        if name in self._timers:
            self._timers[name].cancel()
        self._timers[name] = self._scheduler.call_later(seconds, run)

    def stop(self) -> None:
        """Run nothing any more."""
        for timer in self._timers.values():
            timer.cancel()
