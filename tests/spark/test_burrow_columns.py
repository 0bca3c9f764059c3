"""Burrow's rules as columns come to what they come to over plain values, over random windows."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from lag.rules.burrow import BurrowOptions, BurrowStatus, evaluate
from tests.unit.lag.rules.test_burrow import random_window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOWS = 3_000
SCHEMA = (
    "number INT, commits ARRAY<STRUCT<time_ms: BIGINT, offset: BIGINT, lag: BIGINT>>, ends ARRAY<BIGINT>, "
    "current_lag BIGINT, now_ms BIGINT"
)


def test_statuses_are_those_of_the_plain_rules(spark: SparkSession) -> None:
    """Every one of them, under two configurations."""
    from lag.spark.burrow_columns import burrow_status

    random, seen = Random(815), set[str]()
    for options in (BurrowOptions(), BurrowOptions(intervals=5, minimum_complete=0.5, allowed_lag=5)):
        windows = [random_window(random)[:4] for _ in range(WINDOWS // 2)]
        given = [
            (number, [(commit.time_ms, commit.offset, commit.lag) for commit in commits], ends, current, now)
            for number, (commits, ends, current, now) in enumerate(windows)
        ]
        rows = burrow_status(spark.createDataFrame(given, SCHEMA), options).select("number", "burrow").collect()
        assert len(rows) == len(windows)
        for row in rows:
            commits, ends, current, now = windows[row.number]
            assert row.burrow == evaluate(commits, ends, current, now, options).name, windows[row.number]
            seen.add(row.burrow)
    assert seen == {status.name for status in BurrowStatus} - {"ERR"}
