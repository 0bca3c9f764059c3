"""What is kept of a minute: sums that can be added again, and exact rows of them."""

from __future__ import annotations

from dataclasses import fields

from hypothesis import given, settings
from hypothesis import strategies as st

from lag.journal.columns import FIRST_COLUMNS, QUEUES, SCHEDULED, queue_sample, table_of
from lag.journal.rows import RowDecoder, RowEncoder
from lag.journal.summaries import (
    QUEUE_SUMMARIES,
    SCHEDULED_SUMMARIES,
    QueueSummary,
    QueueSums,
    ScheduledSums,
    queue_summary,
    scheduled_summary,
)
from lag.samples import QueueSample, ScheduledSample
from tests.unit.lag.samples import NOW_MS, queue_samples


def sums_of(samples: list[QueueSample]) -> QueueSums:
    """Return the sums of these."""
    sums = QueueSums()
    for each in samples:
        sums.add(each.time_ms, QUEUES.values(each))
    return sums


@settings(deadline=None, max_examples=25)
@given(st.lists(st.lists(queue_samples, min_size=1, max_size=3), min_size=1, max_size=3))
def test_summary_of_summaries_is_that_of_all_samples(parts: list[list[QueueSample]]) -> None:
    """However the samples are parted; through the rows that are written."""
    encoder, decoder = RowEncoder(QUEUE_SUMMARIES), RowDecoder(QUEUE_SUMMARIES)
    merged = QueueSums()
    for part in parts:
        summary = sums_of(part).summary()
        encoder.begin(NOW_MS)
        encoder.add(("g", "t", 0), summary.last.time_ms, summary)
        ((_, time_ms, row),) = decoder.rows(encoder.end(), NOW_MS)
        assert queue_summary(time_ms, row) == summary
        merged.add_summary(time_ms, row)
    assert merged.summary() == sums_of([each for part in parts for each in part]).summary()


def test_rows_of_the_first_version_are_read() -> None:
    """Samples and summaries without the columns that came later; these have their defaults."""
    sample = QueueSample(time_ms=NOW_MS, start=1, end=9, committed=4, expired=2, held_reason="x", matched=0.5)
    summary = sums_of([sample]).summary()
    count = len(FIRST_COLUMNS)
    for table, record, read in (
        (QUEUES, sample, lambda row: queue_sample(NOW_MS, row)),
        (QUEUE_SUMMARIES, summary, lambda row: queue_summary(NOW_MS, row)),
    ):
        first = [each for each in table.columns if each.name.removeprefix("last.") in _FIRST_NAMES]
        assert first == list(table.columns[: len(first)]), "columns that came later are last"
        assert len(first) >= count
        encoder, decoder = RowEncoder(table_of(tuple(first))), RowDecoder(table)
        encoder.begin(NOW_MS)
        encoder.add(("g", "t", 0), NOW_MS, record)
        ((_, _, row),) = decoder.rows(encoder.end(), NOW_MS)
        assert read(row) == record


_FIRST_NAMES = {*FIRST_COLUMNS, *(field.name for field in fields(QueueSummary))}


def test_lag_and_age_are_null_where_nothing_is_known() -> None:
    """Never 0: the queue could not be read, or the group never committed."""
    summary = sums_of([QueueSample(time_ms=NOW_MS), QueueSample(time_ms=NOW_MS, start=0, end=5)]).summary()
    assert (summary.lag_min, summary.lag_max, summary.age_min_ms, summary.age_max_ms) == (None, None, None, None)
    assert (summary.samples, summary.unread, summary.lag_known, summary.age_known) == (2, 1, 0, 0)


def test_lag_counts_from_what_is_kept() -> None:
    """Messages that retention took are no lag, and an offset beyond the end is none below 0."""
    samples = [
        QueueSample(time_ms=NOW_MS, start=10, end=15, committed=2, committed_ms=NOW_MS - 40),
        QueueSample(time_ms=NOW_MS, start=10, end=15, committed=20),
    ]
    summary = sums_of(samples).summary()
    assert (summary.lag_min, summary.lag_max, summary.age_min_ms, summary.age_max_ms) == (0, 5, 0, 40)


def test_waiting_keeps_the_most_and_the_latest() -> None:
    """Also over summaries."""
    sums = ScheduledSums(("timer", "t", 0))
    for pending, due in ((5, None), (9, NOW_MS - 70), (1, NOW_MS - 20)):
        sample = ScheduledSample(time_ms=NOW_MS, kind="timer", topic="t", pending=pending, overdue=2, oldest_due_ms=due)
        sums.add(NOW_MS, SCHEDULED.values(sample))
    summary = sums.summary()
    assert (summary.samples, summary.pending_max, summary.overdue_max, summary.late_max_ms) == (3, 9, 2, 70)
    assert summary.last.pending == 1
    again = ScheduledSums(("timer", "t", 0))
    again.add_summary(NOW_MS, SCHEDULED_SUMMARIES.values(summary))
    assert (
        again.summary() == summary == scheduled_summary(("timer", "t", 0), NOW_MS, SCHEDULED_SUMMARIES.values(summary))
    )
