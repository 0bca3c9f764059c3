"""The first reduction of a report by Spark: samples read once, judged, and few rows of them collected."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from broker.runtime.disk import RealDisk
from lag.report.data import LagReportData
from lag.report.engine.baselines import with_usual
from lag.report.engine.clock_steps import LOOK_BACK_MS, NodeClockStep, steps_of
from lag.report.engine.parts import assemble
from lag.report.engine.waiting import waiting_of
from lag.report.options import AHEAD_MS, MESSAGE_TIMES, TIME_MIN_MS, Figures, Reduced, ReportOptions, ReportWindow
from lag.rules.limits import LagLimits
from lag.samples import EventKind
from lag.spark.jobs.arguments import SPARK_ERRORS
from lag.spark.jobs.history import QUEUE_NAMES, ReportFrames
from lag.spark.jobs.inputs import events, gaps, samples
from lag.spark.sources.exported import unreadable_file

# What is taken out of samples before they are judged: times that a clock made wrong, and second samples of a moment.
#
# The same as `lag.report.engine.clock_steps.without_lies` and `lag.report.engine.local` do with single samples.

_CANNOT_BE: Final = "(`{0}` < {1}L OR `{0}` > time_ms + {2}L)"


def without_absurd_times(samples: DataFrame) -> DataFrame:
    """Return samples without message times that cannot be, and the column `absurd`, whether a row had one."""
    conditions = {name: _CANNOT_BE.format(name, TIME_MIN_MS, AHEAD_MS) for name in MESSAGE_TIMES}
    columns = [
        f"if({conditions[name]}, NULL, `{name}`) AS `{name}`" if name in conditions else f"`{name}`"
        for name in samples.columns
    ]
    any_of = " OR ".join(f"coalesce({each}, false)" for each in conditions.values())
    return samples.selectExpr(*columns, f"({any_of}) AS absurd")


def without_lies(samples: DataFrame, steps: Sequence[NodeClockStep], limits: LagLimits) -> DataFrame:
    """Return samples without those that a step made worthless, and without times that it made wrong."""
    if not steps:
        return samples
    kept, wrong = [], []
    for step in steps:
        of_node = f"cluster = '{_quoted(step.cluster)}' AND node = '{_quoted(step.node)}'"
        begin, end = step.unknown(limits)
        kept.append(f"NOT ({of_node} AND time_ms >= {begin}L AND time_ms < {end}L)")
        wrong.append((f"{of_node} AND time_ms >= {end}L", step.stored_before_ms))
    columns = []
    for name in samples.columns:
        if name in MESSAGE_TIMES:
            cases = " ".join(f"WHEN {after} AND `{name}` <= {before_ms}L THEN NULL" for after, before_ms in wrong)
            columns.append(f"CASE {cases} ELSE `{name}` END AS `{name}`")
        else:
            columns.append(f"`{name}`")
    return samples.where(" AND ".join(kept)).selectExpr(*columns)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


UNREADABLE_MAX: Final = 20
"""Exported files that are left out; each costs the report another try."""
_SCHEMA: Final = "cluster string, node string, `group` string, topic string, queue bigint"


def make_report(spark: SparkSession, options: ReportOptions) -> LagReportData:
    """Read, judge and put together. Exported files that cannot be read are left out, and reported as missing.

    Raises:
        OptionRefused: Nothing was exported to a place.
        PySparkException, Py4JError: Spark failed, or too many files cannot be read.
    """
    while True:
        try:
            report = assemble(options, reduce_by_spark(spark, options))
            disk = RealDisk(read_only=True)
            report = replace(report, waiting=waiting_of(disk, options))
            return with_usual(disk, options.given.journals, report)
        except SPARK_ERRORS as error:
            name, known = unreadable_file(error), options.given.unreadable
            if name is None or name in known or len(known) == UNREADABLE_MAX:
                raise
            options = replace(options, given=replace(options.given, unreadable=known | {name}))


def reduce_by_spark(spark: SparkSession, options: ReportOptions) -> Reduced:
    """Read and judge samples, and collect the rows of a report."""
    window, limits, given = options.window, options.limits, options.given
    before_ms = window.length_ms if options.compared else 0
    since_ms = window.from_ms - before_ms - limits.window_ms
    happened = [row.asDict() for row in events(spark, given, since_ms - LOOK_BACK_MS, window.to_ms).collect()]
    read = without_absurd_times(samples(spark, given, since_ms, window.to_ms))
    read = without_lies(read, steps_of(happened), limits).persist()
    try:
        found = read.where(f"time_ms >= {window.from_ms - limits.window_ms}L")
        history = ReportFrames(found, window, limits, _events_of_queues(spark, happened))
        history.rows.persist()
        try:
            return Reduced(
                **_collected(history, window, options.parquet),
                earlier=_earlier(read, options) if options.compared else (),
                events=happened,
                gaps=gaps(spark, given, window.from_ms, window.to_ms),
                refused={row["node"]: row["absurd"] for row in history.refused().collect()},
            )
        finally:
            history.close()
    finally:
        read.unpersist()


def _collected(history: ReportFrames, window: ReportWindow, parquet: str) -> dict[str, Any]:
    objectives = _rows(history.objectives())
    pause_ms = max((row["pause_ms"] for row in objectives if row["pause_ms"] is not None), default=1)
    window = replace(window, pause_ms=pause_ms)
    incidents = _rows(history.incidents())
    for row in incidents:
        row["facts"] = row["facts"].asDict()
        row["held"] = {each["cause"]: each["held_ms"] for each in row["held"] if each["severity"] == row["severity"]}
    found = {
        "objectives": objectives,
        "buckets": _rows(history.groups(window)),
        "last": _rows(history.last()),
        "heat": _rows(history.heat(window)),
        "incidents": incidents,
        "pause_ms": pause_ms,
    }
    if parquet:
        _write(history.parts(window), parquet)
    return found


def _rows(frame: DataFrame) -> list[Figures]:
    return [row.asDict() for row in frame.collect()]


def _write(parts: DataFrame, place: str) -> None:
    """Write rows by date, a file for each day; what existing days have is replaced."""
    writing = parts.repartition("date").write.mode("overwrite").partitionBy("date")
    writing.option("partitionOverwriteMode", "dynamic").parquet(place)


def _earlier(read: DataFrame, options: ReportOptions) -> list[Figures]:
    """Return objectives of the preceding period of equal length."""
    window = options.window
    before = ReportWindow(from_ms=window.from_ms - window.length_ms, to_ms=window.from_ms)
    history = ReportFrames(read.where(f"time_ms < {window.from_ms}L"), before, options.limits, None, findings=False)
    try:
        return _rows(history.objectives())
    finally:
        history.close()


def _events_of_queues(spark: SparkSession, happened: Iterable[Mapping[str, Any]]) -> DataFrame | None:
    """Return, by the names of an event, when operators reset offsets and when queues left; null: neither happened.

    A name is "", and a queue -1, where the event is about all. A reset is of a group, through whichever node; a node
    that no longer has a queue speaks for itself.
    """
    found: dict[tuple[Any, ...], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for event in happened:
        is_left = event["kind"] == EventKind.LEFT.value
        if is_left or event["kind"] == EventKind.RESET.value:
            names = dict(event) if is_left else {**event, "node": ""}
            found[tuple(names[name] for name in QUEUE_NAMES)][is_left].append(event["time_ms"])
    if not found:
        return None
    rows = [(*names, *times) for names, times in found.items()]
    return spark.createDataFrame(rows, f"{_SCHEMA}, resets array<bigint>, lefts array<bigint>")
