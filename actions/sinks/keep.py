"""What sinks of a node keep on its own disk: protocols, which the node fulfils.

A sink that writes files has to know after a kill how far each file was right. That stands under `pyddmq/sinks/` in the
node's data directory, checksummed, and is replaced in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class KeptFile(Protocol):
    """One open file. Every method may raise OSError."""

    def write(self, offset: int, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write all buffers one after the other from a byte on."""
        ...

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes; shorter only at the end of the file."""
        ...

    def sync(self) -> None:
        """Make all earlier writes durable."""
        ...

    def truncate(self, size: int) -> None:
        """Set the size in bytes."""
        ...

    def size(self) -> int:
        """Size in bytes."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class KeptDisk(Protocol):
    """The part of the node's disk that sinks use. Every method may raise OSError."""

    def open(self, path: str, *, create: bool = False) -> KeptFile:
        """Open for reading and writing."""
        ...

    def exists(self, path: str) -> bool:
        """Whether the path is there."""
        ...

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents, durably; harmless when it is there."""
        ...

    def replace(self, source: str, target: str) -> None:
        """Rename a file, over another if there is one."""
        ...

    def sync_folder(self, path: str) -> None:
        """Make creations and renames in a folder durable."""
        ...


class State(Protocol):
    """One small value that survives a kill."""

    def load(self) -> Any:
        """Return it; None when there is none.

        Raises:
            StateDamaged: It is there and cannot be believed.
            OSError: It cannot be read.
        """
        ...

    def save(self, value: Any) -> None:
        """Replace it durably. Raises OSError; it is then the old one or the new one."""
        ...


class StateDamaged(Exception):
    """A kept value cannot be believed."""


class Keep(Protocol):
    """What a node hands in."""

    @property
    def disk(self) -> KeptDisk:
        """The node's disk; blocking."""
        ...

    def state(self, name: str) -> State:
        """Return the value of a name, which is any text."""
        ...

    async def apart(self, run: Callable[[], T]) -> T:
        """Run what blocks beside the loop, and return or raise what it does."""
        ...
