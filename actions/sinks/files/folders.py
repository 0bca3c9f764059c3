"""What a sink of files writes by. Each call may raise `ServerAway`: then it is unknown how much of it happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from conf.secrets import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderWish:
    """What files are to be written by.

    Attributes:
        kind: `disk`, `webhdfs`, or `arrow`.
        urls: Of name nodes, or one of a file system that pyarrow knows.
        user: Name at the other system.
        token: Delegation token, or secret key; not shown.
        access_key, endpoint, region, ca_file: As the options say.
        timeout_seconds: For a call.
    """

    kind: str
    urls: tuple[str, ...] = ()
    user: str = ""
    token: Secret | None = None
    access_key: str | None = None
    endpoint: str | None = None
    region: str | None = None
    ca_file: str | None = None
    timeout_seconds: float = 30.0


class Folders(Protocol):
    """Files in folders, somewhere. Paths are those of `layout`, absolute in their system.

    Attributes:
        name: How people know it.
        appends: Whether a file can grow; otherwise only `put` makes one.
    """

    name: str
    appends: bool

    async def append(self, path: str, at: int, data: bytes) -> None:
        """Write bytes behind the first `at` of a file, durably; with 0 it is made again, with its folders.

        It is known to have that length.
        """

    async def end_writer(self, path: str) -> None:
        """End the writing of a client that is gone; afterwards size and content are those of the whole file.

        Without such a file nothing happens.

        Raises:
            ServerAway: A client may still be writing.
        """

    async def size(self, path: str) -> int | None:
        """Size of a file in bytes; None when it is not there."""

    async def read(self, path: str, at: int, size: int) -> bytes:
        """Return bytes of a file; fewer where it ends."""

    async def truncate(self, path: str, size: int) -> None:
        """Cut a file, durably."""

    async def publish(self, source: str, target: str) -> None:
        """Rename a whole file, durably, over one that has the name."""

    async def put(self, path: str, data: bytes) -> None:
        """Make a whole file, durably; no reader sees a part of it, and it replaces one that has the name."""

    async def close(self) -> None:
        """End all connections."""
