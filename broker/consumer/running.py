"""Where listeners run: in the thread of the loop, or in an executor that the program hands in."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

Work = Callable[[], Any]
Told = Callable[[Any, Exception | None], None]
"""Told, in the loop's thread, what the work returned (None when it raised) and what it raised."""
Runner = Callable[[Work, Told], None]


def run_inline(work: Work, told: Told) -> None:
    """Run a listener at once, in the caller's thread: the loop waits for it."""
    try:
        result = work()
    except Exception as error:
        told(None, error)
        return
    told(result, None)


class ExecutorRunner:
    """Runs listeners in an executor.

    Args:
        executor: Runs the work; a thread pool needs as many threads as listeners shall run at once.
        to_loop: Runs a callback in the loop's thread, called from another one: `loop.call_soon_threadsafe`.
    """

    def __init__(self, executor: Executor, to_loop: Callable[..., object]) -> None:
        self._executor = executor
        self._to_loop = to_loop

    def __call__(self, work: Work, told: Told) -> None:
        """Run `work` in the executor and `told` in the loop's thread."""

        def done(future: Future[Any]) -> None:
            error = future.exception()
            if error is not None and not isinstance(error, Exception):
                error = RuntimeError(f"the listener ended with {error!r}")
            self._to_loop(told, None if error is not None else future.result(), error)

        self._executor.submit(work).add_done_callback(done)
