"""Reading TCompactProtocol: numbers, headers and skipping, as functions of (frame, position).

Strings are sliced without asking whether the frame has as many bytes: positions only grow and every struct still
needs its stop byte, so a length beyond the frame ends in an IndexError at the next byte, which the callers in `scan`
and `generic` turn into an ArgumentsError. Containers are checked against the bytes left before any loop.
"""

from __future__ import annotations

from proxy.wire.errors import ArgumentsError
from proxy.wire.limits import DEPTH_MAX, VARINT32_BYTES_MAX, VARINT64_BYTES_MAX
from proxy.wire.steps import Steps

# Type codes of fields. Inside containers TRUE stands for "bool", and an element is one byte.
STOP, TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(14)

_ELEMENT_BYTES = {TRUE: 1, FALSE: 1, BYTE: 1, DOUBLE: 8, UUID: 16}
"""Element types of fixed size in containers."""


def varint32(frame: bytes, pos: int) -> tuple[int, int]:
    """Read an unsigned number of at most 32 bits; returns (value, next position)."""
    value = shift = 0
    for index in range(pos, pos + VARINT32_BYTES_MAX):
        byte = frame[index]
        if byte < 128:
            value |= byte << shift
            if value >> 32:
                break
            return value, index + 1
        value |= (byte & 127) << shift
        shift += 7
    raise ArgumentsError("a number of more than 32 bits where 32 are allowed")


def varint64(frame: bytes, pos: int) -> tuple[int, int]:
    """Read an unsigned number of at most 64 bits; returns (value, next position)."""
    value = shift = 0
    for index in range(pos, pos + VARINT64_BYTES_MAX):
        byte = frame[index]
        if byte < 128:
            value |= byte << shift
            if value >> 64:
                break
            return value, index + 1
        value |= (byte & 127) << shift
        shift += 7
    raise ArgumentsError("a number of more than 64 bits")


def i32(frame: bytes, pos: int) -> tuple[int, int]:
    """Read a signed 32-bit number; returns (value, next position)."""
    value, pos = varint32(frame, pos)
    return (value >> 1) ^ -(value & 1), pos


def i64(frame: bytes, pos: int) -> tuple[int, int]:
    """Read a signed 64-bit number; returns (value, next position)."""
    value, pos = varint64(frame, pos)
    return (value >> 1) ^ -(value & 1), pos


def binary(frame: bytes, pos: int) -> tuple[bytes, int]:
    """Read a string or binary; returns (bytes, next position)."""
    size = frame[pos]
    if size < 128:
        pos += 1
    else:
        size, pos = varint32(frame, pos)
    end = pos + size
    if end > len(frame):
        raise ArgumentsError(f"a string of {size} bytes with {len(frame) - pos} left")
    return frame[pos:end], end


def field_header(frame: bytes, pos: int, last: int, steps: Steps) -> tuple[int, int, int]:
    """Read the header of a field after field id `last`; returns (type, field id, next position). Type STOP: no more.

    A field that does not come after the last one takes a step.
    """
    head = frame[pos]
    if head == STOP:
        return STOP, 0, pos + 1
    if head > 15:
        field_id = last + (head >> 4)
        pos += 1
    else:
        field_id, pos = i32(frame, pos + 1)
        if field_id <= last:
            steps.take()
    if not -0x8000 <= field_id <= 0x7FFF:
        raise ArgumentsError(f"field id {field_id}: ids have 16 bits")
    return head & 15, field_id, pos


def list_header(frame: bytes, pos: int) -> tuple[int, int, int]:
    """Read the header of a list or set; returns (element type, count, next position).

    The count is at most the number of bytes left, since every element takes one at least.
    """
    head = frame[pos]
    pos += 1
    count = head >> 4
    if count == 15:
        count, pos = varint32(frame, pos)
    _check_container(head & 15, count, len(frame) - pos)
    return head & 15, count, pos


def map_header(frame: bytes, pos: int) -> tuple[int, int, int, int]:
    """Read the header of a map; returns (key type, value type, count, next position). Types are 0 when it is empty."""
    count = frame[pos]
    if count == 0:
        return 0, 0, 0, pos + 1
    if count < 128:
        pos += 1
    else:
        count, pos = varint32(frame, pos)
    types = frame[pos]
    pos += 1
    left = (len(frame) - pos) // 2
    _check_container(types >> 4, count, left)
    _check_container(types & 15, count, left)
    return types >> 4, types & 15, count, pos


def _check_container(element: int, count: int, count_max: int) -> None:
    if count > count_max:
        raise ArgumentsError(f"a container of {count} elements in a frame that has room for {max(count_max, 0)}")
    if count and not TRUE <= element <= UUID:
        raise ArgumentsError(f"a container of elements of the unknown type {element}")


def skip(frame: bytes, pos: int, kind: int, steps: Steps, depth: int = 1) -> int:
    """Pass over the value of a field; returns the position after it.

    Args:
        frame: The frame.
        pos: Where the value begins.
        kind: Its type code as in a field header.
        steps: Those of the frame; each field and each element that is looked at takes one.
        depth: Levels this value is inside of, counting the struct that holds it.

    Raises:
        ArgumentsError: An unknown type, a container larger than the frame, or deeper than DEPTH_MAX, too many steps.
        IndexError: The frame ends before the value.
    """
    steps.take()
    if kind in (TRUE, FALSE):
        return pos
    if I16 <= kind <= I64:
        return varint64(frame, pos)[1]
    if kind == BINARY:
        return binary(frame, pos)[1]
    return _skip_element(frame, pos, kind, steps, depth)


def _skip_element(frame: bytes, pos: int, kind: int, steps: Steps, depth: int) -> int:
    """Pass over a container, a struct or a value of fixed size."""
    if kind in _ELEMENT_BYTES:
        return pos + _ELEMENT_BYTES[kind]
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
    if all(kind in _ELEMENT_BYTES for kind in kinds):
        return pos + count * sum(_ELEMENT_BYTES[kind] for kind in kinds)
    steps.take(count)
    for _ in range(count):
        for kind in kinds:
            if I16 <= kind <= I64:
                pos = varint64(frame, pos)[1]
            elif kind == BINARY:
                pos = binary(frame, pos)[1]
            else:
                pos = _skip_element(frame, pos, kind, steps, depth)
    return pos
