"""Calls at a moment, to some microseconds: the timers of an event loop count in whole milliseconds, uvloop's at least.

One timerfd of Linux holds the earliest moment and wakes the loop as a socket does. Where there is none, the loop's own
timers have to do: then what is due may come a millisecond later.
"""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import os
from collections.abc import Callable
from itertools import count
from typing import Any

from broker.runtime.seams import Clock, ScheduledCall, Scheduler

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_FOUR_LONGS = ctypes.c_long * 4
"""itimerspec: interval and first expiration, seconds and nanoseconds each."""


class Alarm:
    """A call that `Alarms` will make."""

    __slots__ = ("_alarms", "args", "callback", "order", "when")

    def __init__(self, alarms: Alarms, when: float, order: int, callback: Callable[..., Any], args: tuple[Any, ...]):
        self._alarms = alarms
        self.when = when
        self.order = order
        self.callback = callback
        self.args = args

    def cancel(self) -> None:
        """Withdraw the call; harmless after it ran."""
        self._alarms.withdraw(self)

    def __lt__(self, other: Alarm) -> bool:
        return (self.when, self.order) < (other.when, other.order)


class Alarms:
    """A `broker.runtime.seams.Scheduler` for the few whose lateness counts."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        """Set up on a loop; `close` when it ends.

        Args:
            loop: Woken by the timer, and runs what is due at once.
            clock: Its monotonic clock is the system's.

        Raises:
            OSError: The system has no timerfd, or no descriptor left.
            NotImplementedError: The loop watches no descriptors.
        """
        self._loop = loop
        self._clock = clock
        self._waiting: list[Alarm] = []
        self._order = count()
        self._set_to = float("inf")
        self._setting = _FOUR_LONGS()
        libc = ctypes.CDLL(None, use_errno=True)
        try:
            create, self._settime = libc.timerfd_create, libc.timerfd_settime
        except AttributeError as error:
            raise OSError("the system has no timerfd") from error
        self._descriptor: int = create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "no timerfd")
        try:
            loop.add_reader(self._descriptor, self._fire)
        except BaseException:
            os.close(self._descriptor)
            raise

    def close(self) -> None:
        """Make no call any more."""
        self._waiting.clear()
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def call_soon(self, callback: Callable[..., Any], /, *args: Any) -> ScheduledCall:
        """Run `callback(*args)` in the next turn of the loop."""
        return self._loop.call_soon(callback, *args)

    def call_later(self, delay: float, callback: Callable[..., Any], /, *args: Any) -> ScheduledCall:
        """Run `callback(*args)` after `delay` seconds; never before, by the monotonic clock."""
        if delay <= 0:
            return self._loop.call_soon(callback, *args)
        alarm = Alarm(self, self._clock.monotonic() + delay, next(self._order), callback, args)
        heapq.heappush(self._waiting, alarm)
        if alarm.when < self._set_to:
            self._set(alarm.when, delay)
        return alarm

    def withdraw(self, alarm: Alarm) -> None:
        """Leave a call out, if it was not made yet."""
        if alarm in self._waiting:
            self._waiting.remove(alarm)
            heapq.heapify(self._waiting)

    def _set(self, when: float, delay: float) -> None:
        """Have the descriptor wake the loop after `delay` seconds, at `when`; an earlier expiration is forgotten."""
        self._setting[2], self._setting[3] = divmod(max(1, int(delay * 1e9) + 1), 1_000_000_000)
        self._settime(self._descriptor, 0, self._setting, None)
        self._set_to = when

    def _fire(self) -> None:
        try:
            os.read(self._descriptor, 8)
        except BlockingIOError:
            # It was set again after it had woken the loop.
            return
        self._set_to = float("inf")
        now = self._clock.monotonic()
        try:
            while self._waiting and self._waiting[0].when <= now:
                alarm = heapq.heappop(self._waiting)
                alarm.callback(*alarm.args)
        finally:
            if self._waiting and self._waiting[0].when < self._set_to:
                when = self._waiting[0].when
                self._set(when, when - self._clock.monotonic())


def alarms_of(loop: asyncio.AbstractEventLoop, clock: Clock) -> tuple[Scheduler, Callable[[], None]]:
    """Return what makes calls at a moment as exactly as the system can, and what ends it."""
    try:
        alarms = Alarms(loop, clock)
    except (OSError, NotImplementedError):
        return loop, lambda: None
    return alarms, alarms.close
