"""What jobs read: journals of nodes, or what was exported of them, as the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from lag.spark.sources.exported import exported, exported_gaps
from lag.spark.sources.journal import NAME

EVENTS: Final = ("cluster", "node", "time_ms", "kind", "group", "topic", "queue", "detail")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Where samples are, of one kind: a node's journal and what was exported of it have the same samples.

    Attributes:
        journals: Folders of lag journals.
        exported: Places of exported Parquet.
        groups: Names; null: all.
        unreadable: Exported files that Spark could not read, by their names below the place; they do not count.
    """

    journals: Sequence[str] = ()
    exported: Sequence[str] = ()
    groups: frozenset[str] | None = None
    unreadable: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse none, and both. Raises ValueError."""
        if bool(self.journals) == bool(self.exported):
            raise ValueError("samples come from journals or from exported files: give --journal or --exported")

    @property
    def sources(self) -> list[str]:
        """Where it is, for people."""
        return [*self.journals, *self.exported]


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
    rows = _journal(spark, given, "gaps", since_ms, until_ms).orderBy("from_ms", "path").collect()
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
