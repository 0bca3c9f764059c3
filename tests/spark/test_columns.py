"""The rules as columns come to what they come to over plain numbers: the table of cases, and random windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from math import isclose
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from lag.rules import causes, quantities
from lag.rules.limits import LagLimits
from lag.rules.queue_rules import QueueVerdict
from lag.samples import QueueSample
from tests.unit.lag.rules.cases import BEGIN, CASES
from tests.unit.lag.rules.judged import judge_topic
from tests.unit.lag.wild_queues import wild_queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[Any, ...]
QUEUES = 100


def rows(topic: str, queue: int, samples: Iterable[QueueSample], now_ms: int | None, reset_ms: int | None) -> list[Row]:
    """Return samples as rows; the newest is judged at `now_ms`."""
    given = list(samples)
    nows = [*(sample.time_ms for sample in given[:-1]), given[-1].time_ms if now_ms is None else now_ms]
    key = ("cluster", "node", "group", topic, queue)
    return [(*key, *astuple(sample), now, reset_ms) for sample, now in zip(given, nows, strict=True)]


def judged_rows(spark: SparkSession, given: Sequence[Row], limits: LagLimits) -> list[Any]:
    """Return what Spark makes of rows, in no order."""
    from pyspark.sql import types as t

    from tests.spark.judged_frames import SAMPLES, judged

    schema = t.StructType([*SAMPLES, t.StructField("now_ms", t.LongType()), t.StructField("reset_ms", t.LongType())])
    return judged(spark.createDataFrame(list(given), schema), limits, keep_facts=True).collect()


def same(verdict: QueueVerdict, row: Any, where: str) -> None:
    """Compare a verdict with a row, figure by figure, and the sentences that speak for their cause."""
    found = row.asDict()
    assert (found["status"], found["level"], found["cause"]) == (verdict.status, verdict.level, verdict.cause), where
    for name, value in verdict.figures.items():
        other = found[name]
        equal = other == value or (
            isinstance(value, float) and isinstance(other, float) and isclose(value, other, rel_tol=1e-9, abs_tol=1e-9)
        )
        assert equal, f"{where}: {name} is {value} plain and {other} in Spark"
    assert verdict.evidence == ("" if verdict.cause is None else causes.evidence(verdict.cause, found)), where


def _hot_topics(random: Random) -> dict[str, dict[int, list[QueueSample]]]:
    """Return topics whose queues one snapshot has read one after the other, some with a hot one."""
    return {
        f"topic-{number}": {
            queue: [
                QueueSample(
                    # The second queue was read twice within the last moment.
                    time_ms=BEGIN + min(step, 2) * 10_000 + queue + step // 3,
                    start=0,
                    end=size * (min(step, 2) + 1),
                    committed=random.choice([0, 0, None]) if queue == 0 else 0,
                    committed_ms=BEGIN,
                    holders=1,
                )
                for step in range(4 if queue == 1 else 3)
            ]
            for queue, size in enumerate(random.choices([0, 30, 32, 35, 2000], k=random.randint(1, 6)))
        }
        for number in range(20)
    }


def test_cases_and_topics(spark: SparkSession) -> None:
    """The windows of the table under the usual limits, and queues of topics beside each other: skew, and hot ones."""
    limits = LagLimits()
    cases = {case.name: case for case in CASES if case.limits == limits}
    topics = _hot_topics(Random(4712))
    given = [row for case in cases.values() for row in rows(case.name, 0, case.samples, case.now_ms, case.reset_ms)]
    given += [
        row
        for topic, queues in topics.items()
        for queue in queues
        for row in rows(topic, queue, queues[queue], None, None)
    ]
    newest: dict[tuple[str, int], Any] = {}
    for row in judged_rows(spark, given, limits):
        before = newest.setdefault((row.topic, row.queue), row)
        newest[row.topic, row.queue] = max(before, row, key=lambda each: each.time_ms)
    for name, case in cases.items():
        row = newest.pop((name, 0))
        assert (row.status, row.cause) == (case.status, case.cause), name
        for figure, value in case.figures.items():
            assert row[figure] == (pytest.approx(value) if isinstance(value, float) else value), name
        alone = judge_topic({0: case.samples}, case.now_ms, limits, {} if case.reset_ms is None else {0: case.reset_ms})
        same(alone[0], row, name)
    hot = 0
    for (topic, queue), row in newest.items():
        same(judge_topic(topics[topic], 0, limits)[queue], row, f"{topic} queue {queue}")
        hot += row.hot
    assert hot > 3


def test_random_windows(spark: SparkSession) -> None:
    """Every row of every queue is judged as the newest one, with what came before it."""
    random, limits = Random(4711), LagLimits(samples_min=2, target_ms=30_000)
    queues = {queue: wild_queue(random) for queue in range(QUEUES)}
    resets = {queue: random.choice([None, None, BEGIN + random.randint(0, 400_000)]) for queue in queues}
    given = [
        row for queue, samples in queues.items() for row in rows(f"topic-{queue}", queue, samples, None, resets[queue])
    ]
    found = judged_rows(spark, given, limits)
    assert len(found) == len(given) > 500
    seen = set()
    for row in found:
        samples = [sample for sample in queues[row.queue] if sample.time_ms <= row.time_ms]
        reset_ms = resets[row.queue]
        verdicts = judge_topic({0: samples}, row.time_ms, limits, {} if reset_ms is None else {0: reset_ms})
        same(verdicts[0], row, f"queue {row.queue} at {row.time_ms}")
        seen.add(row.status)
    assert len(seen) > 12, f"the windows are too tame: {seen}"


def test_columns_that_come_and_go(spark: SparkSession) -> None:
    """What was handed in stays, every quantity is there, facts where they are asked for."""
    from lag.rules.facts import WINDOW_FACTS
    from tests.spark.judged_frames import SAMPLES, judged

    frame = spark.createDataFrame([], SAMPLES)
    plain = judged(frame, LagLimits()).columns
    assert set(plain) == {*SAMPLES.names, *quantities.ALL, "status", "level", "cause"}
    assert len(plain) == len(set(plain))
    assert set(WINDOW_FACTS) <= set(judged(frame, LagLimits(), keep_facts=True).columns)
