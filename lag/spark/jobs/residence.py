"""How long single messages took: from their store to their first hand-out, and to their end, by windows of time."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lag.report.texts import DASH, count, moment
from lag.spark.sources.acks import NAME

SHARES: Final = (0.5, 0.95, 0.99)
ACCURACY: Final = 10_000
"""Percentiles are those of real messages, at most a ten-thousandth of all of them away from their place."""
MEASURES: Final = ("handed", "ended")
KEYS: Final = ("window_ms", "cluster", "group", "topic", "outcome")
COLUMNS: Final = (
    *KEYS,
    "messages",
    "deliveries",
    *(f"{measure}_{name}" for measure in MEASURES for name in ("messages", "p50_ms", "p95_ms", "p99_ms", "max_ms")),
)
"""Of each window, group, topic and outcome: how many, how often handed out, and of both measures its percentiles."""
_HEADINGS: Final = (
    "from", "cluster", "group", "topic", "outcome", "messages", "deliveries",
    "handed out", "p50", "p95", "p99", "max", "ended", "p50", "p95", "p99", "max",
)  # fmt: skip
FORMATS: Final = ("table", "markdown", "csv", "json")
GAPS_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidenceOptions:
    """What the residence report is to show.

    Attributes:
        paths: Data directories, or folders of ack logs.
        from_ms: Ends of this moment or later count,
        to_ms: and before this one.
        every_ms: Width of a window; windows begin at multiples of it, UTC.
        groups: Names; null: all.
        topics: Likewise.
    """

    paths: Sequence[str]
    from_ms: int
    to_ms: int
    every_ms: int = 3_600_000
    groups: frozenset[str] | None = None
    topics: frozenset[str] | None = None

    def __post_init__(self) -> None:
        """Refuse what gives nothing. Raises ValueError."""
        if not self.paths:
            raise ValueError("pass --journal with a data directory of a node with a group whose ackLog is on")
        if self.to_ms <= self.from_ms:
            raise ValueError("the window ends at or before its start; pass an earlier --from, or a later --to")
        if self.every_ms < 1000:
            raise ValueError(f"--every must be at least one second, got {self.every_ms / 1000:g} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Residence:
    """What was found.

    Attributes:
        rows: `COLUMNS` of each, in the order of the keys.
        gaps: What the logs lack, and why, a line each.
    """

    rows: Sequence[Mapping[str, Any]]
    gaps: Sequence[str]


def residence_of(messages: DataFrame, every_ms: int) -> DataFrame:
    """Return percentiles and counts of rows of `pyddmq_acks`, by `KEYS`; a clock that was set back gives 0."""
    stored, handed = F.col("stored_ms"), F.col("handed_ms")
    rows = messages.select(
        (F.col("ended_ms") - F.expr(f"ended_ms % {every_ms}L")).alias("window_ms"),
        *KEYS[1:],
        "deliveries",
        # `greatest` passes nulls over: what was never handed out has no time to it.
        F.when(handed.isNotNull(), F.greatest(handed - stored, F.lit(0))).alias("handed"),
        F.greatest(F.col("ended_ms") - stored, F.lit(0)).alias("ended"),
    )
    figures = [F.count("*").alias("messages"), F.sum("deliveries").alias("deliveries")]
    for measure in MEASURES:
        figures.append(F.count(measure).alias(f"{measure}_messages"))
        shares = F.array(*(F.lit(share) for share in SHARES))
        figures.append(F.percentile_approx(measure, shares, ACCURACY).alias(f"{measure}_shares"))
        figures.append(F.max(measure).alias(f"{measure}_max_ms"))
    found = rows.groupBy(*KEYS).agg(*figures)
    for measure in MEASURES:
        for place, share in enumerate(SHARES):
            found = found.withColumn(f"{measure}_p{round(share * 100)}_ms", F.col(f"{measure}_shares")[place])
    return found.select(*COLUMNS).orderBy(*KEYS)


def residence(spark: SparkSession, options: ResidenceOptions) -> Residence:
    """Read ack logs, and report.

    Raises:
        OptionRefused: A path has no ack log.
    """

    def reading(rows: str) -> DataFrame:
        found = spark.read.format(NAME).option("path", ",".join(options.paths)).option("rows", rows)
        found = found.option("since", str(options.from_ms)).option("until", str(options.to_ms))
        for name, names in (("group", options.groups), ("topic", options.topics)):
            found = found if names is None else found.option(name, ",".join(sorted(names)))
        return found.load()

    rows = [row.asDict() for row in residence_of(reading("messages"), options.every_ms).collect()]
    gaps = [f"{row['reason']} ({row['kind']})" for row in reading("gaps").orderBy("path").limit(GAPS_MAX).collect()]
    return Residence(rows=rows, gaps=gaps)


def rendered(found: Residence, form: str) -> str:
    """Return it in one of `FORMATS`: CSV and JSON with the names of `COLUMNS`, the others for people."""
    if form == "json":
        return json.dumps({"rows": list(found.rows), "gaps": list(found.gaps)}, ensure_ascii=False) + "\n"
    if form == "csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found.rows)
        return out.getvalue()
    table = [_HEADINGS, *(_cells(row) for row in found.rows)]
    lines = _markdown(table) if form == "markdown" else _aligned(table)
    if not found.rows:
        lines.append("No message finished in this time in the ack logs.")
    lines += [f"Missing: {gap}" for gap in found.gaps]
    return "\n".join(lines) + "\n"


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    cells = [moment(row["window_ms"]), *(str(row[name]) for name in KEYS[1:])]
    cells += [count(row["messages"]), count(row["deliveries"])]
    for measure in MEASURES:
        cells.append(count(row[f"{measure}_messages"]))
        cells += [_time(row[f"{measure}_{name}_ms"]) for name in ("p50", "p95", "p99", "max")]
    return tuple(cells)


def _time(ms: int | None) -> str:
    """Write a time to three digits or so: 12 ms, 3.45 s, 1234 s."""
    if ms is None:
        return DASH
    return f"{ms} ms" if ms < 1000 else f"{ms / 1000:.2f} s" if ms < 100_000 else f"{ms / 1000:.0f} s"


def _markdown(table: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |" for cells in table]
    words = len(KEYS)
    return [lines[0], f"|{' --- |' * words}{' ---: |' * (len(_HEADINGS) - words)}", *lines[1:]]


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    words = len(KEYS)
    return [
        "  ".join(
            cell.ljust(width) if place < words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        for cells in table
    ]
