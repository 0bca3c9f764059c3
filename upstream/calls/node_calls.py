"""What the calls of one node share: the loop, the threads, and what is being opened or closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

import structlog

from broker.runtime.seams import Clock, Scheduler
from upstream.calls.pool import CallPool, CallQueue, Work
from upstream.calls.seams import Tasks, Threads
from upstream.calls.user_code import raised_by

_log = structlog.get_logger(__name__)

CLOSING_SECONDS = 5.0
"""How long a stop waits for actions to be closed."""


class NodeCalls:
    """The bundle; see the module.

    Attributes:
        clock: Monotonic time.
        scheduler: Makes calls later.
        tasks: Runs coroutines.
        pool: Shares out the threads.
        ending: Generations that have ended, and whose actions are not closed yet.
        closed: The node has ended: what calls still answer is dropped, as after a kill.
    """

    def __init__(self, *, clock: Clock, scheduler: Scheduler, tasks: Tasks, threads: Threads, calls_max: int) -> None:
        self.clock = clock
        self.scheduler = scheduler
        self.tasks = tasks
        self.pool = CallPool(threads, calls_max)
        self.ending: set[Ends] = set()
        self.closed = False
        self._beside: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the subscriptions: it is waited for when the node ends."""
        task = self.tasks.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    def in_thread(self, line: CallQueue, work: Callable[[], object]) -> asyncio.Future[None]:
        """Run a function in a thread of a line; the future has what it raised."""
        future = self.tasks.create_future()

        def done(error: object) -> None:
            if not future.done():
                if isinstance(error, Exception):
                    future.set_exception(error)
                else:
                    future.set_result(None)

        self.pool.request(line, _Once(Work(lambda: raised_by(work), done)))
        return future

    async def settle(self, hurry: Callable[[], bool]) -> None:
        """End: wait until the cancelled calls have ended and all actions are closed, CLOSING_SECONDS at most.

        A blocking call may hang forever; what it answers later is dropped, as after a kill.

        Args:
            hurry: Whether to wait no longer.
        """
        await asyncio.sleep(0)
        deadline = self.clock.monotonic() + CLOSING_SECONDS
        while (self.ending or self._beside) and not hurry():
            if self.clock.monotonic() >= deadline:
                _log.warning("actions_not_closed", actions=sorted(name for each in self.ending for name in each.names))
                break
            await asyncio.sleep(0.01)
        self.closed = True


class Ends(Protocol):
    """What has ended, and waits for its last call before it closes its actions."""

    @property
    def names(self) -> Sequence[str]:
        """What its actions are called."""


class _Once:
    """Asks for one thread."""

    def __init__(self, work: Work) -> None:
        self._work: Work | None = work

    def next_work(self) -> Work | None:
        work, self._work = self._work, None
        return work
