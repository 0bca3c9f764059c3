"""A report over journals that are not whole: never a good word of what nobody recorded, always the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.runtime.disk import RealDisk
from lag.export.export import export
from lag.export.place import ExportPlace
from lag.journal.reader import JournalQuery
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits
from lag.report.data import LagReportData
from lag.report.engine.local import make_locally
from lag.report.options import Input, ReportOptions, ReportWindow
from lag.rules.limits import LagLimits
from lag.samples import EventKind, LagEvent
from tests.conftest import need_module
from tests.spark.test_jobs_report import EVERY_MS, START_MS, sample

SNAPSHOTS = 60
HOUR_MS = 3_600_000
DISK = RealDisk(read_only=True)


def written(folder: Path, node: str, *, ahead_ms: int = 0, groups: dict[str, tuple[int, int]]) -> None:
    """Write ten minutes of groups that keep up, each in the snapshots from one number to before another."""
    origin = JournalOrigin(cluster="c", node=node, epoch=1)
    writer = JournalWriter(RealDisk(), str(folder), origin, WriterLimits(free_bytes_min=0))
    for number in range(SNAPSHOTS):
        now = START_MS + number * EVERY_MS + ahead_ms
        row = sample(now, end=1_000 + number * 100, committed=998 + number * 100, committed_ms=now - 300)
        assert writer.write(
            now, [((name, "t", 0), row) for name, (first, end) in groups.items() if first <= number < end]
        )
    writer.close(START_MS + SNAPSHOTS * EVERY_MS + ahead_ms)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> LagReportData:
    """Make the report of three nodes: one died in mid-snapshot, one's clock is an hour ahead, one is well."""
    root = tmp_path_factory.mktemp("nodes")
    written(root / "died", "died", groups={"cut off": (0, SNAPSHOTS)})
    [file] = (root / "died").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2 + 1])
    (root / "died" / "raw.0000000009.lag").write_bytes(b"another program's" * 50)
    written(root / "ahead", "ahead", ahead_ms=HOUR_MS, groups={"of the future": (0, SNAPSHOTS)})
    written(
        root / "well",
        "well",
        groups={"well": (0, SNAPSHOTS), "left": (0, 30), "came": (SNAPSHOTS - 2, SNAPSHOTS), "of the future": (0, 20)},
    )
    window = ReportWindow(from_ms=START_MS, to_ms=START_MS + SNAPSHOTS * EVERY_MS)
    given = Input(journals=[str(root / name) for name in ("died", "ahead", "well")])
    return make_locally(DISK, ReportOptions(given=given, window=window, limits=LagLimits(), compared=False))


def test_only_what_was_recorded_to_the_end_is_well(report: LagReportData) -> None:
    """A node that died, a queue that left, one that has just come, one known only from a clock that is ahead."""
    assert {part.group: part.status for part in report.groups} == {
        "well": "OK",
        "cut off": "UNKNOWN",
        "left": "UNKNOWN",
        "came": "INCOMPLETE",
        "of the future": "UNKNOWN",
    }
    reported = {part.group: part.evidence for part in report.groups}
    assert "the newest sample is too old" in reported["cut off"]
    assert "too few samples" in reported["came"]
    assert all(part.cause == "" for part in report.groups)


def test_reasons_stand_in_the_report(report: LagReportData) -> None:
    """Each with its folder."""
    for folder, reason in (("died", "torn"), ("died", "foreign")):
        assert any(f"/{folder}: " in gap and f"({reason})" in gap for gap in report.gaps), report.gaps


STEP = 540
"""The round at which a clock is set, of twice as many."""
STOPPED = STEP - 120


def stepped(folder: Path, node: str, by_ms: int, step: int = STEP) -> None:
    """Write some hours of a node whose clock is set after half of them.

    One group keeps up; one reads nothing any more from some time before the step on. A message has the time that
    the store gave it, which never goes back.
    """
    writer = JournalWriter(
        RealDisk(), str(folder), JournalOrigin(cluster="c", node=node, epoch=1), WriterLimits(free_bytes_min=0)
    )
    newest_ms = stopped_ms = 0
    stopped = step - 120 if step > 120 else step // 2
    for number in range(2 * step):
        now = START_MS + number * EVERY_MS + (by_ms if number >= step else 0)
        if number == step:
            writer.note(LagEvent(time_ms=now - 5, kind=EventKind.CLOCK, detail=f"{by_ms:+d} ms"))
        newest_ms = max(newest_ms, now - 300)
        end = 1_000 + number * 100
        well = late = sample(now, end=end, committed=end - 2, committed_ms=newest_ms, end_ms=newest_ms)
        if number == stopped:
            stopped_ms = newest_ms
        if number >= stopped:
            late = sample(
                now, end=end, committed=1_000 + stopped * 100 - 102, committed_ms=stopped_ms, end_ms=newest_ms,
                moved_ms=stopped_ms, answered_ms=stopped_ms, asked_ms=stopped_ms, holders=0,
            )  # fmt: skip
        assert writer.write(now, [((f"{node}: well", "t", 0), well), ((f"{node}: stands", "t", 0), late)])
    writer.close(now)


def test_what_a_step_of_a_clock_makes_doubtful_is_unknown(tmp_path: Path) -> None:
    """Set back or forward by an hour: no rewind, no loss, no age that is wrong by it; the reason is in the report."""
    for node, by_ms in (("back", -HOUR_MS), ("forward", HOUR_MS)):
        stepped(tmp_path / node, node, by_ms)
    step_ms = START_MS + STEP * EVERY_MS
    window = ReportWindow(from_ms=START_MS, to_ms=step_ms + STEP * EVERY_MS + HOUR_MS)
    given = Input(journals=[str(tmp_path / "back"), str(tmp_path / "forward")])
    report = make_locally(DISK, ReportOptions(given=given, window=window, limits=LagLimits(), compared=False))
    parts = {part.group: part for part in report.groups}
    assert {group: part.status for group, part in parts.items() if part.status != "UNKNOWN"} == {
        "forward: well": "OK",
        "forward: stands": "STOP",
    }, "what the other one recorded ends two hours before the window does"
    doubtful = {"back": (step_ms - HOUR_MS, step_ms), "forward": (step_ms, step_ms + HOUR_MS + LagLimits().window_ms)}
    for group, part in parts.items():
        node, _, kind = group.partition(": ")
        first, last = doubtful[node]
        assert {each.status for each in part.spans if each.from_ms >= first and each.to_ms <= last} <= {"UNKNOWN"}
        assert [each for each in part.spans if each.from_ms <= first + 60_000 and each.to_ms >= last - 60_000]
        assert {each.status for each in part.incidents} <= ({"STOP"} if kind == "stands" else set()), group
        assert part.lost == 0
        assert part.peak_seconds is not None
        assert part.peak_seconds <= (0.3 if kind == "well" else (STEP - STOPPED) * EVERY_MS / 1000)
        assert any(f"{node}: its clock was set {node} by 1 h at " in gap and "(clock)" in gap for gap in report.gaps)
    stands = parts["forward: stands"]
    assert (stands.lag, stands.seconds) == ((2 * STEP - STOPPED) * 100 + 2, None)


def test_exported_files_that_are_none_are_left_out_and_told(spark: Any, shipped: Any, tmp_path: Path) -> None:
    """Cut, of another program, with other columns, made too late: what they should have is not known, the rest is."""
    need_module("pyarrow", "pip install 'pyddmq[files]'")
    import pyarrow as pa
    from pyarrow import parquet

    from lag.spark.jobs.report import make_report

    place = ExportPlace(str(tmp_path / "exports"))
    for node in ("cut", "foreign", "columns", "well"):
        written(tmp_path / node, node, groups={f"of {node}": (0, SNAPSHOTS)})
        for until in (20, 40, SNAPSHOTS):
            export(RealDisk(), str(tmp_path / node), place, JournalQuery(until_ms=START_MS + until * EVERY_MS))
    files = {(path.name.split(".")[0], path.name.split(".")[2][:12].lstrip("0")): path
             for path in (tmp_path / "exports" / "queues").glob("*/*.parquet")}  # fmt: skip
    middle = files["cut", "20"]
    middle.write_bytes(middle.read_bytes()[:-40])
    files["foreign", "40"].write_bytes(b"another program's" * 50)
    write_table: Any = parquet.write_table
    write_table(pa.table({"a": [1, 2, 3]}), files["columns", "40"])
    window = ReportWindow(from_ms=START_MS, to_ms=START_MS + SNAPSHOTS * EVERY_MS)
    given = Input(exported=[place.url])
    report = make_report(spark, ReportOptions(given=given, window=window, limits=LagLimits(), compared=False))

    found = {part.group: part for part in report.groups}
    assert {group: part.status for group, part in found.items()} == {
        "of well": "OK",
        "of cut": "OK",
        "of foreign": "UNKNOWN",
        "of columns": "UNKNOWN",
    }
    lost = (START_MS + 22 * EVERY_MS, START_MS + 38 * EVERY_MS)
    spans = [each for each in found["of cut"].spans if each.from_ms <= lost[0] and each.to_ms >= lost[1]]
    assert [each.status for each in spans] == ["UNKNOWN"], "nobody knows of the time of the file that was cut"
    for path in (middle, files["foreign", "40"]):
        assert any(path.name in gap and gap.endswith("cannot be read (damaged)") for gap in report.gaps), report.gaps
    assert any(": cut: nothing was recorded for" in gap or ": cut: 20 snapshots" in gap for gap in report.gaps)
