"""Ways between threads and the event loop: reports of threads, their bound, and orders to them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from upstream.calls.seams import ThreadLoop


class Post:
    """Calls in the loop's thread, in the order in which threads ask for them."""

    def __init__(self, loop: ThreadLoop) -> None:
        self._loop = loop

    def __call__(self, call: Callable[..., Any], *arguments: Any) -> bool:
        """Have something called; False: the loop is closed, and nothing waits for it."""
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            return False
        return True


class Room:
    """Bounds what a thread has posted and the loop has not yet taken, by a weight."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0
        self._changed = threading.Condition()

    def wait(self, seconds: float) -> bool:
        """Wait until there is room, but no longer than so; whether there is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._used < self._most, seconds)

    def fill(self, weight: int) -> None:
        """Note what is posted; called in the thread."""
        with self._changed:
            self._used += weight

    def free(self, weight: int) -> None:
        """Note what was taken; called in the loop."""
        with self._changed:
            self._used -= weight
            self._changed.notify_all()
