"""HDFS by its HTTP interface, WebHDFS: the calls that a sink of files needs, over aiohttp.

Bytes go in two steps: the name node answers which data node takes them, and the body goes there. An append is durable
as HDFS has it when the data node answers: the file is closed then, its bytes are with all replicas (they sync to their
disks at once only under `dfs.datanode.synconclose`). A call that fails on the way leaves the length in doubt, and the
file open by a writer that is gone. Until HDFS has ended that writer's lease, its name node gives a wrong length.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from actions.http.connection_options import HttpWish
from actions.sinks.faults import ServerAway, ServerRefusedMessage
from actions.sinks.files.folders import FolderWish
from actions.sinks.files.layout import aside
from conf.secrets import SecretUnreadable

if TYPE_CHECKING:
    from aiohttp import BaseConnector, ClientSession

T = TypeVar("T")

REPLY_BYTES_MAX = 1 << 20
CONNECTIONS_MAX = 8
_STANDBY = "StandbyException"
_NOT_FOUND = "FileNotFoundException"

_REFUSED = ("IllegalArgumentException", "InvalidPathException", "PathComponentTooLongException",
            "ParentNotDirectoryException", "FileAlreadyExistsException", "HTTP 400", "HTTP 414")  # fmt: skip
"""HDFS can have no file of this name."""
_WAITS = ("AccessControlException", "NSQuotaExceededException", "DSQuotaExceededException",
          "QuotaByStorageTypeExceededException", "MaxDirectoryItemsExceededException", "HTTP 403")  # fmt: skip
"""The folder has a quota, or the user has no permission for it."""


class _HdfsError(Exception):
    """What WebHDFS says went wrong."""

    def __init__(self, status: int, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.status = status
        self.name = name

    @property
    def fault(self) -> Exception:
        """The fault that it means (`actions.sinks.faults`)."""
        if self.name in _REFUSED:
            return ServerRefusedMessage(str(self))
        if self.name in _WAITS:
            # Space is counted when a data node asks for a block, with bytes before it perhaps written.
            return ServerRefusedMessage(str(self), waits=True, is_partial="Quota" in self.name)
        return ServerAway(str(self))


class WebHdfs:
    """`Folders` over WebHDFS."""

    name = "HDFS"
    appends = True

    def __init__(self, wish: FolderWish, connector: Callable[[HttpWish], BaseConnector]) -> None:
        self._connector = connector
        self._urls = [url.rstrip("/") for url in wish.urls]
        self._used = 0
        self._token: str | None = None
        self._wish = wish
        self._session: ClientSession | None = None

    async def append(self, path: str, at: int, data: bytes) -> None:
        """Append; see `Folders`."""
        if not at:
            await self._send("PUT", path, data, op="CREATE", overwrite="true", permission="640")
        else:
            await self._send("POST", path, data, op="APPEND")

    async def end_writer(self, path: str) -> None:
        """Append nothing, which succeeds only on a file without a writer; see `Folders`.

        While a writer's lease lasts, the name node knows neither the length nor the end of the last block. An append of
        another client makes it end an expired lease and recover the block; WebHDFS has no other call for that.
        """
        try:
            await self._tried(lambda: self._append_nothing(path))
        except _HdfsError as error:
            if error.name != _NOT_FOUND:
                raise error.fault from error

    async def _append_nothing(self, path: str) -> bytes:
        return await self._exchange("POST", await self._located("POST", path, op="APPEND"), b"")

    async def size(self, path: str) -> int | None:
        """Size; see `Folders`."""
        try:
            answer = await self._call("GET", path, op="GETFILESTATUS")
        except _HdfsError as error:
            if error.name == _NOT_FOUND:
                return None
            raise error.fault from error
        status = answer["FileStatus"]
        return int(status["length"]) if status["type"] == "FILE" else None

    async def read(self, path: str, at: int, size: int) -> bytes:
        """Read; see `Folders`."""

        async def run() -> bytes:
            where = await self._located("GET", path, op="OPEN", offset=str(at), length=str(size))
            return await self._exchange("GET", where, None, bytes_max=size)

        try:
            return await self._tried(run)
        except _HdfsError as error:
            raise error.fault from error

    async def truncate(self, path: str, size: int) -> None:
        """Cut; see `Folders`."""
        try:
            answer = await self._call("POST", path, op="TRUNCATE", newlength=str(size))
        except _HdfsError as error:
            raise error.fault from error
        if answer.get("boolean") is not True:
            # The last block is cut by its data nodes; until they are done nothing can be put behind it.
            raise ServerAway("the file is being cut")

    async def publish(self, source: str, target: str) -> None:
        """Rename; see `Folders`."""
        try:
            await self._call("PUT", source, op="RENAME", destination=target, renameoptions="OVERWRITE")
        except _HdfsError as error:
            if error.name == _NOT_FOUND and await self.size(target) is not None:
                # The answer to an earlier one was lost.
                return
            raise error.fault from error

    async def put(self, path: str, data: bytes) -> None:
        """Write aside and rename; see `Folders`."""
        await self.append(aside(path), 0, data)
        await self.publish(aside(path), path)

    async def close(self) -> None:
        """End all connections."""
        await self._renew()

    async def _send(self, method: str, path: str, data: bytes, **query: str) -> None:
        async def run() -> bytes:
            where = await self._located(method, path, **query)
            return await self._exchange(method, where, data)

        try:
            await self._tried(run)
        except _HdfsError as error:
            raise error.fault from error

    async def _tried(self, run: Callable[[], Awaitable[T]]) -> T:
        """Run calls; once more, from the beginning, with a new connection and token when the first ones are refused.

        Raises:
            ServerAway: It cannot be asked.
            _HdfsError: It says no.
        """
        try:
            return await run()
        except _HdfsError as error:
            # One that says who may not do this has done nothing.
            if error.status not in (401, 403):
                raise
            before = self._token
            await self._renew()
            if self._wish.token is None or self._who()["delegation"] == before:
                raise
            return await run()

    async def _renew(self) -> None:
        """Forget connections and token: the next call looks the name up, and reads token and certificates, again."""
        self._token = None
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _who(self) -> dict[str, str]:
        if self._wish.token is None:
            return {"user.name": self._wish.user}
        if self._token is None:
            try:
                self._token = self._wish.token.read()
            except SecretUnreadable as error:
                raise ServerAway(str(error)) from error
        return {"delegation": self._token}

    async def _located(self, method: str, path: str, **query: str) -> str:
        """Return the address at a data node to which a call goes."""
        answer = await self._call_active(method, path, noredirect="true", **query)
        return str(answer["Location"])

    async def _call(self, method: str, path: str, **query: str) -> dict[str, Any]:
        """Ask a name node; see `_tried`."""
        return await self._tried(lambda: self._call_active(method, path, **query))

    async def _call_active(self, method: str, path: str, **query: str) -> dict[str, Any]:
        """Ask the name node; the next one when this is not the active one.

        Raises:
            ServerAway: None of them can be asked.
            _HdfsError: It says no.
        """
        failed: Exception = ServerAway("no name node is configured")
        for _ in self._urls:
            url = f"{self._urls[self._used]}/webhdfs/v1{quote(path)}"
            try:
                raw = await self._exchange(method, _with(url, {**query, **self._who()}), None)
                answer = json.loads(raw) if raw else {}
                if isinstance(answer, dict):
                    return answer
                failed = ServerAway("the answer is not a JSON object")
            except ServerAway as error:
                failed = error
            except ValueError as error:
                failed = ServerAway(f"the answer is not JSON: {error}")
            except _HdfsError as error:
                if error.name != _STANDBY:
                    raise
                failed = ServerAway(str(error))
            self._used = (self._used + 1) % len(self._urls)
        raise failed

    async def _exchange(self, method: str, url: str, data: bytes | None, *, bytes_max: int = REPLY_BYTES_MAX) -> bytes:
        """Make one request and return the body of its reply. Raises ServerAway, _HdfsError."""
        from aiohttp import ClientError, ClientTimeout

        session = self._session or self._connect()
        timeout = ClientTimeout(total=self._wish.timeout_seconds)
        headers = {} if data is None else {"Content-Type": "application/octet-stream"}
        try:
            async with session.request(
                method, url, data=data, headers=headers, timeout=timeout, allow_redirects=False
            ) as reply:
                raw = await _bounded(reply.content, bytes_max)
                if reply.status in (200, 201):
                    return raw
                raise _error_of(reply.status, raw)
        except (TimeoutError, ClientError, OSError, ValueError) as error:
            await self._renew()
            raise ServerAway(str(error) or type(error).__name__) from error

    def _connect(self) -> ClientSession:
        from aiohttp import ClientSession, DummyCookieJar

        connector = self._connector(HttpWish(connections_max=CONNECTIONS_MAX, ca_file=self._wish.ca_file))
        self._session = ClientSession(connector=connector, cookie_jar=DummyCookieJar(), trust_env=False)
        return self._session


async def _bounded(content: Any, bytes_max: int) -> bytes:
    parts = []
    left = bytes_max
    while part := await content.read(min(left + 1, 65_536)):
        left -= len(part)
        if left < 0:
            raise ServerAway(f"the answer is longer than {bytes_max} bytes")
        parts.append(part)
    return b"".join(parts)


def _with(url: str, query: dict[str, str]) -> str:
    return f"{url}?{'&'.join(f'{name}={quote(value, safe=str())}' for name, value in query.items())}"


def _error_of(status: int, raw: bytes) -> _HdfsError:
    try:
        said = json.loads(raw)["RemoteException"]
        return _HdfsError(status, str(said["exception"]), str(said["message"]).partition("\n")[0][:300])
    except (ValueError, KeyError, TypeError):
        return _HdfsError(status, f"HTTP {status}", raw[:200].decode("utf-8", "replace"))
