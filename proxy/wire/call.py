"""The header of a call: which protocol, which method, which sequence number.

The protocol is known from the first byte of each frame, so one connection may mix them: 0x82 begins TCompactProtocol,
0x80 0x01 strict TBinaryProtocol, 0x00 the length of a method name in non-strict TBinaryProtocol. Replies use the
call's protocol, strict where it is binary (every library reads that).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from proxy.wire.compact import varint
from proxy.wire.errors import ArgumentsError, FatalWireError, WireMisuse
from proxy.wire.limits import METHOD_BYTES_MAX

COMPACT: Final = 0x82
BINARY: Final = 0x80

CALL, REPLY, EXCEPTION, ONEWAY = 1, 2, 3, 4

_I32 = struct.Struct(">i")
_I32_AT = _I32.unpack_from
_COMPACT_CALL = bytes((COMPACT, 1 | CALL << 5))
_BINARY_CALL = bytes((BINARY, 1, 0, CALL))

_CONSUMER_METHODS = ("pull", "submit", "getConsumeStats", "fetch", "ack")
_PRODUCER_METHODS = ("sendSync", "sendBatchSync", "sendAsync", "sendDelaySync")
_TRANSACTION_METHODS = ("sendHalfSync", "endTransaction", "fetchChecks")
_BOTH = ("authenticate",)
_new = tuple.__new__
_known_names = {name.encode(): name for name in _CONSUMER_METHODS + _PRODUCER_METHODS + _TRANSACTION_METHODS + _BOTH}


class Call(NamedTuple):
    """One call as it is in its frame.

    Attributes:
        protocol: COMPACT or BINARY.
        method: Name of the method, known or not.
        seqid: Sequence number, signed 32 bits; the reply carries it back.
        pos: Where the arguments struct begins in `frame`.
        frame: The frame without its length.
    """

    protocol: int
    method: str
    seqid: int
    pos: int
    frame: bytes

    def header(self) -> Call:
        """Return what a reply needs, without the frame: for a call whose answer takes its time."""
        return _new(Call, (self.protocol, self.method, self.seqid, 0, b""))


def parse_call(frame: bytes) -> Call:
    """Read the header of a call.

    Args:
        frame: One frame without its length, as `FrameSplitter.next` returns it.

    Raises:
        FatalWireError: No call of either protocol, or one that wants no reply (this protocol has no oneway methods,
            and silence would be taken for success).
    """
    try:
        if frame.startswith(_COMPACT_CALL) and frame[2] < 128:
            # `_parse_compact`, inline, for a short sequence number and a known method.
            pos = 4 + frame[3]
            method = _known_names.get(frame[4:pos])
            if method is not None:
                return _new(Call, (COMPACT, method, frame[2], pos, frame))
        return _parse_compact(frame) if frame[0] == COMPACT else _parse_binary(frame)
    except (IndexError, struct.error, ArgumentsError) as error:
        raise FatalWireError("a frame that ends within the header of its call") from error


def _parse_compact(frame: bytes) -> Call:
    if not frame.startswith(_COMPACT_CALL):
        _check_version(frame[1] & 0x1F, "TCompactProtocol")
        _check_type(frame[1] >> 5)
    seqid = frame[2]
    pos = 3
    if seqid > 127:
        seqid, pos = varint(frame, 2)
        if seqid > 0x7FFF_FFFF:
            seqid -= 1 << 32
    size = frame[pos]
    if size > METHOD_BYTES_MAX - 1:
        raise FatalWireError(f"a method name of more than {METHOD_BYTES_MAX - 1} bytes")
    pos += 1
    end = pos + size
    raw = frame[pos:end]
    return _new(Call, (COMPACT, _known_names.get(raw) or _name(raw, size), seqid, end, frame))


def _parse_binary(frame: bytes) -> Call:
    if frame[0] == BINARY:
        if not frame.startswith(_BINARY_CALL):
            _check_version(frame[1], "TBinaryProtocol")
            _check_type(frame[3])
        (size,) = _I32_AT(frame, 4)
        pos = 8
        _check_name_size(size)
        end = pos + size
        (seqid,) = _I32_AT(frame, end)
        raw = frame[pos:end]
        return _new(Call, (BINARY, _known_names.get(raw) or _name(raw, size), seqid, end + 4, frame))
    if frame[0] != 0:
        raise FatalWireError(f"a frame that begins with 0x{frame[0]:02x}: neither TCompactProtocol nor TBinaryProtocol")
    (size,) = _I32_AT(frame, 0)
    _check_name_size(size)
    end = 4 + size
    _check_type(frame[end])
    (seqid,) = _I32_AT(frame, end + 1)
    return Call(BINARY, _name(frame[4:end], size), seqid, end + 5, frame)


def _name(raw: bytes, size: int) -> str:
    if len(raw) != size:
        raise FatalWireError("a frame that ends within its method name")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise FatalWireError("a method name that is not UTF-8") from error


def _check_version(version: int, protocol: str) -> None:
    if version != 1:
        raise FatalWireError(f"version {version} of {protocol}: only version 1 is known")


def _check_type(kind: int) -> None:
    if kind == ONEWAY:
        raise FatalWireError("a oneway call: every method of this service has a reply")
    if kind in (REPLY, EXCEPTION):
        raise FatalWireError("a reply where a call is expected: is something connected to itself?")
    if kind != CALL:
        raise FatalWireError(f"a message of the unknown type {kind}")


def _check_name_size(size: int) -> None:
    if not 0 <= size < METHOD_BYTES_MAX:
        raise FatalWireError(f"a method name of {size} bytes: at most {METHOD_BYTES_MAX - 1} are allowed")


def message_head(protocol: int, kind: int, method: str, seqid: int) -> bytes:
    """Return the header of a message of type `kind`; what follows it is a struct."""
    if protocol == COMPACT:
        before, after = _compact_head(kind, method)
        return before + encode_varint(seqid & 0xFFFF_FFFF) + after
    name = method.encode()
    return bytes((BINARY, 1, 0, kind)) + _I32.pack(len(name)) + name + _I32.pack(seqid)


@lru_cache(maxsize=64)
def _compact_head(kind: int, method: str) -> tuple[bytes, bytes]:
    """Return the parts before and after the sequence number; an unknown method is met, too."""
    name = method.encode()
    return bytes((COMPACT, 1 | kind << 5)), encode_varint(len(name)) + name


def encode_varint(value: int) -> bytes:
    """Return an unsigned number of any size as a varint."""
    if value < 128:
        return _OF_ONE_BYTE[value]
    if value < 1 << 14:
        return bytes((value & 127 | 128, value >> 7))
    return bytes((value & 127 | 128, value >> 7 & 127 | 128)) + _upper(value >> 14)


def zigzag(value: int, bits: int) -> bytes:
    """Return a signed number as the compact protocol has it. Raises WireMisuse: it does not fit."""
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise WireMisuse(f"{value} is not a number of {bits} bits")
    return encode_varint(value << 1 if value >= 0 else (-value << 1) - 1)


_OF_ONE_BYTE = tuple([bytes((value,)) for value in range(128)])
_upper = lru_cache(maxsize=1024)(encode_varint)
"""The upper bits of what is counted or comes with the time are the same again and again."""
