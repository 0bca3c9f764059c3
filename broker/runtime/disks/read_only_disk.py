"""A disk that changes nothing: what tools look at a store through, be it live, copied or on a read-only mount.

Every change is refused with OSError(EROFS). The owner may delete and replace files meanwhile: what is open, and what is
mapped, stays readable.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import closing
from typing import NoReturn, TypeVar

from broker.runtime.seams import Disk, DiskFile

T = TypeVar("T")


def _refusal(path: str) -> OSError:
    return OSError(errno.EROFS, "this store is open for reading only", path)


class ReadingFile:
    """An open file that refuses changes."""

    def __init__(self, file: DiskFile, path: str) -> None:
        self._file = file
        self._path = path

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes; shorter only at the end of the file."""
        return self._file.read(offset, size)

    def view(self) -> memoryview:
        """Return a view of the file as it is now; the owner's later writes are seen in it."""
        return self._file.view()

    def size(self) -> int:
        """Size in bytes."""
        return self._file.size()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise _refusal(self._path)

    write = sync = truncate = allocate = _refuse

    def close(self) -> None:
        """Close it; views stay readable."""
        self._file.close()


class NumberedFile(ReadingFile):
    """A file of the log, a queue or the index: there may be thousands, so it is opened for each call.

    Once its owner has deleted it, `read` returns nothing, `view` an empty view, and its size is 0.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes; shorter only at the end of the file."""
        return self._each(lambda file: file.read(offset, size), b"")

    def view(self) -> memoryview:
        """Return a view of the file as it is now; the owner's later writes are seen in it."""
        return self._each(lambda file: file.view(), memoryview(b""))

    def size(self) -> int:
        """Size in bytes."""
        return self._each(lambda file: file.size(), 0)

    def _each(self, use: Callable[[DiskFile], T], gone: T) -> T:
        try:
            file = self._disk.open(self._path)
        except FileNotFoundError:
            return gone
        with closing(file):
            return use(file)

    def close(self) -> None:
        """Nothing is held."""


class ReadingDisk:
    """Another disk, for reading alone; what only looks is the method of the disk below.

    Args:
        disk: The disk below; `RealDisk(read_only=True)` where there may be no permission to write.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.exists, self.is_link, self.locked = disk.exists, disk.is_link, disk.locked
        self.open_to_others = disk.open_to_others
        self.free_bytes, self.total_bytes = disk.free_bytes, disk.total_bytes

    def open(self, path: str, *, create: bool = False) -> ReadingFile:
        """Return the file. Raises FileNotFoundError also with `create`."""
        if not path.rpartition("/")[2].isdigit():
            return ReadingFile(self._disk.open(path), path)
        if not self._disk.exists(path):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return NumberedFile(self._disk, path)

    def list(self, path: str) -> list[str]:
        """Sorted names in a folder."""
        return self._disk.list(path)

    def make_folder(self, path: str, *, durable: bool = True) -> None:
        """Refuse, unless it is there."""
        if not self._disk.exists(path):
            raise _refusal(path)

    def replace(self, source: str, target: str) -> None:
        """Refuse."""
        raise _refusal(target)

    def _refuse(self, path: str) -> NoReturn:
        raise _refusal(path)

    remove = sync_folder = lock = _refuse
