"""Arguments and replies of any method by name, values as dicts: what a node reads and writes of cold methods."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from proxy.wire.call import EXCEPTION, REPLY, Call, message_head
from proxy.wire.generic.read import decode_struct
from proxy.wire.generic.tables import Field, StructType, Type, method
from proxy.wire.generic.write import encode_struct
from proxy.wire.texts import fitted

_LENGTH = struct.Struct(">I").pack

APPLICATION_EXCEPTION = StructType(
    "TApplicationException",
    {1: Field(1, "message", Type(11, text=True), False), 2: Field(2, "type", Type(8), False)},
    frozenset(("message", "type")),
)
"""Thrift's own exception struct; it is in no interface definition."""


def decode_arguments(call: Call) -> dict[str, Any]:
    """Decode the arguments of a call of a known method.

    Raises:
        ArgumentsError: They do not decode.
        WireMisuse: The method is in neither service.
    """
    return decode_struct(call.protocol, method(call.method).arguments, call.frame, call.pos)[0]


def encode_reply(call: Call, values: Mapping[str, Any]) -> bytes:
    """Encode a reply from its result struct: {"success": value} or {name of a declared exception: its fields}.

    Returns:
        The frame with its length.

    Raises:
        WireMisuse: Values that do not fit.
    """
    head = message_head(call.protocol, REPLY, call.method, call.seqid)
    body = head + encode_struct(call.protocol, method(call.method).result, values)
    return _LENGTH(len(body)) + body


def encode_application_exception(call: Call, kind: int, text: str) -> bytes:
    """Encode a TApplicationException; the method may be unknown.

    Args:
        call: The call that is answered.
        kind: One of the APPLICATION_ constants of `errors`.
        text: For people.
    """
    head = message_head(call.protocol, EXCEPTION, call.method, call.seqid)
    body = head + encode_struct(call.protocol, APPLICATION_EXCEPTION, {"message": fitted(text), "type": kind})
    return _LENGTH(len(body)) + body
