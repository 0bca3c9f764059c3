"""Reading TBinaryProtocol: headers and skipping, as functions of (frame, position).

As in `compact`, reading beyond the frame ends in a struct.error or an IndexError, which the callers turn into an
ArgumentsError; sizes are signed on the wire and checked where they are read.
"""

from __future__ import annotations

import struct

from proxy.wire.errors import ArgumentsError
from proxy.wire.limits import DEPTH_MAX
from proxy.wire.steps import Steps

STOP, BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST, UUID = (
    0,
    2,
    3,
    4,
    6,
    8,
    10,
    11,
    12,
    13,
    14,
    15,
    16,
)

FIXED_BYTES = {BOOL: 1, BYTE: 1, DOUBLE: 8, I16: 2, I32: 4, I64: 8, UUID: 16}
"""Size of the types that always have the same."""

ELEMENT_BYTES_MIN = {**FIXED_BYTES, STRING: 4, STRUCT: 1, MAP: 6, SET: 5, LIST: 5}
"""Fewest bytes that a value takes."""

I16_AT = struct.Struct(">h").unpack_from
I32_AT = struct.Struct(">i").unpack_from
I64_AT = struct.Struct(">q").unpack_from
FIELD_AT = struct.Struct(">Bh").unpack_from
LIST_AT = struct.Struct(">Bi").unpack_from
MAP_AT = struct.Struct(">BBi").unpack_from


def binary(frame: bytes, pos: int) -> tuple[bytes, int]:
    """Read a string or binary; returns (bytes, next position)."""
    (size,) = I32_AT(frame, pos)
    pos += 4
    if not 0 <= size <= len(frame) - pos:
        raise ArgumentsError(f"a string of {size} bytes with {len(frame) - pos} left")
    return frame[pos : pos + size], pos + size


def field_header(frame: bytes, pos: int, last: int, steps: Steps) -> tuple[int, int, int]:
    """Read the header of a field after field id `last`; returns (type, field id, next position). Type STOP: no more.

    A field that does not come after the last one takes a step.
    """
    if frame[pos] == STOP:
        return STOP, 0, pos + 1
    kind, field_id = FIELD_AT(frame, pos)
    if field_id <= last:
        steps.take()
    return kind, field_id, pos + 3


def list_header(frame: bytes, pos: int) -> tuple[int, int, int]:
    """Read the header of a list or set; returns (element type, count, next position)."""
    element, count = LIST_AT(frame, pos)
    pos += 5
    _check_container((element,), count, len(frame) - pos)
    return element, count, pos


def map_header(frame: bytes, pos: int) -> tuple[int, int, int, int]:
    """Read the header of a map; returns (key type, value type, count, next position)."""
    key, value, count = MAP_AT(frame, pos)
    pos += 6
    _check_container((key, value), count, len(frame) - pos)
    return key, value, count, pos


def _check_container(kinds: tuple[int, ...], count: int, bytes_left: int) -> None:
    if count == 0:
        return
    least = 0
    for kind in kinds:
        if kind not in ELEMENT_BYTES_MIN:
            raise ArgumentsError(f"a container of elements of the unknown type {kind}")
        least += ELEMENT_BYTES_MIN[kind]
    if not 0 <= count <= bytes_left // least:
        raise ArgumentsError(f"a container of {count} elements in a frame that has room for {bytes_left // least}")


def skip(frame: bytes, pos: int, kind: int, steps: Steps, depth: int = 1) -> int:
    """Pass over a value; returns the position after it. Arguments and errors are those of `compact.skip`."""
    steps.take()
    return _skip_value(frame, pos, kind, steps, depth)


def _skip_value(frame: bytes, pos: int, kind: int, steps: Steps, depth: int) -> int:
    size = FIXED_BYTES.get(kind)
    if size is not None:
        return pos + size
    if kind == STRING:
        return binary(frame, pos)[1]
    if depth >= DEPTH_MAX:
        raise ArgumentsError(f"values nested more than {DEPTH_MAX} deep")
    if kind == STRUCT:
        last = 0
        while True:
            field_kind, last, pos = field_header(frame, pos, last, steps)
            if field_kind == STOP:
                return pos
            pos = skip(frame, pos, field_kind, steps, depth + 1)
    if kind in (LIST, SET):
        element, count, pos = list_header(frame, pos)
        return skip_elements(frame, pos, (element,), count, steps, depth + 1)
    if kind == MAP:
        key, value, count, pos = map_header(frame, pos)
        return skip_elements(frame, pos, (key, value), count, steps, depth + 1)
    raise ArgumentsError(f"a value of the unknown type {kind}")


def skip_elements(  # noqa: PLR0917 - as skip
    frame: bytes, pos: int, kinds: tuple[int, ...], count: int, steps: Steps, depth: int = 1
) -> int:
    """Pass over `count` elements (pairs, for a map) of a container; returns the position after them."""
    if all(kind in FIXED_BYTES for kind in kinds):
        return pos + count * sum(FIXED_BYTES[kind] for kind in kinds)
    steps.take(count)
    for _ in range(count):
        for kind in kinds:
            pos = _skip_value(frame, pos, kind, steps, depth)
    return pos
