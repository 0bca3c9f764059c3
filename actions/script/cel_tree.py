"""A compiled CEL expression as a tree, read from the form in which the library writes it (cel.expr.CheckedExpr).

The library shows nothing of what it compiled but a protobuf message. What is read of it here, fields by number: of
CheckedExpr the source info (5) and the expression (4); of an expression its id (2) and one of constant (3), identifier
(4), select (5), call (6), list (7), struct (8) and comprehension (9), to which macros such as `exists` are expanded.
The bytes come from the library in this process, not from a peer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple


class CelNode(NamedTuple):
    """One part of an expression.

    Attributes:
        kind: `const`, `ident`, `select`, `call`, `list`, `map`, or `loop`.
        name: Of an identifier, the field of a select, the function of a call, the variable of a loop.
        below: What it is made of: operand; target and arguments; elements; keys and values; of a loop its range, first
            value, condition, step and result.
        value: Of a constant that is a text or bytes.
        at: Where it is in the source, in characters from 0; -1 where that is unknown.
        more: Of a loop the variable that holds its result so far, and its second variable or "".
    """

    kind: str
    name: str = ""
    below: tuple[CelNode, ...] = ()
    value: str | bytes | None = None
    at: int = -1
    more: tuple[str, str] = ("", "")

    def walk(self) -> Iterator[CelNode]:
        """Yield this part and all below it."""
        yield self
        for each in self.below:
            yield from each.walk()


def read_tree(data: bytes) -> CelNode:
    """Read a serialized CheckedExpr, which comes wrapped in an Any (2)."""
    checked = _fields(_fields(data)[2][0])
    positions: dict[int, int] = {}
    for info in checked.get(5, ()):
        for entry in _fields(info).get(4, ()):
            pair = _fields(entry)
            positions[pair.get(1, [0])[0]] = pair.get(2, [0])[0]
    return _node(checked[4][0], positions)


def _node(data: bytes, positions: dict[int, int]) -> CelNode:
    fields = _fields(data)
    at = positions.get(fields.get(2, [0])[0], -1)

    def parts(*found: Any) -> tuple[CelNode, ...]:
        return tuple(_node(each, positions) for group in found for each in group)

    if 4 in fields:
        return CelNode("ident", _text(_fields(fields[4][0]), 1), at=at)
    if 5 in fields:
        select = _fields(fields[5][0])
        return CelNode("select", _text(select, 2), parts(select.get(1, ())), at=at)
    if 6 in fields:
        call = _fields(fields[6][0])
        return CelNode("call", _text(call, 2), parts(call.get(1, ()), call.get(3, ())), at=at)
    if 7 in fields:
        return CelNode("list", below=parts(_fields(fields[7][0]).get(1, ())), at=at)
    if 8 in fields:
        entries = [_fields(each) for each in _fields(fields[8][0]).get(2, ())]
        return CelNode("map", below=parts(*(each.get(number, ()) for each in entries for number in (3, 4))), at=at)
    if 9 in fields:
        loop = _fields(fields[9][0])
        below = parts(*(loop.get(number, ()) for number in (2, 4, 5, 6, 7)))
        return CelNode("loop", _text(loop, 1), below, at=at, more=(_text(loop, 3), _text(loop, 8)))
    constant = _fields(fields[3][0]) if 3 in fields else {}
    value = constant[6][0].decode() if 6 in constant else constant[7][0] if 7 in constant else None
    return CelNode("const", value=value, at=at)


def _text(fields: dict[int, list[Any]], number: int) -> str:
    return bytes(fields[number][0]).decode() if number in fields else ""


def _fields(data: bytes) -> dict[int, list[Any]]:
    """Split a message into its fields: numbers of varints, and bytes of the others."""
    found: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        value: Any
        if wire == 0:
            value, at = _varint(data, at)
        elif wire == 2:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            length = 8 if wire == 1 else 4
            value, at = data[at : at + length], at + length
        found.setdefault(number, []).append(value)
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
