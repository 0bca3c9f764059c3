"""A function that steps wait for (`broker.runtime.steps`) while it runs in a thread beside the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from upstream.calls.seams import Threads

Result = TypeVar("Result")


class ThreadCall(Generic[Result]):
    """One call of `work`; steps yield it, and then take its result."""

    def __init__(self, threads: Threads, work: Callable[[], Result]) -> None:
        self._threads = threads
        self._work = work
        self._results: list[Result] = []
        self._raised: BaseException | None = None

    def now(self) -> None:
        """Call it in this thread."""
        self._run()

    def then(self, callback: Callable[[], object]) -> None:
        """Call it in a thread, then `callback` in the loop's."""

        def done(_: object) -> None:
            callback()

        self._threads.run(self._run, done)

    def result(self) -> Result:
        """Return what it returned. Raises what it raised."""
        if self._raised is not None:
            raise self._raised
        return self._results[0]

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:
            self._raised = error
