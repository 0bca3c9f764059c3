"""Reading any struct of the interface definitions into a dict, for both protocols.

Values are as in `write`. Absent fields are absent from the dict. Unknown fields, and known ones that arrive
with another type than theirs, are skipped; then required fields are checked. The bounds of `limits` hold.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from proxy.wire import binary, compact
from proxy.wire.call import COMPACT
from proxy.wire.errors import ArgumentsError, TextError
from proxy.wire.generic.tables import StructType, Type
from proxy.wire.limits import DEPTH_MAX, MESSAGES_MAX
from proxy.wire.reading import STOP
from proxy.wire.steps import Steps
from proxy.wire.texts import NAME_BYTES_MAX, shown

_Reader = Callable[[bytes, int], tuple[Any, int]]


def _fixed(form: str) -> _Reader:
    """Return what reads one value of a fixed size."""
    layout = struct.Struct(form)
    return lambda frame, pos: (layout.unpack_from(frame, pos)[0], pos + layout.size)


_BINARY_SCALARS: Mapping[int, _Reader] = {
    binary.BOOL: _fixed(">?"),
    binary.BYTE: _fixed(">b"),
    binary.I16: _fixed(">h"),
    binary.I32: binary.READING.read_i32,
    binary.I64: binary.READING.read_i64,
    binary.DOUBLE: _fixed(">d"),
}
_COMPACT_SCALARS: Mapping[int, _Reader] = {
    binary.BOOL: lambda frame, pos: (frame[pos] == compact.TRUE, pos + 1),
    binary.BYTE: _fixed(">b"),
    binary.I16: compact.READING.read_i32,
    binary.I32: compact.READING.read_i32,
    binary.I64: compact.READING.read_i64,
    binary.DOUBLE: _fixed("<d"),
}
_NOTHING = object()
"""Stands for a container whose elements have another type than they should."""


def decode_struct(
    protocol: int, kind: StructType, frame: bytes, pos: int, *, steps: Steps | None = None
) -> tuple[dict[str, Any], int]:
    """Decode one struct; returns (field name to value, next position).

    Args:
        protocol: COMPACT or BINARY.
        kind: What it is.
        frame: Where it is.
        pos: Where it begins.
        steps: Those that are left; a frame's, when absent. Each element of a container takes one here.

    Raises:
        ArgumentsError: The bytes are no such struct, break a bound, or lack a required field.
    """
    try:
        return _Decoder(protocol, frame, steps or Steps()).struct(pos, kind, 1)
    except (IndexError, struct.error) as error:
        raise ArgumentsError(f"a {kind.name} that ends early") from error


def _text(kind: Type, raw: bytes) -> str | bytes:
    if kind.loose or (kind.is_name and raw[NAME_BYTES_MAX:]):
        return _any_text(kind, raw)
    return raw.decode()


def _any_text(kind: Type, raw: bytes) -> str | bytes:
    """Return a text that may be bytes, or one that is longer than any name."""
    if kind.is_name:
        return shown(raw)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _check(kind: StructType, values: dict[str, Any]) -> None:
    for each in kind.fields.values():
        if each.required and each.name not in values:
            raise ArgumentsError(f"{kind.name} without its required field {each.name}")


def _check_depth(depth: int) -> None:
    if depth > DEPTH_MAX:
        raise ArgumentsError(f"values nested more than {DEPTH_MAX} deep")


class _Decoder:
    """One frame that is read: every method takes a position and returns the one behind what it read."""

    def __init__(self, protocol: int, frame: bytes, steps: Steps) -> None:
        self._reading = compact.READING if protocol == COMPACT else binary.READING
        self._scalars = _COMPACT_SCALARS if protocol == COMPACT else _BINARY_SCALARS
        self._frame = frame
        self._steps = steps

    def struct(self, pos: int, kind: StructType, depth: int) -> tuple[dict[str, Any], int]:
        _check_depth(depth)
        reading, frame, steps = self._reading, self._frame, self._steps
        values: dict[str, Any] = {}
        last = 0
        while True:
            code, last, pos = reading.header(frame, pos, last, steps)
            if code == STOP:
                _check(kind, values)
                return values, pos
            each = kind.fields.get(last)
            if each is not None and each.type.kind == binary.BOOL and code in reading.flags:
                values[each.name], pos = reading.flag(frame, pos, code)
            elif each is None or each.type.kind == binary.BOOL or reading.codes[each.type.kind] != code:
                pos = reading.skip(frame, pos, code, steps, depth)
            else:
                try:
                    value, pos = self._value(pos, each.type, depth)
                except UnicodeDecodeError:
                    raise TextError(f"field {each.name} of a {kind.name}") from None
                if value is not _NOTHING:
                    values[each.name] = value

    def _value(self, pos: int, kind: Type, depth: int) -> tuple[Any, int]:
        reading, frame, code = self._reading, self._frame, kind.kind
        scalar = self._scalars.get(code)
        if scalar is not None:
            return scalar(frame, pos)
        if code == binary.STRING:
            start, pos = reading.span(frame, pos)
            raw = frame[start:pos]
            return (_text(kind, raw) if kind.text else raw), pos
        if kind.struct is not None:
            return self.struct(pos, kind.struct, depth + 1)
        _check_depth(depth + 1)
        *found, count, pos = (reading.map_header if code == binary.MAP else reading.list_header)(frame, pos)
        # Elements of type bool have either code.
        codes = [reading.flags[0] if each in reading.flags else each for each in found]
        if count and codes != [reading.codes[part.kind] for part in kind.parts]:
            return _NOTHING, reading.skip_elements(frame, pos, tuple(found), count, self._steps, depth + 1)
        return self._elements(pos, kind, count, depth)

    def _elements(self, pos: int, kind: Type, count: int, depth: int) -> tuple[Any, int]:
        """Read the elements of a container of the right types; one wrong inner container spoils the whole."""
        # An empty struct is a byte on the wire and hundreds in memory.
        if count > MESSAGES_MAX and kind.kind == binary.MAP:
            raise ArgumentsError(f"a map of {count} entries: at most {MESSAGES_MAX} are allowed")
        inner = kind.parts[0].struct
        if count > MESSAGES_MAX and inner is not None:
            raise ArgumentsError(f"a list of {count} {inner.name}: at most {MESSAGES_MAX} are allowed")
        self._steps.take(count)
        columns: list[list[Any]] = [[] for _ in kind.parts]
        for _ in range(count):
            for column, part in zip(columns, kind.parts, strict=True):
                value, pos = self._value(pos, part, depth + 1)
                column.append(value)
        if any(value is _NOTHING for value in columns[-1]):
            return _NOTHING, pos
        return (dict(zip(*columns, strict=True)) if kind.kind == binary.MAP else columns[0]), pos
