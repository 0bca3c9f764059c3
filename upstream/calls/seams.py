"""What calls are made with: an event loop for tasks, and threads. The simulation hands in others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol


class Tasks(Protocol):
    """Runs coroutines: an asyncio event loop, as it is."""

    def create_task(self, coroutine: Coroutine[Any, Any, Any], /) -> asyncio.Task[Any]:
        """Run a coroutine from the next turn of the loop on."""

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future of the loop."""


class Threads(Protocol):
    """Runs functions beside the loop; as many at a time as are asked for, which `upstream.calls.pool` bounds."""

    def run(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        """Run `work`, which raises nothing, in a thread; then `done` in the loop's, with what it returned."""


class ThreadLoop(Protocol):
    """What threads need of an event loop."""

    def call_soon_threadsafe(self, callback: Callable[..., Any], /, *args: Any) -> object:
        """Run `callback(*args)` in the loop's thread."""
