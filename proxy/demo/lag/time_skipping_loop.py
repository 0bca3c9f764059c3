"""An event loop that skips waits: minutes of a node and its clients, over real sockets, pass in seconds.

When nothing is ready, the loop's time goes on to its next timer at once. It serves where everybody lives in one loop,
and nothing comes from threads or other processes: nobody would wait for those.
"""

from __future__ import annotations

import asyncio
import selectors

from broker.runtime.seams import SystemClock


class _Selector(selectors.DefaultSelector):
    """Asks once what is ready, and has the wait skipped where nothing is.

    Attributes:
        skipped: How much was, in seconds.
    """

    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self.skipped += timeout
        return ready


class SkippingLoop(asyncio.SelectorEventLoop):
    """The loop."""

    def __init__(self) -> None:
        self._own = _Selector()
        super().__init__(self._own)

    def time(self) -> float:
        """Seconds: those of the machine, and those that were skipped."""
        return super().time() + self._own.skipped


class SkippingClock:
    """`broker.runtime.seams.Clock` by such a loop.

    Args:
        loop: The loop.
        wall_ms: The wall clock now, in Unix ms.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wall_ms: int) -> None:
        self._loop = loop
        self._base_us = wall_ms * 1000 - round(loop.time() * 1_000_000)

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return self.wall_us() // 1000

    def wall_us(self) -> int:
        """Microseconds since the Unix epoch."""
        return self._base_us + round(self._loop.time() * 1_000_000)

    def monotonic(self) -> float:
        """Seconds: the loop's time."""
        return self._loop.time()

    def since_boot(self) -> float:
        """As `monotonic`."""
        return self._loop.time()

    def sleep(self, seconds: float) -> None:
        """Wait in truth: whoever holds the loop up skips nothing."""
        SystemClock().sleep(seconds)
