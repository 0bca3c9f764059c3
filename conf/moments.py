"""Which moments a user may give, and what a number in a wrong unit probably means.

Milliseconds since 1970 from the year 2000 to the year 9999. A number outside of that is nearly always a moment in
another unit: seconds fall into January 1970, microseconds behind the end of the calendar.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

MOMENT_MS_MIN = 946_684_800_000
"""2000-01-01T00:00:00Z."""
MOMENT_MS_END = 253_402_300_800_000
"""10000-01-01T00:00:00Z."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LIKELY_END_MS = 4_102_444_800_000
"""2100-01-01T00:00:00Z: a number is taken for one of another unit where that gives a moment before this."""


def check_moment(moment_ms: int) -> int:
    """Return a moment, ms since 1970, from the year 2000 to 9999.

    Raises:
        ValueError: It does not; the sentence has the moment that was understood, and what was probably meant.
    """
    if MOMENT_MS_MIN <= moment_ms < MOMENT_MS_END:
        return moment_ms
    if moment_ms < 0:
        understood = "before 1970"
    elif moment_ms >= MOMENT_MS_END:
        understood = "after the year 9999"
    else:
        understood = (_EPOCH + timedelta(milliseconds=moment_ms)).isoformat(timespec="seconds").replace("+00:00", "Z")
    raise ValueError(f"{moment_ms} as milliseconds since 1970 is {understood}; {_advice(moment_ms)}")


def _advice(number: int) -> str:
    """Say what to write instead of a number that is not a moment in milliseconds."""
    for unit, in_ms in (("seconds", number * 1000), ("microseconds", number // 1000), ("nanoseconds", number // 10**6)):
        if MOMENT_MS_MIN <= in_ms < _LIKELY_END_MS:
            return f"it looks like {unit}: write {in_ms}"
    try:
        day = datetime.strptime(str(number), "%Y%m%d").replace(tzinfo=UTC).date()
    except ValueError:
        return "times from the year 2000 to 9999 are allowed"
    return f"it looks like a day: write {day}T00:00:00Z"
