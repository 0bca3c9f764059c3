"""The cause of an incident, by the rule of docs/lag-rules.md."""

from __future__ import annotations

from collections.abc import Mapping


def longest(held: Mapping[str | None, int]) -> str | None:
    """Return the cause that held longest, of causes in the order in which they came."""
    return max(held, key=lambda cause: (cause is not None, held[cause]), default=None)
