"""The seams through which time and disk reach the product: small protocols, each with a real and a simulated version.

The real versions are `SystemClock` here, `broker.runtime.disk.RealDisk`, `broker.runtime.disks.linux_aio.LinuxAio`
and the asyncio event loop (which satisfies `Scheduler` as it is); the simulated ones live in `pyddmq.testing`.
Randomness is a `random.Random` that is handed in. No other module of the product may read the time, sleep, draw
random numbers or open files by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

Buffer = bytes | bytearray | memoryview
Reported = Callable[[OSError | None], None]
"""Receives how something ended: None, or why it failed."""


_BOOT: int | None = getattr(time, "CLOCK_BOOTTIME", None)


class Clock(Protocol):
    """Wall clock and monotonic clock."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump either way."""

    def wall_us(self) -> int:
        """Likewise in microseconds: the same clock, for how long it is until `wall_ms` says something."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; equal to the scheduler's `time()`."""

    def since_boot(self) -> float:
        """Seconds on a clock that never goes back, and also runs while the machine is suspended; `monotonic` may not.

        For durations that others also count, such as a lease; never compare it with `monotonic`.
        """

    def sleep(self, seconds: float) -> None:
        """Block the calling thread for this time."""


class SystemClock:
    """The machine's clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def wall_us(self) -> int:
        """Microseconds since the Unix epoch."""
        return time.time_ns() // 1_000

    monotonic = staticmethod(time.monotonic)
    """As asyncio and uvloop use it; itself, since each request looks at it five times and more."""

    def since_boot(self) -> float:
        """Seconds since the machine's start, by CLOCK_BOOTTIME; without it (macOS) those of `monotonic`."""
        return time.clock_gettime(_BOOT) if _BOOT is not None else time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)


class ScheduledCall(Protocol):
    """A scheduled call that can be withdrawn."""

    def cancel(self) -> None:
        """Withdraw the call; harmless after it ran."""


class Scheduler(Protocol):
    """The part of an asyncio event loop that the rooms below `proxy` use. An event loop satisfies it as it is."""

    def call_soon(self, callback: Callable[..., Any], /, *args: Any) -> ScheduledCall:
        """Run `callback(*args)` in the next turn of the loop."""

    def call_later(self, delay: float, callback: Callable[..., Any], /, *args: Any) -> ScheduledCall:
        """Run `callback(*args)` after `delay` seconds."""


class DiskFile(Protocol):
    """One open file. Every method may raise OSError."""

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers one after the other from byte `offset` on, whole or not at all as far as errors show."""

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset` on; shorter only at the end of the file."""

    def view(self) -> memoryview:
        """Return a read-only view over the whole file as it is now (its size must not change afterwards).

        Later writes through this object are visible in the view.
        """

    def sync(self) -> None:
        """Make all earlier writes durable (fdatasync)."""

    def truncate(self, size: int) -> None:
        """Set the file's size in bytes; new bytes read as zero."""

    def allocate(self, size: int) -> None:
        """Grow the file to `size` bytes with the space claimed, or raise OSError(ENOSPC) and leave it as it was."""

    def size(self) -> int:
        """Size of the file in bytes."""

    def close(self) -> None:
        """Close the file; views handed out stay readable."""


class Lock(Protocol):
    """A held lock on a file."""

    def release(self) -> None:
        """Give the lock back."""


class Disk(Protocol):
    """A tree of files. Paths are plain strings; every method may raise OSError."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open a file for reading and writing; with `create`, make it (empty) when it is not there."""

    def exists(self, path: str) -> bool:
        """Whether a file or folder of that name is there."""

    def is_link(self, path: str) -> bool:
        """Whether the path is a symbolic link; every other method follows links."""

    def open_to_others(self, path: str) -> bool:
        """Whether other users than its owner may enter or read a folder."""

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted; empty when the folder is not there."""

    def make_folder(self, path: str, *, durable: bool = True) -> None:
        """Create a folder with its parents; harmless when it is there.

        Without `durable`, the caller syncs the parent of each folder that may be new.
        """

    def replace(self, source: str, target: str) -> None:
        """Rename a file over another in one step; durable after `sync_folder`."""

    def remove(self, path: str) -> None:
        """Delete a file."""

    def sync_folder(self, path: str) -> None:
        """Make creations, renames and deletions in a folder durable."""

    def lock(self, path: str) -> Lock:
        """Take a POSIX byte-range lock on byte 0 of a file (Java's FileLock sees it), creating it when needed.

        Raises:
            BlockingIOError: Another process, or another store of this process, holds it.
        """

    def locked(self, path: str) -> bool:
        """Whether the lock of that file is held; nothing is locked or created."""

    def free_bytes(self, path: str) -> int:
        """Bytes free for this process on the file system that holds `path`."""

    def total_bytes(self, path: str) -> int:
        """Bytes of that file system that are in use or free for this process: use is 1 - free / total, as df shows."""


class Syncing(Protocol):
    """A sync on its way."""

    def wait(self) -> None:
        """Wait until it has ended; `done` was called when this returns, by this or before.

        A caller that syncs at once what may be on its way waits first: the system reports a failure to one of the two.
        """


class Syncs(Protocol):
    """Syncs that continue while the loop does something else."""

    def begin(self, file: DiskFile, done: Reported) -> Syncing:
        """Begin to make durable what was written to a file before this, as `DiskFile.sync` does; never raises.

        What is written to it later is not covered, and may become durable all the same. After a failure nothing that
        was written before it may be believed to be durable.

        Args:
            file: What is synced; it may be closed meanwhile.
            done: Told when it has ended, in a later turn of the loop.
        """

    def begin_folder(self, path: str, done: Reported) -> Syncing:
        """Begin to make creations, renames and deletions in a folder durable, as `Disk.sync_folder` does; likewise."""
