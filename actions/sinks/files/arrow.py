"""Files where pyarrow's file systems reach: S3, Google's and Microsoft's object stores. Only whole files.

An object becomes visible when its upload ends, whole. An upload that fails is not ended by us; what pyarrow makes of it
when it is thrown away is not relied upon: its length and sum are looked at before its messages count as written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from actions.sinks.faults import ServerAway, ServerRefusedMessage, fault_of_disk
from actions.sinks.files.folders import FolderWish
from actions.sinks.local_state import Keep
from conf.secrets import SecretUnreadable

T = TypeVar("T")

_REFUSED = ("KeyTooLong", "InvalidObjectName", "InvalidURI")
"""Parts of errors of an object store that can have no object of this name."""


class ArrowFolders:
    """`Folders` by pyarrow; what blocks is done beside the loop."""

    appends = False

    def __init__(self, wish: FolderWish, keep: Keep) -> None:
        self.name = wish.urls[0].partition("?")[0]
        self._wish = wish
        self._keep = keep
        self._system: Any = None
        self._root = ""

    def _opened(self) -> Any:
        import pyarrow.fs

        fs: Any = pyarrow.fs

        if self._system is None:
            wish = self._wish
            [url] = wish.urls
            if url.startswith("s3://") and "?" not in url and (wish.endpoint or wish.region or wish.access_key):
                endpoint = wish.endpoint or ""
                scheme, _, address = endpoint.rpartition("://")
                self._system = fs.S3FileSystem(
                    access_key=wish.access_key,
                    secret_key=None if wish.token is None else wish.token.read(),
                    endpoint_override=address or None,
                    scheme=scheme or "https",
                    region=wish.region,
                )
                self._root = url.removeprefix("s3://").rstrip("/")
            else:
                self._system, root = fs.FileSystem.from_uri(url)
                self._root = root.rstrip("/")
        return self._system

    async def put(self, path: str, data: bytes) -> None:
        """Upload; see `Folders`."""

        def run() -> None:
            system = self._opened()
            where = self._root + path
            if system.type_name == "local":
                system.create_dir(where.rpartition("/")[0], recursive=True)
            stream = system.open_output_stream(where)
            stream.write(data)
            stream.close()

        await self._apart(run)

    async def end_writer(self, path: str) -> None:
        """No writer outlives its process here; see `Folders`."""

    async def size(self, path: str) -> int | None:
        """Size; see `Folders`."""

        def run() -> int | None:
            info = self._opened().get_file_info(self._root + path)
            return int(info.size) if info.is_file else None

        return await self._apart(run)

    async def read(self, path: str, at: int, size: int) -> bytes:
        """Read; see `Folders`."""

        def run() -> bytes:
            with self._opened().open_input_file(self._root + path) as file:
                return bytes(file.read_at(size, at))

        return await self._apart(run)

    async def append(self, path: str, at: int, data: bytes) -> None:
        """Not here; see `Folders`."""
        raise AssertionError("an object cannot grow")

    async def truncate(self, path: str, size: int) -> None:
        """Not here; see `Folders`."""
        raise AssertionError("an object cannot be cut")

    async def publish(self, source: str, target: str) -> None:
        """Not here; see `Folders`."""
        raise AssertionError("an object has its name from the beginning")

    async def close(self) -> None:
        """Nothing stays open."""

    async def _apart(self, run: Callable[[], T]) -> T:
        from pyarrow import ArrowException

        try:
            return await self._keep.apart(run)
        except SecretUnreadable as error:
            raise ServerAway(str(error)) from error
        except (OSError, ArrowException) as error:
            # The next call reads the secret and the certificates again, and looks the name up.
            self._system = None
            text = str(error).partition("\n")[0][:300] or type(error).__name__
            if any(part in text for part in _REFUSED):
                raise ServerRefusedMessage(text) from error
            raise (fault_of_disk(error, text) if isinstance(error, OSError) else ServerAway(text)) from error
