"""One framed Thrift connection, used by one thread, one call at a time.

Framing is done here, so that a deadline covers the whole reply, and it is known whether a request had left before the
connection failed.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any

from pyddmq.client.codec import HEAD_BYTES, Codec, WireProtocol, reason_of
from pyddmq.client.errors import CallTimedOut, CannotConnect, ConnectionLost, NotThrift
from pyddmq.client.tls import Tls, endpoint, failure
from pyddmq.client.tokens import METHOD as TOKEN_METHOD
from pyddmq.client.tokens import SigningIn, Token


class Connection:
    """Connects when first needed, and again after a failure.

    Attributes:
        address: The node's `host:port`, or `tls://host:port`.
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
        self._endpoint = endpoint(address, tls)
        self._codec = Codec(address, service, protocol)
        self._signing_in = SigningIn(address, token, protocol)
        self._socket: socket.socket | None = None
        self._sequence = 0

    def open(self, *, timeout_ms: int = 5000) -> None:
        """Connect, unless that is done.

        Raises:
            CannotConnect: Nobody listens there, or answers; TlsFailed, which is one: there is no TLS with it.
            ClientMisuse: A file of `tls` or the token's cannot be used, or a token would go over a network as it is.
            AccessRefused: The node does not take the token.
            NotThrift: Something else answers.
        """
        if self._socket is not None and self._closed_by_peer(self._socket):
            self.close()
        if self._socket is not None:
            return
        tls = self._endpoint.tls
        context = None if tls is None else tls.context()
        try:
            sock = socket.create_connection(self._endpoint.peer, timeout=timeout_ms / 1000)
        except OSError as error:
            raise CannotConnect(self.address, reason_of(error)) from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            try:
                sock = context.wrap_socket(sock, server_hostname=self._endpoint.server_name)
            except OSError as error:
                sock.close()
                raise failure(self.address, error) or CannotConnect(self.address, reason_of(error)) from error
        self._socket = sock
        try:
            self._sign_in(sock, timeout_ms)
        except BaseException:
            self.close()
            raise

    def _sign_in(self, sock: socket.socket, timeout_ms: int) -> None:
        try:
            peer = sock.getpeername()
        except OSError as error:
            raise CannotConnect(self.address, reason_of(error)) from error
        token = self._signing_in.token(peer, is_encrypted=isinstance(sock, ssl.SSLSocket))
        if token is None:
            return
        codec = self._signing_in.codec()
        request = codec.encode(TOKEN_METHOD, {"token": token}, 1)
        try:
            self._exchange(codec, sock, TOKEN_METHOD, request, 1, timeout_ms)
        except Exception as error:
            told = self._signing_in.refused(error)
            if told is error:
                raise
            raise told from error

    def close(self) -> None:
        """Close; a later call opens a new connection."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def interrupt(self) -> None:
        """End a call that waits for its answer in another thread: it raises ConnectionLost there."""
        sock = self._socket
        if sock is not None:
            with contextlib.suppress(OSError):
                # The plain one: that of `ssl` takes its state away from under the other thread.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)

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
        self._sequence = self._sequence % 0x7FFFFFFF + 1
        request = self._codec.encode(method, arguments, self._sequence)
        self.open(timeout_ms=timeout_ms)
        assert self._socket is not None, "open() leaves a socket or raises"
        return self._exchange(self._codec, self._socket, method, request, self._sequence, timeout_ms)

    def _exchange(  # noqa: PLR0917 - one call, whoever makes it
        self, codec: Codec, sock: socket.socket, method: str, request: bytes, sequence: int, timeout_ms: int
    ) -> Any:
        deadline = time.monotonic() + timeout_ms / 1000
        try:
            sock.settimeout(timeout_ms / 1000)
            sock.sendall(request)
            reply = _receive(sock, codec.size_of(_receive(sock, HEAD_BYTES, deadline)), deadline)
        except TimeoutError as error:
            self.close()
            raise CallTimedOut(self.address, method, timeout_ms) from error
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

    @staticmethod
    def _closed_by_peer(sock: socket.socket) -> bool:
        """Whether an idle connection has ended meanwhile; asking now makes sure that nothing is sent into it."""
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


def _receive(sock: socket.socket, size: int, deadline: float) -> bytes:
    """Read exactly `size` bytes; raises TimeoutError, or ConnectionError at the end of the stream."""
    chunks = bytearray()
    while len(chunks) < size:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left)
        chunk = sock.recv(min(size - len(chunks), 1 << 20))
        if not chunk:
            raise ConnectionError("the other side closed it")
        chunks += chunk
    return bytes(chunks)
