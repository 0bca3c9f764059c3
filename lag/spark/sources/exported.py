"""Exported samples and events (docs/lag-journal.md), read by Spark itself: the files that count, of the days asked for.

Nothing but names is looked at before Spark reads, through the file system that Spark has for the place. So a file that
is none, is cut, or has other columns, is found when Spark comes to it: the caller catches that (`unreadable_file`),
asks again without the file, and `exported_gaps` returns what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import timedelta
from functools import reduce
from typing import Any, Final
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from lag.export.missing import DAY_MS, first_and_last_day, holes, mixed, was_exported
from lag.export.names import live_files, parse, shown_place
from lag.journal.columns import FIRST_COLUMNS, QUEUES, ColumnKind
from lag.journal.scan import SILENT_INTERVALS
from lag.samples import SAMPLE_FIELDS
from lag.spark.sources.journal_rows import FIELDS
from lag.spark.sources.options import OptionRefused

_IN_AN_ERROR: Final = re.compile(r"(?:queues|events)/date=[0-9-]{10}/[A-Za-z0-9_.-]+\.parquet")
DAYS_NAMED: Final = 500
"""A longer window lists all days."""
_ORIGIN: Final = ("cluster", "node", "epoch", "sequence")
_NAMES: Final = {
    "queues": (*_ORIGIN, "group", "topic", "queue", *SAMPLE_FIELDS),
    "events": (*_ORIGIN, "time_ms", "kind", "group", "topic", "queue", "detail"),
}
_TYPES: Final = {"int64": "BIGINT", "string": "STRING", "double": "DOUBLE", "bool": "BOOLEAN"}
_SAID_OF_NONE: Final = ("'raw' AS tier", "1L AS row_samples", "CAST(NULL AS BIGINT) AS row_lag_max",
                        "CAST(NULL AS BIGINT) AS row_age_max_ms")  # fmt: skip
"""What the journal's source says of a sample that sums nothing up."""
_LATER: Final = {
    "queue": "CAST(queue AS BIGINT) queue",
    **{column.name: f"coalesce(`{column.name}`, {column.default}L) `{column.name}`"
       for column in QUEUES.columns[len(FIRST_COLUMNS):] if column.kind is ColumnKind.NUMBER},
}  # fmt: skip
"""Columns that are not as in the files: those that an earlier version did not have get their defaults."""


def exported(
    spark: SparkSession,
    place: str,
    table: str,
    *,
    since_ms: int,
    until_ms: int,
    groups: Collection[str] | None = None,
    unreadable: Collection[str] = (),
) -> DataFrame:
    """Return the rows of a table, `queues` or `events`, with the columns that `pyddmq_lag` has for them.

    Args:
        spark: The session.
        place: What `pyddmq lag export --to` was given, as Spark writes it: `/lag`, `s3a://bucket/lag`.
        table: The table.
        since_ms: Rows of this moment or later.
        until_ms: Rows before this moment.
        groups: Names; null: all. Events without a group are of all.
        unreadable: Names of files that do not count.

    Raises:
        OptionRefused: Nothing was exported there.
    """
    schema = ", ".join(f"`{name}` {_type(name)}" for name in _NAMES[table])
    paths = _paths(spark, place, table, since_ms=since_ms, until_ms=until_ms)
    live = live_files(name for name in paths if name not in unreadable)
    whole = [_escaped(paths[each.file.name]) for each in live if each.is_whole]
    reading = spark.read.schema(schema)
    frames = [reading.parquet(*whole)] if whole else []
    frames += [
        reading.parquet(_escaped(paths[each.file.name])).where(f"sequence BETWEEN {each.first} AND {each.last}")
        for each in live
        if not each.is_whole
    ]
    rows = reduce(DataFrame.union, frames) if frames else spark.createDataFrame([], schema)
    rows = rows.where(f"time_ms >= {since_ms} AND time_ms < {until_ms}")
    if groups is not None:
        names = ", ".join(_quoted(each) for each in sorted(groups))
        rows = rows.where(f"`group` IN ({names}{', ' * bool(names)}{_quoted('') if table == 'events' else 'NULL'})")
    columns = [_LATER.get(name, f"`{name}`") for name in _NAMES[table]]
    return rows.selectExpr(*columns, *(_SAID_OF_NONE if table == "queues" else ()))


def exported_gaps(
    spark: SparkSession, place: str, *, since_ms: int, until_ms: int, unreadable: Collection[str] = ()
) -> list[tuple[int, str]]:
    """Return what is missing between the snapshots of each node: its begin, and a sentence with the reason's kind.

    By the files' names, what was not exported; by the samples, times of which there are none although a file says that
    it has them; and the files that cannot be read.

    Raises:
        OptionRefused: Nothing was exported there.
    """
    paths = _paths(spark, place, "queues", since_ms=since_ms, until_ms=until_ms)
    shown = shown_place(place)
    bad = [(since_ms, f"{shown}: {name} cannot be read (damaged)") for name in sorted(unreadable) if name in paths]
    live = live_files(name for name in paths if name not in unreadable)
    found = [
        (since_ms, f"{shown}: {each.file.node}: {missing} snapshots are missing (dropped)")
        for each, missing in holes(live)
    ]
    over = "OVER (PARTITION BY cluster, node ORDER BY time_ms)"
    snapshots = (
        exported(spark, place, "queues", since_ms=since_ms - DAY_MS // 24, until_ms=until_ms, unreadable=unreadable)
        .groupBy("cluster", "node", "epoch", "sequence")
        .agg({"time_ms": "min"})
        .withColumnRenamed("min(time_ms)", "time_ms")
    )
    starts = snapshots.selectExpr("cluster", "node", "epoch", "time_ms AS first", "time_ms AS last")
    starts = starts.groupBy("cluster", "node", "epoch").agg({"first": "min", "last": "max"})
    starts = starts.select("cluster", "node", "min(first)", "max(last)")
    found += [
        (from_ms, f"{shown}: {text}") for from_ms, text in mixed((tuple(row) for row in starts.collect()), since_ms)
    ]
    rows = (
        snapshots
        .selectExpr("*", f"lag(time_ms) {over} AS from_ms", f"lag(epoch) {over} = epoch AS one_start",
                    f"lag(sequence) {over} AS before")
        .selectExpr("*", "percentile_approx(time_ms - from_ms, 0.5) OVER (PARTITION BY cluster, node) AS interval_ms")
        .where(f"time_ms - from_ms > {SILENT_INTERVALS} * interval_ms AND time_ms >= {since_ms}")
    )  # fmt: skip
    for row in rows.collect():
        is_behind = row["one_start"] and row["before"] + 1 < row["sequence"]
        if is_behind and not was_exported(live, row["node"], int(row["epoch"], 16), row["sequence"] - 1):
            # What is missing was not exported, and is reported so.
            continue
        passed = (row["time_ms"] - row["from_ms"]) // 1000
        found.append((row["from_ms"], f"{shown}: {row['node']}: nothing was recorded for {passed} s (silent)"))
    return bad + sorted(found)


def unreadable_file(error: Exception) -> str | None:
    """Return the exported file, by its name below the place, that an error of Spark says cannot be read; null: none."""
    found = _IN_AN_ERROR.search(unquote(str(error)))
    return None if found is None or parse(found[0]) is None else found[0]


def _paths(spark: SparkSession, place: str, table: str, *, since_ms: int, until_ms: int) -> dict[str, str]:
    """Return the files of the days asked for, by their names below the place."""
    root = f"{_escaped(place.rstrip('/'))}/{table}"
    listing = spark.read.schema("sequence BIGINT").option("recursiveFileLookup", "true")
    try:
        uris = listing.parquet(f"{root}/{_days(table, since_ms, until_ms)}").inputFiles()
    except AnalysisException as error:
        if not _is_missing(error):
            raise
        uris = []
        if table == "queues":
            _refuse_nothing(spark, place, root)
    paths = [unquote(uri) for uri in uris]
    names = {"/".join(path.split("/")[-3:]): path for path in paths}
    return {name: path for name, path in names.items() if parse(name) is not None}


def _refuse_nothing(spark: SparkSession, place: str, root: str) -> None:
    try:
        spark.read.schema("sequence BIGINT").parquet(root)
    except AnalysisException as error:
        if not _is_missing(error):
            raise
        raise OptionRefused(
            f"{shown_place(place)} has no exported samples; `pyddmq lag export --to {shown_place(place)}` creates the "
            "folder `queues` there"
        ) from error


def _is_missing(error: AnalysisException) -> bool:
    return (error.getCondition() or "") == "PATH_NOT_FOUND"


def _days(table: str, since_ms: int, until_ms: int) -> str:
    """Return the folders that may have rows of a window, as a pattern."""
    first, last = first_and_last_day(table, since_ms, until_ms)
    count = (last - first).days + 1
    if count > DAYS_NAMED:
        return "date=*"
    return f"date={{{','.join((first + timedelta(days=day)).isoformat() for day in range(count))}}}"


def _type(name: str) -> str:
    """Return the type of a column in the files."""
    if name == "queue":
        return "INT"
    kind: Any = FIELDS.get(name, "string")
    return _TYPES[str(kind)]


def _escaped(path: str) -> str:
    """Write a path so that no character of it is taken for a pattern's."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", path)


def _quoted(text: str) -> str:
    """Write a text as SQL has it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
