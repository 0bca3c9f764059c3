"""Thrift as the simulated clients speak it: thriftpy2 over the project's IDL, not the node's own codec.

Calls and replies are whole frames as bytes; nothing here does I/O.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import thriftpy2
from thriftpy2.protocol import cybin
from thriftpy2.protocol.compact import TCompactProtocol
from thriftpy2.thrift import TApplicationException, TMessageType
from thriftpy2.transport import TCyMemoryBuffer, TMemoryBuffer

# thriftpy2 comes with types for some of its parts only.
_Binary: Any = cybin.TCyBinaryProtocol  # type: ignore[attr-defined]
_Compact: Any = TCompactProtocol
_CyMemory: Any = TCyMemoryBuffer
_Memory: Any = TMemoryBuffer

_FOLDER = Path(__file__).parents[2] / "thrift"
consumer_idl: Any = thriftpy2.load(str(_FOLDER / "consumer.thrift"), module_name="simulated_consumer_thrift")
producer_idl: Any = thriftpy2.load(str(_FOLDER / "producer.thrift"), module_name="simulated_producer_thrift")


class Reply(NamedTuple):
    """One decoded reply.

    Attributes:
        method: Name of the method.
        seqid: Of the call that it answers.
        value: The result struct's value, or None.
        error: A declared or TApplicationException, or None.
    """

    method: str
    seqid: int
    value: Any
    error: Any


class Codec:
    """Encodes the calls of one service and decodes its replies.

    Args:
        service: `consumer_idl.ConsumerService` or `producer_idl.ProducerService`.
        compact: TCompactProtocol (slow here, pure Python) instead of TBinaryProtocol.
    """

    def __init__(self, service: Any, *, compact: bool = False) -> None:
        self._service = service
        self._compact = compact

    def call(self, method: str, seqid: int, **arguments: Any) -> bytes:
        """Return the frame of a call, length included."""
        buffer, protocol = self._writer()
        protocol.write_message_begin(method, TMessageType.CALL, seqid)
        getattr(self._service, f"{method}_args")(**arguments).write(protocol)
        protocol.write_message_end()
        protocol.trans.flush()
        payload: bytes = buffer.getvalue()
        return struct.pack(">i", len(payload)) + payload

    def reply(self, payload: bytes) -> Reply:
        """Decode the payload of a reply frame (without its length)."""
        protocol = _Compact(_Memory(payload)) if self._compact else _Binary(_CyMemory(payload))
        method, kind, seqid = protocol.read_message_begin()
        if kind == TMessageType.EXCEPTION:
            failure = TApplicationException()
            failure.read(protocol)
            return Reply(method, seqid, None, failure)
        result = getattr(self._service, f"{method}_result")()
        result.read(protocol)
        return Reply(method, seqid, result.success, getattr(result, "error", None))

    def _writer(self) -> tuple[Any, Any]:
        if self._compact:
            memory = _Memory()
            return memory, _Compact(memory)
        buffer = _CyMemory()
        return buffer, _Binary(buffer)


class Frames:
    """Cuts a stream of bytes into frame payloads, with the stream position at which each ended."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._position = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield (position after the frame's last byte, payload) for every frame completed by `data`."""
        self._data += data
        while len(self._data) >= 4:
            (size,) = struct.unpack_from(">i", self._data)
            if len(self._data) < 4 + size:
                return
            payload = bytes(self._data[4 : 4 + size])
            del self._data[: 4 + size]
            self._position += 4 + size
            yield self._position, payload


def consumer_codec(*, compact: bool = False) -> Codec:
    """Return the codec of ConsumerService."""
    return Codec(consumer_idl.ConsumerService, compact=compact)


def producer_codec(*, compact: bool = False) -> Codec:
    """Return the codec of the producer port: ProducerService and its extension for transactions."""
    return Codec(producer_idl.TransactionProducerService, compact=compact)
