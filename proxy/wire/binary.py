"""Reading TBinaryProtocol: numbers and headers, as functions of (frame, position).

As in `compact`, but that a number beyond the frame ends in a struct.error; sizes are signed on the wire and checked
where they are read.
"""

from __future__ import annotations

import struct

from proxy.wire.errors import ArgumentsError
from proxy.wire.reading import STOP, ProtocolReader
from proxy.wire.steps import Steps

BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST, UUID = 2, 3, 4, 6, 8, 10, 11, 12, 13, 14, 15, 16

_FIXED_BYTES = {BOOL: 1, BYTE: 1, DOUBLE: 8, I16: 2, I32: 4, I64: 8, UUID: 16}
"""Size of the types that always have the same."""

_ELEMENT_BYTES_MIN = {**_FIXED_BYTES, STRING: 4, STRUCT: 1, MAP: 6, SET: 5, LIST: 5}
"""Fewest bytes that a value takes."""

_I32_AT = struct.Struct(">i").unpack_from
_I64_AT = struct.Struct(">q").unpack_from
_FIELD_AT = struct.Struct(">Bh").unpack_from
_LIST_AT = struct.Struct(">Bi").unpack_from
_MAP_AT = struct.Struct(">BBi").unpack_from


def _i32(frame: bytes, pos: int) -> tuple[int, int]:
    return int(_I32_AT(frame, pos)[0]), pos + 4


def _i64(frame: bytes, pos: int) -> tuple[int, int]:
    return int(_I64_AT(frame, pos)[0]), pos + 8


def _i64s(frame: bytes, pos: int, count: int) -> tuple[list[int], int]:
    return list(struct.unpack_from(f">{count}q", frame, pos)), pos + 8 * count


def _span(frame: bytes, pos: int) -> tuple[int, int]:
    (size,) = _I32_AT(frame, pos)
    pos += 4
    if not 0 <= size <= len(frame) - pos:
        raise ArgumentsError(f"a string of {size} bytes with {len(frame) - pos} left")
    return pos, pos + size


def _header(frame: bytes, pos: int, last: int, steps: Steps) -> tuple[int, int, int]:
    """Read the header of a field after field id `last`; returns (type, field id, next position). Type STOP: no more.

    A field that does not come after the last one takes a step.
    """
    if frame[pos] == STOP:
        return STOP, 0, pos + 1
    kind, field_id = _FIELD_AT(frame, pos)
    if field_id <= last:
        steps.take()
    return kind, field_id, pos + 3


def _list_header(frame: bytes, pos: int) -> tuple[int, int, int]:
    """Read the header of a list or set; returns (element type, count, next position)."""
    element, count = _LIST_AT(frame, pos)
    pos += 5
    _check_container((element,), count, len(frame) - pos)
    return element, count, pos


def _map_header(frame: bytes, pos: int) -> tuple[int, int, int, int]:
    """Read the header of a map; returns (key type, value type, count, next position)."""
    key, value, count = _MAP_AT(frame, pos)
    pos += 6
    _check_container((key, value), count, len(frame) - pos)
    return key, value, count, pos


def _check_container(kinds: tuple[int, ...], count: int, bytes_left: int) -> None:
    if count == 0:
        return
    least = 0
    for kind in kinds:
        if kind not in _ELEMENT_BYTES_MIN:
            raise ArgumentsError(f"a container of elements of the unknown type {kind}")
        least += _ELEMENT_BYTES_MIN[kind]
    if not 0 <= count <= bytes_left // least:
        raise ArgumentsError(f"a container of {count} elements in a frame that has room for {bytes_left // least}")


READING = ProtocolReader(
    flags=(BOOL,),
    i32=I32,
    i64=I64,
    text=STRING,
    struct=STRUCT,
    list=LIST,
    set=SET,
    map=MAP,
    fixed=_FIXED_BYTES,
    varints=(),
    codes={kind: kind for kind in _ELEMENT_BYTES_MIN if kind != UUID},
    header=_header,
    flag=lambda frame, pos, _kind: (frame[pos] != 0, pos + 1),
    read_i32=_i32,
    read_i64=_i64,
    read_i64s=_i64s,
    span=_span,
    list_header=_list_header,
    map_header=_map_header,
)
