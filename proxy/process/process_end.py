"""The end of a process whose node has stopped, where code of users does not let it end.

A task that continues when it is cancelled, and a thread that is no daemon, would keep the process from ending.
All that was acknowledged is durable by then, so the process ends without them.
"""

from __future__ import annotations

import asyncio
import atexit
import signal
import sys
import threading
from collections.abc import Callable

import structlog

GRACE_SECONDS = 5.0
"""How long tasks and threads may continue after the node has stopped."""
HURRIED_SECONDS = 0.5
"""Likewise after a second signal."""

LIBRARY_THREADS = "kafka-"
"""In front of the names of threads that call librdkafka (`upstream.kafka_client`)."""

_log = structlog.get_logger(__name__)


class Leftovers:
    """Ends the process after a grace.

    Attributes:
        hurried: A second signal asked for the end.

    Args:
        leave: Ends the process at once, with an exit code: `os._exit`.
        waits: Waits for a number of seconds.
        at_exit: Has a function called, with an argument, once no thread runs that the interpreter waits for.
    """

    def __init__(
        self,
        leave: Callable[[int], object],
        *,
        waits: Callable[[float], object] | None = None,
        at_exit: Callable[..., object] = atexit.register,
    ) -> None:
        self.hurried = False
        self._leave = leave
        self._at_exit = at_exit
        self._waits = waits or threading.Event().wait

    def watch(self, code: int, loop: asyncio.AbstractEventLoop) -> None:
        """End the process with a code after the grace, or with the next signal; called in the main thread.

        A process that ends by itself takes this watch with it.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
            signal.signal(number, lambda *_: self._end(code))
        threading.Thread(target=self._watch, args=(code, loop), daemon=True, name="leftovers").start()

    def end_beside_libraries(self, code: int) -> None:
        """End the process before the interpreter's own end, which can crash beside threads in librdkafka.

        Threads that are no daemons end before: the interpreter waits for them, and `watch` has its grace.
        """
        if any(each.name.startswith(LIBRARY_THREADS) for each in threading.enumerate()):
            self._at_exit(self._end, code)

    def _watch(self, code: int, loop: asyncio.AbstractEventLoop) -> None:
        seconds = HURRIED_SECONDS if self.hurried else GRACE_SECONDS
        self._waits(seconds)
        tasks, threads = going_on(loop)
        _log.warning("ended_with_work_going_on", tasks=tasks, threads=threads, after_seconds=seconds)
        self._end(code)

    def _end(self, code: int) -> None:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                continue
        self._leave(code)


def going_on(loop: asyncio.AbstractEventLoop) -> tuple[list[str], list[str]]:
    """Name the tasks of a loop, and the threads that the interpreter would wait for."""
    tasks = [getattr(each.get_coro(), "__qualname__", each.get_name()) for each in asyncio.all_tasks(loop)]
    threads = [each.name for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
    return sorted(tasks), sorted(threads)
