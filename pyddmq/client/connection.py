"""One framed Thrift connection, used by one thread, one call at a time.

thriftpy2 encodes and decodes; framing is done here, so that a reply is bounded before memory is taken, a deadline
covers the whole reply, and it is known whether a request had left before the connection failed.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pyddmq.client.errors import (
    CallRejected,
    CallTimedOut,
    CannotConnect,
    ClientError,
    ClientMisuse,
    ConnectionLost,
    NotThrift,
)

WireProtocol = Literal["binary", "compact"]

REPLY_BYTES_MAX = 64 * 1024 * 1024
_CALL, _EXCEPTION = 1, 3
_FRAME_LENGTH = struct.Struct(">i")


def parse_address(address: str) -> tuple[str, int]:
    """Split `host:port` (an IPv6 host stands in brackets).

    Raises:
        ClientMisuse: It is no such text.
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ClientMisuse(f"{address!r} is no address; write host:port, such as 127.0.0.1:9713")
    return host, int(port)


class Connection:
    """Connects when first needed, and again after a failure.

    Attributes:
        address: The node's `host:port`.
    """

    def __init__(self, address: str, service: Any, *, protocol: WireProtocol = "binary") -> None:
        """Set up; nothing is opened yet.

        Args:
            address: `host:port` of the node.
            service: The thriftpy2 service class whose methods are called.
            protocol: TBinaryProtocol (fast here, thriftpy2 has it in Cython) or TCompactProtocol (DDMQ's own choice).

        Raises:
            ClientMisuse: A malformed address or an unknown protocol.
        """
        self.address = address
        self._peer = parse_address(address)
        self._service = service
        self._codec = _codec(protocol)
        self._socket: socket.socket | None = None
        self._sequence = 0

    def open(self, *, timeout_ms: int = 5000) -> None:
        """Connect, unless that is done.

        Raises:
            CannotConnect: Nobody listens there.
        """
        if self._socket is not None and self._closed_by_peer(self._socket):
            self.close()
        if self._socket is not None:
            return
        try:
            self._socket = socket.create_connection(self._peer, timeout=timeout_ms / 1000)
        except OSError as error:
            raise CannotConnect(self.address, _reason(error)) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

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
                sock.shutdown(socket.SHUT_RDWR)

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
        request = self._encode(method, arguments)
        self.open(timeout_ms=timeout_ms)
        assert self._socket is not None, "open() leaves a socket or raises"
        deadline = time.monotonic() + timeout_ms / 1000
        try:
            self._socket.settimeout(timeout_ms / 1000)
            self._socket.sendall(request)
            reply = self._read_frame(self._socket, deadline)
        except TimeoutError as error:
            self.close()
            raise CallTimedOut(self.address, method, timeout_ms) from error
        except OSError as error:
            self.close()
            raise ConnectionLost(self.address, method, _reason(error)) from error
        except BaseException:
            # An interrupt or a foreign answer leaves the stream in the middle of something.
            self.close()
            raise
        return self._decode(method, reply)

    def _encode(self, method: str, arguments: Mapping[str, object]) -> bytes:
        buffer, protocol = self._codec(b"")
        try:
            protocol.write_message_begin(method, _CALL, self._sequence)
            protocol.write_struct(getattr(self._service, method + "_args")(**arguments))
            protocol.write_message_end()
        except Exception as error:
            # The two codecs have many names for a value that does not fit its field, some of them deep in C.
            raise ClientMisuse(
                f"{method} cannot be sent: {error}; give texts in UTF-8, bytes and numbers in range"
            ) from error
        body: bytes = buffer.getvalue()
        return _FRAME_LENGTH.pack(len(body)) + body

    def _read_frame(self, sock: socket.socket, deadline: float) -> bytes:
        head = _receive(sock, 4, deadline)
        (size,) = _FRAME_LENGTH.unpack(head)
        if head == b"HTTP":
            raise NotThrift(self.address, "it speaks HTTP, as the admin port does")
        if not 0 < size <= REPLY_BYTES_MAX:
            raise NotThrift(self.address, f"its reply begins with {head!r}, which is no frame length")
        return _receive(sock, size, deadline)

    def _decode(self, method: str, reply: bytes) -> Any:
        _, protocol = self._codec(reply)
        try:
            name, kind, sequence = protocol.read_message_begin()
            result = _application_exception() if kind == _EXCEPTION else getattr(self._service, method + "_result")()
            protocol.read_struct(result)
        except ClientError:
            raise
        except Exception as error:
            self.close()
            raise NotThrift(self.address, f"its reply to {method} does not decode ({error})") from error
        if (name, sequence) != (method, self._sequence):
            self.close()
            raise NotThrift(self.address, f"it answered {name} #{sequence} to {method} #{self._sequence}")
        if kind == _EXCEPTION:
            raise CallRejected(result.type or 0, result.message or "the node refused the call")
        for field_id, field in result.thrift_spec.items():
            declared = getattr(result, field[1])
            if field_id != 0 and declared is not None:
                raise declared
        return result.success

    @staticmethod
    def _closed_by_peer(sock: socket.socket) -> bool:
        """Whether an idle connection has ended meanwhile; asking now makes sure that nothing is sent into it."""
        try:
            sock.settimeout(0)
            return not sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True


def _codec(protocol: str) -> Callable[[bytes], tuple[Any, Any]]:
    """Return a function from the bytes to read (b"" to write) to a memory buffer and the protocol over it."""
    # thriftpy2's classes carry no types; Any keeps their calls out of the strict checks.
    from thriftpy2 import protocol as protocols
    from thriftpy2 import transport as transports

    kinds: dict[str, tuple[Any, Any]] = {
        "binary": (transports.TCyMemoryBuffer, protocols.TCyBinaryProtocol),
        "compact": (transports.TMemoryBuffer, protocols.TCompactProtocol),
    }
    if protocol not in kinds:
        raise ClientMisuse(f"unknown protocol {protocol!r}; there are: {', '.join(kinds)}")
    buffer_class, protocol_class = kinds[protocol]

    def build(content: bytes) -> tuple[Any, Any]:
        buffer = buffer_class(content)
        return buffer, protocol_class(buffer)

    return build


def _application_exception() -> Any:
    from thriftpy2 import thrift

    build: Any = thrift.TApplicationException
    return build()


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


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return (error.strerror or str(error) or type(error).__name__).lower()
