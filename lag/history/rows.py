"""A row of the journal as few figures, whatever its tier: what trends and objectives look at."""

from __future__ import annotations

from typing import Final, NamedTuple

from lag.journal.columns import FIRST_COLUMNS, QUEUE_COLUMNS, Row
from lag.journal.files import Tier
from lag.journal.summaries import QUEUE_SUMMARIES

_START, _END, _COMMITTED = (QUEUE_COLUMNS.index(name) for name in ("start", "end", "committed"))
_COMMITTED_MS, _EXPIRED = QUEUE_COLUMNS.index("committed_ms"), QUEUE_COLUMNS.index("expired")
_SKIPPED: Final = QUEUE_COLUMNS.index("skipped")
_SUMMARY: Final = {column.name: place for place, column in enumerate(QUEUE_SUMMARIES.columns)}
_SAMPLES, _LAG_MAX, _FIRST_MS = _SUMMARY["samples"], _SUMMARY["lag_max"], _SUMMARY["first_ms"]
_LAST_SKIPPED: Final = _SUMMARY["last.skipped"]
_AGE_MAX, _AGE_KNOWN = _SUMMARY["age_max_ms"], _SUMMARY["age_known"]
assert all(QUEUE_SUMMARIES.columns[place].name == f"last.{name}" for place, name in enumerate(FIRST_COLUMNS))


class LagFigures(NamedTuple):
    """What a row says.

    Attributes:
        lag: Messages behind, in the last sample; null, as all that follows: not known.
        peak: The most of all samples.
        age_ms: Greatest age of the oldest unfinished message, where every sample knows it.
        age_low_ms: It was at least so much.
        committed: Committed offset, or the first that is kept if that is above it, in the last sample.
        expired: Messages that retention took unfinished, up to the last sample.
        skipped: Messages that an operator skipped or dead-lettered, up to the last sample; never null.
        first_ms: Moment of the first sample; never null.
    """

    lag: int | None
    peak: int | None
    age_ms: int | None
    age_low_ms: int | None
    committed: int | None
    expired: int | None
    skipped: int
    first_ms: int


def figures(tier: Tier, time_ms: int, row: Row) -> LagFigures:
    """Return the figures of a row of this moment."""
    start, end, committed = row[_START], row[_END], row[_COMMITTED]
    lag = None if start is None or end is None or committed is None else max(0, end - max(committed, start))
    expired = None if start is None else row[_EXPIRED]
    if committed is not None and start is not None:
        committed = max(committed, start)
    if tier is Tier.RAW:
        age = None if lag is None else 0
        if lag:
            age = None if row[_COMMITTED_MS] is None else max(0, time_ms - row[_COMMITTED_MS])
        return LagFigures(lag, lag, age, age, committed, expired, row[_SKIPPED], time_ms)
    age = row[_AGE_MAX]
    first_ms = time_ms if row[_FIRST_MS] is None else row[_FIRST_MS]
    known = row[_AGE_KNOWN] == row[_SAMPLES]
    return LagFigures(lag, row[_LAG_MAX], age if known else None, age, committed, expired, row[_LAST_SKIPPED], first_ms)
