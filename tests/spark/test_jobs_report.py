"""The report of staged troubles: each is found, and nothing is said of a group that is well.

The plain engine makes it. Spark makes it once more from exports, and has to find the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from broker.runtime.disk import RealDisk
from lag.export.export import compact, export
from lag.export.place import ExportPlace
from lag.journal.reader import JournalQuery
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits
from lag.report.data import GroupPart, LagReportData
from lag.report.engine.local import make_locally
from lag.report.options import Input, ReportOptions, ReportWindow
from lag.rules.limits import LagLimits
from lag.samples import EventKind, LagEvent, QueueSample
from tests.conftest import need_module

START_MS = 1_714_952_700_000
"""A quarter of an hour before midnight, UTC: exports have two days of it."""
EVERY_MS = 10_000
SNAPSHOTS = 180
Story = Callable[[int, int], QueueSample]


def well(number: int, now: int) -> QueueSample:
    """Consume all within a second."""
    end = 1_000 + number * 100
    return sample(now, end=end, committed=end - 2, committed_ms=now - 300)


def stopped(number: int, now: int) -> QueueSample:
    """Nobody consumes after a third of the time."""
    end = 1_000 + number * 100
    at = min(number, 60)
    moved = START_MS + at * EVERY_MS
    known = {"moved_ms": moved, "answered_ms": moved, "asked_ms": moved, "holders": 0 if number > at else 2}
    return sample(now, end=end, committed=1_000 + at * 100, committed_ms=moved, **known)


def poisoned(number: int, now: int) -> QueueSample:
    """One key fails again and again, and the others wait behind it."""
    end = 1_000 + number * 100
    since = START_MS + 20 * EVERY_MS
    if number < 20:
        return well(number, now)
    return sample(
        now, end=end, committed=3_000, committed_ms=since, moved_ms=since, in_flight=1, waiting=end - 3_001, retrying=1,
        held_key="case-7", held_since_ms=since, held_offset=3_000, held_attempts=number, held_reason="boom",
    )  # fmt: skip


def reset(number: int, now: int) -> QueueSample:
    """An operator goes back by a thousand messages in the middle; all is consumed again at once."""
    end = 100_000
    return sample(now, end=end, committed=end if number != 90 else end - 1_000, committed_ms=None, end_ms=now - 5_000)


def paused(number: int, now: int) -> QueueSample:
    """Switched off by an operator."""
    end = 1_000 + number * 100
    return sample(now, end=end, committed=1_000, committed_ms=START_MS, paused=True, holders=0)


def sample(now: int, *, end: int, committed: int, **known: Any) -> QueueSample:
    """Make a sample with what is usual."""
    usual: dict[str, Any] = {
        "start": 0,
        "start_ms": START_MS - 86_400_000,
        "started": committed,
        "end_ms": now - 10,
        "moved_ms": now,
        "answered_ms": now,
        "asked_ms": now,
        "holders": 2,
    }
    return QueueSample(time_ms=now, end=end, committed=committed, **{**usual, **known})


STORIES: dict[str, Story] = {
    "well": well,
    "stopped": stopped,
    "poisoned": poisoned,
    "reset": reset,
    "paused": paused,
}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write half an hour of five groups with two queues each; five minutes of it are missing."""
    folder = str(tmp_path_factory.mktemp("journal"))
    write_story(folder, "n1")
    return folder


def write_story(folder: str, node: str, later_ms: int = 0) -> None:
    """Write a node's journal, whose rounds are later by some ms."""
    limits = WriterLimits(free_bytes_min=0)
    writer = JournalWriter(RealDisk(), folder, JournalOrigin(cluster="c", node=node, epoch=1), limits)
    for number in range(SNAPSHOTS):
        now = START_MS + later_ms + number * EVERY_MS
        if number == 90:
            writer.note(LagEvent(time_ms=now - 1, kind=EventKind.RESET, group="reset", detail="to 99000"))
        if 120 <= number < 150:
            continue
        rows = [((name, "t", queue), story(number, now + queue)) for name, story in STORIES.items() for queue in (0, 1)]
        assert writer.write(now, rows)
    writer.close(START_MS + SNAPSHOTS * EVERY_MS)


def options(parquet: str = "", **given: Any) -> ReportOptions:
    """Return options of a report of all of it, from where it is given."""
    window = ReportWindow(from_ms=START_MS, to_ms=START_MS + SNAPSHOTS * EVERY_MS)
    return ReportOptions(given=Input(**given), window=window, limits=LagLimits(), made_ms=START_MS, parquet=parquet)


@pytest.fixture(scope="module")
def report(journal: str) -> LagReportData:
    """Make the report from the journal."""
    return make_locally(RealDisk(read_only=True), options(journals=[journal]))


def part(report: LagReportData, name: str) -> GroupPart:
    """Return a group."""
    return next(each for each in report.groups if each.group == name)


def test_each_trouble_is_named_with_its_cause(report: LagReportData) -> None:
    """The worst first; who is well has nothing said of it."""
    assert {each.group: each.status for each in report.groups} == {
        "well": "OK",
        "stopped": "STOP",
        "poisoned": "BLOCKED",
        "reset": "OK",
        "paused": "PAUSED",
    }
    assert [each.group for each in report.groups][:2] == ["poisoned", "stopped"]
    assert part(report, "stopped").cause == "no consumer"
    assert part(report, "poisoned").cause == "poison message"
    assert "offset 3000 was tried 179 times" in part(report, "poisoned").evidence
    assert part(report, "well").cause == part(report, "well").evidence == part(report, "well").advice == ""


def test_figures_are_those_of_the_samples(report: LagReportData) -> None:
    """At the end, at the peak, and summed over queues."""
    stopped = part(report, "stopped")
    last = SNAPSHOTS - 1

    assert stopped.lag == stopped.unfinished == stopped.peak_lag == 2 * (last - 60) * 100
    assert stopped.seconds == pytest.approx((last - 60) * 10, abs=1)
    assert [(each.queue, each.lag) for each in stopped.queues] == [(0, (last - 60) * 100), (1, (last - 60) * 100)]
    assert [lag for lag in stopped.line.lag if lag is not None][-1] == stopped.lag
    assert part(report, "well").peak_lag == 4
    assert part(report, "well").objective.samples_share == 1.0
    assert 0 < (stopped.objective.samples_share or 0) < 0.6
    assert stopped.objective.over_seconds > 500
    assert report.samples == (SNAPSHOTS - 30) * 2 * len(STORIES)


def test_what_is_missing_is_a_gap_and_no_good_time(report: LagReportData) -> None:
    """In the list, in the bands, in the lines."""
    assert any("nothing was recorded" in gap for gap in report.gaps)
    spans = part(report, "well").spans
    assert any(span.status == "UNKNOWN" and span.to_ms - span.from_ms > 240_000 for span in spans), (
        "five minutes of which nothing is known"
    )
    assert spans[0].from_ms == report.from_ms
    assert spans[-1].to_ms == report.to_ms
    assert all(before.to_ms == after.from_ms for before, after in pairwise(spans))
    assert None in part(report, "well").line.lag


def test_incidents_have_begin_status_and_cause(report: LagReportData) -> None:
    """One for both queues; one that goes on has no end."""
    found = part(report, "poisoned").incidents
    blocked = [each for each in found if each.status == "BLOCKED"]

    assert blocked[-1].to_ms is None
    assert blocked[-1].queue is None
    assert {each.cause for each in blocked} == {"poison message"}
    assert all("offset 3000 was tried" in each.evidence for each in blocked)
    stopped = [each for each in part(report, "stopped").incidents if each.status == "STOP"]
    assert all(each.evidence.startswith("no client of the group has pulled, answered") for each in stopped)
    assert [each.evidence.rpartition("; ")[2] for each in stopped] == [
        f"{lag} messages are behind" for lag in (1800, 9000)
    ], "a sentence of the moment at which it became as bad as it was"
    assert part(report, "well").incidents == part(report, "paused").incidents == []


def test_reset_by_an_operator_is_no_rewind(report: LagReportData) -> None:
    """The journal's event says that it was wanted."""
    assert all(each.status != "REWIND" for each in part(report, "reset").incidents)


def test_page_of_it_is_whole(report: LagReportData) -> None:
    """From files to the page."""
    pytest.importorskip("jinja2")
    pytest.importorskip("matplotlib")
    from lag.report.page.page import render_html

    text = render_html(report)
    assert text.index("poisoned") < text.index("stopped") < text.index("<h2>Overview</h2>")


def test_report_of_what_was_exported_is_the_same(
    spark: Any, shipped: Any, report: LagReportData, journal: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """By Spark, word for word, but for where it was read; the exports are of two days, in several files."""
    need_module("pyarrow", "pip install 'pyddmq[files]'")
    from lag.spark.jobs.report import make_report

    place = ExportPlace(str(tmp_path_factory.mktemp("exported")))
    for until in (40, 80, 130, SNAPSHOTS):
        export(RealDisk(read_only=True), journal, place, JournalQuery(until_ms=START_MS + until * EVERY_MS))
    assert compact(place, "2024-05-05") > 0
    assert len({live.file.date for live in place.live("queues")}) == 2
    parts = tmp_path_factory.mktemp("parts")
    (parts / "date=2024-05-04").mkdir()
    (parts / "date=2024-05-04/before.parquet").touch()
    found = make_report(spark, options(str(parts), exported=[place.url]))

    assert found.groups == report.groups
    assert replace(found, sources=report.sources, gaps=report.gaps) == report
    assert found.gaps == [f"{place.url}: n1: nothing was recorded for 310 s (silent)"]
    assert [gap.partition(": ")[2] for gap in report.gaps] == ["nothing was recorded for 310 s (silent)"]
    check_parts(parts, report)


def check_parts(folder: Path, report: LagReportData) -> None:
    """By date, a row for each queue and part, that add up to what the report draws; other days stay as they are."""
    import pyarrow.parquet as pq

    read_table: Any = pq.read_table
    assert sorted(each.name for each in folder.glob("date=*")) == [f"date=2024-05-0{day}" for day in (4, 5, 6)]
    assert [each.name for each in (folder / "date=2024-05-04").iterdir()] == ["before.parquet"]
    rows = [
        row
        for day in ("2024-05-05", "2024-05-06")
        for row in read_table(folder / f"date={day}", partitioning=None).to_pylist()
    ]
    assert sum(row["samples"] for row in rows) == report.samples
    for group in report.groups:
        mine = [row for row in rows if row["group"] == group.group]
        lags: dict[int, int] = {}
        for row in mine:
            lags[row["from_ms"]] = lags.get(row["from_ms"], 0) + row["lag"]
        drawn = dict(zip(group.line.times_ms, group.line.lag, strict=True))
        assert lags == {time: lag for time, lag in drawn.items() if lag is not None}
        assert sum(row["samples_in_time"] for row in mine) / sum(row["samples"] for row in mine) == pytest.approx(
            group.objective.samples_share
        )
        assert {row["status"] for row in mine} == {span.status for span in group.spans if span.status != "UNKNOWN"}
