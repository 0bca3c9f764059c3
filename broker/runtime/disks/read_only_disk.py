"""A disk that changes nothing: what tools look at a store through, be it live, copied or on a read-only mount.

Every change is refused with OSError(EROFS). The owner may delete and replace files meanwhile: what is open, and what is
mapped, stays readable.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TypeVar

from broker.runtime.seams import Buffer, Disk, DiskFile, Lock

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

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Refuse."""
        raise _refusal(self._path)

    def sync(self) -> None:
        """Refuse."""
        raise _refusal(self._path)

    def truncate(self, size: int) -> None:
        """Refuse."""
        raise _refusal(self._path)

    def allocate(self, size: int) -> None:
        """Refuse."""
        raise _refusal(self._path)

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
        try:
            return use(file)
        finally:
            file.close()

    def close(self) -> None:
        """Nothing is held."""


class ReadingDisk:
    """Another disk, for reading alone.

    Args:
        disk: The disk below; `RealDisk(read_only=True)` where there may be no permission to write.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def open(self, path: str, *, create: bool = False) -> ReadingFile:
        """Return the file. Raises FileNotFoundError also with `create`."""
        if not path.rpartition("/")[2].isdigit():
            return ReadingFile(self._disk.open(path), path)
        if not self._disk.exists(path):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return NumberedFile(self._disk, path)

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""
        return self._disk.exists(path)

    def is_link(self, path: str) -> bool:
        """Whether it is a symbolic link."""
        return self._disk.is_link(path)

    def open_to_others(self, path: str) -> bool:
        """Whether other users may read a folder."""
        return self._disk.open_to_others(path)

    def list(self, path: str) -> list[str]:
        """Sorted names in a folder."""
        return self._disk.list(path)

    def locked(self, path: str) -> bool:
        """Whether somebody holds that lock."""
        return self._disk.locked(path)

    def free_bytes(self, path: str) -> int:
        """Bytes free where `path` is."""
        return self._disk.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        """Bytes in use or free there."""
        return self._disk.total_bytes(path)

    def make_folder(self, path: str) -> None:
        """Refuse, unless it is there."""
        if not self._disk.exists(path):
            raise _refusal(path)

    def replace(self, source: str, target: str) -> None:
        """Refuse."""
        raise _refusal(target)

    def remove(self, path: str) -> None:
        """Refuse."""
        raise _refusal(path)

    def sync_folder(self, path: str) -> None:
        """Refuse."""
        raise _refusal(path)

    def lock(self, path: str) -> Lock:
        """Refuse."""
        raise _refusal(path)
