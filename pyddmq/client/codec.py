"""Calls and replies as framed bytes, and addresses: what connections of both kinds share.

thriftpy2 encodes and decodes; a reply's length is looked at before memory is taken for it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pyddmq.client.errors import CallRejected, ClientError, ClientMisuse, NotThrift

WireProtocol = Literal["binary", "compact"]

REPLY_BYTES_MAX = 64 * 1024 * 1024
HEAD_BYTES = 4
_CALL, _EXCEPTION = 1, 3
_FRAME_LENGTH = struct.Struct(">i")


def parse_address(address: str) -> tuple[str, int]:
    """Split `host:port` or `tls://host:port` (an IPv6 host in brackets).

    Raises:
        ClientMisuse: The text has another form.
    """
    scheme, has_scheme, rest = address.partition("://")
    host, _, port = (rest if has_scheme else address).rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if has_scheme and scheme != "tls":
        raise ClientMisuse(
            f"{address!r} is not a valid address: the ports speak Thrift, not {scheme}; write host:port, such as "
            "127.0.0.1:9713, or tls://host:port"
        )
    if not is_host(host) or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise ClientMisuse(f"{address!r} is not a valid address; write host:port, such as 127.0.0.1:9713")
    return host, int(port)


def is_host(name: str) -> bool:
    """Whether a name can be looked up: one with an empty part, or one that is too long, fails in the middle of that."""
    try:
        return bool(name.encode("idna"))
    except UnicodeError:
        return False


class Codec:
    """Encodes the calls of one service, and decodes their replies.

    Args:
        address: The node's, for errors.
        service: The thriftpy2 service class whose methods are called.
        protocol: TBinaryProtocol (fast here, thriftpy2 has it in Cython) or TCompactProtocol (DDMQ's own choice).

    Raises:
        ClientMisuse: An unknown protocol.
    """

    def __init__(self, address: str, service: Any, protocol: str) -> None:
        self._address = address
        self._service = service
        self._build = _builder(protocol)

    def encode(self, method: str, arguments: Mapping[str, object], sequence: int) -> bytes:
        """Return the frame of a call. Raises ClientMisuse: an argument does not fit its field."""
        buffer, protocol = self._build(b"")
        try:
            protocol.write_message_begin(method, _CALL, sequence)
            protocol.write_struct(getattr(self._service, method + "_args")(**arguments))
            protocol.write_message_end()
        except Exception as error:
            # The two codecs have many names for a value that does not fit its field, some of them deep in C.
            raise ClientMisuse(
                f"{method} cannot be sent: {error}; give texts in UTF-8, bytes and numbers in range"
            ) from error
        body: bytes = buffer.getvalue()
        return _FRAME_LENGTH.pack(len(body)) + body

    def size_of(self, head: bytes) -> int:
        """Return the length of a reply that begins so. Raises NotThrift: nothing that speaks Thrift begins so."""
        (size,) = _FRAME_LENGTH.unpack(head)
        if head == b"HTTP":
            raise NotThrift(self._address, "it speaks HTTP, as the admin port does")
        if head[:2] == b"\x15\x03":
            raise NotThrift(self._address, f"it speaks TLS; write tls://{self._address}")
        if not 0 < size <= REPLY_BYTES_MAX:
            raise NotThrift(self._address, f"its reply begins with {head!r}, which is not a valid frame length")
        return int(size)

    def decode(self, method: str, sequence: int, reply: bytes) -> Any:
        """Return what a call is answered with.

        Args:
            method: That was called.
            sequence: Number of the call.
            reply: The frame without its length.

        Raises:
            NotThrift: It does not decode, or answers another call: the connection is of no more use.
            CallRejected: A TApplicationException.
            Exception: The exception declared in the IDL, as thriftpy2 builds it.
        """
        _, protocol = self._build(reply)
        try:
            name, kind, number = protocol.read_message_begin()
            result = _application_exception() if kind == _EXCEPTION else getattr(self._service, method + "_result")()
            protocol.read_struct(result)
        except ClientError:
            raise
        except Exception as error:
            raise NotThrift(self._address, f"its reply to {method} does not decode ({error})") from error
        if (name, number) != (method, sequence):
            raise NotThrift(self._address, f"it answered {name} #{number} to {method} #{sequence}")
        if kind == _EXCEPTION:
            raise CallRejected(result.type or 0, result.message or "the node refused the call")
        for field_id, field in result.thrift_spec.items():
            declared = getattr(result, field[1])
            if field_id != 0 and declared is not None:
                raise declared
        return result.success


def reason_of(error: OSError) -> str:
    """Return why a connection failed, for a sentence."""
    if isinstance(error, TimeoutError):
        return "no answer within the time limit"
    return (error.strerror or str(error) or type(error).__name__).lower()


def _builder(protocol: str) -> Callable[[bytes], tuple[Any, Any]]:
    """Return a function from the bytes to read (b"" to write) to a memory buffer and the protocol over it."""
    # thriftpy2's classes carry no types; Any keeps their calls out of the strict checks.
    from thriftpy2 import protocol as protocols
    from thriftpy2 import transport as transports

    kinds: dict[str, tuple[Any, Any]] = {
        "binary": (transports.TCyMemoryBuffer, protocols.TCyBinaryProtocol),
        "compact": (transports.TMemoryBuffer, protocols.TCompactProtocol),
    }
    if protocol not in kinds:
        raise ClientMisuse(f"unknown protocol {protocol!r}; use one of {', '.join(kinds)}")
    buffer_class, protocol_class = kinds[protocol]

    def build(content: bytes) -> tuple[Any, Any]:
        buffer = buffer_class(content)
        return buffer, protocol_class(buffer)

    return build


def _application_exception() -> Any:
    from thriftpy2 import thrift

    build: Any = thrift.TApplicationException
    return build()
