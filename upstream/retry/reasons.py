"""Reasons that clients give for failures: bytes of anybody's, made fit for records, pages and terminals."""

from __future__ import annotations

REASON_CHARS_MAX = 300
"""What is kept of a reason."""


def clean_reason(said: bytes) -> str:
    """Return one line of printable text: what is not UTF-8 is replaced, other characters become spaces.

    What is longer than `REASON_CHARS_MAX` ends in an ellipsis.
    """
    text = said.decode("utf-8", "replace")
    text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text if len(text) <= REASON_CHARS_MAX else text[: REASON_CHARS_MAX - 1] + "…"
