"""Moments as people write them: Unix milliseconds, ISO 8601 with a zone, a while ago or from now; and durations."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from broker.format.numbers import whole_number

_AGO = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*(ms|s|m|h|d)(\s+ago)?")
_AHEAD = re.compile(r"in\s+(\d{1,9}(?:\.\d{1,3})?)\s*(ms|s|m|h|d)")
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,3})?|\d{1,13}(?=\s*ms))\s*(ms|s|m|h|d)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

FORMS = (
    "milliseconds since 1970, `2026-11-21T10:00:00Z`, `2026-11-21T10:00:00+01:00`, `now`, `10m ago` or `in 10m` "
    "(ms, s, m, h, d)"
)


def parse_moment(text: str, now_ms: int, *, span_is_age: bool = True) -> int:
    """Return a moment in ms since the epoch.

    Args:
        text: As `FORMS` says.
        now_ms: What `now` and `ago` mean.
        span_is_age: A span alone, such as `2h`, is so long ago; else it is refused, for moments that may lie ahead.

    Raises:
        ValueError: It is not a moment from the year 2000 on, with a sentence that says what is.
    """
    from conf.moments import check_moment

    text = text.strip()
    if text == "now":
        return now_ms
    if (moment_ms := whole_number(text, 19)) is not None:
        return check_moment(moment_ms)
    if ago := _AGO.fullmatch(text):
        if not span_is_age and ago[3] is None:
            raise ValueError(f"{text!r} is ambiguous: future or past; write `in {text}` or `{text} ago`")
        return max(0, now_ms - round(float(ago[1]) * _UNIT_MS[ago[2]]))
    if ahead := _AHEAD.fullmatch(text):
        return now_ms + round(float(ahead[1]) * _UNIT_MS[ahead[2]])
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a valid time; write {FORMS}") from None
    if when.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; add Z for UTC or an offset such as +01:00")
    return check_moment(round((when - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000))


def parse_duration(text: str) -> int:
    """Return a time span such as `90s` or `1.5h` in ms.

    Raises:
        ValueError: It is none, with a sentence that says what is.
    """
    span = _SPAN.fullmatch(text.strip())
    if span is None:
        raise ValueError(f"{text!r} is not a valid time span; write a number and ms, s, m, h or d, such as `90s`")
    return round(float(span[1]) * _UNIT_MS[span[2]])


def moment_text(wall_ms: int) -> str:
    """Write a moment as ISO 8601 in UTC with milliseconds; `parse_moment` reads it."""
    try:
        return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        # A producer's clock may say anything.
        return str(wall_ms)
