"""The demo of lag, and on its run: node, command and report tell the same of every queue."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.views import View
from lag.report.data import LagReportData
from proxy.cli.app import run as command
from proxy.cli.lag import lag_commands
from proxy.cli.store.store_files import store_errors
from proxy.demo.events import load_events
from proxy.demo.lag.run import LagRun, run_stages, scratch_folder
from proxy.demo.lag.stages import EVENTS_PER_SECOND, SECONDS, STAGES, TARGET_MS
from proxy.demo.lag.verdict import judge
from proxy.recording.judging import REUSE_MS


@pytest.fixture(scope="module")
def run() -> Iterator[LagRun]:
    """Run a node through all stages; its journal stays until the end of the tests."""
    with scratch_folder() as folder, store_errors(Path(folder)):
        yield run_stages(folder, load_events(SECONDS * EVENTS_PER_SECOND))


@pytest.fixture(scope="module")
def report(spark: Any, shipped: Any, run: LagRun) -> LagReportData:
    """Make the report over its journal."""
    from lag.report.options import Input, ReportOptions, ReportWindow
    from lag.rules.limits import LagLimits
    from lag.spark.jobs.report import make_report

    window = ReportWindow(from_ms=run.from_ms, to_ms=run.to_ms + 1)
    return make_report(
        spark,
        ReportOptions(
            given=Input(journals=[run.journal]), window=window, limits=LagLimits(target_ms=TARGET_MS), compared=False
        ),
    )


def test_all_that_was_staged_is_found(run: LagRun, report: LagReportData) -> None:
    """By the node, and in the report; with one incident that is over."""
    checks, found = judge(run, report)
    assert [check.findings.examples for check in checks] == [[]] * len(STAGES)
    assert all(each.node == each.report == (each.stage.status, each.stage.cause) for each in found)


def test_what_is_not_in_the_report_is_told(run: LagRun, report: LagReportData) -> None:
    """A group that is not there, and an incident that is not."""
    bare = [replace(each, incidents=()) for each in report.groups if each.group != "poison"]
    checks, _ = judge(run, replace(report, groups=bare))
    assert {check.name: check.findings.examples for check in checks if not check.passed} == {
        "poison": ["the report shows nothing where BLOCKED, poison message was staged"],
        "back": ["the report has no earlier STOP, no consumer"],
    }


def shown(
    run: LagRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Return the rows of `pyddmq lag --json`, by group, topic and queue, of what the node's port answers."""
    answered = msgspec.json.encode(run.live)

    def get(_: str, __: str, kind: type[View], **___: float) -> View:
        return msgspec.json.decode(answered, type=kind)

    monkeypatch.setattr(lag_commands, "get", get)
    assert command(["lag", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["queues"]
    return {(row["group"], row["topic"], row["queue"]): row for row in rows}


def test_node_command_and_spark_agree_row_by_row(
    run: LagRun, report: LagReportData, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each figure; ages are of the moment that is judged, now of the node, and its last sample of the report."""
    rows = shown(run, monkeypatch, capsys)
    live = {(each.group, each.topic, each.queue): each for each in run.live.queues}
    reported = {(part.group, each.topic, each.queue): each for part in report.groups for each in part.queues}
    assert rows.keys() == live.keys() == reported.keys()
    assert len(reported) == 2 * len(STAGES)
    for place, of_node in live.items():
        row, of_spark = rows[place], reported[place]
        later_ms = run.live.now_ms - of_node.time_ms
        age_ms = None if of_node.time_lag_ms is None else max(0, of_node.time_lag_ms - later_ms)
        cause = (of_node.cause or "").replace("_", " ")
        figures = {
            "status": of_node.status,
            "cause": cause,
            "committed": of_node.committed,
            "end": of_node.end,
            "lag": of_node.lag,
            "unfinished": of_node.unfinished,
            "produced": of_node.produce_rate,
            "consumed": of_node.consume_rate,
            "method": of_node.time_lag_method,
            "lost": of_node.lost,
        }
        assert {
            name: round(value, 3) if isinstance(value := getattr(of_spark, name), float) else value for name in figures
        } == pytest.approx(figures, abs=0.0011), place
        # A queue that rests keeps its verdict for some seconds, and with it the moment of its age.
        assert of_spark.seconds == (None if age_ms is None else pytest.approx(age_ms / 1000, abs=REUSE_MS / 1000)), (
            place
        )
        names = ("status", "cause", "committed", "end", "lag", "unfinished", "time_lag_method", "lost")
        assert [row[_camel(name)] for name in names] == [getattr(of_node, name) for name in names], place


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(each.capitalize() for each in rest)
