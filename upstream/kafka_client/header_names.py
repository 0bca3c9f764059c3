"""Names of headers that are not UTF-8 (D58): as text they are `base64;` and the Base64 of their bytes."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from upstream.kafka.link import Headers

PREFIX = "base64;"
_HALF = re.compile("[\ud800-\udfff]")
_HOLE = "(<NULL>"
"""How a pair without a name is shown. To look at the name itself would end the process."""


def name_of(error: BaseException) -> str:
    """Return the name that the package could not decode, as text; "" where the error does not have it."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, UnicodeDecodeError):
            return _escaped(found.object)
        found = found.__cause__
    return ""


def names_lost(pairs: Sequence[Any], first: str) -> Headers:
    """Return headers of which the package has lost names: the first one's is known, others are empty."""
    headers: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        if repr(pair).startswith(_HOLE):
            headers.append((first, *pair[1:]))
            first = ""
        else:
            headers.append(pair)
    return headers


def writable(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Return headers with names that the package can write.

    It writes no other names than UTF-8: what was read in Base64 is written by that text. A name with half a surrogate
    would end the process.
    """
    return [
        (name if _is_text(name) else _escaped(name.encode("utf-8", "surrogatepass")), value) for name, value in headers
    ]


def _escaped(name: bytes) -> str:
    return PREFIX + b64encode(name).decode()


def _is_text(name: str) -> bool:
    return name.isascii() or not _HALF.search(name)
