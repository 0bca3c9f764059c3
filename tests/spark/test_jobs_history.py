"""What Spark finds in a history is what the plain rules find in it, row by row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from lag.report.options import BUCKETS, ReportWindow, status_of
from lag.rules.limits import LagLimits
from lag.rules.statuses import SEVERITY
from lag.samples import QueueSample
from lag.spark.jobs.history import ReportFrames
from tests.spark.test_jobs_report import EVERY_MS, SNAPSHOTS, START_MS, STORIES

LIMITS = LagLimits()
WINDOW = ReportWindow(from_ms=START_MS, to_ms=START_MS + SNAPSHOTS * EVERY_MS)
MISSING = range(120, 150)


def samples_of(name: str) -> list[QueueSample]:
    """Samples of queue 0 of a group's story."""
    return [STORIES[name](number, START_MS + number * EVERY_MS) for number in range(SNAPSHOTS) if number not in MISSING]


@pytest.fixture(scope="module")
def history(spark: Any) -> ReportFrames:
    """Judge all stories at once."""
    from tests.spark.judged_frames import SAMPLES

    rows = []
    for name in STORIES:
        for sample in samples_of(name):
            key = {"cluster": "c", "node": "n1", "group": name, "topic": "t", "queue": 0}
            rows.append([key.get(field, getattr(sample, field, None)) for field in SAMPLES.names])
    frame = spark.createDataFrame(rows, SAMPLES)
    nulls = ["CAST(NULL AS BIGINT) row_lag_max", "CAST(NULL AS BIGINT) row_age_max_ms"]
    frame = frame.selectExpr("*", "'raw' tier", "'1' epoch", "0L sequence", "false absurd", *nulls)
    made = ReportFrames(frame, WINDOW, LIMITS)
    made.rows.persist()
    return made


def test_buckets_cover_the_window() -> None:
    """The last one may reach over its end, none begins there."""
    for length in (1, 239, 240, 241, 86_400_000, 86_400_001):
        width = ReportWindow(from_ms=7, to_ms=7 + length).width_ms(BUCKETS)
        assert width * BUCKETS >= length
        assert (length - 1) // width < BUCKETS


def test_no_bucket_is_shorter_than_a_pause_between_samples(history: ReportFrames) -> None:
    """Else a queue would have none in every other one, and be drawn as not known; a gap is no pause."""
    for row in history.objectives().collect():
        assert row["pause_ms"] == EVERY_MS, "the gap of MISSING is longer, and is not counted"
    short = ReportWindow(from_ms=START_MS, to_ms=START_MS + 60 * EVERY_MS, pause_ms=EVERY_MS)
    assert short.width_ms(BUCKETS) == EVERY_MS
    paused = replace(WINDOW, pause_ms=3 * EVERY_MS)
    width = paused.width_ms(BUCKETS)
    assert width >= 3 * EVERY_MS
    found = sorted((row["group"], row["bucket"]) for row in history.groups(paused).collect())
    buckets = sorted({number * EVERY_MS // width for number in range(SNAPSHOTS) if number not in MISSING})
    assert found == [(name, bucket) for name in sorted(STORIES) for bucket in buckets]
    year = ReportWindow(from_ms=START_MS, to_ms=START_MS + 365 * 86_400_000, pause_ms=EVERY_MS)
    assert year.width_ms(BUCKETS) == 365 * 360_000


def test_window_that_ends_before_it_begins_is_refused() -> None:
    """With both moments."""
    with pytest.raises(ValueError, match="the window ends at 5, which is not behind its begin, 5"):
        ReportWindow(from_ms=5, to_ms=5)


def test_severities_are_statuses() -> None:
    """And back."""
    assert {status_of(rank) for rank in SEVERITY.values()} == set(SEVERITY)
