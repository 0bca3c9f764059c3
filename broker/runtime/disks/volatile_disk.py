"""A disk in memory, for what is to be forgotten with the process: nothing on it is ever durable, and nothing fails."""

from __future__ import annotations

from collections.abc import Sequence

from broker.runtime.seams import Buffer

_FREE_BYTES = 1 << 60


class VolatileFile:
    """An open file of it."""

    def __init__(self, content: bytearray) -> None:
        self._content = content

    def write(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers one after the other."""
        data = b"".join(buffers)
        content = self._content
        if offset > len(content):
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(data)] = data

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes."""
        return bytes(self._content[offset : offset + size])

    def view(self) -> memoryview:
        """Return what it holds now; later writes are not seen in it."""
        return memoryview(bytes(self._content))

    def sync(self) -> None:
        """Nothing is durable."""

    def truncate(self, size: int) -> None:
        """Set the size."""
        content = self._content
        if size < len(content):
            del content[size:]
        else:
            content.extend(bytes(size - len(content)))

    def allocate(self, size: int) -> None:
        """Grow."""
        self.truncate(max(size, len(self._content)))

    def size(self) -> int:
        """Size in bytes."""
        return len(self._content)

    def close(self) -> None:
        """Nothing is held."""


class _NoLock:
    def release(self) -> None:
        """Nobody else can have it."""


class VolatileDisk:
    """`broker.runtime.seams.Disk` in memory."""

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}

    def open(self, path: str, *, create: bool = False) -> VolatileFile:
        """Open a file. Raises FileNotFoundError."""
        if path not in self._files:
            if not create:
                raise FileNotFoundError(path)
            self._files[path] = bytearray()
        return VolatileFile(self._files[path])

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there; folders are those that have something."""
        return path in self._files or any(each.startswith(f"{path}/") for each in self._files)

    def is_link(self, path: str) -> bool:
        """There are none."""
        return False

    def open_to_others(self, path: str) -> bool:
        """Nobody else sees it."""
        return False

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted."""
        start = len(path) + 1
        return sorted({each[start:].split("/")[0] for each in self._files if each.startswith(f"{path}/")})

    def make_folder(self, path: str, *, durable: bool = True) -> None:
        """Folders need not be made."""

    def replace(self, source: str, target: str) -> None:
        """Rename a file over another. Raises FileNotFoundError."""
        if source not in self._files:
            raise FileNotFoundError(source)
        self._files[target] = self._files.pop(source)

    def remove(self, path: str) -> None:
        """Delete a file. Raises FileNotFoundError."""
        if self._files.pop(path, None) is None:
            raise FileNotFoundError(path)

    def sync_folder(self, path: str) -> None:
        """Nothing is durable."""

    def lock(self, path: str) -> _NoLock:
        """Nobody else can have it."""
        return _NoLock()

    def locked(self, path: str) -> bool:
        """Nobody has it."""
        return False

    def free_bytes(self, path: str) -> int:
        """As much as is wanted."""
        return _FREE_BYTES

    def total_bytes(self, path: str) -> int:
        """As much as is wanted."""
        return _FREE_BYTES
