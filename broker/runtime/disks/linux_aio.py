"""Syncs in the background by Linux AIO, which needs no thread: the kernel works, and an eventfd wakes the loop.

`io_submit` of a sync returns when the kernel has queued it. A worker of the kernel does what `fdatasync` would have
done in the loop's thread. Where the system has no AIO, or forbids it (seccomp), or the loop watches no descriptors,
`syncs_of` gives what syncs at once.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Callable
from typing import Any, Protocol

from broker.runtime.disk import RealDisk, RealFile
from broker.runtime.seams import Disk, DiskFile, Reported, Scheduler, Syncing, Syncs

_IN_FLIGHT_MAX = 128
_OF_FOLDER, _OF_FILE = 2, 3
"""IOCB_CMD_FSYNC and IOCB_CMD_FDSYNC of linux/aio_abi.h."""
_FLAG_EVENTFD = 1
_CALLS: dict[str, tuple[int, int, int, int]] = {
    "x86_64": (206, 207, 208, 209),
    "aarch64": (0, 1, 4, 2),
    "riscv64": (0, 1, 4, 2),
}
"""By machine: the numbers of io_setup, io_destroy, io_getevents and io_submit, for which the C library has no names."""


class _Request(ctypes.Structure):
    """struct iocb of a machine whose bytes are in little-endian order."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("eventfd", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """struct io_event."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


class WatchingLoop(Scheduler, Protocol):
    """The part of an asyncio event loop that is used here."""

    def add_reader(self, fd: int, callback: Callable[..., Any], /, *args: Any) -> Any:
        """Run the callback whenever a descriptor can be read."""

    def remove_reader(self, fd: int, /) -> bool:
        """Watch a descriptor no more."""


class SyncsAtOnce:
    """`broker.runtime.seams.Syncs` that syncs in the calling thread and reports it in the next turn."""

    def __init__(self, scheduler: Scheduler, disk: Disk) -> None:
        self._scheduler = scheduler
        self._disk = disk

    def begin(self, file: DiskFile, done: Reported) -> Syncing:
        """Sync the file."""
        return self._run(file.sync, done)

    def begin_folder(self, path: str, done: Reported) -> Syncing:
        """Sync the folder."""
        return self._run(lambda: self._disk.sync_folder(path), done)

    def _run(self, sync: Callable[[], None], done: Reported) -> Syncing:
        ended = CompletedSync(done)
        try:
            sync()
        except OSError as error:
            ended.error = error
        self._scheduler.call_soon(ended.wait)
        return ended


class CompletedSync:
    """`broker.runtime.seams.Syncing` of a sync that has ended, and its callback."""

    __slots__ = ("_done", "error")

    def __init__(self, done: Reported, error: OSError | None = None) -> None:
        self._done: Reported | None = done
        self.error = error

    def wait(self) -> None:
        """Tell, once."""
        done, self._done = self._done, None
        if done is not None:
            done(self.error)


class _SubmittedSync:
    """`broker.runtime.seams.Syncing` of a sync that the kernel was given."""

    __slots__ = ("_aio", "done", "number", "path")

    def __init__(self, aio: LinuxAio, number: int, done: Reported, path: str) -> None:
        self._aio = aio
        self.number = number
        self.done = done
        self.path = path

    def wait(self) -> None:
        """Wait for the kernel, and report."""
        self._aio.wait(self.number)


class LinuxAio:
    """`broker.runtime.seams.Syncs` by Linux AIO; `close` when the loop ends."""

    def __init__(self, loop: WatchingLoop, disk: Disk) -> None:
        """Set up on a loop.

        Args:
            loop: Woken by the eventfd.
            disk: Syncs what the kernel does not take.

        Raises:
            OSError: The system has no AIO for us, or no descriptor left.
            NotImplementedError: The loop watches no descriptors.
        """
        numbers = _CALLS.get(platform.machine())
        if numbers is None:
            raise OSError(errno.ENOSYS, "the system call numbers of this machine are unknown")
        self._loop, self._disk = loop, disk
        self._at_once = SyncsAtOnce(loop, disk)
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        setup, self._destroy, self._getevents, self._submit = (ctypes.c_long(number) for number in numbers)
        self._context = ctypes.c_ulong(0)
        if self._call(setup, ctypes.c_long(_IN_FLIGHT_MAX), ctypes.byref(self._context)) < 0:
            raise OSError(ctypes.get_errno(), "no AIO")
        self._waiting: dict[int, _SubmittedSync] = {}
        self._ended_unreported: dict[int, int] = {}
        """By number: results that the kernel has given out, and gives out no more, of those that wait for it."""
        self._last = 0
        self._request = _Request()
        self._requests = (ctypes.POINTER(_Request) * 1)(ctypes.pointer(self._request))
        self._events = (_Event * _IN_FLIGHT_MAX)()
        self._none, self._one, self._most = (ctypes.c_long(count) for count in (0, 1, _IN_FLIGHT_MAX))
        self._eventfd = -1
        try:
            self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            loop.add_reader(self._eventfd, self._ended)
        except BaseException:
            self._release()
            raise

    def close(self) -> None:
        """Report nothing any more; waits for the syncs that are on their way."""
        if self._eventfd >= 0:
            self._waiting.clear()
            self._loop.remove_reader(self._eventfd)
            self._release()

    def _release(self) -> None:
        self._call(self._destroy, self._context)
        if self._eventfd >= 0:
            os.close(self._eventfd)
            self._eventfd = -1

    def begin(self, file: DiskFile, done: Reported) -> Syncing:
        """Begin to sync the file; one with a sync of its own is synced by that."""
        begun = None
        if isinstance(file, RealFile) and type(file).sync is RealFile.sync:
            begun = self._begin(_OF_FILE, file.descriptor, file.path, done)
        return self._at_once.begin(file, done) if begun is None else begun

    def begin_folder(self, path: str, done: Reported) -> Syncing:
        """Begin to sync the folder; of a disk with a sync of its own by that."""
        if type(self._disk).sync_folder is not RealDisk.sync_folder:
            return self._at_once.begin_folder(path, done)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            ended = CompletedSync(done, error)
            self._loop.call_soon(ended.wait)
            return ended
        try:
            begun = self._begin(_OF_FOLDER, descriptor, path, done)
        finally:
            # The kernel holds the folder open for as long as it needs it.
            os.close(descriptor)
        return self._at_once.begin_folder(path, done) if begun is None else begun

    def _begin(self, operation: int, descriptor: int, path: str, done: Reported) -> _SubmittedSync | None:
        """Give a sync to the kernel; None when it takes none: too many at once, or a file system without."""
        if descriptor < 0 or self._eventfd < 0:
            return None
        self._last = number = self._last + 1
        request = self._request
        request.data, request.opcode, request.descriptor = number, operation, descriptor
        request.flags, request.eventfd = _FLAG_EVENTFD, self._eventfd
        if self._call(self._submit, self._context, self._one, self._requests) != 1:
            return None
        begun = self._waiting[number] = _SubmittedSync(self, number, done, path)
        return begun

    def wait(self, number: int) -> None:
        """Wait for one sync and report it; others that have ended are reported in the next turn."""
        while number in self._waiting and number not in self._ended_unreported:
            for each in self._reap(self._one):
                if each != number:
                    self._loop.call_soon(self._report, each)
        self._report(number)

    def _ended(self) -> None:
        """Tell those whose syncs have ended."""
        try:
            os.eventfd_read(self._eventfd)
        except BlockingIOError:
            return
        ended = self._reap(self._none)
        try:
            while ended:
                self._report(ended.pop(0))
        finally:
            for each in ended:
                # A callback has raised; the others have waited for theirs.
                self._loop.call_soon(self._report, each)

    def _reap(self, least: ctypes.c_long) -> list[int]:
        """Take the results of what has ended, having waited for `least` of it; return the numbers."""
        events = self._events
        ended: list[int] = []
        # The kernel takes more than it was asked to, and wakes us once for all that has ended.
        while True:
            count = self._call(self._getevents, self._context, least, self._most, events, None)
            for place in range(count):
                number = events[place].data
                self._ended_unreported[number] = events[place].result
                ended.append(number)
            if count < _IN_FLIGHT_MAX:
                return ended
            least = self._none

    def _report(self, number: int) -> None:
        """Tell of one that has ended, unless that was done."""
        result = self._ended_unreported.pop(number, 0)
        begun = self._waiting.pop(number, None)
        if begun is not None:
            begun.done(None if result >= 0 else OSError(-result, os.strerror(-result), begun.path))


def syncs_of(loop: WatchingLoop, disk: Disk) -> tuple[Syncs, Callable[[], None]]:
    """Return what syncs in the background where the system can, and what ends it."""
    try:
        syncs = LinuxAio(loop, disk)
    except (OSError, NotImplementedError, AttributeError):
        return SyncsAtOnce(loop, disk), lambda: None
    return syncs, syncs.close
