"""What single facts of a window are: what a group finished, the rates of the last half minute, and growth."""

from __future__ import annotations

from typing import Any

import pytest

from lag.rules.facts import facts_of, halves, median_slope, recent_slope, row_of
from lag.rules.limits import LagLimits
from lag.samples import QueueSample
from tests.unit.lag.rules.cases import window


def facts(samples: tuple[QueueSample, ...], reset_ms: int | None = None) -> dict[str, Any]:
    """Return the facts at the newest sample."""
    return facts_of([row_of(each) for each in samples], samples[-1], samples[-1].time_ms, LagLimits(), reset_ms)


def test_what_expired_or_was_skipped_is_not_finished() -> None:
    """Both move the committed offset."""
    lost = window(5, start=range(0, 50, 10), end=90, committed=range(0, 50, 10), expired=range(0, 50, 10))
    skipped = window(5, start=0, end=90, committed=range(0, 50, 10), skipped=range(0, 50, 10))
    half = window(5, start=0, end=90, committed=range(0, 50, 10), skipped=range(0, 25, 5))
    for samples, rate in ((lost, 0.0), (skipped, 0.0), (half, 0.5)):
        found = facts(samples)
        assert (found["consume_slope"], found["consume_recent"]) == (rate, rate)
        assert (found["consume_first"], found["consume_second"]) == (rate, rate)


def test_a_reset_is_not_finished_either() -> None:
    """Only samples since the reset count."""
    samples = window(5, start=0, end=900, committed=[10, 20, 500, 510, 520])
    assert facts(samples, samples[2].time_ms)["consume_slope"] == 1.0


@pytest.mark.parametrize(
    ("seconds", "values", "slope"),
    [
        ([], [], None),
        ([0], [5], None),
        ([0, 10], [0, 40], 4.0),
        ([0, 10, 20, 30, 40], [0, 100, 100, 100, 100], 0.0),
        ([0, 25, 50], [0, 100, 150], 3.0),
    ],
)
def test_recent_rate_is_over_half_a_minute_or_the_shortest_span_above(
    seconds: list[int], values: list[int], slope: float | None
) -> None:
    """What came before that does not count."""
    assert recent_slope([each * 1_000 for each in seconds], values, 30_000) == slope


def test_trend_is_hardly_moved_by_one_odd_sample() -> None:
    """A burst moves the recent rate and one half, and not the median."""
    times, values = range(0, 100_000, 10_000), [each * 10 + (500 if each == 9 else 0) for each in range(10)]
    assert median_slope(times, values) == 1.0
    assert recent_slope(times, values, 30_000) == pytest.approx(530 / 30)
    first, second = halves(times, values)
    assert first == 1.0
    assert second == pytest.approx(540 / 40)


def test_growth_counts_from_the_last_low() -> None:
    """A stretch without change is no growth; a fall begins it anew."""
    samples = window(7, start=0, end=[50, 50, 20 + 20, 40, 40, 60, 90], committed=[0, 0, 20, 20, 20, 20, 30])
    found = facts(samples[-5:])
    assert found["growing_since_ms"] == samples[4].time_ms
    assert (found["grown"], found["grown_produced"], found["peak_before"]) == (40, 50, 20)
    flat = window(3, start=0, end=5, committed=0)
    assert facts(flat)["growing_since_ms"] == flat[-1].time_ms
