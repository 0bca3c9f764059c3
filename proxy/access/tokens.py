"""Tokens of the node's own: an id that finds them, and 256 random bits that prove them.

No slow hash: there is nothing to guess in 256 random bits, and one that is slow is a way to keep the node busy. An id
that does not exist costs what one with a wrong secret does.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping

from conf.sections.access_files import StoredToken

PREFIX = "pyddmq_"
_TOKEN = re.compile(r"pyddmq_([0-9a-f]{16})_([0-9a-f]{64})\Z")
_NO_DIGEST = bytes(32)
ID_BYTES, SECRET_BYTES = 8, 32


def made(random_bytes: bytes) -> tuple[str, str, bytes]:
    """Make a token of 40 random bytes; returns its id, its text, and the digest that is kept."""
    assert len(random_bytes) == ID_BYTES + SECRET_BYTES, "an id and a secret"
    name, secret = random_bytes[:ID_BYTES].hex(), random_bytes[ID_BYTES:]
    return name, f"{PREFIX}{name}_{secret.hex()}", digest_of(secret)


def digest_of(secret: bytes) -> bytes:
    """Return what is kept of a secret: its SHA-256."""
    return hashlib.sha256(secret).digest()


def find(text: str, tokens: Mapping[str, StoredToken], now_ms: int) -> StoredToken | None:
    """Return the token that a text is; None where it is none, is wrong, or has expired.

    Args:
        text: What a client brought.
        tokens: By their ids.
        now_ms: Ms since the epoch.
    """
    parts = _TOKEN.match(text)
    if parts is None:
        return None
    stored = tokens.get(parts[1])
    kept = _NO_DIGEST if stored is None else stored.digest
    is_right = hmac.compare_digest(digest_of(bytes.fromhex(parts[2])), kept)
    return stored if is_right and stored is not None and now_ms < stored.expires_ms else None
