"""JSON of our own with its checksum beside it: `{"crc32": "...", "data": ...}`."""

from __future__ import annotations

import json
import zlib
from typing import Any

NOT_PARSED = (ValueError, KeyError, TypeError, RecursionError)
"""What comes of JSON that is none, is of another shape, or is nested so deep that nobody wrote it in good faith."""


def sealed(data: Any) -> bytes:
    """Return data as it stands in a file."""
    body = _compact(data)
    return b'{"crc32":"%b","data":%b}\n' % (sum_text(body).encode("ascii"), body)


def unsealed(raw: bytes) -> Any:
    """Return the data of a file's bytes.

    Raises:
        ValueError: They are damaged: no such JSON, or its sum is wrong.
    """
    try:
        outer = json.loads(raw)
        data = outer["data"]
        if outer["crc32"] == sum_text(_compact(data)):
            return data
    except NOT_PARSED as error:
        raise ValueError("no JSON with a checksum") from error
    raise ValueError("its checksum is wrong")


def sum_text(data: bytes) -> str:
    """Return the CRC-32 of bytes as 8 hex digits."""
    return f"{zlib.crc32(data):08x}"


def _compact(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":"), sort_keys=True).encode("ascii")
