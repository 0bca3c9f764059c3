"""Figures of queues whose truth is known: a producer and a consumer are played, and samples taken of them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lag.rules.quantities import ALL
from lag.samples import QueueSample
from tests.unit.lag.rules.cases import BEGIN, window
from tests.unit.lag.rules.judged import judge, judge_topic


@st.composite
def played(draw: st.DrawFn) -> tuple[list[QueueSample], list[int]]:
    """Return samples of a queue, and the message time of each of its messages, in ms."""
    gaps = draw(st.lists(st.integers(0, 20_000), min_size=1, max_size=60))
    stored = [BEGIN + sum(gaps[: place + 1]) for place in range(len(gaps))]
    steps = draw(st.lists(st.tuples(st.integers(1, 30_000), st.integers(0, 8)), min_size=1, max_size=12))
    samples, now, committed = [], BEGIN, 0
    for wait, done in steps:
        now += wait
        end = bisect_right(stored, now)
        committed = min(committed + done, end)
        samples.append(
            QueueSample(
                time_ms=now,
                start=0,
                end=end,
                committed=committed,
                start_ms=stored[0] if end else None,
                end_ms=stored[end - 1] if end else None,
                committed_ms=stored[committed] if committed < end else None,
                moved_ms=now if done else None,
            )
        )
    return samples, stored


@given(played(), st.integers(0, 30_000), st.booleans())
def test_time_lag_is_within_its_bounds(given: tuple[list[QueueSample], list[int]], later: int, unread: bool) -> None:
    """Whatever the method, the true age is between low and high; what is read is exact; nothing is extrapolated."""
    samples, stored = given
    newest = samples[-1]
    assert newest.committed is not None
    assert newest.end is not None
    now = newest.time_ms + later
    true = max(0, now - stored[newest.committed]) if newest.committed < newest.end else 0
    if unread:
        samples = [*samples[:-1], replace(newest, committed_ms=None)]
    figures = judge(samples, now).figures

    assert figures["time_lag_low_ms"] <= true
    assert figures["time_lag_high_ms"] is None or true <= figures["time_lag_high_ms"]
    if figures["time_lag_method"] == "message":
        assert figures["time_lag_ms"] == true
    elif figures["time_lag_method"] == "interpolated":
        assert figures["time_lag_low_ms"] <= figures["time_lag_ms"] <= figures["time_lag_high_ms"]
        assert unread
    else:
        assert figures["time_lag_method"] == "bounded"
        assert figures["time_lag_ms"] is None


@given(played())
def test_counts_are_those_of_the_queue(given: tuple[list[QueueSample], list[int]]) -> None:
    """Lag is never below 0, and what is finished above the committed offset is no lag."""
    samples, _ = given
    newest = samples[-1]
    assert newest.committed is not None
    assert newest.end is not None
    figures = judge(samples, newest.time_ms).figures
    assert figures["lag"] == newest.end - newest.committed
    assert figures["retention_ratio"] == (100 * figures["lag"] / newest.end if newest.end else None)
    assert figures["rewound"] == 0


def test_figures_have_the_types_that_they_say() -> None:
    """A reader of columns relies on it; a whole number is a number too."""
    samples = window(12, start=0, end=range(100, 220, 10), committed=range(50, 170, 10), started=160, matched=0.5)
    figures = judge(samples, samples[-1].time_ms).figures
    kinds = {"int": int, "float": int | float, "bool": bool, "str": str}
    for name, value in figures.items():
        assert value is None or isinstance(value, kinds[ALL[name].kind]), name


def test_a_difference_of_rates_within_the_dead_band_forecasts_nothing() -> None:
    """A few messages more or less in half a minute would be hours until the lag is worked off."""
    committed = [1_000 + each * 100 for each in range(31)]
    end = [each + 240 for each in committed]
    for gained, forecast in ((3, None), (180, 10.0)):
        finished = [*committed[:-1], committed[-1] + gained]
        samples = window(31, start=0, end=end, committed=finished, committed_ms=25, holders=1)
        assert judge(samples, samples[-1].time_ms).figures["catch_up_s"] == forecast


def _topic(*ends: int) -> dict[int, list[QueueSample]]:
    return {
        queue: list(
            window(4, start=0, end=[end // 4 * (n + 1) for n in range(4)], committed=0, committed_ms=25, holders=1)
        )
        for queue, end in enumerate(ends)
    }


def test_hot_queue_stands_out_of_the_others() -> None:
    """One far above the rest is hot, and the cause."""
    verdicts = judge_topic(_topic(100, 120, 110, 4000), BEGIN + 30_000)
    assert [verdict.figures["hot"] for verdict in verdicts.values()] == [False, False, False, True]
    assert verdicts[3].cause == "hot_queue"
    assert "lag 4000 against a mean of 109.3 of the other queues" in verdicts[3].evidence
    assert verdicts[0].figures["skew"] == 4000 / ((100 + 120 + 108 + 4000) / 4)


def test_few_or_equal_queues_have_no_hot_one() -> None:
    """Two queues say nothing of each other, and a little more is not hot."""
    assert not any(verdict.figures["hot"] for verdict in judge_topic(_topic(0, 4000), BEGIN + 30_000).values())
    even = judge_topic(_topic(400, 400, 400, 500), BEGIN + 30_000)
    assert not any(verdict.figures["hot"] for verdict in even.values())
