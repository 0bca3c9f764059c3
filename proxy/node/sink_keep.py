"""What the node hands its sinks: its disk, threads, and files of its own for what they must know after a kill."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any, TypeVar, cast
from urllib.parse import quote

from actions.sinks.keep import KeptDisk, StateDamaged
from broker.errors import StoreUnreadable
from broker.runtime.seams import Disk
from broker.runtime.state_file import SealedFile
from upstream.calls.seams import Tasks, Threads

T = TypeVar("T")

FOLDER = "pyddmq/sinks"
_SHOWN_MAX = 100


class SinkKeep:
    """The `actions.sinks.keep.Keep` of a node.

    Args:
        disk: The node's.
        data: Its data directory.
        threads: Run what blocks.
        tasks: Its event loop.
    """

    def __init__(self, disk: Disk, data: str, *, threads: Threads, tasks: Tasks) -> None:
        self._disk = disk
        self._data = data
        self._threads = threads
        self._tasks = tasks

    @property
    def disk(self) -> KeptDisk:
        """The node's disk."""
        return cast("KeptDisk", self._disk)

    def state(self, name: str) -> SinkState:
        """Return the value of a name."""
        # Names of groups and topics are too long together for a file's; the sum tells those apart that begin alike.
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        shown = quote(name, safe="").replace("%", "=")[:_SHOWN_MAX]
        return SinkState(self._disk, f"{self._data}/{FOLDER}", f"{shown}.{digest}.json")

    async def apart(self, run: Callable[[], T]) -> T:
        """Run what blocks in a thread."""
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


class SinkState:
    """One value in a checksummed file, replaced in one step."""

    def __init__(self, disk: Disk, folder: str, name: str) -> None:
        self._disk = disk
        self._folder = folder
        self._file = SealedFile(disk, f"{folder}/{name}")

    def load(self) -> Any:
        """Return it; None when there is none. Raises StateDamaged, OSError."""
        try:
            return self._file.load()
        except StoreUnreadable as error:
            raise StateDamaged(str(error)) from error

    def save(self, value: Any) -> None:
        """Replace it. Raises OSError."""
        self._disk.make_folder(self._folder)
        self._file.save(value)
