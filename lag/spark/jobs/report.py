"""The report over a window: samples read, judged by Spark, and put together as `lag.report.data.Report`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from lag.report.data import (
    GroupPart,
    HeatMap,
    HeatRow,
    Incident,
    Line,
    Objective,
    QueueFigures,
    Report,
    Span,
)
from lag.rules import causes, statuses
from lag.rules.limits import Limits
from lag.samples import EventKind
from lag.spark.jobs.arguments import SPARK_ERRORS
from lag.spark.jobs.clock_steps import LOOK_BACK_MS, steps_of, told, without_lies
from lag.spark.jobs.history import BUCKETS, HEAT_BUCKETS, QUEUES_MAX, History, Window, status_of
from lag.spark.jobs.inputs import Input, events, gaps, samples
from lag.spark.sources.exported import unreadable_file

GAPS_MAX: Final = 20
UNREADABLE_MAX: Final = 20
"""Exported files that are left out; each costs the report another try."""
_NO_OBJECTIVE: Final = Objective(target_seconds=0, samples_share=None, messages_share=None, over_seconds=0)
Group = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """What is to be reported.

    Attributes:
        given: Where the samples are, and of which groups.
        window: The window.
        limits: Thresholds.
        title: The report's title.
        compared: Whether the time before the window, as long, is looked at for comparison.
        made_ms: The moment that the report says it was made at.
        parquet: A folder or place that the figures of each queue and part of the window are written to, by date, as
            `lag.spark.jobs.history.PARTS` has them; days that the window touches are replaced. "": nowhere.
    """

    given: Input
    window: Window
    limits: Limits
    title: str = "Consumption lag"
    compared: bool = True
    made_ms: int = 0
    parquet: str = ""


def make_report(spark: SparkSession, options: ReportOptions) -> Report:
    """Read, judge and put together. Exported files that cannot be read are left out, and told as missing.

    Raises:
        OptionRefused: Nothing was exported to a place.
        PySparkException, Py4JError: Spark failed, or too many files cannot be read.
    """
    while True:
        try:
            return _made(spark, options)
        except SPARK_ERRORS as error:
            name, known = unreadable_file(error), options.given.unreadable
            if name is None or name in known or len(known) == UNREADABLE_MAX:
                raise
            options = replace(options, given=replace(options.given, unreadable=known | {name}))


def _made(spark: SparkSession, options: ReportOptions) -> Report:
    window, limits = options.window, options.limits
    history = _history(spark, options, window)
    history.rows.persist()
    try:
        objectives = {(row["cluster"], row["group"]): row for row in history.objectives().collect()}
        pauses = [row["pause_ms"] for row in objectives.values() if row["pause_ms"] is not None]
        window = replace(window, pause_ms=max(pauses, default=1))
        buckets = _by_group(history.groups(window).collect())
        last = _by_group(history.last().collect())
        heat = _by_group(history.heat(window).collect())
        incidents = _by_group(history.incidents().collect())
        if options.parquet:
            _write(history.parts(window), options.parquet)
    finally:
        history.close()
    earlier = _earlier(spark, options) if options.compared else {}
    parts = []
    for group, objective in objectives.items():
        part = _part(group, window, buckets[group], last[group])
        parts.append(
            replace(
                part,
                lost=objective["lost"] or 0,
                objective=_objective(objective, limits, earlier.get(group)),
                heat=_heat(heat[group], window),
                incidents=_incidents(incidents[group]),
            )
        )
    parts.sort(key=lambda part: (-statuses.SEVERITY[part.status], -(part.lag or 0), part.cluster, part.group))
    return Report(
        title=options.title,
        from_ms=window.from_ms,
        to_ms=window.to_ms,
        made_ms=options.made_ms,
        sources=options.given.sources,
        samples=sum(row["samples"] for row in objectives.values()),
        gaps=_gaps(spark, options),
        groups=parts,
    )


def _write(parts: DataFrame, place: str) -> None:
    """Write rows by date, a file for each day; of days that are there already what is there goes."""
    writing = parts.repartition("date").write.mode("overwrite").partitionBy("date")
    writing.option("partitionOverwriteMode", "dynamic").parquet(place)


def _history(spark: SparkSession, options: ReportOptions, window: Window, *, told: bool = True) -> History:
    since_ms = window.from_ms - options.limits.window_ms
    rows = _happened(spark, options, window)
    resets = [row for row in rows if row["kind"] == EventKind.RESET.value and row["time_ms"] >= since_ms]
    found = without_lies(samples(spark, options.given, since_ms, window.to_ms), steps_of(rows), options.limits)
    return History(found.selectExpr("*", f"{_reset_of(resets)} AS reset_ms"), window, options.limits, told=told)


def _happened(spark: SparkSession, options: ReportOptions, window: Window) -> list[dict[str, Any]]:
    """Return resets of offsets and steps of clocks that matter to a window."""
    since_ms = window.from_ms - options.limits.window_ms - LOOK_BACK_MS
    kinds = f"kind IN ('{EventKind.RESET.value}', '{EventKind.CLOCK.value}')"
    return [row.asDict() for row in events(spark, options.given, since_ms, window.to_ms).where(kinds).collect()]


def _reset_of(resets: Iterable[Mapping[str, Any]]) -> str:
    """Return, as SQL, when an operator last reset a row's queue by the row's moment; "" and -1 of an event mean all."""
    found = []
    for reset in resets:
        holds = [f"time_ms >= {reset['time_ms']}L"]
        holds += [f"`{name}` = '{_quoted(reset[name])}'" for name in ("cluster", "group", "topic") if reset[name]]
        if reset["queue"] >= 0:
            holds.append(f"queue = {reset['queue']}")
        found.append(f"if({' AND '.join(holds)}, {reset['time_ms']}L, NULL)")
    return f"array_max(array({', '.join(found)}))" if found else "CAST(NULL AS BIGINT)"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _earlier(spark: SparkSession, options: ReportOptions) -> dict[Group, float]:
    """Return the share of samples in time over the period before, as long as the window; of groups that had any."""
    window = options.window
    length = window.to_ms - window.from_ms
    before = Window(from_ms=window.from_ms - length, to_ms=window.from_ms)
    history = _history(spark, options, before, told=False)
    rows = history.objectives().collect()
    history.close()
    return {(row["cluster"], row["group"]): row["kept"] / row["samples"] for row in rows}


def _gaps(spark: SparkSession, options: ReportOptions) -> list[str]:
    window = options.window
    found = told(steps_of(_happened(spark, options, window)), options.limits, window.from_ms, window.to_ms)
    found += gaps(spark, options.given, window.from_ms, window.to_ms)
    return found if len(found) <= GAPS_MAX else [*found[:GAPS_MAX], f"and {len(found) - GAPS_MAX} more"]


def _by_group(rows: Iterable[Any]) -> dict[Group, list[dict[str, Any]]]:
    found: dict[Group, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["cluster"], row["group"]].append(row.asDict())
    return found


def _part(group: Group, window: Window, buckets: Sequence[dict[str, Any]], last: Sequence[dict[str, Any]]) -> GroupPart:
    """Put together what is of the group as a whole; the rest is empty."""
    queues = sorted(last, key=lambda row: row["place"])
    worst = queues[0]
    cause, evidence, advice = _why(worst)
    status = worst["status"]
    lags = [row["lag"] for row in buckets if row["lag"] is not None]
    ages = [row["age_ms"] for row in buckets if row["age_ms"] is not None]
    return GroupPart(
        cluster=group[0],
        group=group[1],
        status=status,
        level=statuses.BY_NAME[status].level.name,
        cause=cause,
        evidence=evidence,
        advice=advice,
        lag=worst["group_lag"],
        unfinished=worst["group_unfinished"],
        seconds=_seconds(worst["group_age_ms"]),
        peak_lag=max(lags, default=None),
        peak_seconds=_seconds(max(ages, default=None)),
        lost=0,
        catch_up_seconds=worst["group_catch_up_s"],
        objective=_NO_OBJECTIVE,
        spans=_spans(buckets, window),
        line=_line(buckets, window),
        heat=HeatMap(times_ms=(), rows=()),
        ages=(),
        incidents=(),
        queues=[_figures(row) for row in queues[:QUEUES_MAX]],
        queues_left_out=worst["group_queues"] - min(len(queues), QUEUES_MAX),
    )


def _why(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the cause of a queue's state, the sentence that speaks for it, and what to do."""
    if row["cause"] is None:
        status = statuses.BY_NAME[row["status"]]
        calm = row["status"] == "OK"
        return "", "" if calm else status.meaning, "" if calm else status.advice
    return _words(row["cause"]), causes.evidence(row["cause"], row), causes.BY_NAME[row["cause"]].advice


def _objective(row: Any, limits: Limits, earlier: float | None) -> Objective:
    return Objective(
        target_seconds=limits.target_ms / 1000,
        samples_share=row["kept"] / row["samples"],
        messages_share=row["produced_kept"] / row["produced"] if row["produced"] else None,
        over_seconds=row["over_ms"] / 1000,
        earlier_samples_share=earlier,
    )


def _line(buckets: Sequence[dict[str, Any]], window: Window) -> Line:
    """Return the buckets as a line; one without samples is a gap in it."""
    by_number = {row["bucket"]: row for row in buckets}
    width = window.width_ms(BUCKETS)
    count = -(-(window.to_ms - window.from_ms) // width)
    rows = [by_number.get(number, {}) for number in range(count)]
    return Line(
        times_ms=[window.from_ms + number * width for number in range(count)],
        lag=[row.get("lag") for row in rows],
        seconds=[_seconds(row.get("age_ms")) for row in rows],
        produced=[row.get("produced") for row in rows],
        consumed=[row.get("consumed") for row in rows],
    )


def _spans(buckets: Sequence[dict[str, Any]], window: Window) -> list[Span]:
    """Return the stretches of one status; a bucket without samples is UNKNOWN, whatever is around it."""
    by_number = {row["bucket"]: status_of(row["severity"]) for row in buckets}
    width = window.width_ms(BUCKETS)
    spans: list[Span] = []
    for number in range(-(-(window.to_ms - window.from_ms) // width)):
        status = by_number.get(number, "UNKNOWN")
        begin = window.from_ms + number * width
        end = min(begin + width, window.to_ms)
        if spans and spans[-1].status == status:
            spans[-1] = replace(spans[-1], to_ms=end)
        else:
            spans.append(Span(from_ms=begin, to_ms=end, status=status))
    return spans


def _heat(rows: Sequence[dict[str, Any]], window: Window) -> HeatMap:
    width = window.width_ms(HEAT_BUCKETS)
    count = -(-(window.to_ms - window.from_ms) // width)
    by_place: dict[int, list[int | None]] = {}
    labels: dict[int, str] = {}
    nodes = len({row["node"] for row in rows if row["node"] is not None})
    for row in rows:
        place = row["place"]
        by_place.setdefault(place, [None] * count)[row["bucket"]] = row["lag"]
        node = f" ({row['node']})" if nodes > 1 else ""
        labels[place] = "all others" if row["topic"] is None else f"{row['topic']} / {row['queue']}{node}"
    return HeatMap(
        times_ms=[window.from_ms + number * width for number in range(count)],
        rows=[HeatRow(label=labels[place], lag=by_place[place]) for place in sorted(by_place)],
    )


def _incidents(rows: Sequence[dict[str, Any]]) -> list[Incident]:
    """Join what was the same at the same time on several queues: one incident for people.

    Its evidence is that of the queue with the most lag.

    That too few samples are known is none of them: the bands show it, and the report's gaps say why.
    """
    joined: list[dict[str, Any]] = []
    for row in sorted(rows, key=lambda row: (row["from_ms"], row["topic"], row["queue"])):
        for other in joined:
            same = other["severity"] == row["severity"] and other["cause"] == row["cause"]
            if same and (other["until_ms"] is None or row["from_ms"] <= other["until_ms"]):
                _join(other, row)
                break
        else:
            joined.append(dict(row))
    return [
        Incident(
            topic=row["topic"] or "",
            queue=row["queue"],
            from_ms=row["from_ms"],
            to_ms=row["until_ms"],
            status=status_of(row["severity"]),
            cause=_words(row["cause"] or ""),
            evidence=_told(row),
            peak_lag=row["lag"],
            peak_seconds=_seconds(row["age_ms"]),
        )
        for row in joined
        if status_of(row["severity"]) != "INCOMPLETE"
    ]


def _told(row: Mapping[str, Any]) -> str:
    """Return the sentence that speaks for an incident: of its cause, else what its status means."""
    if row["cause"] is None:
        return statuses.BY_NAME[status_of(row["severity"])].meaning
    return causes.evidence(row["cause"], row["facts"].asDict())


def _join(into: dict[str, Any], row: Mapping[str, Any]) -> None:
    if into["topic"] != row["topic"]:
        into["topic"] = into["queue"] = None
    elif into["queue"] != row["queue"]:
        into["queue"] = None
    if into["until_ms"] is not None:
        into["until_ms"] = None if row["until_ms"] is None else max(into["until_ms"], row["until_ms"])
    if (row["lag"] or 0) > (into["lag"] or 0):
        into["facts"] = row["facts"]
    for name in ("lag", "age_ms"):
        if row[name] is not None:
            into[name] = row[name] if into[name] is None else max(into[name], row[name])


def _figures(row: Mapping[str, Any]) -> QueueFigures:
    age = row["time_lag_ms"] if row["time_lag_ms"] is not None else row["time_lag_high_ms"]
    return QueueFigures(
        node=row["node"],
        topic=row["topic"],
        queue=row["queue"],
        status=row["status"],
        cause=_words(row["cause"] or ""),
        committed=row["committed"],
        end=row["end"],
        lag=row["lag"],
        unfinished=row["unfinished"],
        seconds=_seconds(age),
        method=row["time_lag_method"] or "none",
        produced=row["produce_rate"],
        consumed=row["consume_rate"],
        catch_up_seconds=row["catch_up_s"],
        lost=row["lost"] or 0,
    )


def _words(cause: str) -> str:
    """Return a cause as people write it."""
    return cause.replace("_", " ")


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
