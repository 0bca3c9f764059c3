"""What was usual at the hour of a finding: the same hour of the weeks before, by hand-made journals."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lag.report import texts
from lag.report.data import LagReportData, Usual
from lag.report.engine.baselines import HOUR_MS, WEEK_MS
from lag.report.engine.local import make_locally
from lag.report.options import Input, ReportOptions, ReportWindow
from lag.report.page.markdown import render_markdown
from lag.report.page.page import render_html
from lag.rules.limits import LagLimits
from pyddmq.testing.sim_disk import SimDisk
from tests.unit.lag.report.test_local import sample, write
from tests.unit.lag.samples import NOW_MS

EVERY_MS = 60_000
PLACE, OTHER = ("g", "t", 0), ("g", "t", 1)


def hour(end_ms: int, lag: int, minutes: int = 60) -> list[Any]:
    """Return rounds of the last minutes of an hour: 30 messages a minute in each of two queues, one of them behind."""
    rounds: list[Any] = []
    for number in range(minutes):
        now = end_ms - (minutes - number) * EVERY_MS
        end = 10_000 + 30 * number
        late: dict[str, Any] = {"committed": end - lag, "committed_ms": now - lag * 100 if lag else None}
        rounds.append([(PLACE, sample(now, end=end, **late)), (OTHER, sample(now, end=end, committed=end))])
    return rounds


def made(weeks: dict[int, list[Any]], to_ms: int = NOW_MS) -> LagReportData:
    """Make the report of an hour that ends late, with journals of earlier weeks."""
    disk = SimDisk()
    for week in sorted(weeks, reverse=True):
        write(disk, "j" * (9 - week), weeks[week])
    folders = ["j" * (9 - week) for week in weeks]
    options = ReportOptions(
        given=Input(journals=folders), window=ReportWindow(from_ms=to_ms - HOUR_MS, to_ms=to_ms), limits=LagLimits(),
        compared=False,
    )  # fmt: skip
    return make_locally(disk, options)


def usual(report: LagReportData) -> Usual | None:
    """Return what was usual, of the finding of a group that is behind."""
    return next(each for each in report.findings if each.groups == ["g"]).usual


def test_usual_is_the_median_of_the_weeks_that_are_known() -> None:
    """Of four weeks one has no journal and one only ten minutes of the hour; of 400 and 900 the lower is taken."""
    weeks = {week: hour(NOW_MS - week * WEEK_MS, lag) for week, lag in ((0, 5_000), (1, 400), (2, 900))}
    report = made({**weeks, 4: hour(NOW_MS - 4 * WEEK_MS, 7_000, minutes=10)})
    assert usual(report) == Usual(lag=400, seconds=40.0, produced=1.0, weeks=2)
    said = "sual at this hour: peak lag 400, the oldest message 40 s, produced 1/s (2 of 4 weeks known)"
    assert said in render_markdown(report)
    assert said in render_html(report)


def test_usual_is_absent_where_history_does_not_reach() -> None:
    """No figure is made up, and an hour beside it is not it."""
    assert usual(made({0: hour(NOW_MS, 5_000)})) is None
    beside = made({0: hour(NOW_MS, 5_000), 1: hour(NOW_MS - WEEK_MS - HOUR_MS, 400)})
    assert usual(beside) is None
    assert "sual at this hour" not in render_markdown(beside)


def test_usual_of_several_groups_names_its_own() -> None:
    """The first of them."""
    report = made({0: hour(NOW_MS, 5_000), 1: hour(NOW_MS - WEEK_MS, 0)})
    [finding] = [each for each in report.findings if each.groups == ["g"]]
    assert texts.usual(replace(finding, groups=["g", "h"])).startswith("usual at this hour for g: peak lag 0")


@pytest.mark.parametrize("later_ms", [0, 30 * 60_000])
def test_hour_ends_with_the_finding(later_ms: int) -> None:
    """Also where the window goes on: an ended finding is compared with the hour that it ended in."""
    here = hour(NOW_MS, 5_000)
    calm: list[Any] = []
    for number in range(30):
        row = sample(NOW_MS + number * EVERY_MS, end=99_999, committed=99_999)
        calm.append([(PLACE, row), (OTHER, row)])
    report = made({0: here + (calm if later_ms else []), 1: hour(NOW_MS - WEEK_MS, 400)}, NOW_MS + later_ms)
    found = usual(report)
    assert found is not None
    assert (found.lag, found.weeks) == (400, 1)
