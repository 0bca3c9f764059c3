"""A disk in memory that can lose what was not synced, tear writes, fail and fill up.

What it models, per file: the content that a reader sees, the content that is durable, and the changes between the
two, in order. Folder entries (creations, renames, deletions) are kept likewise, per folder. Folders themselves are
durable at once, as `make_folder` promises.

- `kill()` is SIGKILL: every write survives, locks and open files do not.
- `crash(random)` is a power cut: of each file's unsynced changes any subset of 512-byte sectors survives; of each
  folder's unsynced entries the first few survive.
- `fail(...)` makes a later operation raise; `capacity_bytes` bounds the space; `stop_after(n)` raises `PowerCut` in
  place of the n-th change from now, after which nothing works until `kill` or `crash`.
- What a failed sync was for can be read until the power is lost, whatever is synced later.

Files opened before a kill or crash are dead. Views stay as they were.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from broker.runtime.disk import FileBytes, resized, written
from broker.runtime.seams import Buffer

SECTOR_BYTES = 512
_PAGE_BYTES = 4096
CRASH_MODES = ("none", "all", "prefix", "sectors")


class PowerCut(BaseException):
    """The simulated machine stopped; not an Exception, so that no handler of the product swallows it."""


@dataclass(slots=True)
class _SimNode:
    """A file's content. `changes` holds (offset, bytes) of writes and (size, None) of size changes since the sync."""

    content: FileBytes = field(default_factory=bytearray)
    durable: FileBytes = field(default_factory=bytearray)
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)
    claimed: int = 0
    path: str = ""


@dataclass(slots=True)
class _Fault:
    operation: str
    error: int
    path_part: str
    skip: int


class SimFile:
    """An open file of a `SimDisk`."""

    def __init__(self, disk: SimDisk, node: _SimNode) -> None:
        self._disk = disk
        self._node = node
        self._epoch = disk.epoch
        self._open = True

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write the buffers in a row."""
        data = b"".join(buffers)
        self._check()
        self._disk.write_pages(self._path, offset, offset + len(data), size=len(self._node.content))
        self._disk.step("write", self._path, lambda: self._apply(offset, data[: len(data) // 2]))
        self._disk.take_space(self._node, offset + len(data))
        self._apply(offset, data)

    def _apply(self, offset: int, data: bytes) -> None:
        node = self._node
        node.content = written(node.content, offset, data)
        node.changes.append((offset, data))

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes."""
        self._check()
        self._disk.trip("read", self._path)
        data = bytes(self._node.content[offset : offset + size])
        self._disk.read_pages(self._path, offset, offset + len(data))
        self._disk.read_bytes[self._path] += len(data)
        return data

    def view(self) -> memoryview:
        """Return a view that later writes are seen in; counts as reading all of it."""
        self._check()
        self._disk.read_bytes[self._path] += len(self._node.content)
        return memoryview(self._node.content).toreadonly()

    def sync(self) -> None:
        """Make the changes durable."""
        self._check()
        self.syncing()()

    def syncing(self) -> Callable[[], None]:
        """Return what makes the present changes durable, and none of those that come later; the file may be closed."""
        node, covered = self._node, list(self._node.changes)

        def sync() -> None:
            self._disk.check_alive()
            mine = set(map(id, covered))
            # Without those that another sync has made durable meanwhile, or lost.
            ended = [change for change in node.changes if id(change) in mine]
            later = [change for change in node.changes if id(change) not in mine]
            try:
                self._disk.step("sync", node.path)
            except OSError:
                # Linux marks the pages clean all the same: they can be read, and a later sync does not write them.
                node.changes = [change for change in ended if change[1] is None] + later
                raise
            for offset, data in ended:
                if data is None:
                    node.durable = resized(node.durable, offset)
                else:
                    node.durable = written(node.durable, offset, data)
            node.changes = later
            self._disk.synced_files += 1

        return sync

    def truncate(self, size: int) -> None:
        """Set the size."""
        self._check()
        self._disk.step("truncate", self._path)
        if size != len(self._node.content):
            self._disk.take_space(self._node, size)
            self._resize(size)

    def allocate(self, size: int) -> None:
        """Grow with the space claimed."""
        self._check()
        self._disk.step("allocate", self._path)
        if size > len(self._node.content):
            self._disk.take_space(self._node, size)
            self._resize(size)

    def _resize(self, size: int) -> None:
        # A new object: a bytearray with views on it cannot change its size.
        self._node.content = resized(self._node.content, size)
        self._node.claimed = size
        self._node.changes.append((size, None))

    def size(self) -> int:
        """Size in bytes."""
        self._check()
        return len(self._node.content)

    def close(self) -> None:
        """Close; views stay readable."""
        self._open = False

    @property
    def _path(self) -> str:
        return self._node.path

    def _check(self) -> None:
        if not self._open or self._epoch != self._disk.epoch:
            raise OSError(errno.EBADF, "the file is closed", self._path)
        self._disk.check_alive()


class SimLock:
    """A held lock of a `SimDisk`."""

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._epoch = disk.epoch

    def release(self) -> None:
        """Give the lock back."""
        if self._epoch == self._disk.epoch:
            self._disk.locks.discard(self._path)


class SimDisk:
    """A tree of files in memory that can lose unsynced data, tear writes, fail and fill up.

    It satisfies `pyddmq.broker.Disk`. After `kill` or `crash` the same object is the disk of the next start, without
    open files, locks and injected faults.

    Attributes:
        capacity_bytes: Space for all files together; None is unlimited. Beyond it writes raise ENOSPC.
        operations: Number of changes (writes, syncs, renames ...), as `stop_after` counts them.
        synced_files: Number of syncs of files.
        faults_hit: Number of injected faults that were raised, by operation; `full` for ENOSPC.
        read_bytes: Bytes read, by path.
        bad_pages: Pages of 4 KiB that cannot be read, by path, as after a bad sector: reading one raises EIO, and so
            does writing a part of it; writing it whole makes it good. They survive `kill` and `crash`, and go with
            their file.
    """

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.operations = 0
        self.synced_files = 0
        self.faults_hit: dict[str, int] = {}
        self.read_bytes: Counter[str] = Counter()
        self.bad_pages: dict[str, set[int]] = {}
        self.epoch = 0
        self.locks: set[str] = set()
        self._folders: set[str] = {"/", ""}
        self._files: dict[str, _SimNode] = {}
        self._durable_files: dict[str, _SimNode] = {}
        # Unsynced entries in order: (folder, path, node now there or None, path that the entry takes away or None).
        self._entries: list[tuple[str, str, _SimNode | None, str | None]] = []
        self._faults: list[_Fault] = []
        self._stop_left: int | None = None
        self._stop_part = ""
        self._stopped = False

    # The Disk protocol

    def open(self, path: str, *, create: bool = False) -> SimFile:
        """Open a file.

        Raises:
            FileNotFoundError: It does not exist; with `create`, its folder does not.
        """
        self.check_alive()
        node = self._files.get(path)
        if node is None:
            folder = os.path.dirname(path)
            if not create or folder not in self._folders:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.step("create", path)
            node = self._files[path] = _SimNode(path=path)
            self._entries.append((folder, path, node, None))
        return SimFile(self, node)

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""
        self.check_alive()
        return path in self._files or path.rstrip("/") in self._folders

    def is_link(self, path: str) -> bool:
        """Whether it is a symbolic link, which this disk has none of."""
        self.check_alive()
        return False

    def open_to_others(self, path: str) -> bool:
        """Whether other users may read a folder; always false."""
        self.check_alive()
        return False

    def is_folder(self, path: str) -> bool:
        """Whether a folder is there."""
        return path.rstrip("/") in self._folders

    def list(self, path: str) -> list[str]:
        """Sorted names in a folder."""
        self.check_alive()
        path = path.rstrip("/") or "/"
        return sorted(
            os.path.basename(each)
            for each in [*self._files, *self._folders]
            if each not in ("", "/") and os.path.dirname(each) == path
        )

    def make_folder(self, path: str, *, durable: bool = True) -> None:
        """Create a folder and its parents.

        Raises:
            NotADirectoryError: A file has this name.
        """
        self.check_alive()
        path = path.rstrip("/")
        if path in self._files:
            raise NotADirectoryError(errno.ENOTDIR, "a file exists where the folder should be", path)
        while path not in self._folders:
            self._folders.add(path)
            path = os.path.dirname(path)

    def replace(self, source: str, target: str) -> None:
        """Rename over the target.

        Raises:
            FileNotFoundError: The source or the folder of the target does not exist.
        """
        self.check_alive()
        if source not in self._files or os.path.dirname(target) not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self.step("replace", target)
        node = self._files.pop(source)
        self._files[target] = node
        self.bad_pages.pop(target, None)
        if source in self.bad_pages:
            self.bad_pages[target] = self.bad_pages.pop(source)
        node.path = target
        self._entries.append((os.path.dirname(target), target, node, source))

    def remove(self, path: str) -> None:
        """Delete a file.

        Raises:
            FileNotFoundError: It does not exist.
        """
        self.check_alive()
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self.step("remove", path)
        del self._files[path]
        self.bad_pages.pop(path, None)
        self._entries.append((os.path.dirname(path), path, None, None))

    def sync_folder(self, path: str) -> None:
        """Make the entries of a folder durable."""
        self.check_alive()
        self.syncing_folder(path)()

    def syncing_folder(self, path: str) -> Callable[[], None]:
        """Return what makes the present entries of a folder durable, and none of those that come later."""
        folder = path.rstrip("/") or "/"
        covered = list(self._entries)

        def sync() -> None:
            self.check_alive()
            if folder not in self._folders:
                raise FileNotFoundError(errno.ENOENT, "no such folder", path)
            self.step("sync_folder", path)
            mine, moved, later = set(map(id, covered)), set(), []
            for entry in self._entries:
                if entry[0] == folder and id(entry) in mine:
                    self._crash(entry)
                    moved.add((entry[3], id(entry[2])))
                else:
                    later.append(entry)
            # A durable rename takes an unsynced creation of its source with it: no file comes back under both names.
            self._entries = [entry for entry in later if (entry[1], id(entry[2])) not in moved]

        return sync

    def lock(self, path: str) -> SimLock:
        """Lock a file.

        Raises:
            BlockingIOError: It is locked.
        """
        self.open(path, create=True).close()
        if path in self.locks:
            raise BlockingIOError(errno.EAGAIN, "locked already", path)
        self.locks.add(path)
        return SimLock(self, path)

    def locked(self, path: str) -> bool:
        """Whether the file is locked."""
        self.check_alive()
        return path in self.locks

    def free_bytes(self, path: str) -> int:
        """Bytes left of the capacity."""
        self.check_alive()
        return (1 << 62) if self.capacity_bytes is None else max(self.capacity_bytes - self.used_bytes(), 0)

    def total_bytes(self, path: str) -> int:
        """The capacity; the bytes in use if it was set below them."""
        self.check_alive()
        return (
            (1 << 62) + self.used_bytes()
            if self.capacity_bytes is None
            else max(self.capacity_bytes, self.used_bytes())
        )

    # Faults

    def fail(self, operation: str, *, error: int = errno.EIO, path_part: str = "", skip: int = 0) -> None:
        """Make one later operation fail with OSError.

        Args:
            operation: `write`, `sync`, `read`, `allocate`, `truncate`, `create`, `replace`, `remove` or `sync_folder`.
            error: The errno.
            path_part: Only operations whose path contains this.
            skip: How many matching operations succeed before.
        """
        self._faults.append(_Fault(operation, error, path_part, skip))

    def read_pages(self, path: str, start: int, end: int) -> None:
        """Raise EIO when one of the bytes [start, end) of a file is on a bad page."""
        if any(start < (page + 1) * _PAGE_BYTES and page * _PAGE_BYTES < end for page in self.bad_pages.get(path, ())):
            self.faults_hit["bad_page"] = self.faults_hit.get("bad_page", 0) + 1
            raise OSError(errno.EIO, "injected", path)

    def write_pages(self, path: str, start: int, end: int, *, size: int) -> None:
        """Make good the bad pages that a write covers, as far as the file's size; raise EIO for a part of one."""
        bad = self.bad_pages.get(path)
        if not bad:
            return
        bad -= {
            page for page in bad if start <= page * _PAGE_BYTES and min((page + 1) * _PAGE_BYTES, max(size, 1)) <= end
        }
        self.read_pages(path, start, end)

    def heal(self) -> None:
        """Withdraw all injected faults."""
        self._faults.clear()

    def stop_after(self, changes: int, *, path_part: str = "") -> None:
        """Raise `PowerCut` in place of the change that follows `changes` more; half of a write may have happened.

        With `path_part`, only changes whose path contains it count.
        """
        self._stop_left, self._stop_part = changes, path_part

    def kill(self) -> None:
        """SIGKILL: writes survive; locks and open files do not."""
        self._reset()

    def crash(self, random: Random, *, modes: Sequence[str] = CRASH_MODES) -> None:
        """Cut the power: unsynced changes survive in part, as `random` decides.

        Args:
            random: Decides for each file, and how many unsynced names of each folder survive.
            modes: What may survive of one file's unsynced writes: `none`, `all`, `prefix` (the first ones, the last
                of them torn at a sector), `sectors` (any subset of sectors of 512 bytes).
        """
        survivors = dict(self._durable_files)
        kept: dict[str, int] = {}
        for folder in sorted({entry[0] for entry in self._entries}):
            count = sum(entry[0] == folder for entry in self._entries)
            kept[folder] = random.choice((0, count, random.randint(0, count)))
        for entry in self._entries:
            if kept[entry[0]]:
                kept[entry[0]] -= 1
                self._crash(entry, survivors)
        self._files = survivors
        self._durable_files = dict(survivors)
        self._entries = []
        settled: set[int] = set()
        for node in survivors.values():
            if id(node) not in settled:
                settled.add(id(node))
                _crash_content(node, random, modes)
        self._reset()

    def flip_bit(self, path: str, offset: int, bit: int = 0) -> None:
        """Damage a file at rest."""
        node = self._files[path]
        node.content[offset] ^= 1 << bit
        if offset < len(node.durable):
            node.durable[offset] ^= 1 << bit

    def _reset(self) -> None:
        self.epoch += 1
        self.locks.clear()
        self._faults.clear()
        self._stop_left = None
        self._stopped = False

    # What files call

    def check_alive(self) -> None:
        """Raise PowerCut once the machine has stopped."""
        if self._stopped:
            raise PowerCut

    def trip(self, operation: str, path: str) -> None:
        """Raise the injected fault that is due for an operation, if any."""
        for fault in self._faults:
            if fault.operation == operation and fault.path_part in path:
                if fault.skip:
                    fault.skip -= 1
                    continue
                self._faults.remove(fault)
                self.faults_hit[operation] = self.faults_hit.get(operation, 0) + 1
                raise OSError(fault.error, os.strerror(fault.error), path)

    def step(self, operation: str, path: str, partly: Callable[[], None] | None = None) -> None:
        """Count a change; stop the machine or raise a fault when one is due.

        Args:
            operation: Its kind.
            path: Where.
            partly: Called without arguments before the machine stops: what of the change may have happened.
        """
        self.trip(operation, path)
        if self._stop_left is not None and self._stop_part in path:
            if not self._stop_left:
                self._stopped = True
                if partly is not None:
                    partly()
                raise PowerCut
            self._stop_left -= 1
        self.operations += 1

    def take_space(self, node: _SimNode, size: int) -> None:
        """Claim space up to `size` for a file, or raise ENOSPC."""
        more = size - max(node.claimed, len(node.content))
        if more > 0 and self.capacity_bytes is not None and self.used_bytes() + more > self.capacity_bytes:
            self.faults_hit["full"] = self.faults_hit.get("full", 0) + 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        node.claimed = max(node.claimed, size)

    def contents(self) -> dict[str, bytes]:
        """Return what each file holds, by path."""
        return {path: bytes(node.content) for path, node in self._files.items()}

    def used_bytes(self) -> int:
        """Return the space that files take."""
        return sum(max(len(node.content), node.claimed) for node in self._files.values())

    def _crash(
        self, entry: tuple[str, str, _SimNode | None, str | None], files: dict[str, _SimNode] | None = None
    ) -> None:
        """Make one folder entry durable, or put it into the tree of a crash."""
        _, path, node, source = entry
        target = self._durable_files if files is None else files
        if source is not None and target.get(source) is node:
            del target[source]
        if node is None:
            target.pop(path, None)
        else:
            target[path] = node


def _crash_content(node: _SimNode, random: Random, modes: Sequence[str]) -> None:
    """Decide what a power cut left of a file's unsynced changes."""
    mode = random.choice(modes)
    changes = node.changes
    if mode == "none":
        changes = []
    elif mode == "prefix":
        changes = changes[: random.randint(0, len(changes))]
    content = resized(node.durable, len(node.durable))
    for offset, data in changes:
        if data is None:
            if mode != "sectors" or random.random() < 0.5:
                content = resized(content, offset)
            continue
        at = 0
        while at < len(data):
            piece = data[at : at + SECTOR_BYTES - (offset + at) % SECTOR_BYTES]
            if mode != "sectors" or random.random() < 0.5:
                content = written(content, offset + at, piece)
            at += len(piece)
    if mode == "prefix" and changes and len(changes) < len(node.changes):
        content = _torn(content, node.changes[len(changes)], random)
    node.content = content
    node.durable = resized(content, len(content))
    node.changes = []
    node.claimed = len(content)


def _torn(content: FileBytes, change: tuple[int, bytes | None], random: Random) -> FileBytes:
    """Let the first sectors of the write after the surviving ones survive as well."""
    offset, data = change
    if data is None:
        return content
    first = SECTOR_BYTES - offset % SECTOR_BYTES
    size = first + SECTOR_BYTES * random.randint(-1, len(data) // SECTOR_BYTES)
    return written(content, offset, data[: max(size, 0)])
