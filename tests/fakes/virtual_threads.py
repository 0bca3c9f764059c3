"""Threads of a simulated node: work is done at once, in the loop's thread, and told after some virtual time."""

from __future__ import annotations

from collections.abc import Callable

from broker.runtime.seams import Scheduler


class VirtualThreads:
    """`upstream.calls.seams.Threads` in virtual time.

    Args:
        scheduler: The loop.
        seconds: How long the next call takes; asked once for each.

    Attributes:
        running: Calls that are out.
        most: Most of them at a time so far.
    """

    def __init__(self, scheduler: Scheduler, seconds: Callable[[], float] = lambda: 0.0) -> None:
        self._scheduler = scheduler
        self._seconds = seconds
        self.running = self.most = 0

    def run(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        """Do it, and tell later."""
        self.running += 1
        self.most = max(self.most, self.running)
        result = work()

        def over() -> None:
            self.running -= 1
            done(result)

        self._scheduler.call_later(self._seconds(), over)
