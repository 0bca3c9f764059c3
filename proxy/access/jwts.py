"""JSON Web Tokens: keys from files verify them, each with its algorithm beside it.

PyJWT (extra `server`, imported where a key is configured) checks signatures and claims; the clock is handed in, so
moments are compared here. Whatever is wrong is one denial: an answer that names the wrong part would help
forgers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from conf.sections.access import ANONYMOUS, AccessConfig, JwtKey, is_principal
from conf.sections.access_files import AccessUnreadable

TOKEN_BYTES_MAX = 8 * 1024
LEEWAY_SECONDS = 60
_EXPIRES_MS_MAX = 1 << 53
_CLAIMS = ("exp", "iss", "aud", "sub")


class Signed(NamedTuple):
    """What a token proves: the principal, until when (ms since the epoch), and by which key."""

    principal: str
    expires_ms: int
    key: str


class _Key(NamedTuple):
    config: JwtKey
    pem: bytes
    public: Any


class Jwts:
    """Checks tokens by the keys of one configuration."""

    def __init__(self, config: AccessConfig, pems: Mapping[str, bytes]) -> None:
        """Take the keys. Raises AccessUnreadable: one is not a public key, or not one for its algorithms."""
        self._keys: dict[str, _Key] = {}
        for at, key in enumerate(config.jwt):
            public = _public_key(key, pems[key.name], at)
            self._keys[key.name] = _Key(key, pems[key.name], public)

    def find(self, text: str, now_ms: int) -> Signed | None:
        """Return what a token proves; None where it proves nothing."""
        if not self._keys or len(text) > TOKEN_BYTES_MAX:
            return None
        try:
            return self._find(text, now_ms)
        except Exception:
            # PyJWT and the packages below it have many names for a token that is none.
            return None

    def knows(self, key: str, of: Jwts) -> bool:
        """Whether a key of another configuration's is here too, with all that it says."""
        mine, other = self._keys.get(key), of._keys.get(key)
        return mine is not None and other is not None and (mine.config, mine.pem) == (other.config, other.pem)

    def _find(self, text: str, now_ms: int) -> Signed | None:
        import jwt

        name = jwt.get_unverified_header(text).get("kid")
        if name is None and len(self._keys) == 1:
            (key,) = self._keys.values()
        elif isinstance(name, str) and name in self._keys:
            key = self._keys[name]
        else:
            return None
        config = key.config
        claims = jwt.decode(
            text,
            key.public,
            algorithms=list(config.algorithms),
            audience=config.audience,
            issuer=config.issuer,
            # The clock is ours; all else is asked for by name.
            options={
                "require": list(_CLAIMS),
                "verify_signature": True,
                "verify_aud": True,
                "verify_iss": True,
                "verify_exp": False,
                "verify_nbf": False,
                "verify_iat": False,
            },
        )
        expires = _seconds(claims["exp"])
        begins = _seconds(claims["nbf"]) if "nbf" in claims else None
        now = now_ms / 1000
        if expires is None or ("nbf" in claims and begins is None):
            return None
        if now >= expires + LEEWAY_SECONDS or (begins is not None and now < begins - LEEWAY_SECONDS):
            return None
        subject = claims["sub"]
        if not isinstance(subject, str) or not subject or subject == ANONYMOUS:
            return None
        principal = config.prefix + subject
        if not is_principal(principal):
            return None
        return Signed(principal, min(int((expires + LEEWAY_SECONDS) * 1000), _EXPIRES_MS_MAX), config.name)


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and abs(value) < _EXPIRES_MS_MAX else None


def _public_key(key: JwtKey, pem: bytes, at: int) -> Any:
    where = ("access", "jwt", at, "file")
    if b"PRIVATE KEY" in pem:
        raise AccessUnreadable(
            where,
            f"{key.file} contains a private key; configure the public key, and keep the private key away from the node",
        )
    try:
        import jwt
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        text = "needs PyJWT and cryptography: pip install 'pyddmq[server]'"
        raise AccessUnreadable(("access", "jwt"), text) from error
    try:
        public = load_pem_public_key(pem)
    except Exception as error:
        raise AccessUnreadable(
            where, f"{key.file} is not a public key in PEM; write one with `openssl pkey -pubout`"
        ) from error
    for algorithm in key.algorithms:
        try:
            jwt.get_algorithm_by_name(algorithm).prepare_key(public)
        except Exception as error:
            text = f"the key in {key.file} cannot verify {algorithm}; list the algorithms that the key signs with"
            raise AccessUnreadable(("access", "jwt", at, "algorithms"), text) from error
    return public
