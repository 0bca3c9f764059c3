"""How much is read: as fine as the span allows, and no more rows than a node may read."""

from __future__ import annotations

import pytest

from lag.history.reading import MINUTES_MS, RAW_MS, span_of
from lag.journal.files import Tier

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("length_ms", "finest"),
    [(RAW_MS, Tier.RAW), (RAW_MS + 1, Tier.MINUTE), (MINUTES_MS, Tier.MINUTE), (MINUTES_MS + 1, Tier.HOUR)],
)
def test_long_spans_are_read_coarsely(length_ms: int, finest: Tier) -> None:
    """Where there are summaries."""
    found = span_of(5, 5 + length_ms)
    assert (found.since_ms, found.until_ms, found.finest, found.shortened) == (5, 5 + length_ms, finest, False)


def test_span_that_is_too_much_begins_later() -> None:
    """Its end stays; raw samples and summaries count."""
    found = span_of(0, RAW_MS, queues=1_000, rows_max=360_000)
    assert (found.since_ms, found.until_ms, found.shortened) == (RAW_MS - 3_600_000, RAW_MS, True)
    assert not span_of(0, RAW_MS, queues=1_000, rows_max=720_000).shortened
    found = span_of(0, DAY_MS, queues=1_000, rows_max=720_000 + 60_000)
    assert (found.until_ms - found.since_ms, found.shortened) == (RAW_MS + 3_600_000, True)
    assert not span_of(0, DAY_MS, queues=0, rows_max=1).shortened


def test_span_without_time_is_refused() -> None:
    """With its ends."""
    with pytest.raises(ValueError, match="begins at 7, which is not before its end, 7"):
        span_of(7, 7)
