"""Figures as people read them: counts, durations, moments, shares. What is not known is a dash."""

from __future__ import annotations

from datetime import UTC, datetime

DASH = "–"


def count(value: float | None) -> str:
    """Write a count in full, with thin groups of three digits: 1 234 567."""
    return DASH if value is None else f"{value:,.0f}".replace(",", "\u202f")


def short_count(value: float | None) -> str:
    """Write a count with three digits: 950, 1.2 k, 34 M."""
    if value is None:
        return DASH
    for limit, divisor, unit in ((1e3, 1, ""), (1e6, 1e3, "\u202fk"), (1e9, 1e6, "\u202fM"), (1e15, 1e9, "\u202fG")):
        if abs(value) < limit * 0.9995:
            scaled = value / divisor
            return f"{scaled:.0f}{unit}" if divisor == 1 or abs(scaled) >= 10 else f"{scaled:.1f}{unit}"
    return f"{value:.1e}"


def rate(value: float | None) -> str:
    """Write a rate in messages per second."""
    if value is None:
        return DASH
    return f"{value:.2g}/s" if abs(value) < 10 else f"{short_count(value)}/s"


def duration(seconds: float | None) -> str:
    """Write a duration by its two greatest units: 0.4 s, 12 s, 3 min 20 s, 5 h, 2 d 4 h."""
    if seconds is None:
        return DASH
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 9.95:
        return "0 s" if seconds < 0.05 else f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            first, rest = divmod(whole, size)
            second = rest // below
            return f"{first} {unit} {second} {small}" if second and first < 100 else f"{first} {unit}"
    return f"{whole} s"


def moment(time_ms: int | None, *, seconds: bool = True) -> str:
    """Write a moment in UTC: 2024-05-06 07:08:09."""
    if time_ms is None:
        return DASH
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def sentence(text: str) -> str:
    """Write what a rule says as a sentence of its own: a capital at its begin, a full stop at its end."""
    text = text.strip()
    if not text:
        return ""
    return f"{text[:1].upper()}{text[1:]}{'' if text[-1] in '.!?' else '.'}"


def share(value: float | None) -> str:
    """Write a share in percent, never rounded up to 100: 99.95 %, 100 %."""
    if value is None:
        return DASH
    percent = value * 100
    if value >= 1.0:
        return "100 %"
    digits = 2 if percent >= 99 else 1
    scale = 10**digits
    return f"{int(percent * scale) / scale:.{digits}f} %"
