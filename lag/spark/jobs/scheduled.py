"""What waits for its time in a store, in delay levels and as timers: how many, where to, when due, and what is overdue.

Records are read once, with the few columns that are needed. One that a later record replaces waits no more (a delivery,
a cancel, a roll, a copy that retention made), nor does one that a cancel of RocketMQ's names, or that it has rolled.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast, expr

from broker.scheduled.delay.levels import SCHEDULE_TOPIC
from lag.report import texts
from lag.report.page.backlog import AGE_SECONDS, BacklogRow, due_names
from lag.spark.jobs.delivery import Delivered, as_spans
from lag.spark.sources.waiting import NAME

_COLUMNS: Final = (
    "room STRING, queue BIGINT, offset BIGINT, position BIGINT, replaces BIGINT, topic STRING, id STRING, "
    "cancels STRING, slot_ms BIGINT, rolls BIGINT, due_ms BIGINT, size BIGINT"
)
_MOMENT_END: Final = 253_402_300_800_000
"""The year 10000."""
_LEVEL: Final = f"room = '{SCHEDULE_TOPIC}'"


def scheduled(
    spark: SparkSession,
    data: str,
    found: Delivered,
    *,
    read_ms: int,
    topics: Collection[str] | None = None,
    top: int = 20,
    verify: bool = True,
) -> list[BacklogRow]:
    """Count what waits for its time.

    Args:
        spark: The session.
        data: The store's folder.
        found: How far delivery is.
        read_ms: What is due at this moment, or was before, is overdue.
        topics: Where it goes; null: anywhere.
        top: Rows that are kept of those by where it goes.
        verify: Whether each record's sum is looked at.
    """
    if not found.spans:
        return []
    records = (
        spark.read.format(NAME)
        .schema(_COLUMNS)
        .option("path", data)
        .option("spans", as_spans(found))
        .option("verify", str(verify).lower())
        .load()
    )
    records.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        waiting = _waiting(spark, records, found)
        if topics is not None:
            waiting = waiting.where(expr("topic").isin(sorted(topics)))
        counted = [row.asDict() for row in _counted(waiting, read_ms).collect()]
    finally:
        records.unpersist()
    return [*_by_topic(counted)[:top], *_by_due(counted)]


def _waiting(spark: SparkSession, records: DataFrame, found: Delivered) -> DataFrame:
    """Return those records that still wait."""
    level, refused = "true", f"position IN ({', '.join(f'{each}L' for each in found.refused) or 'NULL'})"
    timer = (
        f"slot_ms IS NOT NULL AND (slot_ms >= {found.slot_ms}L OR position >= {found.decided_from}L "
        f"OR offset >= {found.entered}L OR coalesce({refused}, false))"
    )
    waiting = records.where("cancels IS NULL")
    if found.completed:
        done = [(queue, [list(each) for each in ranges]) for queue, ranges in found.completed.items()]
        completed = spark.createDataFrame(done, "queue BIGINT, done ARRAY<ARRAY<BIGINT>>")
        waiting = waiting.join(broadcast(completed), "queue", "left")
        level = "NOT coalesce(exists(done, r -> offset >= r[0] AND offset < r[1]), false)"
    waiting = waiting.where(f"CASE WHEN {_LEVEL} THEN {level} ELSE {timer} END")
    # Most stores have little or nothing of these, and each join costs more than the count.
    has = records.agg(*(expr(each) for each in (
        "count(replaces) AS own", "count_if(cancels IS NOT NULL AND replaces IS NULL) AS cancels",
        "count_if(rolls > 0) AS rolls",
    ))).collect()[0]  # fmt: skip
    if found.replaced:
        in_log = spark.createDataFrame([(each,) for each in found.replaced], "position BIGINT")
        waiting = waiting.join(in_log, "position", "left_anti")
    if has["own"]:
        own = records.where("replaces IS NOT NULL").selectExpr("replaces AS position")
        waiting = waiting.join(own, "position", "left_anti")
    if has["rolls"]:
        rolled = records.where("rolls > 0").groupBy("topic", "id", "slot_ms").agg(expr("max(rolls)").alias("rolled"))
        waiting = waiting.join(rolled, ["topic", "id", "slot_ms"], "left").where("rolls >= coalesce(rolled, 0)")
    if has["cancels"]:
        named = records.where("cancels IS NOT NULL AND replaces IS NULL").selectExpr("cancels AS name").distinct()
        for name in ("id", "concat(topic, '+', id)"):
            waiting = waiting.join(named, expr(f"name = {name}"), "left_anti")
    return waiting


def _counted(waiting: DataFrame, read_ms: int) -> DataFrame:
    """Count by where it goes and in what it waits, and in each by ranges of the time until it is due."""
    starts = [each * 1000 for each in AGE_SECONDS]
    left = f"(due_ms - {read_ms}L)"
    ranges = [f"{left} <= 0"]
    for place, start in enumerate(starts):
        low = f"{left} >= {start}" if place else f"{left} > 0"
        ranges.append(f"{low} AND {left} < {starts[place + 1]}" if place + 1 < len(starts) else low)
    aggregates = [
        "count(1) AS messages",
        "sum(size) AS bytes",
        "min(due_ms) AS first_ms",
        "max(due_ms) AS last_ms",
    ]
    for place, holds in enumerate(ranges):
        aggregates += [f"count_if({holds}) AS due_{place}", f"sum(if({holds}, size, 0)) AS due_{place}_bytes"]
    aggregates.append(f"{read_ms}L - min(if({left} <= 0, due_ms, NULL)) AS late_ms")
    by = expr("coalesce(topic, '')").alias("topic"), expr(f"if({_LEVEL}, queue + 1, 0)").alias("level")
    return waiting.groupBy(*by).agg(*(expr(each) for each in aggregates))


def _by_topic(counted: Sequence[dict[str, Any]]) -> list[BacklogRow]:
    """Return a row per topic and level, and one per topic for its timers; the most first."""
    return [
        BacklogRow(
            group="",
            kind="scheduled",
            name=f"{row['topic']} / {'level ' + str(row['level']) if row['level'] else 'timers'}",
            messages=row["messages"],
            bytes=row["bytes"],
            oldest_seconds=None if row["late_ms"] is None else row["late_ms"] / 1000,
            detail=f"{texts.count(row['due_0'])} overdue, due from {_moment(row['first_ms'])} "
            f"to {_moment(row['last_ms'])} UTC",
        )
        for row in sorted(counted, key=lambda row: (-row["messages"], row["topic"], row["level"]))
    ]


def _by_due(counted: Sequence[dict[str, Any]]) -> list[BacklogRow]:
    """Return a row per range, summed over all."""
    late_ms = max((row["late_ms"] for row in counted if row["late_ms"] is not None), default=None)
    return [
        BacklogRow(
            group="",
            kind="due",
            name=name,
            messages=sum(row[f"due_{place}"] for row in counted),
            bytes=sum(row[f"due_{place}_bytes"] for row in counted),
            oldest_seconds=None if place or late_ms is None else late_ms / 1000,
        )
        for place, name in enumerate(due_names())
        if counted
    ]


def _moment(milliseconds: int | None) -> str:
    # What a record says may be no moment at all.
    return "?" if milliseconds is None or not 0 <= milliseconds < _MOMENT_END else texts.moment(milliseconds)
