"""Files on the node's own machine, through its disk."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

from actions.sinks.faults import fault_of_disk
from actions.sinks.files.layout import aside
from actions.sinks.local_state import Keep
from conf.file_faults import file_fault

T = TypeVar("T")


class LocalFolders:
    """`Folders` on a disk; what blocks is done beside the loop."""

    name = "the disk"
    appends = True

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._disk = keep.disk

    async def append(self, path: str, at: int, data: bytes) -> None:
        """Append; see `Folders`."""

        def run() -> None:
            folder = path.rpartition("/")[0]
            if not at:
                self._disk.make_folder(folder)
            file = self._disk.open(path, create=not at)
            try:
                size = file.size()
                if size < at:
                    raise OSError(errno.EIO, "another process cut it", path)
                if size > at:
                    # An earlier life of this name.
                    file.truncate(at)
                file.write(at, [data])
                file.sync()
            finally:
                file.close()
            if not at:
                self._disk.sync_folder(folder)

        await self._apart(run)

    async def end_writer(self, path: str) -> None:
        """No writer outlives its process here; see `Folders`."""

    async def size(self, path: str) -> int | None:
        """Size; see `Folders`."""

        def run() -> int | None:
            if not self._disk.exists(path):
                return None
            file = self._disk.open(path)
            try:
                return file.size()
            finally:
                file.close()

        return await self._apart(run)

    async def read(self, path: str, at: int, size: int) -> bytes:
        """Read; see `Folders`."""

        def run() -> bytes:
            file = self._disk.open(path)
            try:
                return file.read(at, size)
            finally:
                file.close()

        return await self._apart(run)

    async def truncate(self, path: str, size: int) -> None:
        """Cut; see `Folders`."""

        def run() -> None:
            file = self._disk.open(path)
            try:
                file.truncate(size)
                file.sync()
            finally:
                file.close()

        await self._apart(run)

    async def publish(self, source: str, target: str) -> None:
        """Rename; see `Folders`."""

        def run() -> None:
            self._disk.replace(source, target)
            self._disk.sync_folder(target.rpartition("/")[0])

        await self._apart(run)

    async def put(self, path: str, data: bytes) -> None:
        """Write aside and rename; see `Folders`."""
        await self.append(aside(path), 0, data)
        await self.publish(aside(path), path)

    async def close(self) -> None:
        """Nothing stays open."""

    async def _apart(self, run: Callable[[], T]) -> T:
        try:
            return await self._keep.apart(run)
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            raise fault_of_disk(error, f"{file_fault(error)}{where}") from error
