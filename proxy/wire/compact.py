"""Reading TCompactProtocol: numbers and headers, as functions of (frame, position).

Texts and containers are checked against the bytes left before anything is made of them; what else is beyond the frame
ends in an IndexError at the byte that is not there.
"""

from __future__ import annotations

from proxy.wire import binary
from proxy.wire.errors import ArgumentsError
from proxy.wire.reading import STOP, ProtocolReader
from proxy.wire.steps import Steps

# Type codes of fields. Inside containers TRUE means "bool", and an element is one byte.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)


def varint(frame: bytes, pos: int, bits: int = 32) -> tuple[int, int]:
    """Read an unsigned number of at most so many bits; returns (value, next position)."""
    value = shift = 0
    for index in range(pos, pos + bits // 7 + 1):
        byte = frame[index]
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> bits:
                break
            return value, index + 1
        shift += 7
    raise ArgumentsError(f"a number of more than {bits} bits")


def i32(frame: bytes, pos: int) -> tuple[int, int]:
    """Read a signed 32-bit number; returns (value, next position)."""
    value, pos = varint(frame, pos)
    return (value >> 1) ^ -(value & 1), pos


def i64(frame: bytes, pos: int) -> tuple[int, int]:
    """Read a signed 64-bit number; returns (value, next position)."""
    value, pos = varint(frame, pos, 64)
    return (value >> 1) ^ -(value & 1), pos


def _i64s(frame: bytes, pos: int, count: int) -> tuple[list[int], int]:
    numbers = []
    for _ in range(count):
        number, pos = i64(frame, pos)
        numbers.append(number)
    return numbers, pos


def _span(frame: bytes, pos: int) -> tuple[int, int]:
    size = frame[pos]
    if size < 128:
        pos += 1
    else:
        size, pos = varint(frame, pos)
    end = pos + size
    if end > len(frame):
        raise ArgumentsError(f"a string of {size} bytes with {len(frame) - pos} left")
    return pos, end


def _header(frame: bytes, pos: int, last: int, steps: Steps) -> tuple[int, int, int]:
    """Read the header of a field after field id `last`; returns (type, field id, next position). Type STOP: no more.

    A field that does not come after the last one takes a step.
    """
    head = frame[pos]
    if head > 15:
        field_id = last + (head >> 4)
        if field_id <= 0x7FFF:
            return head & 15, field_id, pos + 1
    elif head == STOP:
        return STOP, 0, pos + 1
    else:
        field_id, pos = i32(frame, pos + 1)
        if field_id <= last:
            steps.take()
    if not -0x8000 <= field_id <= 0x7FFF:
        raise ArgumentsError(f"field id {field_id}: ids have 16 bits")
    return head & 15, field_id, pos


def _list_header(frame: bytes, pos: int) -> tuple[int, int, int]:
    """Read the header of a list or set; returns (element type, count, next position).

    The count is at most the number of bytes left, since every element takes one at least.
    """
    head = frame[pos]
    pos += 1
    count = head >> 4
    if count == 15:
        count, pos = varint(frame, pos)
    _check_container(head & 15, count, len(frame) - pos)
    return head & 15, count, pos


def _map_header(frame: bytes, pos: int) -> tuple[int, int, int, int]:
    """Read the header of a map; returns (key type, value type, count, next position). Types are 0 when it is empty."""
    count = frame[pos]
    if count == 0:
        return 0, 0, 0, pos + 1
    if count < 128:
        pos += 1
    else:
        count, pos = varint(frame, pos)
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


READING = ProtocolReader(
    flags=(TRUE, FALSE),
    i32=I32,
    i64=I64,
    text=BINARY,
    struct=STRUCT,
    list=LIST,
    set=SET,
    map=MAP,
    fixed={TRUE: 1, FALSE: 1, BYTE: 1, DOUBLE: 8, UUID: 16},
    varints=(I16, I32, I64),
    codes={
        binary.BOOL: TRUE,
        binary.BYTE: BYTE,
        binary.I16: I16,
        binary.I32: I32,
        binary.I64: I64,
        binary.DOUBLE: DOUBLE,
        binary.STRING: BINARY,
        binary.LIST: LIST,
        binary.SET: SET,
        binary.MAP: MAP,
        binary.STRUCT: STRUCT,
    },
    header=_header,
    # Where it is a field, its type says the value.
    flag=lambda _frame, pos, kind: (kind == TRUE, pos),
    read_i32=i32,
    read_i64=i64,
    read_i64s=_i64s,
    span=_span,
    list_header=_list_header,
    map_header=_map_header,
)
