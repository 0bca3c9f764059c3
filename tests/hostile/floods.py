"""What busy hostile clients send without end: calls that cost much, one after the other, unread answers and all."""

from __future__ import annotations

import struct

from proxy.wire.call import COMPACT
from tests.fakes.codec import encode_call


def stats() -> bytes:
    """Two thousand calls of getConsumeStats."""
    return encode_call(COMPACT, "getConsumeStats", 1, {"request": {"group": "group", "topic": None}}) * 2_000


def unknown() -> bytes:
    """One frame of a few megabytes: a struct of fields that nobody knows, inside each other and again and again."""
    body = b"\x82\x21\x01\x06submit\x2c" + b"\x9c\x11\x11\x00" * 1_000_000 + b"\x00\x00"
    return struct.pack(">i", len(body)) + body


def offsets() -> bytes:
    """A submit of 60,000 offsets of different lengths that name nothing."""
    numbers = [place * 97 % 16_000_000 for place in range(60_000)]
    context = {"groupId": "group", "topic": "topic", "qid": "pyddmq_broker-0_0"}
    result = {"context": context, "successOffsets": numbers, "failOffsets": []}
    return encode_call(COMPACT, "submit", 1, {"result": result})


def post(_: int = 0) -> bytes:
    """A request whose body never comes."""
    return b"POST /api/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"


def bulk_pull(group: bytes) -> bytes:
    """Return a pull that waits for nothing."""
    head = b"\x80\x01\x00\x01" + struct.pack(">i", 4) + b"pull" + bytes(4)
    request = struct.pack(">bhi", 11, 1, len(group)) + group + struct.pack(">bhi", 8, 11, 1)
    body = head + struct.pack(">bh", 12, 1) + request + b"\x00\x00"
    return struct.pack(">i", len(body)) + body


FLOODS = {"stats": stats, "unknown": unknown, "offsets": offsets}
