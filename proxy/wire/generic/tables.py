"""Types of the interface definitions as tables for the generic codec, made once from what thriftpy2 loaded (D20)."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.wire import binary
from proxy.wire.errors import WireMisuse
from pyddmq import idl

TEXT_KINDS = {11: True, 18: False}
"""thriftpy2's type codes for string and binary, which share one code on the wire."""

SERVICES = {"consumer": "AuthenticatedConsumerService", "producer": "AuthenticatedProducerService"}
"""By file, the service that has all methods of its port."""
SHARED_METHODS = frozenset({"authenticate"})

_LOOSE = {("Message", "value")}
"""Strings that some clients put bytes into."""
_NAMES = {"topic", "group", "groupId", "producerGroup", "consumerId", "cluster", "qid", "version"}
"""Fields with names of topics, groups and the like."""

_SCALARS = frozenset((binary.BOOL, binary.BYTE, binary.I16, binary.I32, binary.I64, binary.DOUBLE))


@dataclass(frozen=True, slots=True)
class Type:
    """A type: its TBinaryProtocol code and what it is made of.

    Attributes:
        kind: Code of `proxy.wire.binary`.
        text: For STRING: whether it is a string (str in Python) or a binary (bytes).
        parts: For LIST and SET the element type, for MAP the key and value types.
        struct: For STRUCT.
        loose: For STRING: any bytes are accepted; the value is `bytes` in Python if they are not valid UTF-8.
        is_name: For STRING: what is longer than any name is cut before it is decoded.
    """

    kind: int
    text: bool = False
    parts: tuple[Type, ...] = ()
    struct: StructType | None = None
    loose: bool = False
    is_name: bool = False


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct."""

    id: int
    name: str
    type: Type
    required: bool


@dataclass(slots=True, eq=False)
class StructType:
    """A struct: its fields by id, ascending, and their names. Filled after it is made: a struct may hold itself."""

    name: str
    fields: dict[int, Field] = field(default_factory=dict, repr=False)
    names: frozenset[str] = field(default=frozenset(), repr=False)


@dataclass(frozen=True, slots=True)
class Method:
    """One method: its arguments struct and its result struct (field 0: the success value; others: exceptions)."""

    name: str
    arguments: StructType
    result: StructType


@functools.cache
def methods() -> dict[str, Method]:
    """Return every method of both ports by name; the interface definitions are loaded at the first call.

    The services that are named have the methods of those that they extend. Both have `authenticate`, which is the same.
    """
    found: dict[str, Method] = {}
    for file, service_name in SERVICES.items():
        service = getattr(idl.load(file), service_name)
        for name in service.thrift_services:
            if name in SHARED_METHODS and name in found:
                continue
            assert name not in found, "the names of other methods differ between the services"
            arguments = struct_type(getattr(service, name + "_args"))
            found[name] = Method(name, arguments, struct_type(getattr(service, name + "_result")))
    return found


def method(name: str) -> Method:
    """Return one method. Raises WireMisuse for a name that neither service has."""
    found = methods().get(name)
    if found is None:
        raise WireMisuse(f"no method {name!r} in the interface definitions")
    return found


_structs: dict[type, StructType] = {}


def struct_type(cls: Any) -> StructType:
    """Return the table of a thriftpy2 struct class; the same object for the same class."""
    known = _structs.get(cls)
    if known is None:
        # Registered before its fields are read: ConsumeResult holds itself.
        known = _structs[cls] = StructType(cls.__name__)
        for field_id in sorted(cls.thrift_spec):
            kind, name, *detail, required = cls.thrift_spec[field_id]
            type_ = _type((kind, *detail))
            if type_.text and (known.name, name) in _LOOSE:
                type_ = replace(type_, loose=True)
            elif type_.text and name in _NAMES:
                type_ = replace(type_, is_name=True)
            known.fields[field_id] = Field(field_id, name, type_, required)
        known.names = frozenset(each.name for each in known.fields.values())
    return known


def _type(spec: Any) -> Type:
    """Translate thriftpy2's form of a type: a code, or a tuple of a code and what it is made of."""
    kind, *detail = spec if isinstance(spec, tuple) else (spec,)
    if kind in TEXT_KINDS:
        return Type(binary.STRING, text=TEXT_KINDS[kind])
    if kind in _SCALARS:
        return Type(kind)
    if kind == binary.STRUCT:
        return Type(kind, struct=struct_type(detail[0]))
    if kind in (binary.LIST, binary.SET):
        return Type(kind, parts=(_type(detail[0]),))
    if kind == binary.MAP:
        key, value = detail[0]
        return Type(kind, parts=(_type(key), _type(value)))
    raise WireMisuse(f"the codec does not know thriftpy2's type {spec!r}")
