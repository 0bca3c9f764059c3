"""Thrift's binary protocol, framed, with the standard library alone: what Spark's executors say to a node.

Requests are written field by field. Replies are read into dicts by field id, whatever they have: fields that are new
are there too and are not read. Lengths, counts and depths are checked before they are followed, so a peer that
is no node costs an error and no memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from pyddmq.client.errors import NotThrift

T = TypeVar("T")

STOP: Final = 0
BOOL, BYTE, DOUBLE, I16, I32, I64 = 2, 3, 4, 6, 8, 10
STRING, STRUCT, MAP, SET, LIST = 11, 12, 13, 14, 15
CALL, REPLY, EXCEPTION = 1, 2, 3
FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""A longer frame is none of a node: its replies to fetches have 1 MiB or one message."""
DEPTH_MAX: Final = 16
_VERSION: Final = 0x80010000
_VERSION_MASK: Final = 0xFFFF0000

_HEAD = struct.Struct(">BH")
_STRING_HEAD = struct.Struct(">BHI")
_LIST_HEAD = struct.Struct(">BI")
_MAP_HEAD = struct.Struct(">BBI")
_OF_STRINGS: Final = bytes((STRING, STRING))
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_SCALARS: Final[dict[int, tuple[Callable[..., tuple[Any, ...]], int]]] = {
    BOOL: (struct.Struct(">?").unpack_from, 1),
    BYTE: (struct.Struct(">b").unpack_from, 1),
    DOUBLE: (struct.Struct(">d").unpack_from, 8),
    I16: (struct.Struct(">h").unpack_from, 2),
    I32: (_I32.unpack_from, 4),
    I64: (_I64.unpack_from, 8),
}


class Malformed(Exception):
    """What came is no reply in framed Thrift; the sentence says what is wrong with it."""


class ThriftFault(Exception):
    """The peer answered with a TApplicationException; its sentence."""


# Writing


def text(number: int, value: str | bytes) -> bytes:
    """Return a field with a string or binary."""
    data = value.encode() if isinstance(value, str) else value
    return _STRING_HEAD.pack(STRING, number, len(data)) + data


def i32(number: int, value: int) -> bytes:
    """Return a field with a 32-bit integer."""
    return _HEAD.pack(I32, number) + _I32.pack(value)


def i64(number: int, value: int) -> bytes:
    """Return a field with a 64-bit integer."""
    return _HEAD.pack(I64, number) + _I64.pack(value)


def boolean(number: int, value: bool) -> bytes:
    """Return a field with a bool."""
    return _HEAD.pack(BOOL, number) + (b"\x01" if value else b"\x00")


def structure(number: int, fields: Iterable[bytes]) -> bytes:
    """Return a field with a struct that has these fields."""
    return _HEAD.pack(STRUCT, number) + b"".join(fields) + b"\x00"


def structures(number: int, each: Iterable[Iterable[bytes]]) -> bytes:
    """Return a field with a list of structs."""
    items = [b"".join(fields) + b"\x00" for fields in each]
    return _HEAD.pack(LIST, number) + _LIST_HEAD.pack(STRUCT, len(items)) + b"".join(items)


def texts(number: int, values: Mapping[str, str]) -> bytes:
    """Return a field with a map of strings to strings."""
    parts = [_HEAD.pack(MAP, number), _MAP_HEAD.pack(STRING, STRING, len(values))]
    for name, value in values.items():
        parts += (_bare(name), _bare(value))
    return b"".join(parts)


def positions(number: int, values: Mapping[str, Mapping[str, int]]) -> bytes:
    """Return a field with offsets by topic and qid."""
    parts = [_HEAD.pack(MAP, number), _MAP_HEAD.pack(STRING, MAP, len(values))]
    for topic, offsets in values.items():
        parts += (_bare(topic), _MAP_HEAD.pack(STRING, I64, len(offsets)))
        for qid, offset in offsets.items():
            parts += (_bare(qid), _I64.pack(offset))
    return b"".join(parts)


def call(method: str, sequence: int, arguments: Iterable[bytes]) -> bytes:
    """Return the frame of a call, with its length."""
    parts = (_I32.pack(_VERSION - (1 << 32) | CALL), _bare(method), _I32.pack(sequence), *arguments, b"\x00")
    return _I32.pack(sum(map(len, parts))) + b"".join(parts)


def _bare(value: str) -> bytes:
    data = value.encode()
    return _I32.pack(len(data)) + data


# Reading


def frame_length(head: bytes) -> int:
    """Return how long the frame behind these four bytes is. Raises Malformed."""
    length: int = _I32.unpack(head)[0]
    if not 0 < length <= FRAME_BYTES_MAX:
        raise Malformed(f"a frame of {length} bytes: this is not a consumer or producer port of a node")
    return length


def reply(frame: bytes, method: str, sequence: int) -> dict[int, Any]:
    """Read the reply to a call.

    Args:
        frame: Without its length.
        method: What was called.
        sequence: The number that the call had.

    Returns:
        The fields of the result: 0 is what the call returned, others are its exceptions.

    Raises:
        Malformed: It is no reply to this call.
        Fault: The peer could not make sense of the call.
    """
    try:
        (version,) = struct.unpack_from(">I", frame)
        name, at = _string(frame, 4)
        (number,) = _I32.unpack_from(frame, at)
        result, end = read_struct(frame, at + 4, 0)
    except (struct.error, IndexError, RecursionError) as error:
        raise Malformed(f"a reply that ends too early ({len(frame)} bytes)") from error
    if version & _VERSION_MASK != _VERSION or version & 0xFF not in (REPLY, EXCEPTION):
        raise Malformed("a reply that is not in Thrift's binary protocol")
    if end != len(frame):
        raise Malformed(f"a reply with {len(frame) - end} bytes behind its end")
    if number != sequence or name != method.encode():
        raise Malformed(f"a reply to {name[:40]!r} number {number}, where {method} number {sequence} was called")
    if version & 0xFF == EXCEPTION:
        said = result.get(1, b"")
        raise ThriftFault(said.decode("utf-8", "replace") if isinstance(said, bytes) else "no reason")
    return result


class ExecutorCodec:
    """Frames of calls and answers, for a `Conversation`; what a call returns is the fields of its result.

    Args:
        address: The node's, for errors.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def encode(self, method: str, arguments: Iterable[bytes], sequence: int) -> bytes:
        """Return the frame of a call."""
        return call(method, sequence, arguments)

    def size_of(self, head: bytes) -> int:
        """Return the length of an answer. Raises NotThrift."""
        return self._read(frame_length, head)

    def decode(self, method: str, sequence: int, frame: bytes) -> dict[int, Any]:
        """Return the fields of a result. Raises NotThrift, Fault."""
        return self._read(reply, frame, method, sequence)

    def _read(self, read: Callable[..., T], *what: object) -> T:
        try:
            return read(*what)
        except Malformed as error:
            raise NotThrift(self._address, str(error)) from error


def read_struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Read a struct from a position on; returns its fields by id, and the position behind it.

    Strings are bytes, lists and sets lists, maps dicts.

    Raises:
        Malformed: A type, length or depth that cannot be.
        struct.error, IndexError: It ends too early.
    """
    found: dict[int, Any] = {}
    length = len(data)
    while kind := data[at]:
        number = data[at + 1] << 8 | data[at + 2]
        at += 3
        # The most frequent kinds without a call: messages are full of them.
        if kind == STRING:
            # Unsigned: a negative length is a huge one, and refused by the same comparison.
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > length:
                raise Malformed(f"a string that reaches {end - length} bytes beyond the end")
            found[number] = data[at + 4 : end]
            at = end
        elif kind == I64:
            found[number] = _I64.unpack_from(data, at)[0]
            at += 8
        elif kind == MAP and data[at : at + 2] == _OF_STRINGS:
            found[number], at = _strings(data, at)
        else:
            found[number], at = _value(data, at, kind, depth)
    return found, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    scalar = _SCALARS.get(kind)
    if scalar is not None:
        return scalar[0](data, at)[0], at + scalar[1]
    if kind == STRING:
        return _string(data, at)
    if depth >= DEPTH_MAX:
        raise Malformed(f"values nested deeper than {DEPTH_MAX}")
    if kind == STRUCT:
        return read_struct(data, at, depth + 1)
    if kind in (LIST, SET):
        of, count = _LIST_HEAD.unpack_from(data, at)
        _check_count(data, at, count)
        at += 5
        items = []
        for _ in range(count):
            item, at = read_struct(data, at, depth + 1) if of == STRUCT else _value(data, at, of, depth + 1)
            items.append(item)
        return items, at
    if kind == MAP:
        of_key, of_value, count = _MAP_HEAD.unpack_from(data, at)
        _check_count(data, at, count)
        if of_key in (STRUCT, LIST, SET, MAP):
            raise Malformed(f"a map whose keys are of type {of_key}")
        at += 6
        pairs = {}
        for _ in range(count):
            key, at = _value(data, at, of_key, depth + 1)
            pairs[key], at = _value(data, at, of_value, depth + 1)
        return pairs, at
    raise Malformed(f"a value of unknown type {kind}")


def _strings(data: bytes, at: int) -> tuple[dict[bytes, bytes], int]:
    """Read a map of strings to strings, as each message has one."""
    count = int.from_bytes(data[at + 2 : at + 6], "big")
    _check_count(data, at, count)
    at += 6
    pairs = {}
    for _ in range(count):
        begin = at + 4
        at = begin + int.from_bytes(data[at:begin], "big")
        key = data[begin:at]
        begin = at + 4
        at = begin + int.from_bytes(data[at:begin], "big")
        pairs[key] = data[begin:at]
    if at > len(data):
        # Behind the end there is nothing to read, and nothing was.
        raise Malformed(f"a string that reaches {at - len(data)} bytes beyond the end")
    return pairs, at


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    end = at + 4 + struct.unpack_from(">I", data, at)[0]
    if end > len(data):
        raise Malformed(f"a string that reaches {end - len(data)} bytes beyond the end")
    return data[at + 4 : end], int(end)


def _check_count(data: bytes, at: int, count: int) -> None:
    # Each takes a byte at least.
    if count > len(data) - at:
        raise Malformed(f"a list or map of {count} entries, which exceeds the rest of the frame")
