"""Reading any struct of the interface definitions into a dict, for both protocols.

Values are as in `write`. Absent fields are absent from the dict. Unknown fields, and known ones that arrive
with another type than theirs, are skipped; then required fields are checked. The bounds of `limits` hold.
"""

from __future__ import annotations

import struct
from typing import Any

from proxy.wire import binary, compact
from proxy.wire.call import COMPACT
from proxy.wire.errors import ArgumentsError, TextError
from proxy.wire.generic.tables import StructType, Type
from proxy.wire.generic.write import COMPACT_KIND
from proxy.wire.limits import DEPTH_MAX, MESSAGES_MAX
from proxy.wire.steps import Steps

_WIDTH_READERS = {
    binary.BYTE: struct.Struct(">b"),
    binary.I16: struct.Struct(">h"),
    binary.I32: struct.Struct(">i"),
    binary.I64: struct.Struct(">q"),
    binary.DOUBLE: struct.Struct(">d"),
}
_COMPACT_DOUBLE = struct.Struct("<d")
_NOTHING = object()
"""Stands for a container whose elements have another type than they should."""


def decode_struct(
    protocol: int, kind: StructType, frame: bytes, pos: int, *, steps: Steps | None = None
) -> tuple[dict[str, Any], int]:
    """Decode one struct; returns (field name to value, next position).

    Args:
        protocol: COMPACT or BINARY.
        kind: What it is.
        frame: Where it stands.
        pos: Where it begins.
        steps: Those that are left; a frame's, when absent. Each element of a container takes one here.

    Raises:
        ArgumentsError: The bytes are no such struct, break a bound, or lack a required field.
    """
    try:
        return (_compact_struct if protocol == COMPACT else _binary_struct)(frame, pos, kind, steps or Steps(), 1)
    except (IndexError, struct.error) as error:
        raise ArgumentsError(f"a {kind.name} that ends early") from error


def _text(kind: Type, raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape" if kind.loose else "strict")


def _check(kind: StructType, values: dict[str, Any]) -> None:
    for each in kind.fields.values():
        if each.required and each.name not in values:
            raise ArgumentsError(f"{kind.name} without its required field {each.name}")


def _check_depth(depth: int) -> None:
    if depth > DEPTH_MAX:
        raise ArgumentsError(f"values nested more than {DEPTH_MAX} deep")


def _compact_struct(frame: bytes, pos: int, kind: StructType, steps: Steps, depth: int) -> tuple[dict[str, Any], int]:
    _check_depth(depth)
    values: dict[str, Any] = {}
    last = 0
    while True:
        code, last, pos = compact.field_header(frame, pos, last, steps)
        if code == compact.STOP:
            _check(kind, values)
            return values, pos
        each = kind.fields.get(last)
        if each is None:
            pos = compact.skip(frame, pos, code, steps, depth)
        elif each.type.kind == binary.BOOL and code in (compact.TRUE, compact.FALSE):
            values[each.name] = code == compact.TRUE
        elif code == COMPACT_KIND[each.type.kind] and each.type.kind != binary.BOOL:
            try:
                value, pos = _compact_value(frame, pos, each.type, steps, depth)
            except UnicodeDecodeError:
                raise TextError(f"field {each.name} of a {kind.name}") from None
            if value is not _NOTHING:
                values[each.name] = value
        else:
            pos = compact.skip(frame, pos, code, steps, depth)


def _compact_value(frame: bytes, pos: int, kind: Type, steps: Steps, depth: int) -> tuple[Any, int]:
    code = kind.kind
    if code == binary.STRING:
        raw, pos = compact.binary(frame, pos)
        return (_text(kind, raw) if kind.text else raw), pos
    if code == binary.I64:
        return compact.i64(frame, pos)
    if code in (binary.I32, binary.I16):
        return compact.i32(frame, pos)
    if code == binary.BOOL:
        return frame[pos] == compact.TRUE, pos + 1
    if code == binary.BYTE:
        return _WIDTH_READERS[code].unpack_from(frame, pos)[0], pos + 1
    if code == binary.DOUBLE:
        return _COMPACT_DOUBLE.unpack_from(frame, pos)[0], pos + 8
    if code == binary.STRUCT:
        assert kind.struct is not None, "a struct type has a table"
        return _compact_struct(frame, pos, kind.struct, steps, depth + 1)
    _check_depth(depth + 1)
    if code == binary.MAP:
        *found, count, pos = compact.map_header(frame, pos)
    else:
        *found, count, pos = compact.list_header(frame, pos)
    # Elements of type bool have either code.
    codes = [compact.TRUE if each == compact.FALSE else each for each in found]
    if count and codes != [COMPACT_KIND[part.kind] for part in kind.parts]:
        return _NOTHING, compact.skip_elements(frame, pos, tuple(found), count, steps, depth + 1)
    return _elements(_compact_value, kind, count, frame, pos, steps=steps, depth=depth)


def _binary_struct(frame: bytes, pos: int, kind: StructType, steps: Steps, depth: int) -> tuple[dict[str, Any], int]:
    _check_depth(depth)
    values: dict[str, Any] = {}
    field_id = 0
    while True:
        code, field_id, pos = binary.field_header(frame, pos, field_id, steps)
        if code == binary.STOP:
            _check(kind, values)
            return values, pos
        each = kind.fields.get(field_id)
        if each is None or each.type.kind != code:
            pos = binary.skip(frame, pos, code, steps, depth)
            continue
        try:
            value, pos = _binary_value(frame, pos, each.type, steps, depth)
        except UnicodeDecodeError:
            raise TextError(f"field {each.name} of a {kind.name}") from None
        if value is not _NOTHING:
            values[each.name] = value


def _binary_value(frame: bytes, pos: int, kind: Type, steps: Steps, depth: int) -> tuple[Any, int]:
    code = kind.kind
    if code == binary.STRING:
        raw, pos = binary.binary(frame, pos)
        return (_text(kind, raw) if kind.text else raw), pos
    if code == binary.BOOL:
        return frame[pos] != 0, pos + 1
    if code in _WIDTH_READERS:
        reader = _WIDTH_READERS[code]
        return reader.unpack_from(frame, pos)[0], pos + reader.size
    if code == binary.STRUCT:
        assert kind.struct is not None, "a struct type has a table"
        return _binary_struct(frame, pos, kind.struct, steps, depth + 1)
    _check_depth(depth + 1)
    if code == binary.MAP:
        *codes, count, pos = binary.map_header(frame, pos)
    else:
        *codes, count, pos = binary.list_header(frame, pos)
    if count and codes != [part.kind for part in kind.parts]:
        return _NOTHING, binary.skip_elements(frame, pos, tuple(codes), count, steps, depth + 1)
    return _elements(_binary_value, kind, count, frame, pos, steps=steps, depth=depth)


def _elements(
    read: Any, kind: Type, count: int, frame: bytes, pos: int, *, steps: Steps, depth: int
) -> tuple[Any, int]:
    """Read the elements of a container whose element types are right; one wrong inner container spoils the whole."""
    spoiled = False
    if kind.kind == binary.MAP:
        if count > MESSAGES_MAX:
            raise ArgumentsError(f"a map of {count} entries: at most {MESSAGES_MAX} are allowed")
        steps.take(count)
        key_kind, value_kind = kind.parts
        pairs: dict[Any, Any] = {}
        for _ in range(count):
            key, pos = read(frame, pos, key_kind, steps, depth + 1)
            value, pos = read(frame, pos, value_kind, steps, depth + 1)
            spoiled = spoiled or value is _NOTHING
            pairs[key] = value
        return (_NOTHING if spoiled else pairs), pos
    (element_kind,) = kind.parts
    if element_kind.struct is not None and count > MESSAGES_MAX:
        # An empty struct is a byte on the wire and hundreds in memory.
        raise ArgumentsError(f"a list of {count} {element_kind.struct.name}: at most {MESSAGES_MAX} are allowed")
    steps.take(count)
    elements = []
    for _ in range(count):
        element, pos = read(frame, pos, element_kind, steps, depth + 1)
        spoiled = spoiled or element is _NOTHING
        elements.append(element)
    return (_NOTHING if spoiled else elements), pos
