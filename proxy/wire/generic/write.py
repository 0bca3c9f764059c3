"""Writing any struct of the interface definitions from a dict, for both protocols.

Values: str for string, bytes for binary, int, bool, float, list (also for set), dict for map and for struct. A field
that is absent or None is left out. Everything here may raise WireMisuse: the values are our own.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from proxy.wire import binary, compact
from proxy.wire.call import COMPACT, encode_varint, zigzag
from proxy.wire.errors import WireMisuse
from proxy.wire.generic.tables import Field, StructType, Type
from proxy.wire.reading import STOP

DEPTH_MAX = 200
"""Levels of nesting, far above what any reader takes, so that tests can write what must be refused."""

_BITS = {binary.BYTE: 8, binary.I16: 16, binary.I32: 32, binary.I64: 64}
_PACK = {8: struct.Struct(">b").pack, 16: struct.Struct(">h").pack, 32: struct.Struct(">i").pack}
_PACK[64] = struct.Struct(">q").pack

_COMPACT_CODES = compact.READING.codes


def encode_struct(protocol: int, kind: StructType, values: Mapping[str, Any]) -> bytes:
    """Encode one struct.

    Raises:
        WireMisuse: An unknown field name, a required field that is absent, a value of a wrong type or out of range.
    """
    out = bytearray()
    try:
        (_compact_struct if protocol == COMPACT else _binary_struct)(out, kind, values, 1)
    except (TypeError, AttributeError) as error:
        raise WireMisuse(f"a value of a wrong type in a {kind.name}: {error}") from error
    return bytes(out)


def _present(kind: StructType, values: Mapping[str, Any], depth: int) -> list[tuple[Field, Any]]:
    """Fields to be written, ascending by id, with their values."""
    if depth > DEPTH_MAX:
        raise WireMisuse(f"structs nested more than {DEPTH_MAX} deep")
    unknown = values.keys() - kind.names
    if unknown:
        raise WireMisuse(f"{kind.name} has no field {min(unknown)!r}")
    present = []
    for each in kind.fields.values():
        value = values.get(each.name)
        if value is not None:
            present.append((each, value))
        elif each.required:
            raise WireMisuse(f"{kind.name} without its required field {each.name}")
    return present


def _integer(kind: int, value: Any) -> int:
    bits = _BITS[kind]
    if isinstance(value, bool) or not isinstance(value, int) or not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise WireMisuse(f"{value!r} is not a number of {bits} bits")
    return int(value)


def _raw(kind: Type, value: Any) -> bytes:
    if kind.text and not (kind.loose and isinstance(value, bytes)):
        if not isinstance(value, str):
            raise WireMisuse(f"{value!r} is not text")
        return value.encode()
    if not isinstance(value, bytes | bytearray | memoryview):
        raise WireMisuse(f"{value!r} is not bytes")
    return bytes(value)


def _compact_struct(out: bytearray, kind: StructType, values: Mapping[str, Any], depth: int) -> None:
    last = 0
    for each, value in _present(kind, values, depth):
        code = _COMPACT_CODES[each.type.kind]
        if code == compact.TRUE and not value:
            code = compact.FALSE
        if 0 < each.id - last <= 15:
            out.append((each.id - last) << 4 | code)
        else:
            out.append(code)
            out += zigzag(each.id, 16)
        last = each.id
        if each.type.kind != binary.BOOL:
            _compact_value(out, each.type, value, depth)
    out.append(STOP)


def _compact_value(out: bytearray, kind: Type, value: Any, depth: int) -> None:
    code = kind.kind
    if code == binary.STRING:
        raw = _raw(kind, value)
        out += encode_varint(len(raw)) + raw
    elif code == binary.BYTE:
        out += _PACK[8](_integer(code, value))
    elif code in _BITS:
        out += zigzag(_integer(code, value), _BITS[code])
    elif code == binary.BOOL:
        out.append(compact.TRUE if value else compact.FALSE)
    elif code == binary.DOUBLE:
        out += struct.pack("<d", value)
    elif kind.struct is not None:
        _compact_struct(out, kind.struct, value, depth + 1)
    elif code == binary.MAP:
        key_kind, value_kind = kind.parts
        out += encode_varint(len(value))
        if value:
            out.append(_COMPACT_CODES[key_kind.kind] << 4 | _COMPACT_CODES[value_kind.kind])
        for key, element in value.items():
            _compact_value(out, key_kind, key, depth + 1)
            _compact_value(out, value_kind, element, depth + 1)
    else:
        (element_kind,) = kind.parts
        element_code = _COMPACT_CODES[element_kind.kind]
        if len(value) < 15:
            out.append(len(value) << 4 | element_code)
        else:
            out.append(0xF0 | element_code)
            out += encode_varint(len(value))
        for element in value:
            _compact_value(out, element_kind, element, depth + 1)


def _binary_struct(out: bytearray, kind: StructType, values: Mapping[str, Any], depth: int) -> None:
    for each, value in _present(kind, values, depth):
        out += struct.pack(">Bh", each.type.kind, each.id)
        _binary_value(out, each.type, value, depth)
    out.append(STOP)


def _binary_value(out: bytearray, kind: Type, value: Any, depth: int) -> None:
    code = kind.kind
    if code == binary.STRING:
        raw = _raw(kind, value)
        out += _PACK[32](len(raw)) + raw
    elif code in _BITS:
        out += _PACK[_BITS[code]](_integer(code, value))
    elif code == binary.BOOL:
        out.append(1 if value else 0)
    elif code == binary.DOUBLE:
        out += struct.pack(">d", value)
    elif kind.struct is not None:
        _binary_struct(out, kind.struct, value, depth + 1)
    elif code == binary.MAP:
        key_kind, value_kind = kind.parts
        out += struct.pack(">BBi", key_kind.kind, value_kind.kind, len(value))
        for key, element in value.items():
            _binary_value(out, key_kind, key, depth + 1)
            _binary_value(out, value_kind, element, depth + 1)
    else:
        (element_kind,) = kind.parts
        out += struct.pack(">Bi", element_kind.kind, len(value))
        for element in value:
            _binary_value(out, element_kind, element, depth + 1)
