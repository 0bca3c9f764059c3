"""The threads in which blocking actions run.

They are made as they are needed and kept. None of them keeps the process from ending: a call that hangs cannot be
stopped, and `concurrent.futures` would wait for it at exit, which is why it is not used here.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue

from upstream.calls.seams import ThreadLoop

_Order = tuple[Callable[[], object], Callable[[object], None]]


class LoopThreads:
    """`upstream.calls.seams.Threads` beside a running event loop. Called from the loop's thread alone."""

    def __init__(self, loop: ThreadLoop) -> None:
        self._loop = loop
        self._idle: list[SimpleQueue[_Order]] = []
        self._made = 0

    def run(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        """Run `work` in an idle thread, or in a new one."""
        if not self._idle:
            orders: SimpleQueue[_Order] = SimpleQueue()
            self._made += 1
            threading.Thread(target=self._live, args=(orders,), daemon=True, name=f"action-{self._made}").start()
        else:
            orders = self._idle.pop()
        orders.put((work, done))

    def _live(self, orders: SimpleQueue[_Order]) -> None:
        while True:
            work, done = orders.get()
            result = work()
            # A loop that is closed has nobody who waits for it.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._done, orders, done, result)
            # Nothing of the call is kept alive by an idle thread.
            del work, done, result

    def _done(self, orders: SimpleQueue[_Order], done: Callable[[object], None], result: object) -> None:
        self._idle.append(orders)
        done(result)
