"""How long something took, counted in buckets that double: 1 us, 2 us, 4 us and so on, up to four years.

An observation is two additions: the bucket follows from the number of bits, so that nothing is searched or made. What
shares one duration, as the messages of a batch do, is observed at once. A bucket holds what took longer than half its
bound and at most its bound, as Prometheus' `le` has it.
"""

from __future__ import annotations

from collections.abc import Sequence

BUCKETS = 48
MICROSECONDS_MAX = 1 << (BUCKETS - 1)
"""Bound of the last bucket; longer ones count as that."""


class Histogram:
    """One labelled series.

    Attributes:
        counts: Observations by bucket: the one at `k` has the bound of 2^k microseconds.
        sum_us: Microseconds of all observations.
    """

    __slots__ = ("_before", "_last", "counts", "sum_us")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.sum_us = 0
        self._last = self._before = tuple(self.counts)

    def observe(self, microseconds: int, count: int = 1) -> None:
        """Count so many observations of one duration; one below 0, as a clock set back gives it, counts as 0."""
        if microseconds <= 0:
            self.counts[0] += count
            return
        place = (microseconds - 1).bit_length()
        if place >= BUCKETS:
            place, microseconds = BUCKETS - 1, MICROSECONDS_MAX
        self.counts[place] += count
        self.sum_us += microseconds * count

    def begin_window(self) -> None:
        """Let `recent` return what came since the call of this before."""
        self._before, self._last = self._last, tuple(self.counts)

    def recent(self) -> list[int]:
        """Return observations by bucket since the last call but one of `begin_window`, or since the beginning."""
        return [count - before for count, before in zip(self.counts, self._before, strict=True)]


def quantile_seconds(counts: Sequence[int], share: float) -> float | None:
    """Return the duration that a share of observations did not exceed, as Prometheus' `histogram_quantile` does.

    Args:
        counts: Observations by bucket, as those of a `Histogram`.
        share: From 0.0 to 1.0.

    Returns:
        Seconds, by even spread within a bucket; None without observations.
    """
    wanted = sum(counts) * share
    if not wanted:
        return None
    below = 0
    for place, count in enumerate(counts):
        if count and below + count >= wanted:
            bound_us = 1 << place
            # The first bucket begins at 0, every other one at half its bound.
            width_us = bound_us - bound_us // 2
            return (bound_us - width_us * (1 - (wanted - below) / count)) / 1e6
        below += count
    raise AssertionError("a share of at most 1.0 is in one of the buckets")
