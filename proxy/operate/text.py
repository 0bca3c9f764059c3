"""Figures as people read them: ages, counts, sizes. Pure functions."""

from __future__ import annotations

from lag.spans import span


def age(seconds: float) -> str:
    """Return a duration in its two largest units, as `lag.spans.span`."""
    return span(seconds)


def duration(seconds: float) -> str:
    """Return how long something took: in milliseconds with three digits below a second, else as `age`."""
    return f"{seconds * 1000:#.3g} ms".replace(". ", " ") if seconds < 0.9995 else age(seconds)


def amount(count: int, noun: str) -> str:
    """Return a count with its noun in the right number: `1 message`, `12,000 messages`, `2 deliveries`."""
    if count == 1:
        return f"1 {noun}"
    plural = noun[:-1] + "ies" if noun.endswith("y") and noun[-2] not in "aeiou" else noun + "s"
    return f"{count:,} {plural}"


def byte_size(count: int) -> str:
    """Return a number of bytes in binary units with three digits: `980 B`, `1.50 MiB`, `128 MiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1000:
            return f"{count} B" if unit == "B" else f"{value:#.3g} {unit}".replace(". ", " ")
        value /= 1024
    return f"{value:,.2f} TiB"


def short(text: str, length_max: int = 200) -> str:
    """Return a reason to be put into a sentence: without its full stop, cut where it is long."""
    text = text.rstrip(".")
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"


def printable(text: str) -> str:
    """Return `text` with control characters as escapes: others' names drive no terminal, and turn no sentence round."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
