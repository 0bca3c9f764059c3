"""What jobs read: journals of nodes, or what was exported of them, as the same rows."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from broker.runtime.disk import RealDisk
from lag.report.engine.reading import labels_of
from lag.report.options import Input
from lag.spark.sources.exported import exported, exported_gaps
from lag.spark.sources.journal import NAME

EVENTS: Final = ("cluster", "node", "time_ms", "kind", "group", "topic", "queue", "detail")


def samples(spark: SparkSession, given: Input, since_ms: int, until_ms: int) -> DataFrame:
    """Return the samples from one moment to before another. Raises OptionRefused: nothing was exported there."""
    return _rows(spark, given, "samples", since_ms, until_ms)


def events(spark: SparkSession, given: Input, since_ms: int, until_ms: int) -> DataFrame:
    """Return what happened from one moment to before another: `EVENTS`."""
    return _rows(spark, given, "events", since_ms, until_ms).select(*EVENTS)


def gaps(spark: SparkSession, given: Input, since_ms: int, until_ms: int) -> list[str]:
    """Return what is missing and why, a line each, in the order of time."""
    if given.exported:
        found = (
            exported_gaps(spark, each, since_ms=since_ms, until_ms=until_ms, unreadable=given.unreadable)
            for each in given.exported
        )
        return [text for _, text in sorted(gap for gaps in found for gap in gaps)]
    rows = _journals(spark, given, "gaps", since_ms, until_ms).orderBy("from_ms", "path").collect()
    return [f"{row['folder']}: {row['reason']} ({row['kind']})" for row in rows]


def _rows(spark: SparkSession, given: Input, rows: str, since_ms: int, until_ms: int) -> DataFrame:
    if given.exported:
        table = "queues" if rows == "samples" else rows
        found = (
            exported(
                spark,
                each,
                table,
                since_ms=since_ms,
                until_ms=until_ms,
                groups=given.groups,
                unreadable=given.unreadable,
            )
            for each in given.exported
        )
        return reduce(DataFrame.union, found)
    return _journal(spark, given, rows, since_ms, until_ms)


def _journal(spark: SparkSession, given: Input, rows: str, since_ms: int, until_ms: int) -> DataFrame:
    """Return rows of all journals; nodes of one name from two folders have the folder in their names."""
    labels = labels_of(RealDisk(read_only=True), given.journals)
    alone = [folder for folder in given.journals if folder not in labels]
    frames = [_journals(spark, replace(given, journals=alone), rows, since_ms, until_ms)] if alone else []
    for folder, names in labels.items():
        cases = " ".join(
            f"WHEN cluster = {_literal(cluster)} AND node = {_literal(node)} THEN {_literal(label)}"
            for (cluster, node), label in names.items()
        )
        found = _journals(spark, replace(given, journals=[folder]), rows, since_ms, until_ms)
        columns = [f"CASE {cases} ELSE node END AS node" if name == "node" else f"`{name}`" for name in found.columns]
        frames.append(found.selectExpr(*columns))
    return reduce(DataFrame.union, frames)


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _journals(spark: SparkSession, given: Input, rows: str, since_ms: int, until_ms: int) -> DataFrame:
    reading = (
        spark.read.format(NAME)
        .option("path", ",".join(given.journals))
        .option("rows", rows)
        .option("since", str(max(0, since_ms)))
        .option("until", str(until_ms))
    )
    if given.groups is not None and rows != "gaps":
        reading = reading.option("group", ",".join(sorted(given.groups)))
    return reading.load()
