"""One framed Thrift connection of an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any

from pyddmq.client.calls import Conversation
from pyddmq.client.codec import HEAD_BYTES, Codec, WireProtocol
from pyddmq.client.tls import Endpoint, Tls
from pyddmq.client.tokens import SigningIn, Token


class LoopStream:
    """A `NodeByteStream` of the running loop."""

    def __init__(self) -> None:
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it is open, and the other side has not closed it."""
        return self._streams is not None and not self._streams[0].at_eof() and not self._streams[1].is_closing()

    @property
    def peer(self) -> object:
        """Address of the other end."""
        return self._opened()[1].get_extra_info("peername")

    def time(self) -> float:
        """Seconds on the loop's clock."""
        return asyncio.get_running_loop().time()

    def has_ended(self) -> bool:
        """Nothing that `is_open` does not know."""
        return False

    async def connect(self, place: Endpoint, context: ssl.SSLContext | None, seconds: float) -> None:
        """Connect. Raises OSError."""
        by_tls: dict[str, Any] = {} if context is None else {"ssl": context, "server_hostname": place.server_name}
        async with asyncio.timeout(seconds):
            self._streams = await asyncio.open_connection(*place.peer, **by_tls)

    def write(self, data: bytes, _seconds: float) -> None:
        """Send bytes; the loop keeps what the system does not take yet."""
        self._opened()[1].write(data)

    async def read(self, size_of: Callable[[bytes], int], deadline: float) -> bytes:
        """Return the next frame. Raises OSError."""
        reader, _ = self._opened()
        try:
            async with asyncio.timeout_at(deadline):
                return await reader.readexactly(size_of(await reader.readexactly(HEAD_BYTES)))
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("the other side closed it") from error

    def _opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            raise ConnectionError("it was closed")
        return self._streams

    def close(self) -> None:
        """Close."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def end(self) -> None:
        """Close, and wait until it is."""
        streams = self._streams
        self.close()
        if streams is not None:
            with contextlib.suppress(OSError):
                await streams[1].wait_closed()


class AsyncConnection(Conversation):
    """A `Conversation` of the running loop; the arguments are those of `Connection`."""

    def __init__(
        self,
        address: str,
        service: Any,
        *,
        protocol: WireProtocol = "binary",
        tls: Tls | None = None,
        token: Token | None = None,
    ) -> None:
        self._loop_stream = LoopStream()
        signing_in = SigningIn(address, token, protocol)
        super().__init__(self._loop_stream, address, Codec(address, service, protocol), tls=tls, signing_in=signing_in)

    @property
    def conversation(self) -> Conversation:
        """What calls are made by: itself."""
        return self

    async def end(self) -> None:
        """Close, and wait until it is."""
        await self._loop_stream.end()
