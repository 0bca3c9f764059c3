"""How long a slow disk holds the loop, and a stop: new queues, delays and a close, with a given time per sync.

`python -m bench.slow_sync [ms] [topics]` sleeps in the calling thread for each sync that the loop waits for, and in a
thread of its own for each that it does not. It prints the longest pause of the loop and how long the stop took.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from broker.runtime.disk import RealDisk, RealFile
from broker.runtime.seams import DiskFile, Told
from tests.integration.store_tools import append, open_store


class _SlowFile(RealFile):
    """A file whose sync takes long."""

    seconds = 0.2

    def sync(self) -> None:
        """Sleep, then sync."""
        time.sleep(self.seconds)
        super().sync()


class SlowDisk(RealDisk):
    """A disk whose syncs take long."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Open."""
        file = super().open(path, create=create)
        return _SlowFile(file.descriptor, path)

    def sync_folder(self, path: str) -> None:
        """Sleep, then sync."""
        time.sleep(_SlowFile.seconds)
        super().sync_folder(path)


class _ThreadSync:
    """A sync in a thread; `done` is called once, in the loop or by `wait`."""

    def __init__(self, future: Future[None], done: Told) -> None:
        self._future = future
        self._done: Told | None = done

    def wait(self) -> None:
        """Wait for the thread, and report its result."""
        error = self._future.exception()
        done, self._done = self._done, None
        if done is not None:
            done(error if isinstance(error, OSError) else None)


class ThreadSyncs:
    """Syncs in threads, as the kernel's workers do them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, disk: RealDisk) -> None:
        self._loop, self._disk = loop, disk
        self._pool = ThreadPoolExecutor(128)

    def begin(self, file: DiskFile, done: Told) -> _ThreadSync:
        """Sync a file."""
        return self._run(file.sync, done)

    def begin_folder(self, path: str, done: Told) -> _ThreadSync:
        """Sync a folder."""
        return self._run(lambda: self._disk.sync_folder(path), done)

    def _run(self, sync: Callable[[], None], done: Told) -> _ThreadSync:
        future = self._pool.submit(sync)
        begun = _ThreadSync(future, done)
        future.add_done_callback(lambda _: self._loop.call_soon_threadsafe(begun.wait))
        return begun


async def measure(topics: int, root: str) -> None:
    """Publish to new queues, checkpoint, publish again, close; print the pauses of the loop."""
    loop = asyncio.get_running_loop()
    disk = SlowDisk()
    store = open_store(disk, root=root, segment_bytes=16 << 20, queue_file_units=300_000, index_entries=400_000)
    for number in range(topics):
        store.create_topic(f"t{number}", 8)
    store.file_writes.syncs = ThreadSyncs(loop, disk)
    for number in range(topics):
        for queue_id in range(8):
            append(store, b"x" * 100, topic=f"t{number}", queue_id=queue_id)
    store.flush()
    store.checkpointer._at -= 60
    longest, began = 0.0, time.monotonic()
    store.checkpoint()
    longest = time.monotonic() - began
    while store.checkpointer.is_under_way:
        before = time.monotonic()
        await asyncio.sleep(0.005)
        longest = max(longest, time.monotonic() - before)
    print(f"checkpoint: {time.monotonic() - began:.2f} s, the loop was held {longest:.2f} s")
    for number in range(topics):
        for queue_id in range(8):
            append(store, b"x" * 100, topic=f"t{number}", queue_id=queue_id)
    store.flush()
    before = time.monotonic()
    store.close()
    print(f"stop: {time.monotonic() - before:.2f} s")


def main() -> None:
    """Run it."""
    _SlowFile.seconds = float(sys.argv[1]) / 1000 if len(sys.argv) > 1 else 0.2
    with tempfile.TemporaryDirectory() as root:
        asyncio.run(measure(int(sys.argv[2]) if len(sys.argv) > 2 else 3, f"{root}/store"))


if __name__ == "__main__":
    main()
