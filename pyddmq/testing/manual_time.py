"""Time that a test moves by hand: a clock, and a scheduler for callbacks that runs on it."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any


class ManualClock:
    """A clock that only moves with `advance`; satisfies `pyddmq.broker.Clock`.

    Args:
        wall_ms: Wall clock at the beginning, in ms since the epoch.
        monotonic: Monotonic clock at the beginning, in seconds.
    """

    def __init__(self, wall_ms: int = 1_700_000_000_000, monotonic: float = 0.0) -> None:
        self._wall_ms = float(wall_ms)
        self._monotonic = monotonic
        self._suspended = 0.0

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(self._wall_ms)

    def wall_us(self) -> int:
        """Microseconds since the epoch."""
        return int(self._wall_ms * 1000)

    def monotonic(self) -> float:
        """Seconds; never goes back."""
        return self._monotonic

    def since_boot(self) -> float:
        """Seconds; they count what the machine was suspended."""
        return self._monotonic + self._suspended

    def suspend(self, seconds: float) -> None:
        """Suspend the machine for `seconds`: the monotonic clock does not move, as on Linux."""
        self._suspended += seconds
        self._wall_ms += seconds * 1000

    def sleep(self, seconds: float) -> None:
        """As `advance`."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move both clocks by a number of seconds.

        Raises:
            ValueError: `seconds` is below 0.
        """
        if seconds < 0:
            raise ValueError("a monotonic clock does not go back; use set_wall_ms")
        self._monotonic += seconds
        self._wall_ms += seconds * 1000

    def set_wall_ms(self, wall_ms: int) -> None:
        """Step the wall clock, either way; the monotonic clock stays."""
        self._wall_ms = float(wall_ms)


class ManualHandle:
    """A scheduled call."""

    __slots__ = ("args", "callback", "cancelled", "when")

    def __init__(self, when: float, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.when = when
        self.callback = callback
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        """Withdraw the call."""
        self.cancelled = True


class ManualScheduler:
    """The part of an event loop that an embedded broker uses, run by hand; an exception of a callback reaches the test.

    `call_soon` calls run in turns, in their order, as asyncio runs them: what a call adds runs in the next turn.
    Timers of one instant run in the order in which they were set.
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._ready: deque[ManualHandle] = deque()
        self._timers: list[tuple[float, int, ManualHandle]] = []
        self._order = count()

    def time(self) -> float:
        """Return the clock's monotonic seconds."""
        return self._clock.monotonic()

    def call_soon(self, callback: Callable[..., Any], /, *args: Any) -> ManualHandle:
        """Run the callback in the next turn."""
        handle = ManualHandle(self.time(), callback, args)
        self._ready.append(handle)
        return handle

    def call_later(self, delay: float, callback: Callable[..., Any], /, *args: Any) -> ManualHandle:
        """Run the callback after `delay` seconds."""
        handle = ManualHandle(self.time() + max(delay, 0.0), callback, args)
        heapq.heappush(self._timers, (handle.when, next(self._order), handle))
        return handle

    @property
    def idle(self) -> bool:
        """Whether no call is ready now; timers of the future do not count."""
        self._collect()
        return not any(not handle.cancelled for handle in self._ready)

    def run_turn(self) -> int:
        """Run what is ready now, not what that adds; returns the number of calls made."""
        self._collect()
        made = 0
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle.cancelled:
                made += 1
                handle.callback(*handle.args)
        return made

    def run_until_idle(self, turns_max: int = 100_000) -> None:
        """Run turns until nothing is ready; time does not move.

        Raises:
            RuntimeError: It did not become idle within `turns_max` turns.
        """
        for _ in range(turns_max):
            if self.idle:
                return
            self.run_turn()
        raise RuntimeError(f"not idle after {turns_max} turns: a callback schedules itself without end")

    def advance(self, seconds: float) -> None:
        """Move the clock, stopping at each timer on the way, and run everything that becomes ready."""
        end = self.time() + seconds
        self.run_until_idle()
        while (due := self.next_due()) is not None and due <= end:
            self._clock.advance(max(due - self.time(), 0.0))
            self.run_until_idle()
        self._clock.advance(max(end - self.time(), 0.0))
        self.run_until_idle()

    def next_due(self) -> float | None:
        """When the next timer is due, in monotonic seconds; None without one."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _collect(self) -> None:
        # A sum of floats may fall just short of the timer that it was meant to reach.
        now = self.time() + 1e-9
        while self._timers and self._timers[0][0] <= now:
            self._ready.append(heapq.heappop(self._timers)[2])
