"""A report beside the evaluation of the same window: what differs, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isclose
from typing import Any

import pandas as pd

from lag.report.data import LagReportData, as_plain
from tests.independent import evaluation
from tests.independent.evaluation import RANKS
from tests.independent.windows import LagWindow

_INCIDENT = ("from_ms", "to_ms", "status", "cause", "peak_lag", "peak_seconds")
_FIGURES = {
    "lag": "lag", "unfinished": "unfinished", "method": "method", "produce_recent": "produced",
    "consume_rate": "consumed", "catch_up_s": "catch_up_seconds",
}  # fmt: skip


def differences(window: LagWindow, report: LagReportData) -> list[str]:
    """Return what the report says otherwise than the evaluation."""
    events, limits = window.events(), window.limits
    samples = evaluation.without_doubt(evaluation.table_of(window.samples()), events, limits)
    read = (samples["time_ms"] >= window.from_ms - limits.window_ms) & (samples["time_ms"] < window.to_ms)
    rows = evaluation.judged(samples[read], events, limits)
    document = as_plain(report)
    groups = dict(iter(_inside(rows, window).groupby("group")))
    found = list(_unequal("groups", sorted(groups), sorted(each["group"] for each in document["groups"])))
    for reported in document["groups"]:
        found += _of_group(window, groups[reported["group"]], reported)
    waits = {
        (each["kind"], each["delay_level"]): (
            each["status"], each["scheduled"], each["overdue"], _ms(each["late_seconds"]), each["peak_overdue"],
            _ms(each["peak_late_seconds"]),
        )
        for each in document["waiting"]
    }  # fmt: skip
    scheduled = _inside(evaluation.table_of(window.scheduled()), window)
    return [*found, *_unequal("waiting", evaluation.waiting(scheduled, limits), waits)]


def _inside(rows: pd.DataFrame, window: LagWindow) -> pd.DataFrame:
    return rows[(rows["time_ms"] >= window.from_ms) & (rows["time_ms"] < window.to_ms)]


def _of_group(window: LagWindow, rows: pd.DataFrame, reported: Any) -> Iterator[str]:
    group, limits = reported["group"], window.limits
    left = {
        (each.topic, each.queue): each.time_ms
        for each in window.events()
        if each.kind.value == "left" and each.group == group
    }
    yield from _unequal(f"{group} bands", _bands(rows, reported, window), _told_bands(reported))
    queues = [(name, some) for name, some in rows.groupby(evaluation.QUEUE, sort=False)]
    for name, some in queues:
        [figures] = [each for each in reported["queues"] if (each["topic"], each["queue"]) == name[1:]]
        last, label = some.iloc[-1], f"{name} at the end"
        status = "LEFT" if name[1:] in left else evaluation.at_the_end(last, limits, window.to_ms)
        yield from _unequal(label, status, figures["status"])
        cause = last["cause"] if status == last["status"] else ""
        yield from _unequal(label, cause.replace("_", " "), figures["cause"])
        for mine, theirs in _FIGURES.items():
            yield from _unequal(f"{label}, {theirs}", last[mine], figures[theirs])
    # Equal incidents of several queues are one in the report: only those of one queue are compared.
    if len(queues) == 1:
        [(name, some)] = queues
        incidents = evaluation.incidents(some, limits, left.get(name[1:]))
        shown = sorted(
            ({each: one[each] for each in _INCIDENT} for one in reported["incidents"]), key=lambda one: one["from_ms"]
        )
        yield from _unequal(f"{group} incidents", len(incidents), len(shown))
        for one, other in zip(incidents, shown, strict=False):
            for each in _INCIDENT:
                value = one[each].replace("_", " ") if each == "cause" else one[each]
                yield from _unequal(f"{group} incident from {one['from_ms']}, {each}", value, other[each])
    shares = evaluation.objective(rows, lambda name: _resets(window, name), limits, window.from_ms, window.to_ms)
    yield from _unequal(f"{group} lost", shares.pop("lost"), reported["lost"])
    for each, value in shares.items():
        yield from _unequal(f"{group} {each}", value, reported["objective"][each])


def _resets(window: LagWindow, name: Any) -> Sequence[int]:
    return [each.time_ms for each in window.events() if each.kind.value == "reset" and evaluation.is_about(each, name)]


def _bands(rows: pd.DataFrame, reported: Any, window: LagWindow) -> dict[int, str]:
    """Return the worst status of each part of the window that the report has; without samples it is not known."""
    times = reported["line"]["times_ms"]
    parts = (rows["time_ms"] - window.from_ms) // (times[1] - times[0])
    worst = {at: min(some, key=lambda each: RANKS[each]) for at, some in rows["status"].groupby(parts)}
    return {time: worst.get(at, "UNKNOWN") for at, time in enumerate(times) if time < reported["spans"][-1]["to_ms"]}


def _told_bands(reported: Any) -> dict[int, str]:
    spans = reported["spans"]
    return {
        time: each["status"]
        for time in reported["line"]["times_ms"]
        for each in spans
        if each["from_ms"] <= time < each["to_ms"]
    }


def _unequal(what: str, mine: Any, theirs: Any) -> Iterator[str]:
    if mine is pd.NA:
        mine = None
    if isinstance(mine, dict):
        for each in sorted({*mine, *theirs}):
            yield from _unequal(f"{what} {each}", mine.get(each), theirs.get(each))
    elif isinstance(theirs, float) and mine is not None:
        if not isclose(mine, theirs, rel_tol=1e-5, abs_tol=1e-6):
            yield f"{what}: {mine} by the documentation, {theirs} in the report"
    elif mine != theirs:
        yield f"{what}: {mine} by the documentation, {theirs} in the report"


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
