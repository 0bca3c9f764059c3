"""Leaves numbers of decisions, rules and faults out of pages for users: code cites them, users do not know them."""

from __future__ import annotations

import re

_NUMBERS = r"(?:R, [\d.]+; )?[DRSW]\d+(?:, [DRSW]\d+)*"
_ALONE = re.compile(rf"\s*\({_NUMBERS}\)")
_FIRST = re.compile(rf"\({_NUMBERS}[;,:] ")


def without_numbers(text: str) -> str:
    """Return a text without `(D45)`, and with `(R40; more)` as `(more)`."""
    return _FIRST.sub("(", _ALONE.sub("", text))
