"""The backlog between committed offset and end, aggregated by Spark: only the greatest rows come back.

Files are read once, their small columns are kept for the aggregates; bodies are read only where a key is in them.
Ages count from when a message could first be consumed: a delayed one, or a timer, from when it was due. What still
waits for its time is beside it (`lag.spark.jobs.scheduled`).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast

from lag.report.page.backlog import AGE_SECONDS, KINDS, SIZE_BYTES, Backlog, BacklogRow, age_names, size_names
from lag.spark.jobs.delivery import Delivered
from lag.spark.jobs.positions import UnfinishedQueue
from lag.spark.jobs.scheduled import scheduled
from lag.spark.sources.messages import NAME

NAME_LENGTH_MAX: Final = 200
"""Characters of a key, a tag or an id that are kept."""
_POSITIONS: Final = (
    "`group` STRING, topic STRING, queue BIGINT, first BIGINT, `end` BIGINT, "
    "finished_end BIGINT, finished ARRAY<STRUCT<a: BIGINT, b: BIGINT>>"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogOptions:
    """What is looked at.

    Attributes:
        data: The store's folder.
        positions: The offsets between which the backlog is, and what of it is finished.
        read_ms: Ages are of this moment.
        top: Rows of each kind that are kept, by group.
        order_by: Where a message's order key is in its body, as a JSON path such as `$.caseId`; null: its key.
        verify: Whether each record's sum is looked at.
        delivered: How far delivery of delay levels and timers is; null: what waits there is not looked at.
        topics: Those for which what waits there is looked at; null: all.
    """

    data: str
    positions: Sequence[UnfinishedQueue]
    read_ms: int
    top: int = 20
    order_by: str | None = None
    verify: bool = True
    delivered: Delivered | None = None
    topics: Collection[str] | None = None


def make_backlog(spark: SparkSession, options: BacklogOptions) -> Backlog:
    """Read, aggregate, and put together."""
    rows = _waiting(spark, options)
    rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        queues = {(row["group"], row["topic"], row["queue"]): row.asDict() for row in _queues(rows).collect()}
        found = [*_of_queues(queues, options), *_bins(queues.values())]
        found += _top(rows, options, "key", "keys", "messages DESC, name")
        found += _top(rows, options, "order_key", "order_key", "oldest_ms, name")
        found += _top(rows, options, "tag", "tags", "messages DESC, name")
        found += _duplicates(rows, options)
    finally:
        rows.unpersist()
    if options.delivered is not None:
        found += scheduled(spark, options.data, options.delivered, read_ms=options.read_ms, topics=options.topics,
                           top=options.top, verify=options.verify)  # fmt: skip
    kinds = list(KINDS)
    # What waits for its time is of no group, and comes last.
    found.sort(key=lambda row: (not row.group, row.group, kinds.index(row.kind)))
    return Backlog(data=options.data, read_ms=options.read_ms, rows=found)


def _waiting(spark: SparkSession, options: BacklogOptions) -> DataFrame:
    """Return a row per group and message that it has not finished."""
    spans: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for each in options.positions:
        first, end = spans[each.topic].get(str(each.queue), (each.first, each.end))
        spans[each.topic][str(each.queue)] = [min(first, each.first), max(end, each.end)]
    columns = (
        "topic STRING, queue BIGINT, offset BIGINT, due_ms BIGINT, id STRING, keys STRING, tags STRING, size BIGINT"
    )
    if options.order_by is not None:
        columns += ", body BINARY"
    messages = (
        spark.read.format(NAME)
        .schema(columns)
        .option("path", options.data)
        .option("spans", json.dumps(spans))
        .option("verify", str(options.verify).lower())
        .load()
    )
    if options.order_by is None:
        order_key = "keys"
    else:
        order_key = f"get_json_object(CAST(body AS STRING), '{_quoted(options.order_by)}')"
    messages = messages.selectExpr(
        "topic", "queue", "offset", "size", f"{options.read_ms}L - due_ms AS age_ms",
        *(f"left({rule}, {NAME_LENGTH_MAX}) AS {name}"
          for name, rule in {"id": "id", "keys": "keys", "tags": "tags", "order_key": order_key}.items()),
    )  # fmt: skip
    rows = [
        (each.group, each.topic, each.queue, each.first, each.end,
         max((end for _, end in each.finished), default=0), list(each.finished))
        for each in options.positions
    ]  # fmt: skip
    positions = spark.createDataFrame(rows, _POSITIONS)
    done = "offset < finished_end AND exists(finished, r -> offset >= r.a AND offset < r.b)"
    return (
        messages.join(broadcast(positions), ["topic", "queue"])
        .where(f"offset >= first AND offset < `end` AND NOT ({done})")
        .select("group", "topic", "queue", "size", "age_ms", "id", "keys", "tags", "order_key")
    )


def _queues(rows: DataFrame) -> DataFrame:
    """Count by queue, and in each by ranges of age and size."""
    aggregates = ["count(1) AS messages", "sum(size) AS bytes", "max(age_ms) AS oldest_ms"]
    for name, value, starts in (("age", "age_ms", [each * 1000 for each in AGE_SECONDS]), ("size", "size", SIZE_BYTES)):
        for place, start in enumerate(starts):
            low = f"{value} >= {start}" if place else "true"
            holds = f"{low} AND {value} < {starts[place + 1]}" if place + 1 < len(starts) else low
            aggregates += [
                f"count_if({holds}) AS {name}_{place}",
                f"sum(if({holds}, size, 0)) AS {name}_{place}_bytes",
            ]
    from pyspark.sql.functions import expr

    return rows.groupBy("group", "topic", "queue").agg(*(expr(each) for each in aggregates))


def _of_queues(queues: Mapping[tuple[str, str, int], Mapping[str, Any]], options: BacklogOptions) -> list[BacklogRow]:
    """Return a row per queue with the most messages, and what could not be read."""
    found: dict[str, list[BacklogRow]] = defaultdict(list)
    missing: list[BacklogRow] = []
    for each in options.positions:
        row = queues.get((each.group, each.topic, each.queue), {})
        waiting = each.end - each.first - each.finished_count
        messages = row.get("messages", 0)
        name = f"{each.topic} / {each.queue}"
        if waiting > messages:
            missing.append(BacklogRow(group=each.group, kind="missing", name=name, messages=waiting - messages))
        if messages:
            detail = f"{each.first} to {each.end}"
            if each.finished_count:
                detail += f", {each.finished_count} finished"
            found[each.group].append(
                BacklogRow(group=each.group, kind="queue", name=name, messages=messages, bytes=row["bytes"],
                           oldest_seconds=_seconds(row["oldest_ms"]), detail=detail)
            )  # fmt: skip
    kept = [
        row for rows in found.values() for row in sorted(rows, key=lambda row: (-row.messages, row.name))[: options.top]
    ]
    return kept + missing[: options.top * max(1, len(found))]


def _bins(queues: Any) -> list[BacklogRow]:
    """Return the ranges of ages and sizes, summed by group."""
    sums: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in queues:
        for kind, names in (("age", age_names()), ("size", size_names())):
            for place, name in enumerate(names):
                held = sums[row["group"], kind, name]
                held[0] += row[f"{kind}_{place}"]
                held[1] += row[f"{kind}_{place}_bytes"]
    return [
        BacklogRow(group=group, kind=kind, name=name, messages=messages, bytes=size)
        for (group, kind, name), (messages, size) in sums.items()
    ]


def _top(rows: DataFrame, options: BacklogOptions, kind: str, column: str, order: str) -> list[BacklogRow]:
    """Return the first of each group by what messages have in a column; those that have nothing there count, too."""
    from pyspark.sql.functions import expr

    counted = rows.groupBy("group", expr(f"coalesce({column}, '')").alias("name")).agg(
        expr("count(1)").alias("messages"), expr("sum(size)").alias("bytes"), expr("-max(age_ms)").alias("oldest_ms")
    )
    return [
        BacklogRow(group=row["group"], kind=kind, name=row["name"], messages=row["messages"], bytes=row["bytes"],
                   oldest_seconds=_seconds(-row["oldest_ms"]))
        for row in _first(counted, order, options.top)
        if row["name"] or kind != "order_key"
    ]  # fmt: skip


def _duplicates(rows: DataFrame, options: BacklogOptions) -> list[BacklogRow]:
    """Return the ids that one topic has more than once: a producer's repeat has its message's name and number."""
    from pyspark.sql.functions import expr

    counted = (
        rows.where("id IS NOT NULL")
        .groupBy("group", "topic", "id")
        .agg(expr("count(1) - 1").alias("messages"), expr("sum(size)").alias("bytes"),
             expr("max(age_ms)").alias("oldest_ms"))
        .where("messages > 0")
    )  # fmt: skip
    return [
        BacklogRow(group=row["group"], kind="duplicate", name=row["id"], messages=row["messages"], bytes=row["bytes"],
                   oldest_seconds=_seconds(row["oldest_ms"]),
                   detail=f"{row['topic']}; {row['every']} messages more than ids in all")
        for row in _first(counted, "messages DESC, id", options.top)
    ]  # fmt: skip


def _first(counted: DataFrame, order: str, top: int) -> list[Any]:
    """Return the first rows of each group, with `every`: the messages of all its rows."""
    placed = counted.selectExpr(
        "*",
        f"row_number() OVER (PARTITION BY `group` ORDER BY {order}) AS place",
        "sum(messages) OVER (PARTITION BY `group`) AS every",
    )
    return sorted(placed.where(f"place <= {top}").collect(), key=lambda row: (row["group"], row["place"]))


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
