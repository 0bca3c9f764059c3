"""A scheduler for work in steps that lets the disk come first: a step that would follow at once waits for the sync.

Where one step follows the other, the loop never rests, and the kernel's worker that syncs the log on the same core gets
its turn when the system's scheduler next looks: milliseconds later, for a sync that takes a fraction of one, and
a client that waits for it waits that long. So the loop rests until the sync has ended, and serves requests meanwhile. A
disk that takes longer than PAUSE_SECONDS is not waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.runtime.later import Later
from broker.runtime.seams import ScheduledCall, Scheduler

PAUSE_SECONDS = 0.005
"""What a step waits at most."""


class DeferredCall:
    """A call that waits for the disk, or was passed on."""

    __slots__ = ("args", "callback", "handle")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.callback: Callable[..., Any] | None = callback
        self.args = args
        self.handle: ScheduledCall | None = None

    def cancel(self) -> None:
        """Withdraw the call; harmless after it ran."""
        self.callback = None
        if self.handle is not None:
            self.handle.cancel()


class Yielding:
    """A `broker.runtime.seams.Scheduler` for those that work in steps.

    Args:
        scheduler: Makes the calls.
        syncing: Whether something is staged or on its way to the disk.
    """

    def __init__(self, scheduler: Scheduler, syncing: Callable[[], bool]) -> None:
        self._scheduler = scheduler
        self._syncing = syncing
        self._waiting: list[DeferredCall] = []
        self._pause = Later(scheduler, self._go_on)

    def call_soon(self, callback: Callable[..., Any], /, *args: Any) -> ScheduledCall:
        """Run `callback(*args)` in the next turn of the loop, or when what is on its way to the disk is there."""
        if not self._syncing():
            return self._scheduler.call_soon(callback, *args)
        step = DeferredCall(callback, args)
        self._waiting.append(step)
        self._pause.unless_due(PAUSE_SECONDS)
        return step

    def call_later(self, delay: float, callback: Callable[..., Any], /, *args: Any) -> ScheduledCall:
        """Run `callback(*args)` after `delay` seconds; 0 is `call_soon`."""
        if delay <= 0:
            return self.call_soon(callback, *args)
        return self._scheduler.call_later(delay, callback, *args)

    def synced(self) -> None:
        """Continue: a sync has ended. The next flush may be under way already; that is one step's chance."""
        if self._pause.is_due:
            self._pause.cancel()
            self._go_on()

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        for step in waiting:
            if step.callback is not None:
                step.handle = self._scheduler.call_soon(step.callback, *step.args)
