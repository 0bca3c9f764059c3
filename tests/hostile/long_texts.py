"""Calls of which one text has megabytes: each text field of each method, by the interface definitions."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from proxy.wire import binary
from proxy.wire.call import BINARY, CALL, message_head
from proxy.wire.generic.tables import Method, StructType, Type, methods

BYTES = 4_800_000
FILLINGS = {
    "not UTF-8": b"\xff" * BYTES,
    "ASCII": b"a" * BYTES,
    "not printable": "\u0085".encode() * (BYTES // 2),
    "four bytes each": "\U0001f600".encode() * (BYTES // 4),
}
"""What is put into a text."""
DEPTH = 5
_USUAL = {"topic": b"orders", "groupId": b"billing", "group": b"billing", "qid": b"pyddmq_broker-0_0", "body": b"body"}
_SCALARS = {
    binary.BOOL: b"\x00",
    binary.BYTE: b"\x00",
    binary.I16: bytes(2),
    binary.I32: bytes(4),
    binary.I64: bytes(8),
    binary.DOUBLE: bytes(8),
}


class LongCall(NamedTuple):
    """One call.

    Attributes:
        service: Which port has the method.
        method: Its name.
        path: Which text it is, for people.
        frame: The frame, with its length.
    """

    service: str
    method: str
    path: str
    frame: bytes


def long_calls(filling: bytes) -> Iterator[LongCall]:
    """Yield a call for each text of each method's arguments."""
    for method in methods().values():
        for path in _paths(method.arguments, DEPTH):
            body = message_head(BINARY, CALL, method.name, 1) + _struct(method.arguments, path, filling)
            service = "consumer" if _is_consumers(method) else "producer"
            yield LongCall(service, method.name, ".".join(path), struct.pack(">i", len(body)) + body)


def _is_consumers(method: Method) -> bool:
    return method.name in ("pull", "submit", "getConsumeStats", "fetch", "ack", "authenticate")


def _paths(kind: StructType, depth: int) -> Iterator[tuple[str, ...]]:
    """Yield how each text in a struct is reached: field names, and `[]` or `{}` for elements and keys."""
    for field in kind.fields.values():
        for rest in _inner(field.type, depth):
            yield (field.name, *rest)


def _inner(kind: Type, depth: int) -> Iterator[tuple[str, ...]]:
    if not depth:
        return
    if kind.kind == binary.STRING:
        yield ()
    elif kind.kind == binary.STRUCT:
        assert kind.struct is not None
        yield from _paths(kind.struct, depth - 1)
    elif kind.kind == binary.MAP:
        for place, part in zip(("{key}", "{value}"), kind.parts, strict=True):
            yield from ((place, *rest) for rest in _inner(part, depth - 1))
    elif kind.kind in (binary.LIST, binary.SET):
        yield from (("[]", *rest) for rest in _inner(kind.parts[0], depth - 1))


def _struct(kind: StructType, path: tuple[str, ...], filling: bytes) -> bytes:
    """Write a struct with the texts that are usual, and the filling where the path leads."""
    parts = []
    for number, field in kind.fields.items():
        leads = path[:1] == (field.name,)
        if not leads and not field.required and field.name not in _USUAL:
            continue
        value = _value(field.type, field.name, path[1:] if leads else None, filling)
        parts.append(struct.pack(">bh", field.type.kind, number) + value)
    return b"".join(parts) + b"\x00"


def _value(kind: Type, name: str, path: tuple[str, ...] | None, filling: bytes) -> bytes:
    if kind.kind == binary.STRING:
        text = filling if path == () else _USUAL.get(name, b"x")
        return struct.pack(">i", len(text)) + text
    if kind.kind == binary.STRUCT:
        assert kind.struct is not None
        return _struct(kind.struct, path or (), filling)
    if kind.kind == binary.MAP:
        key, value = kind.parts
        if path is None:
            return struct.pack(">bbi", key.kind, value.kind, 0)
        inner = (path[1:], None) if path[0] == "{key}" else (None, path[1:])
        both = _value(key, "", inner[0], filling) + _value(value, "", inner[1], filling)
        return struct.pack(">bbi", key.kind, value.kind, 1) + both
    if kind.kind in (binary.LIST, binary.SET):
        element = kind.parts[0]
        if path is None:
            return struct.pack(">bi", element.kind, 0)
        return struct.pack(">bi", element.kind, 1) + _value(element, name, path[1:], filling)
    return _SCALARS[kind.kind]
