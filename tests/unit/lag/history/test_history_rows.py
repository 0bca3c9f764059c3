"""Figures of a row: the same questions to a sample and to a summary of many."""

from __future__ import annotations

from lag.history.rows import LagFigures, figures
from lag.journal.columns import QUEUES
from lag.journal.files import Tier
from lag.journal.summaries import QUEUE_SUMMARIES, QueueSums
from lag.samples import QueueSample

SAMPLES = [
    QueueSample(time_ms=10_000, start=0, end=9, committed=0, committed_ms=4_000),
    QueueSample(time_ms=20_000, start=0, end=10, committed=7, committed_ms=11_000),
]


def summary(*samples: QueueSample) -> LagFigures:
    """Return the figures of a minute of these."""
    sums = QueueSums()
    for each in samples:
        sums.add(each.time_ms, QUEUES.values(each))
    return figures(Tier.MINUTE, sums.time_ms, QUEUE_SUMMARIES.values(sums.summary()))


def raw(sample: QueueSample) -> LagFigures:
    """Return the figures of one sample."""
    return figures(Tier.RAW, sample.time_ms, QUEUES.values(sample))


def test_sample_tells_its_lag_and_age() -> None:
    """Nothing behind is no age; what is not known is null."""
    assert raw(SAMPLES[0]) == LagFigures(
        lag=9, peak=9, age_ms=6_000, age_low_ms=6_000, committed=0, expired=0, skipped=0, first_ms=10_000
    )
    assert raw(QueueSample(time_ms=1, start=0, end=5, committed=5)).age_ms == 0
    assert raw(QueueSample(time_ms=1, start=0, end=5, committed=4)).age_ms is None
    assert raw(QueueSample(time_ms=1, committed=4)).lag is None
    assert raw(QueueSample(time_ms=1, start=3, end=5, committed=0)).lag == 2


def test_summary_tells_the_worst_and_the_last() -> None:
    """The age is known where each sample knows it; else it is at least what is known."""
    assert summary(*SAMPLES) == LagFigures(
        lag=3, peak=9, age_ms=9_000, age_low_ms=9_000, committed=7, expired=0, skipped=0, first_ms=10_000
    )
    unread = QueueSample(time_ms=30_000, committed=7)
    assert summary(*SAMPLES, unread)[1:4] == (9, None, 9_000)
