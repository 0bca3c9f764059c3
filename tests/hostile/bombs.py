"""Frames that claim much and are little: lengths, counts and nesting, in both protocols, for both services."""

from __future__ import annotations

import struct

LENGTHS = (1 << 31) - 1, 1 << 30, 5_000_001, -1, 0
DEPTH = 20_000

_STRUCT, _STRING, _LIST, _MAP, _I64 = 12, 11, 15, 13, 10


def frame(payload: bytes) -> bytes:
    """Put the length in front."""
    return struct.pack(">i", len(payload)) + payload


def bombs() -> list[bytes]:
    """Return one of each."""
    found = [struct.pack(">i", length) + b"\x80\x01" for length in LENGTHS]
    for method in (
        b"pull",
        b"submit",
        b"getConsumeStats",
        b"sendSync",
        b"sendBatchSync",
        b"sendAsync",
        b"sendDelaySync",
        b"sendHalfSync",
        b"endTransaction",
        b"fetchChecks",
    ):
        found += [frame(payload) for payload in (*_binary(method), *_compact(method))]
    return found


def _binary(method: bytes) -> list[bytes]:
    head = b"\x80\x01\x00\x01" + struct.pack(">i", len(method)) + method + bytes(4)
    huge = struct.pack(">i", (1 << 31) - 1)
    outer = head + struct.pack(">bh", _STRUCT, 1)
    payloads = [
        b"\x80\x01\x00\x01" + huge + method,  # a method name of 2 GiB
        outer + struct.pack(">bh", _STRING, 1) + huge + b"abc",
        outer + struct.pack(">bh", _STRUCT, 1) * DEPTH,
    ]
    for field in (1, 2, 5, 9, 99):
        payloads += [
            outer + struct.pack(">bhb", _LIST, field, _I64) + huge,
            outer + struct.pack(">bhb", _LIST, field, _STRUCT) + huge + bytes(64),
            outer + struct.pack(">bhb", _LIST, field, 2) + huge,
            outer + struct.pack(">bhb", _LIST, field, 0) + huge,  # elements that would be read without an end
            outer + struct.pack(">bhbb", _MAP, field, _STRING, _STRING) + huge,
            outer + struct.pack(">bhbb", _MAP, field, 0, 0) + huge,
            outer + struct.pack(">bhbi", _LIST, field, _LIST, 1) + struct.pack(">bi", _LIST, 1) * DEPTH,
        ]
    payloads.append(head + struct.pack(">bhb", _LIST, 1, _STRUCT) + huge)
    return payloads


def _compact(method: bytes) -> list[bytes]:
    head = b"\x82\x21\x01" + bytes([len(method)]) + method
    huge = b"\xff\xff\xff\xff\x07"
    outer = head + b"\x1c"  # field 1, a struct
    payloads = [
        b"\x82\x21\x01" + huge + method,
        b"\x82\x21" + b"\xff" * 40,  # a sequence number without an end
        outer + b"\x18" + huge + b"abc",
        outer + b"\x1c" * DEPTH,
    ]
    for field in (0x10, 0x20, 0x50):
        payloads += [
            outer + bytes([field | 9, 0xF6]) + huge,  # a list of i64
            outer + bytes([field | 9, 0xFC]) + huge + bytes(64),
            outer + bytes([field | 9, 0xF1]) + huge,  # booleans: nothing in a field, a byte in a list
            outer + bytes([field | 9, 0xF0]) + huge,
            outer + bytes([field | 11]) + huge + b"\x88",
            outer + bytes([field | 11]) + huge + b"\x00",
            outer + bytes([field | 9]) + b"\x19" * DEPTH,
        ]
    payloads.append(head + b"\x19\xfc" + huge)
    return payloads
