"""Tokens of the node's own: what proves, what does not, and what the file may hold."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest

from conf.sections.access_files import AccessUnreadable, StoredToken, text_of, tokens_of
from proxy.access.tokens import find, made

ID, TEXT, DIGEST = made(bytes(range(40)))
STORED = StoredToken(id=ID, digest=DIGEST, principal="shop", created_ms=0, expires_ms=1000)
KNOWN = {ID: STORED}


def test_token_has_an_id_and_256_bits_of_which_the_hash_is_kept() -> None:
    """The file says nothing by which the token could be made."""
    assert f"pyddmq_{ID}_{bytes(range(8, 40)).hex()}" == TEXT
    assert hashlib.sha256(bytes(range(8, 40))).digest() == DIGEST
    assert TEXT[24:] not in text_of(KNOWN)
    assert tokens_of(text_of(KNOWN).encode(), "f") == KNOWN


def test_token_holds_until_it_expires() -> None:
    """The moment itself is past."""
    assert find(TEXT, KNOWN, 999) == STORED
    assert find(TEXT, KNOWN, 1000) is None


@pytest.mark.parametrize(
    "text",
    ["", "pyddmq_", TEXT[:-1], TEXT + "0", TEXT.upper(), TEXT + "\n", " " + TEXT, TEXT.replace(ID, "0" * 16)]
    + [TEXT[:at] + ("0" if TEXT[at] != "0" else "1") + TEXT[at + 1 :] for at in range(24, 88)],
)
def test_every_other_text_proves_nothing(text: str) -> None:
    """Each digit of the secret counts."""
    assert find(text, KNOWN, 0) is None


def test_every_token_of_the_form_is_hashed_and_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that nobody has costs what one with a wrong secret does; no comparison stops at the first difference."""
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert find(TEXT.replace(ID, "0" * 16), KNOWN, 0) is None
    assert find(TEXT[:-1] + "0", KNOWN, 0) is None
    assert [len(a) == len(b) == 32 for a, b in compared] == [True, True]


GOOD = {"id": ID, "sha256": DIGEST.hex(), "principal": "shop", "createdMs": 0, "expiresMs": 1}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "not a file of tokens"),
        (b'{"tokens": [], "more": 1}', "not a file of tokens"),
        ({**GOOD, "id": "x"}, "its id is not 16 hex digits"),
        ({**GOOD, "id": ["a"]}, "its id is not 16 hex digits"),
        ({**GOOD, "sha256": "0" * 63}, "its sha256 is not 64 hex digits"),
        ({**GOOD, "principal": "anonymous"}, "its principal is not a valid name"),
        ({**GOOD, "principal": "a b"}, "its principal is not a valid name"),
        ({**GOOD, "expiresMs": True}, "is not a time in ms"),
        ({**GOOD, "expiresMs": 1e3}, "is not a time in ms"),
        ({**GOOD, "expiresMs": -1}, "is not a time in ms"),
        ({**GOOD, "token": TEXT}, "its fields are not exactly"),
        ([GOOD, GOOD], "is used twice"),
    ],
)
def test_file_is_not_trusted(content: object, said: str) -> None:
    """Whoever wrote it: what is wrong is said with its place, and without what stands there."""
    entries = content if isinstance(content, list) else [content]
    raw = content if isinstance(content, bytes) else json.dumps({"tokens": entries}).encode()
    with pytest.raises(AccessUnreadable, match=said) as caught:
        tokens_of(raw, "tokens.json")
    assert "tokens.json" in str(caught.value)
    assert TEXT not in str(caught.value)
    assert caught.value.path == ("access", "tokens")
