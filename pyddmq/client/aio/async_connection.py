"""One framed Thrift connection of an event loop: calls are written one behind the other, and answered in that order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from pyddmq.client.codec import HEAD_BYTES, Codec, WireProtocol, reason_of
from pyddmq.client.errors import CallTimedOut, CannotConnect, ConnectionLost, NotThrift
from pyddmq.client.tls import Tls, endpoint, failure
from pyddmq.client.tokens import METHOD as TOKEN_METHOD
from pyddmq.client.tokens import SigningIn, Token


class AsyncConnection:
    """Opened by `open`; what fails closes it.

    Attributes:
        address: The node's `host:port`, or `tls://host:port`.
        tls: As it was given.
    """

    def __init__(
        self,
        address: str,
        service: Any,
        *,
        protocol: WireProtocol = "binary",
        tls: Tls | None = None,
        token: Token | None = None,
    ) -> None:
        """Set up; nothing is opened yet.

        Args:
            address: `host:port` or `tls://host:port` of the node.
            service: The thriftpy2 service class whose methods are called.
            protocol: "binary" or "compact".
            tls: For `tls://`; the system's CAs and no certificate of one's own when left out.
            token: Brought by the first call of each connection; that of the environment when left out (`token_of`).

        Raises:
            ClientMisuse: A malformed address or an unknown protocol.
        """
        self.address = address
        self.tls = tls
        self._signing_in = SigningIn(address, token, protocol)
        self._endpoint = endpoint(address, tls)
        self._codec = Codec(address, service, protocol)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._sequence = 0

    @property
    def is_open(self) -> bool:
        """Whether calls may be written: it is open, and the other side has not closed it."""
        return self._streams is not None and not self._streams[0].at_eof() and not self._streams[1].is_closing()

    async def open(self, *, timeout_ms: int) -> None:
        """Connect, unless that is done.

        Raises:
            CannotConnect: Nobody listens there, or answers; TlsFailed, which is one: there is no TLS with it.
            ClientMisuse: A file of `tls` or the token's cannot be used, or a token would go over a network as it is.
            AccessRefused: The node does not take the token.
            NotThrift: Something else answers.
        """
        if self.is_open:
            return
        self.close()
        tls = self._endpoint.tls
        by_tls: dict[str, Any] = (
            {} if tls is None else {"ssl": tls.context(), "server_hostname": self._endpoint.server_name}
        )
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                self._streams = await asyncio.open_connection(*self._endpoint.peer, **by_tls)
        except OSError as error:
            raise failure(self.address, error) or CannotConnect(self.address, reason_of(error)) from error
        try:
            await self._sign_in(timeout_ms)
        except BaseException:
            self.close()
            raise

    async def _sign_in(self, timeout_ms: int) -> None:
        assert self._streams is not None, "it was opened just now"
        writer = self._streams[1]
        is_encrypted = writer.get_extra_info("ssl_object") is not None
        token = self._signing_in.token(writer.get_extra_info("peername"), is_encrypted=is_encrypted)
        if token is None:
            return
        codec = self._signing_in.codec()
        writer.write(codec.encode(TOKEN_METHOD, {"token": token}, 1))
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        try:
            await self._answer(codec, TOKEN_METHOD, 1, deadline, timeout_ms)
        except Exception as error:
            told = self._signing_in.refused(error)
            if told is error:
                raise
            raise told from error

    def write(self, method: str, arguments: Mapping[str, object]) -> int:
        """Send a call and return its number; its answer comes when those before it were taken by `answer`.

        Raises:
            ClientMisuse: An argument does not fit its field; nothing was sent.
        """
        assert self._streams is not None, "calls are written into an open connection"
        self._sequence = self._sequence % 0x7FFFFFFF + 1
        self._streams[1].write(self._codec.encode(method, arguments, self._sequence))
        return self._sequence

    async def answer(self, method: str, sequence: int, *, deadline: float, timeout_ms: int) -> Any:
        """Wait for the answer to the oldest call that has none.

        Args:
            method, sequence: Of that call.
            deadline: When it is given up, and the connection with it, by the loop's clock.
            timeout_ms: How long that was, for people.

        Returns:
            The value of field 0 of the result struct.

        Raises:
            ConnectionLost: The connection ended before the answer was complete.
            CallTimedOut: No complete answer in time.
            NotThrift: Something else than a framed Thrift server answered.
            CallRejected: A TApplicationException.
            Exception: The exception declared in the IDL, as thriftpy2 builds it.
        """
        return await self._answer(self._codec, method, sequence, deadline, timeout_ms)

    async def _answer(self, codec: Codec, method: str, sequence: int, deadline: float, timeout_ms: int) -> Any:
        if self._streams is None:
            raise ConnectionLost(self.address, method, "it was closed")
        reader = self._streams[0]
        try:
            async with asyncio.timeout_at(deadline):
                size = codec.size_of(await reader.readexactly(HEAD_BYTES))
                reply = await reader.readexactly(size)
        except TimeoutError as error:
            self.close()
            raise CallTimedOut(self.address, method, timeout_ms) from error
        except asyncio.IncompleteReadError as error:
            self.close()
            raise ConnectionLost(self.address, method, "the other side closed it") from error
        except OSError as error:
            self.close()
            raise failure(self.address, error) or ConnectionLost(self.address, method, reason_of(error)) from error
        except BaseException:
            # An interrupt or a foreign answer leaves the stream in the middle of something.
            self.close()
            raise
        try:
            return codec.decode(method, sequence, reply)
        except NotThrift:
            self.close()
            raise

    def close(self) -> None:
        """Close; `open` opens another one."""
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
