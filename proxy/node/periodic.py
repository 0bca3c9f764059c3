"""Work that a node does again and again, on the loop."""

from __future__ import annotations

from collections.abc import Callable

from broker.runtime.bundle import Runtime
from broker.runtime.later import Repeated


class PeriodicWork:
    """By name. A piece of work that raises is told of in the log and runs again all the same."""

    def __init__(self, runtime: Runtime) -> None:
        self._scheduler = runtime.scheduler
        self._limited_log = runtime.limited_log
        self._work: dict[str, Repeated] = {}
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
                self._limited_log.fault("periodic_work_failed", error, kind=name, work=name)

        if name in self._work:
            self._work[name].end()
        self._work[name] = Repeated(self._scheduler, seconds, run)
        self._work[name].begin()

    def stop(self) -> None:
        """Run nothing any more."""
        for work in self._work.values():
            work.end()
