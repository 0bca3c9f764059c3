"""The real disk: `Disk` and `DiskFile` over the operating system.

Guarantees: `sync` is fdatasync; `sync_folder` is fsync of the folder; folders made by `make_folder` are durable at
once, unless the caller syncs them; `allocate` claims blocks, so that later writes inside the file cannot run out of
space on file systems that write in place. Nothing is retried: an error from the system reaches the caller as OSError.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Sequence

from broker.runtime.seams import Buffer

# The bytes of a file that is in memory: large ones take room only where something was written, as on a real disk.
#
# A timer wheel of 38 MB with three slots in use would otherwise cost each simulated node twice that.


FileBytes = bytearray | mmap.mmap

SPARSE_BYTES = 1 << 20
"""From this size on the kernel gives pages when they are written to."""
_BLOCK_BYTES = 1 << 16
_ZEROS = bytes(_BLOCK_BYTES)


def resized(old: FileBytes, size: int) -> FileBytes:
    """Return a new object of `size` bytes that begins with those of `old`; what is beyond them is 0."""
    if size < SPARSE_BYTES:
        new = bytearray(old[:size])
        return new + bytes(size - len(new)) if len(new) < size else new
    sparse = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    end = min(size, len(old))
    for at in range(0, end, _BLOCK_BYTES):
        block = old[at : min(at + _BLOCK_BYTES, end)]
        if block != _ZEROS[: len(block)]:
            sparse[at : at + len(block)] = block
    return sparse


def written(old: FileBytes, offset: int, data: bytes) -> FileBytes:
    """Write `data` at `offset` and return the object that has it: `old` unless it had to grow."""
    end = offset + len(data)
    new = _grown(old, end) if end > len(old) else old
    new[offset:end] = data
    return new


def _grown(old: FileBytes, size: int) -> FileBytes:
    if isinstance(old, bytearray) and size < SPARSE_BYTES:
        try:
            old.extend(bytes(size - len(old)))
        except BufferError:
            # Somebody has a view on it.
            return resized(old, size)
        return old
    return resized(old, size)


_FILE_MODE, _FOLDER_MODE = 0o600, 0o700  # messages are their owner's business; an umask takes away more
_IOV_MAX = 1024
_JOIN_BYTES_MAX = 1 << 20
_FLOCK = "hhqqi4x"  # Linux's struct flock on 64 bits: type, whence, start, length, process


class RealFile:
    """One open file of the operating system; its errors name it, which calls on a descriptor do not.

    Attributes:
        descriptor: The system's number of the open file; -1 when it is closed.
        path: Where it was opened; empty when that is not known.
    """

    def __init__(self, descriptor: int, path: str = "") -> None:
        self.descriptor = descriptor
        self.path = path

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers one after the other; a short write is continued.

        Up to 1 MiB is joined first: one copy costs less than the kernel's walk over many small pieces.
        """
        total = sum(map(len, buffers))
        try:
            if total <= _JOIN_BYTES_MAX:
                self._write_all(offset, [buffers[0] if len(buffers) == 1 else b"".join(buffers)], total)
                return
            for start in range(0, len(buffers), _IOV_MAX):
                part = list(buffers[start : start + _IOV_MAX])
                size = sum(map(len, part))
                self._write_all(offset, part, size)
                offset += size
        except OSError as error:
            error.filename = self.path
            raise

    def _write_all(self, offset: int, buffers: list[Buffer], left: int) -> None:
        written = os.pwritev(self.descriptor, buffers, offset)
        while written < left:
            if not written:
                raise OSError(errno.EIO, "write made no progress")
            rest = memoryview(b"".join(buffers))[written:]
            offset, left, buffers = offset + written, left - written, [rest]
            written = os.pwritev(self.descriptor, buffers, offset)

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes; shorter only at the end of the file."""
        data = os.pread(self.descriptor, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size and (more := os.pread(self.descriptor, size - got, offset + got)):
            parts.append(more)
            got += len(more)
        return b"".join(parts)

    def view(self) -> memoryview:
        """Map the whole file for reading; the mapping lives as long as a view of it does."""
        if not self.size():
            return memoryview(b"")
        return memoryview(mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_READ))

    def private(self) -> FileBytes:
        """Return the file's bytes as they are now; a page that is written to is copied, and the file keeps its own."""
        return mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_COPY) if self.size() else bytearray()

    def sync(self) -> None:
        """Make earlier writes durable."""
        try:
            os.fdatasync(self.descriptor)
        except OSError as error:
            error.filename = self.path
            raise

    def truncate(self, size: int) -> None:
        """Set the size in bytes."""
        try:
            os.ftruncate(self.descriptor, size)
        except OSError as error:
            error.filename = self.path
            raise

    def allocate(self, size: int) -> None:
        """Claim the blocks of the first `size` bytes, growing the file; on failure it keeps its old size."""
        before = self.size()
        if size <= before:
            return
        try:
            os.posix_fallocate(self.descriptor, before, size - before)
        except OSError as error:
            os.ftruncate(self.descriptor, before)
            error.filename = self.path
            raise

    def size(self) -> int:
        """Size in bytes."""
        return os.fstat(self.descriptor).st_size

    def close(self) -> None:
        """Close the file; views stay readable, since a mapping keeps a descriptor of its own."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class RealLock:
    """A held POSIX lock."""

    def __init__(self, descriptor: int, identity: tuple[int, int]) -> None:
        self._fd = descriptor
        self._identity = identity

    def release(self) -> None:
        """Give the lock back; harmless the second time."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            _held.discard(self._identity)


# POSIX locks do not exclude two openers of one process, and closing any descriptor of the file drops the lock: so files
# locked by this process are remembered here, by device and inode, and never opened a second time.
_held: set[tuple[int, int]] = set()


class RealDisk:
    """The operating system's file tree.

    Args:
        read_only: Open files for reading alone, which needs no permission to write; for
            `broker.runtime.disks.read_only_disk.ReadingDisk` and `broker.runtime.disks.private_disk.PrivateDisk`.
            Locks are shared then: they exclude an owner, not other readers.
    """

    def __init__(self, *, read_only: bool = False) -> None:
        self._read_only = read_only
        self._flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR)

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Open for reading and writing."""
        return RealFile(os.open(path, self._flags | (os.O_CREAT if create else 0), _FILE_MODE), path)

    def exists(self, path: str) -> bool:
        """Whether the path is there."""
        return os.path.exists(path)

    def is_link(self, path: str) -> bool:
        """Whether it is a symbolic link."""
        return os.path.islink(path)

    def open_to_others(self, path: str) -> bool:
        """Whether its mode lets other users in; False when it is not there."""
        try:
            return bool(os.stat(path).st_mode & 0o077)
        except FileNotFoundError:
            return False

    def list(self, path: str) -> list[str]:
        """Sorted names in a folder; empty when it is not there."""
        try:
            return sorted(os.listdir(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_folder(self, path: str, *, durable: bool = True) -> None:
        """Create a folder and its parents; `durable` syncs them. Raises OSError: a file is there, or the disk's own."""
        if os.path.isdir(path):
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.make_folder(parent, durable=durable)
        try:
            os.mkdir(path, _FOLDER_MODE)
        except FileExistsError:
            if not os.path.isdir(path):
                raise NotADirectoryError(errno.ENOTDIR, "a file exists where the folder should be", path) from None
        if durable:
            self.sync_folder(parent)

    def replace(self, source: str, target: str) -> None:
        """Rename over the target."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """Delete a file."""
        os.remove(path)

    def sync_folder(self, path: str) -> None:
        """Make the folder's entries durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> RealLock:
        """Lock byte 0 of a file against other processes and against this one; with `read_only` it is not created.

        Raises:
            BlockingIOError: It is locked.
            OSError: It cannot be opened.
        """
        try:
            status = os.stat(path)
        except FileNotFoundError:
            pass
        else:
            if (status.st_dev, status.st_ino) in _held:
                raise BlockingIOError(errno.EAGAIN, "locked by this process already", path)
        descriptor = os.open(path, self._flags | (0 if self._read_only else os.O_CREAT), _FILE_MODE)
        kind = fcntl.LOCK_SH if self._read_only else fcntl.LOCK_EX
        try:
            fcntl.lockf(descriptor, kind | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(errno.EAGAIN, "locked by another process", path) from error
            raise
        status = os.fstat(descriptor)
        identity = (status.st_dev, status.st_ino)
        _held.add(identity)
        return RealLock(descriptor, identity)

    def locked(self, path: str) -> bool:
        """Whether a process holds the lock on byte 0; the file is not opened when this process holds it."""
        try:
            status = os.stat(path)
        except FileNotFoundError:
            return False
        if (status.st_dev, status.st_ino) in _held:
            return True
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            return bool(struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: str) -> int:
        """Bytes that an unprivileged process may still use."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        """Bytes in use or free for an unprivileged process; bytes reserved for root are in neither."""
        status = os.statvfs(path)
        return (status.f_blocks - status.f_bfree + status.f_bavail) * status.f_frsize
