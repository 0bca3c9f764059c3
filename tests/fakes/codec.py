"""The peer's side of the codec by names: calls are written and replies read, any method's, values as dicts."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from proxy.wire import binary, compact
from proxy.wire.call import BINARY, CALL, COMPACT, EXCEPTION, REPLY, message_head
from proxy.wire.errors import ArgumentsError, WireError
from proxy.wire.generic.calls import APPLICATION_EXCEPTION
from proxy.wire.generic.read import decode_struct
from proxy.wire.generic.tables import method
from proxy.wire.generic.write import encode_struct
from proxy.wire.steps import Steps

_LENGTH = struct.Struct(">I").pack


class ReplyError(WireError):
    """What came back is no reply of either protocol."""


class Reply(NamedTuple):
    """A decoded reply; exactly one of `value`, `error` and `application` counts.

    Attributes:
        method: Name of the method, as the reply has it.
        seqid: Sequence number of its call.
        value: The success value; None where an exception came.
        error: (name of the field, its values) of a declared exception, or None.
        application: (kind, text) of a TApplicationException, or None.
    """

    method: str
    seqid: int
    value: Any
    error: tuple[str, dict[str, Any]] | None
    application: tuple[int, str] | None


def encode_call(protocol: int, name: str, seqid: int, arguments: Mapping[str, Any]) -> bytes:
    """Encode a call.

    Args:
        protocol: COMPACT or BINARY.
        name: Method of either service.
        seqid: Signed 32 bits.
        arguments: Argument name to value; absent and None are left out.

    Returns:
        The frame with its length.

    Raises:
        WireMisuse: No such method, or values that do not fit its arguments.
    """
    body = message_head(protocol, CALL, name, seqid) + encode_struct(protocol, method(name).arguments, arguments)
    return _LENGTH(len(body)) + body


def decode_reply(frame: bytes) -> Reply:
    """Decode a reply.

    Args:
        frame: One frame without its length.

    Raises:
        ReplyError: It is no reply, or one that does not decode.
    """
    try:
        protocol, kind, name, seqid, pos = _reply_head(frame)
        # What a server sends is as long as it was asked for; it has no others to hold up here.
        steps = Steps(len(frame))
        if kind == EXCEPTION:
            values, _ = decode_struct(protocol, APPLICATION_EXCEPTION, frame, pos, steps=steps)
            return Reply(name, seqid, None, None, (values.get("type", 0), values.get("message", "")))
        if kind != REPLY:
            raise ReplyError(f"a message of type {kind} where a reply is expected")
        values, _ = decode_struct(protocol, method(name).result, frame, pos, steps=steps)
    except (IndexError, struct.error, UnicodeDecodeError, ArgumentsError, ValueError) as error:
        raise ReplyError(f"a reply that does not decode: {error}") from error
    if "success" in values:
        return Reply(name, seqid, values["success"], None, None)
    for field_name, fields in values.items():
        return Reply(name, seqid, None, (field_name, fields), None)
    raise ReplyError(f"a reply of {name} with neither a value nor an exception")


def _reply_head(frame: bytes) -> tuple[int, int, str, int, int]:
    """Read the header of any message: (protocol, message type, method, sequence number, position of the struct)."""
    if frame[0] == COMPACT and frame[1] & 0x1F == 1:
        seqid, pos = compact.varint(frame, 2)
        name, pos = compact.READING.read_text(frame, pos)
        return COMPACT, frame[1] >> 5, name.decode(), seqid - (1 << 32) if seqid >> 31 else seqid, pos
    if frame[0] == BINARY and frame[1] == 1:
        name, pos = binary.READING.read_text(frame, 4)
        (seqid,) = struct.unpack_from(">i", frame, pos)
        return BINARY, frame[3], name.decode(), seqid, pos + 4
    raise ReplyError(f"bytes that begin with 0x{frame[:2].hex()}: no reply of either protocol")
