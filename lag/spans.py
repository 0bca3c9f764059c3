"""Durations as people read them."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def span(seconds: float) -> str:
    """Return a duration in its two largest units: `0.4 s`, `12 s`, `3 min 5 s`, `2 d 4 h`; negative reads as 0."""
    if seconds < 9.95:
        return f"{seconds:.1f} s" if seconds > 0.05 else "0 s"
    left = round(seconds)
    place = next(place for place, (size, _) in enumerate(_UNITS) if left >= size)
    parts = []
    for size, unit in _UNITS[place : place + 2]:
        whole, left = divmod(left, size)
        if whole:
            parts.append(f"{whole} {unit}")
    return " ".join(parts)
