"""Numbers that stand as text in properties, requests and handles: read in one place, with a bound.

What a user wrote is not trusted when it is read back, not even in a record of our own: `int` raises for more than 4,300
digits, `isdigit` is true of digits that `int` does not know, and what does not fit into 64 bits breaks what packs it.
"""

from __future__ import annotations

DIGITS_MAX = 18
"""So that a number, and the sum of a few, fits into 64 bits with its sign."""


def whole_number(text: str | bytes | None, digits_max: int = DIGITS_MAX) -> int | None:
    """Return what up to `digits_max` ASCII digits say; None of anything else."""
    if text and len(text) <= digits_max and text.isascii() and text.isdigit():
        return int(text)
    return None
