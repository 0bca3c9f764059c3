"""What sinks of a node keep on its own disk: how far each file was right, for the start after a kill.

The values are under `pyddmq/sinks/` in the node's data directory, checksummed, and are replaced in one step.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any, TypeVar, cast
from urllib.parse import quote
from weakref import WeakValueDictionary

from broker.runtime.sealed_file import SealedFile
from broker.runtime.seams import Disk
from upstream.calls.seams import Tasks, Threads

T = TypeVar("T")

FOLDER = "pyddmq/sinks"
_SHOWN_MAX = 100


class Keep:
    """What a node hands in.

    Attributes:
        disk: The node's disk; blocking.

    Args:
        disk: As the attribute.
        data: The node's data directory.
        threads: Run what blocks.
        tasks: The node's event loop.
    """

    def __init__(self, disk: Disk, data: str, *, threads: Threads, tasks: Tasks) -> None:
        self.disk = disk
        self._folder = f"{data}/{FOLDER}"
        self._threads = threads
        self._tasks = tasks
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def turn(self, name: str) -> asyncio.Lock:
        """Return what one user of a name at a time has: a generation that ended may still be at work with it."""
        return self._turns.setdefault(name, asyncio.Lock())

    def state(self, name: str) -> SealedState:
        """Return the value of a name, which is any text."""
        # Names of groups and topics are too long together for a file's; the checksum distinguishes those that begin
        # alike.
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        shown = quote(name, safe="").replace("%", "=")[:_SHOWN_MAX]
        return SealedState(self.disk, f"{self._folder}/{shown}.{digest}.json")

    async def apart(self, run: Callable[[], T]) -> T:
        """Run what blocks in a thread, and return or raise what it does."""
        future: asyncio.Future[T] = self._tasks.create_future()

        def work() -> tuple[T | None, Exception | None]:
            try:
                return run(), None
            except Exception as error:
                return None, error

        def done(result: object) -> None:
            if future.done():
                return
            value, error = cast("tuple[T, Exception | None]", result)
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)

        self._threads.run(work, done)
        return await future


class SealedState(SealedFile):
    """One small value that survives a kill."""

    def save(self, data: Any) -> None:
        """Replace it durably. Raises OSError; it is then the old one or the new one."""
        self._disk.make_folder(self.path.rpartition("/")[0])
        super().save(data)
