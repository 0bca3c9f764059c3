"""Random values of the structs of the interface definitions, and newer peers that send more than they define."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st

from broker.format.record import CRC_PREFIX, HEADER, MAGIC_V1, batch_property
from proxy.wire import binary as codes
from proxy.wire.call import BINARY, CALL, COMPACT, Call, message_head
from proxy.wire.generic.tables import Field, StructType, Type, method, struct_type
from proxy.wire.generic.write import encode_struct
from pyddmq import idl

PROTOCOLS = (COMPACT, BINARY)

CONSUMER_STRUCTS = ["Message", "Context", "ConsumeResult", "PullRequest", "PullResponse", "PullException"]
CONSUMER_STRUCTS += ["ConsumeStatsRequest", "ConsumeStats", "FetchRequest", "QidResponse", "FetchResponse", "AckResult"]
PRODUCER_STRUCTS = ["Message", "Receipt", "Result", "DelayMessage", "DelayResult", "DelayMeta", "RestMessage"]
PRODUCER_STRUCTS += ["HalfResult", "EndTransaction", "CheckRequest", "TransactionCheck"]
STRUCTS = [("consumer", name) for name in CONSUMER_STRUCTS] + [("producer", name) for name in PRODUCER_STRUCTS]

I32S = st.one_of(st.integers(-300, 300), st.integers(-(1 << 31), (1 << 31) - 1))
I64S = st.one_of(st.integers(-300, 300), st.integers(5_000_000, 5_100_000), st.integers(-(1 << 63), (1 << 63) - 1))
TEXTS = st.one_of(
    st.text("abc-_$", max_size=12),
    st.text(max_size=8),
    st.sampled_from(["", "x" * 127, "y" * 128, "z" * 300, "é" * 64]),
)
BYTES = st.one_of(st.binary(max_size=20), st.sampled_from([0, 127, 128, 16_384]).map(lambda size: b"\xff" * size))

_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    codes.BOOL: st.booleans(),
    codes.BYTE: st.integers(-128, 127),
    codes.I16: st.integers(-32768, 32767),
    codes.I32: I32S,
    codes.I64: I64S,
    codes.DOUBLE: st.floats(allow_nan=False),
}


def table(file: str, name: str) -> StructType:
    """Table of one struct of an interface definition."""
    return struct_type(getattr(idl.load(file), name))


def values(kind: StructType, depth: int = 3) -> st.SearchStrategy[dict[str, Any]]:
    """Values of a struct: every combination of absent and present optional fields may come."""
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in kind.fields.values():
        if depth or field.type.struct is None:
            (required if field.required else optional)[field.name] = values_of(field.type, depth)
    return st.fixed_dictionaries(required, optional=optional)


def values_of(kind: Type, depth: int = 2) -> st.SearchStrategy[Any]:
    """Values of any type."""
    if kind.kind in _SCALARS:
        return _SCALARS[kind.kind]
    if kind.kind == codes.STRING:
        return TEXTS if kind.text else BYTES
    if kind.struct is not None:
        inner = kind.struct
        # Deferred, since a struct may hold itself.
        return st.deferred(lambda: values(inner, depth - 1))
    if kind.kind == codes.MAP:
        key, value = kind.parts
        return st.dictionaries(values_of(key, depth), values_of(value, depth), max_size=4)
    return st.lists(values_of(kind.parts[0], depth), max_size=20 if kind.parts[0].struct is None else 3)


_INNER = StructType("Inner")
_INNER.fields.update({1: Field(1, "a", Type(codes.I32), False), 300: Field(300, "b", Type(codes.BOOL), False)})
_INNER.names = frozenset("ab")
_STRING_TO_LIST = Type(codes.MAP, parts=(Type(codes.STRING, text=True), Type(codes.LIST, parts=(Type(codes.I64),))))

UNKNOWN_TYPES = (
    Type(codes.BOOL),
    Type(codes.BYTE),
    Type(codes.I16),
    Type(codes.I32),
    Type(codes.I64),
    Type(codes.DOUBLE),
    Type(codes.STRING, text=True),
    Type(codes.STRUCT, struct=_INNER),
    Type(codes.LIST, parts=(Type(codes.BOOL),)),
    Type(codes.LIST, parts=(Type(codes.STRUCT, struct=_INNER),)),
    Type(codes.SET, parts=(Type(codes.DOUBLE),)),
    Type(codes.MAP, parts=(Type(codes.BYTE), Type(codes.STRING))),
    _STRING_TO_LIST,
)
"""Types of fields that a newer peer may send: every one that Thrift has."""


UNKNOWN = "\ud800"
"""Name of a field that older peers do not know; no text on the wire can be it, so it is no key of a map either."""


def newer(kind: StructType, extra: Type, field_id: int, known: dict[str, StructType] | None = None) -> StructType:
    """Return a version of a struct in which it and every struct inside it have one more field, `UNKNOWN`."""
    known = {} if known is None else known
    if kind.name in known:
        return known[kind.name]
    copy = known[kind.name] = StructType(kind.name)
    for each in kind.fields.values():
        copy.fields[each.id] = Field(each.id, each.name, _newer(each.type, extra, field_id, known), each.required)
    copy.fields[field_id] = Field(field_id, UNKNOWN, extra, False)
    copy.fields = dict(sorted(copy.fields.items()))
    copy.names = kind.names | {UNKNOWN}
    return copy


def _newer(kind: Type, extra: Type, field_id: int, known: dict[str, StructType]) -> Type:
    inner = None if kind.struct is None else newer(kind.struct, extra, field_id, known)
    parts = tuple(_newer(part, extra, field_id, known) for part in kind.parts)
    return Type(kind.kind, kind.text, parts, inner)


def without_unknown(value: Any) -> Any:
    """Return values as an older reader sees them."""
    if isinstance(value, dict):
        return {name: without_unknown(each) for name, each in value.items() if name != UNKNOWN}
    if isinstance(value, list):
        return [without_unknown(each) for each in value]
    return value


def call(protocol: int, name: str, arguments: dict[str, Any], kind: StructType | None = None) -> Call:
    """Build a call whose arguments are written with the table `kind` (default: the method's own)."""
    head = message_head(protocol, CALL, name, 1)
    body = encode_struct(protocol, kind or method(name).arguments, arguments)
    return Call(protocol, name, 1, len(head), head + body)


def record(body: bytes, block: bytes, *, topic: bytes = b"permits") -> memoryview:
    """Build a commit-log record with IPv4 hosts; its sum is not checked by the reply."""
    tail = bytes((len(topic),)) + topic + struct.pack(">h", len(block)) + block
    size = 88 + len(body) + len(tail)
    head = HEADER.pack(size, MAGIC_V1, 0, 0, 0, 7, 9, 0, 0, bytes(8), 0, bytes(8), 0, 0, len(body))
    return memoryview(head + body + tail)


def block(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Build a property block."""
    return b"".join(name + b"\x01" + value + b"\x02" for name, value in pairs)


def broker_end(batch: bool) -> bytes:
    """Return what the broker puts behind a producer's properties."""
    unique = b"UNIQ_KEY\x01" + b"A" * 32 + b"\x02"
    return unique + (batch_property(0, 2) if batch else b"") + CRC_PREFIX + b"0123456789\x02"
