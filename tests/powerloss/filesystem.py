"""A FUSE file system over a `SimDisk`: what a real process wrote without a sync goes with the power, in part or torn.

`python -m tests.powerloss.filesystem MOUNTPOINT` mounts it and prints `mounted`. Lines on its standard input:

- `cut SEED`: the power is lost. Of each file's unsynced writes any subset of sectors survives, of each folder's
  unsynced names the first few, as the seed decides; the answer is `cut SINCE LATE`: what `JournalTrace` saw. The
  processes that used it must be dead.
- `bad PATH PAGE`: that page of 4 KiB of the file cannot be read from now on; `bad` is the answer. Nobody uses it now.
- End of input: unmount.

fsync and fdatasync of a file make its writes and size durable, fsync of a folder its names; nothing else does. Folders
are durable once made. Inode numbers are never used twice: after a cut every file has a new one, so that no page of the
kernel's cache outlives the cut, those of mappings included. A write is up to 128 KiB here; a longer one is several.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyfuse3
import trio

from pyddmq.testing import SimDisk, SimFile
from tests.powerloss.journal_trace import JournalTrace
from tests.powerloss.operations_trace import OperationsTrace

BLOCK_BYTES = 4096


class ForgetfulFiles(pyfuse3.Operations):
    """The operations; file handles are the simulated disk's open files."""

    def __init__(self, disk: SimDisk, trace: JournalTrace, operations: OperationsTrace) -> None:
        super().__init__()
        self._disk = disk
        self._trace = trace
        self._operations = operations
        self._last_inode = int(pyfuse3.ROOT_INODE)
        self._last_handle = 0
        self._paths: dict[int, str] = {int(pyfuse3.ROOT_INODE): ""}
        self._inodes: dict[str, int] = {"": int(pyfuse3.ROOT_INODE)}
        self._bad: dict[str, set[int]] = {}
        self._handles: dict[int, SimFile] = {}
        self._names: dict[int, str] = {}
        self._listings: dict[int, tuple[str, list[str]]] = {}

    def spoil(self, path: str, page: int) -> None:
        """Give a page of a file out no more; with a new inode, so that no page of the kernel's cache outlives this."""
        self._bad.setdefault(path, set()).add(page)
        self._paths.pop(self._inodes.pop(path, 0), None)

    def cut(self, seed: int) -> None:
        """Lose the power."""
        self._operations.cut(self._disk, lambda: self._disk.crash(Random(seed)))
        self._handles.clear()
        self._names.clear()
        self._paths = {int(pyfuse3.ROOT_INODE): ""}
        self._inodes = {"": int(pyfuse3.ROOT_INODE)}

    # Names

    async def lookup(self, parent: int, name: bytes, ctx: Any = None) -> Any:
        path = self._child(parent, name)
        if not self._disk.exists(path):
            raise pyfuse3.FUSEError(errno.ENOENT)
        return self._attributes(path)

    async def getattr(self, inode: int, ctx: Any = None) -> Any:
        return self._attributes(self._path(inode))

    async def mkdir(self, parent: int, name: bytes, mode: int, ctx: Any) -> Any:
        path = self._child(parent, name)
        if self._disk.exists(path):
            raise pyfuse3.FUSEError(errno.EEXIST)
        self._disk.make_folder(path)
        return self._attributes(path)

    async def unlink(self, parent: int, name: bytes, ctx: Any) -> None:
        path = self._child(parent, name)
        self._operations.note("unlink", path)
        self._do(self._disk.remove, path)
        self._trace.gone(path)
        self._inodes.pop(path, None)

    async def rename(self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int, ctx: Any) -> None:
        source, target = self._child(parent, name), self._child(new_parent, new_name)
        if flags:
            raise pyfuse3.FUSEError(errno.EINVAL)
        self._operations.note("rename", source, target)
        self._do(self._disk.replace, source, target)
        self._trace.gone(source)
        self._trace.named(target)
        for handle, path in self._names.items():
            if path == source:
                self._names[handle] = target
        inode = self._inodes.pop(source, None)
        self._inodes.pop(target, None)
        if inode is not None:
            self._inodes[target] = inode
            self._paths[inode] = target

    async def opendir(self, inode: int, ctx: Any) -> int:
        self._last_handle += 1
        path = self._path(inode)
        self._listings[self._last_handle] = (path, self._disk.list(path or "/"))
        return self._last_handle

    async def readdir(self, handle: int, start: int, token: Any) -> None:
        path, names = self._listings[handle]
        for place in range(start, len(names)):
            child = f"{path}/{names[place]}"
            if self._disk.exists(child) and not pyfuse3.readdir_reply(
                token, names[place].encode(), self._attributes(child), place + 1
            ):
                break

    async def releasedir(self, handle: int) -> None:
        del self._listings[handle]

    async def fsyncdir(self, handle: int, datasync: bool) -> None:
        folder = self._listings[handle][0]
        self._operations.note("fsyncdir", folder)
        self._do(self._disk.sync_folder, folder or "/")
        self._trace.folder_synced(folder)

    # Files

    async def create(self, parent: int, name: bytes, mode: int, flags: int, ctx: Any) -> Any:
        path = self._child(parent, name)
        self._operations.note("create", path)
        info = self._open(self._do(self._disk.open, path, create=True), flags, path)
        self._trace.named(path)
        return info, self._attributes(path)

    async def open(self, inode: int, flags: int, ctx: Any) -> Any:
        path = self._path(inode)
        return self._open(self._do(self._disk.open, path), flags, path)

    async def read(self, handle: int, offset: int, size: int) -> bytes:
        bad = self._bad.get(self._names[handle], set())
        met = [page for page in sorted(bad) if offset < (page + 1) * BLOCK_BYTES and page * BLOCK_BYTES < offset + size]
        if met:
            # The kernel reads ahead, and asks for single pages where that failed.
            raise pyfuse3.FUSEError(errno.EIO)
        return bytes(self._do(self._handles[handle].read, offset, size))

    async def write(self, handle: int, offset: int, data: bytes) -> int:
        if len(data) > 1:
            # A byte in each block is how libc claims space where the file system cannot.
            self._trace.written(self._names[handle])
        self._operations.note("write", self._names[handle], offset, len(data))
        self._do(self._handles[handle].write, offset, [data])
        return len(data)

    async def fsync(self, handle: int, datasync: bool) -> None:
        self._trace.synced(self._names[handle])
        self._operations.note("fsync", self._names[handle])
        self._do(self._handles[handle].sync)

    async def flush(self, handle: int) -> None:
        """A close is no sync."""

    async def release(self, handle: int) -> None:
        file = self._handles.pop(handle, None)
        self._names.pop(handle, None)
        if file is not None:
            file.close()

    async def setattr(self, inode: int, attr: Any, fields: Any, handle: int | None, ctx: Any) -> Any:
        path = self._path(inode)
        if fields.update_size:
            file = self._handles[handle] if handle is not None else self._do(self._disk.open, path)
            self._operations.note("truncate", path, attr.st_size)
            self._do(file.truncate, attr.st_size)
        return self._attributes(path)

    async def statfs(self, ctx: Any) -> Any:
        data = pyfuse3.StatvfsData()
        data.f_bsize = data.f_frsize = BLOCK_BYTES
        data.f_blocks = data.f_bfree = data.f_bavail = 1 << 20
        data.f_files = data.f_ffree = data.f_favail = 1 << 20
        data.f_namemax = 255
        return data

    # Helpers

    def _open(self, file: SimFile, flags: int, path: str) -> Any:
        if flags & os.O_TRUNC:
            self._do(file.truncate, 0)
        self._last_handle += 1
        self._handles[self._last_handle] = file
        self._names[self._last_handle] = path
        return pyfuse3.FileInfo(fh=self._last_handle)

    def _do(self, operation: Any, *args: Any, **options: Any) -> Any:
        try:
            return operation(*args, **options)
        except OSError as error:
            raise pyfuse3.FUSEError(error.errno or errno.EIO) from error

    def _path(self, inode: int) -> str:
        try:
            return self._paths[inode]
        except KeyError:
            raise pyfuse3.FUSEError(errno.ESTALE) from None

    def _child(self, parent: int, name: bytes) -> str:
        return f"{self._path(parent)}/{os.fsdecode(name)}"

    def _attributes(self, path: str) -> Any:
        inode = self._inodes.get(path)
        if inode is None:
            self._last_inode += 1
            inode = self._inodes[path] = self._last_inode
            self._paths[inode] = path
        entry = pyfuse3.EntryAttributes()
        entry.st_ino = inode
        entry.st_uid, entry.st_gid, entry.st_nlink = os.getuid(), os.getgid(), 1
        entry.st_blksize = BLOCK_BYTES
        # Nothing may be believed longer than one call: a cut changes everything.
        entry.entry_timeout = entry.attr_timeout = 0
        if path == "" or self._disk.is_folder(path):
            entry.st_mode = stat.S_IFDIR | 0o755
            return entry
        entry.st_mode = stat.S_IFREG | 0o644
        try:
            file = self._disk.open(path)
        except OSError as error:
            raise pyfuse3.FUSEError(error.errno or errno.EIO) from error
        entry.st_size = file.size()
        entry.st_blocks = -(-entry.st_size // 512)
        return entry


async def _serve(files: ForgetfulFiles, trace: JournalTrace) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pyfuse3.main)
        buffer = b""
        orders = trio.lowlevel.FdStream(os.dup(sys.stdin.fileno()))
        while data := await orders.receive_some():
            buffer += data
            while b"\n" in buffer:
                line, buffer = buffer.split(b"\n", 1)
                word, *rest = line.decode().split()
                if word == "bad":
                    files.spoil(rest[0], int(rest[1]))
                    print("bad", flush=True)
                    continue
                files.cut(int(rest[0]))
                print("cut", *trace.taken(), flush=True)
        pyfuse3.terminate()


def main(arguments: Sequence[str]) -> None:
    """Mount, serve, unmount."""
    trace = JournalTrace(time.monotonic)
    operations = OperationsTrace(Path(f"{arguments[0]}-cuts"), time.monotonic)
    files = ForgetfulFiles(SimDisk(), trace, operations)
    pyfuse3.init(files, arguments[0], {*pyfuse3.default_options, "fsname=forgetful"})
    try:
        print("mounted", flush=True)
        trio.run(_serve, files, trace)
    finally:
        pyfuse3.close()


if __name__ == "__main__":
    main(sys.argv[1:])
