"""The files that a section `access` names: tokens and public keys. Read at the start and again when they change.

What is in them is checked as if a stranger had written it.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Any

from conf.file_faults import file_fault
from conf.places import Path
from conf.sections.access import AccessConfig, is_principal

FILE_BYTES_MAX = 4 * 1024 * 1024
TOKENS_MAX = 10_000
"""Bounded so that reading them again holds the node up for less than a sync of the disk may."""
ID = re.compile(r"[0-9a-f]{16}\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_MS_MAX = 1 << 53

FileState = tuple[int, int, int] | None
"""Identity of a file's state: inode, size and time of change; None when the file is missing."""
Signature = tuple[FileState, ...]
"""States of the files."""


class AccessUnreadable(Exception):
    """A file of `access` cannot be used.

    Attributes:
        path: The key that names it, from the top of the configuration.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text
        super().__init__(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """A token as its file has it.

    Attributes:
        id: 16 hex digits.
        digest: SHA-256 of the secret's 32 bytes.
        principal: Whose it is.
        created_ms: When it was made, ms since the epoch.
        expires_ms: From when on it is none.
    """

    id: str
    digest: bytes
    principal: str
    created_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessFiles:
    """What the files say: tokens by their id, and keys in PEM by their names."""

    tokens: dict[str, StoredToken]
    keys: dict[str, bytes]


def read(config: AccessConfig) -> AccessFiles:
    """Read all files.

    Raises:
        AccessUnreadable: One cannot be read, or is not a file of its kind.
    """
    tokens: dict[str, StoredToken] = {}
    if config.tokens is not None:
        tokens = tokens_of(_content(config.tokens, ("access", "tokens")), config.tokens)
    keys = {}
    for at, key in enumerate(config.jwt):
        keys[key.name] = _content(key.file, ("access", "jwt", at, "file"))
    return AccessFiles(tokens=tokens, keys=keys)


def signature(config: AccessConfig) -> Signature:
    """Return the identity of a file's state."""
    files = ([] if config.tokens is None else [config.tokens]) + [key.file for key in config.jwt]
    return tuple(state_of(file) for file in files)


def state_of(file: str | os.PathLike[str]) -> FileState:
    """Return the state of a file."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _content(file: str, path: Path) -> bytes:
    try:
        with open(file, "rb") as opened:
            raw = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        hint = "; `pyddmq access token create` creates it" if path[-1] == "tokens" else ""
        raise AccessUnreadable(path, f"{file} cannot be read ({file_fault(error, file)}){hint}") from error
    if len(raw) > FILE_BYTES_MAX:
        raise AccessUnreadable(path, f"{file} is longer than {FILE_BYTES_MAX} bytes")
    return raw


def tokens_of(raw: bytes, file: str) -> dict[str, StoredToken]:
    """Return the tokens of a file by their ids.

    Args:
        raw: Its content: `{"tokens": [{"id", "sha256", "principal", "createdMs", "expiresMs"}]}`.
        file: Its name, for the error.

    Raises:
        AccessUnreadable: It is not a file of tokens; the text says which entry.
    """
    where: Path = ("access", "tokens")
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        # The text of the error may show a piece of the file.
        raise AccessUnreadable(
            where, f"{file} is not valid JSON; create it with `pyddmq access token create`"
        ) from error
    entries = found.get("tokens") if isinstance(found, dict) and set(found) == {"tokens"} else None
    if not isinstance(entries, list):
        raise AccessUnreadable(where, f'{file} is not a file of tokens; write only {{"tokens": [...]}}')
    if len(entries) > TOKENS_MAX:
        raise AccessUnreadable(where, f"{file} has {len(entries)} tokens; the maximum is {TOKENS_MAX}, remove old ones")
    tokens: dict[str, StoredToken] = {}
    for at, entry in enumerate(entries, 1):
        token = _token(entry)
        if isinstance(token, str):
            raise AccessUnreadable(where, f"token {at} of {file}: {token}")
        if token.id in tokens:
            raise AccessUnreadable(where, f"token {at} of {file}: the id {token.id} is used twice; remove one")
        tokens[token.id] = token
    return tokens


_FIELDS = {"id", "sha256", "principal", "createdMs", "expiresMs"}


def _token(entry: Any) -> StoredToken | str:
    """Check an entry; return what is wrong, without any of it."""
    if not isinstance(entry, dict) or set(entry) != _FIELDS:
        return f"its fields are not exactly {', '.join(sorted(_FIELDS))}; revoke it and create a new one"
    name, digest, principal = entry["id"], entry["sha256"], entry["principal"]
    if not isinstance(name, str) or not ID.match(name):
        return "its id is not 16 hex digits; revoke it and create a new one"
    if not isinstance(digest, str) or not _DIGEST.match(digest):
        return "its sha256 is not 64 hex digits; revoke it and create a new one"
    if not isinstance(principal, str) or not is_principal(principal):
        return "its principal is not a valid name; revoke it and create a new one"
    moments = entry["createdMs"], entry["expiresMs"]
    if any(type(each) is not int or not 0 <= each < _MS_MAX for each in moments):
        return "createdMs or expiresMs is not a time in ms; revoke it and create a new one"
    return StoredToken(
        id=name, digest=bytes.fromhex(digest), principal=principal, created_ms=moments[0], expires_ms=moments[1]
    )


def text_of(tokens: dict[str, StoredToken]) -> str:
    """Return what a file of these tokens holds."""
    entries = [
        {
            "id": each.id,
            "sha256": each.digest.hex(),
            "principal": each.principal,
            "createdMs": each.created_ms,
            "expiresMs": each.expires_ms,
        }
        for each in tokens.values()
    ]
    return json.dumps({"tokens": entries}, indent=1) + "\n"
