"""One framed Thrift connection over blocking sockets, used by one thread, one call at a time."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

from pyddmq.client.calls import Conversation, run_now
from pyddmq.client.codec import HEAD_BYTES, Codec, WireProtocol
from pyddmq.client.tls import Endpoint, Tls
from pyddmq.client.tokens import SigningIn, Token

_READ_BYTES = 1 << 16


class SocketStream:
    """A `NodeByteStream` that blocks its thread instead of waiting in a loop."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._rest = b""
        """What came behind the last answer."""

    time = staticmethod(time.monotonic)

    @property
    def is_open(self) -> bool:
        """Whether there is a socket; `has_ended` asks whether the other side has closed it."""
        return self._socket is not None

    @property
    def peer(self) -> object:
        """Address of the other end. Raises OSError."""
        return None if self._socket is None else self._socket.getpeername()

    def has_ended(self) -> bool:
        """Ask now, so that nothing is sent into a connection that has ended while it was idle."""
        sock = self._socket
        if sock is None:
            return True
        try:
            sock.settimeout(0)
            if isinstance(sock, ssl.SSLSocket):
                # Nothing may come between two calls but messages of TLS itself, which end with the exception.
                sock.recv(1)
                return True
            return not sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True

    async def connect(self, place: Endpoint, context: ssl.SSLContext | None, seconds: float) -> None:
        """Connect. Raises OSError."""
        sock = socket.create_connection(place.peer, timeout=seconds)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                sock = context.wrap_socket(sock, server_hostname=place.server_name)
        except BaseException:
            sock.close()
            raise
        self._socket, self._rest = sock, b""

    def write(self, data: bytes, seconds: float) -> None:
        """Send bytes. Raises OSError."""
        sock = self._socket
        if sock is None:
            raise ConnectionError("it was closed")
        sock.settimeout(seconds)
        sock.sendall(data)

    async def read(self, size_of: Callable[[bytes], int], deadline: float) -> bytes:
        """Return the next frame. Raises OSError."""
        found = self._rest
        while len(found) < HEAD_BYTES:
            found += self._receive(_READ_BYTES, deadline)
        size = HEAD_BYTES + size_of(found[:HEAD_BYTES])
        if len(found) < size:
            parts, missing = [found], size - len(found)
            while missing > 0:
                parts.append(self._receive(min(missing, 1 << 20), deadline))
                missing -= len(parts[-1])
            found = b"".join(parts)
        self._rest = found[size:]
        return found[HEAD_BYTES:size]

    def _receive(self, most: int, deadline: float) -> bytes:
        """Return what comes next. Raises OSError: nothing in time, or the connection has ended."""
        left, sock = deadline - time.monotonic(), self._socket
        if left <= 0:
            raise TimeoutError
        if sock is None:
            raise ConnectionError("it was closed")
        sock.settimeout(left)
        part = sock.recv(most)
        if not part:
            raise ConnectionError("the other side closed it")
        return part

    def close(self) -> None:
        """Close; a later call opens a new connection."""
        opened, self._socket = self._socket, None
        if opened is not None:
            with contextlib.suppress(OSError):
                opened.close()

    def interrupt(self) -> None:
        """End a read that waits in another thread."""
        sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError):
                # The plain one: that of `ssl` takes its state away from under the other thread.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


class Connection:
    """Connects when first needed, and again after a failure.

    Attributes:
        address: The node's `host:port`, or `tls://host:port`.
        conversation: What calls are made by.
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
            protocol: TBinaryProtocol (fast here, thriftpy2 has it in Cython) or TCompactProtocol (DDMQ's own choice).
            tls: For `tls://`; the system's CAs and no certificate of one's own when left out.
            token: Brought by the first call of each connection; that of the environment when left out (`token_of`).

        Raises:
            ClientMisuse: A malformed address or an unknown protocol.
        """
        self.address = address
        self._stream = SocketStream()
        self.conversation = Conversation(
            self._stream,
            address,
            Codec(address, service, protocol),
            tls=tls,
            signing_in=SigningIn(address, token, protocol),
        )

    def open(self, *, timeout_ms: int = 5000) -> None:
        """Connect, unless that is done.

        Raises:
            CannotConnect: No server listens there, or answers; its subclass TlsFailed: the TLS handshake failed.
            ClientMisuse: A file of `tls` or the token's cannot be used, or a token would go over a network as it is.
            AccessRefused: The node does not take the token.
            NotThrift: Something else answers.
        """
        run_now(self.conversation.open(timeout_ms=timeout_ms))

    def close(self) -> None:
        """Close; a later call opens a new connection."""
        self._stream.close()

    def interrupt(self) -> None:
        """End a call that waits for its answer in another thread: it raises ConnectionLost there."""
        self._stream.interrupt()

    def call(self, method: str, arguments: Mapping[str, object], *, timeout_ms: int) -> Any:
        """Call one method and wait for its answer.

        Args:
            method: Name in the IDL.
            arguments: Argument name to value; None and left out are the same.
            timeout_ms: Longest wait for the whole reply. After it the connection is closed, because the reply may
                still come.

        Returns:
            The value of field 0 of the result struct.

        Raises:
            CannotConnect: Nothing was sent.
            ConnectionLost: The connection ended before the reply was complete.
            CallTimedOut: No complete reply in time.
            NotThrift: Something else than a framed Thrift server answered.
            CallRejected: A TApplicationException.
            ClientMisuse: An argument does not fit its field; nothing was sent.
            Exception: The exception declared in the IDL, as thriftpy2 builds it.
        """
        return run_now(self.conversation.call(method, arguments, timeout_ms))
