"""One HTTP client: what aiohttp does for a push, and what is done here.

aiohttp's connector makes, keeps and closes connections (names, TLS, the look at addresses), and its parser reads
replies. The request itself is one text and one write, made here: aiohttp's own request takes as much time as all else
of a push, for what no push has (redirects, cookies, proxies from the environment, compressed replies, forms of its
own). None of these is there, so neither a receiver nor the environment decides where a message goes, or how much
memory a reply takes. aiohttp is imported when a client is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakSet

from actions.client_factories import Outside
from actions.http.connection_options import AddressRefused, HttpWish
from actions.http.reply import printable
from conf.sections.access_files import state_of
from pyddmq.actions import RetryNotBefore

if TYPE_CHECKING:
    from aiohttp import ClientRequest
    from aiohttp.client_proto import ResponseHandler
    from aiohttp.connector import BaseConnector, Connection
    from yarl import URL

__all__ = ["AddressRefused", "Client", "HttpReply", "PushFailed"]

ORIGINS_MAX: Final = 256
"""Servers that are remembered; messages may name others without end."""
LARGE_BYTES: Final = 65_536
"""A larger body is not copied behind its headers, and may be on its way still when the reply is there."""
INTERIM_MAX: Final = 16
"""Heads of status 1xx before a reply; a receiver may send them without end."""
_SWITCHING = 101
_LENGTH_DIGITS = 18


class PushFailed(RetryNotBefore):
    """A push got no reply that counts; the text says from where, and what came instead.

    Attributes:
        counts: Whether it shows that no server works there, so that it counts against the URL.
    """

    def __init__(self, text: str, *, counts: bool = True, delay_ms: int = 0) -> None:
        super().__init__(delay_ms, text)
        self.counts = counts


class _Stale(Exception):
    """A kept connection was closed by the other side before a byte of the reply: nothing is known of the request."""


class HttpReply(NamedTuple):
    """A reply; the names of its headers are found in any case."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class _ServerOrigin(NamedTuple):
    """A server: the request that connections to it are asked for with, and its name in requests."""

    pattern: ClientRequest
    host: str


class _Idle(asyncio.Protocol):
    """Has a kept connection that nothing was asked over; one over which anything comes is closed.

    aiohttp would keep what comes, without a bound, as the reply to the next request.
    """

    def __init__(self, transport: asyncio.Transport, owner: asyncio.BaseProtocol) -> None:
        self._transport = transport
        self._owner = owner

    def data_received(self, data: bytes) -> None:
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.connection_lost(exc)


class Client:
    """Sends requests over a pool of connections of its own; made in the loop's thread.

    Raises:
        OSError: The file of authorities cannot be used.
    """

    def __init__(self, outside: Outside, wish: HttpWish, reply_bytes_max: int) -> None:
        import aiohttp
        from aiohttp.http_exceptions import HttpProcessingError

        self._reply_bytes_max = reply_bytes_max
        self._errors = (aiohttp.ClientError, HttpProcessingError, aiohttp.EofStream, OSError, RuntimeError)
        self._quotable = (aiohttp.ClientConnectorError, aiohttp.ClientOSError)
        self._disconnected = aiohttp.ServerDisconnectedError
        self._gone = (aiohttp.ClientOSError, self._disconnected)
        self._request_of = aiohttp.ClientRequest
        self._timeout = aiohttp.ClientTimeout(total=None)
        self._untrusted = (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError)
        self._outside, self._wish = outside, wish
        self._authorities = None if wish.ca_file is None else state_of(wish.ca_file)
        self._connector = outside.http(wish)
        self._earlier: list[BaseConnector] = []
        """Connectors of earlier authorities, whose requests may be under way."""
        self._ends = "Connection: close\r\n" if self._connector.force_close else ""
        self._origins: dict[tuple[str, str], _ServerOrigin] = {}
        self._kept: WeakSet[ResponseHandler] = WeakSet()

    async def send(self, method: str, url: URL, headers: list[tuple[str, str]], body: bytes, ms: int) -> HttpReply:
        """Send one request and read its reply whole.

        Args:
            method: GET or POST.
            url: Where to.
            headers: All of the request's but those that frame it.
            body: Its body.
            ms: How long all of it may take.

        Raises:
            PushFailed: No connection, none in time, a reply that is none, or a larger one than allowed.
            AddressRefused: The connection's address is not allowed.
        """
        origin = self._origins.get((url.scheme, url.raw_authority)) or self._origin(url)
        lines = [f"{name}: {value}\r\n" for name, value in headers]
        length = f"Content-Length: {len(body)}\r\n" if body or method == "POST" else ""
        head = f"{method} {url.raw_path_qs} HTTP/1.1\r\nHost: {origin.host}\r\n{''.join(lines)}{length}{self._ends}\r\n"
        ends = len(lines) + 3 + bool(length) + bool(self._ends)
        assert head.count("\n") == head.count("\r") == ends, "no name or value ends a line"
        try:
            async with asyncio.timeout(ms / 1000):
                while True:
                    # Ends: each turn uses a kept connection up, and one made now is never stale. As browsers do.
                    with contextlib.suppress(_Stale):
                        try:
                            return await self._exchange(origin, head.encode(), body)
                        except self._untrusted:
                            if not self._read_authorities_again():
                                raise
        except TimeoutError:
            raise PushFailed(f"no reply within {ms} ms") from None
        except self._errors as error:
            raise PushFailed(self._text_of(error)) from None

    def _read_authorities_again(self) -> bool:
        """Whether the file of authorities has changed since it was read, and connections are checked by it from now."""
        state = None if self._wish.ca_file is None else state_of(self._wish.ca_file)
        if state is None or state == self._authorities:
            return False
        try:
            connector = self._outside.http(self._wish)
        except OSError:
            return False  # It is half written, or gone.
        self._earlier.append(self._connector)
        self._authorities, self._connector = state, connector
        return True

    def _text_of(self, error: BaseException) -> str:
        """Return what to say of an error. A parser's quotes the reply, which may repeat secrets of the request."""
        name = type(error).__name__
        if isinstance(error, self._quotable) or type(error).__module__ == "builtins":
            return f"{name}: {printable(error)}"
        if isinstance(error, self._gone):
            return f"{name}: the connection was closed before the reply"
        return f"{name}: the reply is not valid HTTP"

    async def close(self) -> None:
        """Close all connections."""
        for connector in (self._connector, *self._earlier):
            await connector.close()

    def _origin(self, url: URL) -> _ServerOrigin:
        if len(self._origins) >= ORIGINS_MAX:
            self._origins.clear()
        pattern = self._request_of("GET", url, loop=asyncio.get_running_loop())
        found = self._origins[url.scheme, url.raw_authority] = _ServerOrigin(pattern, pattern.headers["Host"])
        return found

    async def _exchange(self, origin: _ServerOrigin, head: bytes, body: bytes) -> HttpReply:
        connection, transport, protocol = await self._connect(origin)
        was_kept = protocol in self._kept
        try:
            protocol.set_response_params(read_until_eof=True, auto_decompress=False)
            _write(transport, head, body)
            reply = await self._reply(protocol)
        except self._gone as error:
            connection.close()
            # A text: the parser had begun no reply.
            if was_kept and not hasattr(getattr(error, "message", ""), "code"):
                raise _Stale from error
            raise
        except BaseException:
            connection.close()
            raise
        is_open = connection.transport is not None
        if len(body) > LARGE_BYTES and is_open and transport.get_write_buffer_size():
            connection.close()  # It was answered before it was sent: the rest of it would stand before the next one.
        elif not is_open or protocol.should_close or self._connector.force_close:
            connection.close()
        else:
            transport.set_protocol(_Idle(transport, protocol))
            connection.release()
            self._kept.add(protocol)
        return reply

    async def _connect(self, origin: _ServerOrigin) -> tuple[Connection, asyncio.Transport, ResponseHandler]:
        """Return a connection: a kept one over which nothing came since its last reply, or a new one."""
        while True:
            connection = await self._connector.connect(origin.pattern, [], self._timeout)
            transport, protocol = connection.transport, connection.protocol
            if transport is None or protocol is None:
                raise self._disconnected
            if not isinstance(transport.get_protocol(), _Idle):
                return connection, transport, protocol
            if not _is_readable(transport):
                transport.set_protocol(protocol)
                return connection, transport, protocol
            # Bytes that nothing asked for, or the end: neither may meet a request.
            connection.close()

    async def _reply(self, protocol: ResponseHandler) -> HttpReply:
        """Read a reply whole. Raises PushFailed: it is larger than allowed."""
        for _ in range(INTERIM_MAX + 1):
            message, content = await protocol.read()
            if message.code >= 200 or message.code == _SWITCHING:
                break
        else:
            raise PushFailed(f"more than {INTERIM_MAX} responses of status 1xx came instead of a reply")
        if content.is_eof() and content.total_bytes <= self._reply_bytes_max:
            return HttpReply(message.code, await content.readany(), message.headers)
        length = message.headers.get("Content-Length", "")
        is_number = length.isascii() and length.isdigit()
        if is_number and (len(length) > _LENGTH_DIGITS or int(length) > self._reply_bytes_max):
            raise PushFailed(self._too_long())
        read = b""
        while not content.at_eof():
            read += await content.readany()
            if len(read) > self._reply_bytes_max:
                raise PushFailed(self._too_long())
        return HttpReply(message.code, read, message.headers)

    def _too_long(self) -> str:
        return f"the reply has more than {self._reply_bytes_max} bytes (replyBytesMax)"


def _is_readable(transport: asyncio.Transport) -> bool:
    """Whether bytes, or an end, have arrived that the loop has not read yet."""
    socket = transport.get_extra_info("socket")
    if socket is None:
        return False
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _write(transport: asyncio.Transport, head: bytes, body: bytes) -> None:
    if len(body) > LARGE_BYTES:
        transport.write(head)
        transport.write(body)
    else:
        transport.write(head + body)
