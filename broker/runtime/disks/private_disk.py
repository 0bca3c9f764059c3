"""A disk whose changes no other process sees: files are read where they are, and written in memory.

With it a store that no process has open is opened as its owner would open it, recovery and all, and looked at; not a
byte below changes. Of a large file only the pages that are written to are copied. Everything ends with the object.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from broker.runtime.disk import FileBytes, RealDisk, RealFile, resized, written
from broker.runtime.seams import Buffer, Lock


class _Bytes:
    """What a path has, however often it is open: the file below until it is mapped or written to, bytes then."""

    def __init__(self, disk: RealDisk, path: str, own: FileBytes | None = None) -> None:
        self._disk = disk
        self._path = path
        self._below: RealFile | None = None
        self._own = own

    @property
    def below(self) -> RealFile | None:
        """The file below, None when its bytes are in memory."""
        return None if self._own is not None else self._opened()

    @property
    def own(self) -> FileBytes:
        """Its bytes in memory."""
        own = self._own
        if own is None:
            own = self._own = self._opened().private()
            self.close()
        return own

    @own.setter
    def own(self, data: FileBytes) -> None:
        self._own = data

    def _opened(self) -> RealFile:
        if self._below is None:
            self._below = self._disk.open(self._path)
        return self._below

    def close(self) -> None:
        """Close the file below, until it is needed."""
        if self._below is not None:
            self._below.close()
            self._below = None


class PrivateFile:
    """An open file."""

    def __init__(self, bytes_: _Bytes, path: str) -> None:
        self._shared: _Bytes | None = bytes_
        self._path = path

    @property
    def _bytes(self) -> _Bytes:
        if self._shared is None:
            raise OSError(errno.EBADF, "the file is closed", self._path)
        return self._shared

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers one after the other."""
        self._bytes.own = written(self._bytes.own, offset, b"".join(buffers))

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes; shorter only at the end of the file."""
        below = self._bytes.below
        return bytes(self._bytes.own[offset : offset + size]) if below is None else below.read(offset, size)

    def view(self) -> memoryview:
        """Return a read-only view, in which later writes are seen."""
        return memoryview(self._bytes.own).toreadonly()

    def sync(self) -> None:
        """Nothing becomes durable."""
        assert self._bytes

    def truncate(self, size: int) -> None:
        """Set the size in bytes; new bytes read as zero."""
        self._bytes.own = resized(self._bytes.own, size)

    def allocate(self, size: int) -> None:
        """Grow to `size` bytes."""
        if size > self.size():
            self.truncate(size)

    def size(self) -> int:
        """Size in bytes."""
        below = self._bytes.below
        return len(self._bytes.own) if below is None else below.size()

    def close(self) -> None:
        """Close the file below; what is in memory stays with the disk."""
        if self._shared is not None:
            self._shared.close()
            self._shared = None


class _OwnLock:
    """The lock of a file that is in memory alone."""

    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path
        held.add(path)

    def release(self) -> None:
        """Give the lock back."""
        self._held.discard(self._path)


class PrivateDisk:
    """The operating system's file tree, with changes that end with this object.

    Args:
        disk: The files below; with `RealDisk(read_only=True)` no permission to write is needed.
    """

    def __init__(self, disk: RealDisk) -> None:
        self._disk = disk
        self._files: dict[str, _Bytes] = {}
        self._held: set[str] = set()
        self._gone: set[str] = set()
        self._folders: set[str] = set()

    def open(self, path: str, *, create: bool = False) -> PrivateFile:
        """Open a file; with `create`, make it in memory when it is not there."""
        return PrivateFile(self._bytes(path, create=create), path)

    def _bytes(self, path: str, *, create: bool = False) -> _Bytes:
        found = self._files.get(path)
        if found is None:
            if self._below(path):
                found = _Bytes(self._disk, path)
            elif create and self.exists(path.rpartition("/")[0]):
                found = _Bytes(self._disk, path, bytearray())
            else:
                raise FileNotFoundError(errno.ENOENT, "no such file or folder", path)
            self._files[path] = found
        return found

    def _below(self, path: str) -> bool:
        return path not in self._gone and self._disk.exists(path)

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""
        return path in self._files or path in self._folders or self._below(path)

    def is_link(self, path: str) -> bool:
        """Whether it is a symbolic link below; none is made in memory."""
        return path not in self._files and self._disk.is_link(path)

    def open_to_others(self, path: str) -> bool:
        """Whether other users may read a folder below; data in memory is never visible to them."""
        return self._below(path) and self._disk.open_to_others(path)

    def list(self, path: str) -> list[str]:
        """Sorted names in a folder; empty when it is not there."""
        below = {name for name in self._disk.list(path) if f"{path}/{name}" not in self._gone}
        made = {each.rpartition("/") for each in (*self._files, *self._folders)}
        return sorted(below | {name for folder, _, name in made if folder == path})

    def make_folder(self, path: str, *, durable: bool = True) -> None:
        """Make a folder and its parents in memory; harmless when it is there. Raises OSError: a file is there."""
        if path in self._files:
            raise NotADirectoryError(errno.ENOTDIR, "a file exists where the folder should be", path)
        while path and not self.exists(path):
            self._folders.add(path)
            path = path.rpartition("/")[0]

    def replace(self, source: str, target: str) -> None:
        """Rename a file over another."""
        found = self._bytes(source)
        self.remove(source)
        self._files[target] = found

    def remove(self, path: str) -> None:
        """Delete a file, or an empty folder, as seen here. Raises OSError: it does not exist."""
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._files.pop(path, None)
        self._folders.discard(path)
        self._gone.add(path)

    def sync_folder(self, path: str) -> None:
        """Nothing becomes durable. Raises FileNotFoundError: the folder is not there."""
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)

    def lock(self, path: str) -> Lock:
        """Take the lock of the file below, or of one in memory. Raises BlockingIOError: it is held."""
        if self._below(path):
            return self._disk.lock(path)
        if path in self._held:
            raise BlockingIOError(errno.EAGAIN, "locked already", path)
        self._bytes(path, create=True)
        return _OwnLock(self._held, path)

    def locked(self, path: str) -> bool:
        """Whether that lock is held."""
        return path in self._held or self._disk.locked(path)

    def free_bytes(self, path: str) -> int:
        """Bytes free where `path` is."""
        return self._disk.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        """Bytes in use or free there."""
        return self._disk.total_bytes(path)
