"""Secrets: named in the configuration, never written in it (D60).

The configuration holds where a secret is, a file or a variable of the environment. What is there is read when
an action opens, and neither the configuration nor an error shows it. A reload compares places: a new secret takes
effect under a new place, with the next generation of its subscription, or when a server refuses the old one.
"""

from __future__ import annotations

import os
import re
from typing import Any

from pydantic import model_validator

from conf.base import Model, Reload, setting
from conf.file_faults import file_fault

SECRET_BYTES_MAX = 65_536


NAMES_OF_SECRETS = re.compile(r"authorization|cookie|token|secret|password|passphrase|api-?key", re.IGNORECASE)
"""Names under which what is written is most likely a secret."""


def masked(text: str) -> str:
    """Return an address as an error may show it: what precedes an `@` is a user, and often a password."""
    _, at, behind = text.rpartition("@")
    return f"***@{behind}" if at else text


def check_no_user(url: str) -> str:
    """Return a URL as it is. Raises ValueError: it has a user, which would be shown wherever the URL is."""
    if "@" in url.partition("//")[2].partition("/")[0]:
        raise ValueError(f"{masked(url)!r:.80} has a user name in it, which logs would show; remove it")
    return url


class SecretUnreadable(Exception):
    """A secret cannot be had; the text says where it should be and why not, and nothing of it."""


class Secret(Model):
    """Where a secret is: `{file: PATH}` or `{env: NAME}`. Its `repr` is `***`."""

    file: str | None = setting(
        None,
        "Path of a file with the secret in UTF-8; line ends at its end are ignored.",
        reload=Reload.GENERATION,
        min_length=1,
    )
    env: str | None = setting(
        None, "Name of the environment variable that holds it.", reload=Reload.GENERATION, min_length=1
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_text(cls, value: Any) -> Any:
        # Not shown, for it is most likely the secret itself.
        if isinstance(value, str | int | float):
            raise ValueError("secrets are not allowed in this file; write {file: PATH} or {env: NAME}")
        return value

    @model_validator(mode="after")
    def _check_place(self) -> Secret:
        if (self.file is None) == (self.env is None):
            raise ValueError("a secret has one source; write {file: PATH} or {env: NAME}")
        return self

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"file {self.file}" if self.file is not None else f"environment variable {self.env}"

    def read(self) -> str:
        """Return the secret.

        Raises:
            SecretUnreadable: It is not there, is empty, too long, or no UTF-8.
        """
        raw = os.environb.get(os.fsencode(self.env or "")) if self.file is None else self._read_file(self.file)
        if raw is None:
            raise SecretUnreadable(f"the secret in {self.place} is not set; set it for the node's process")
        if len(raw) > SECRET_BYTES_MAX:
            raise SecretUnreadable(f"the secret in {self.place} is longer than {SECRET_BYTES_MAX} bytes")
        try:
            text = raw.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise SecretUnreadable(f"the secret in {self.place} is not UTF-8") from None
        if not text:
            raise SecretUnreadable(f"the secret in {self.place} is empty")
        return text

    def _read_file(self, path: str) -> bytes:
        try:
            with open(path, "rb") as file:
                return file.read(SECRET_BYTES_MAX + 1)
        except OSError as error:
            reason = file_fault(error, path)
            raise SecretUnreadable(f"the secret in {self.place} cannot be read ({reason})") from None
