"""A report over journals that are not whole: never a good word of what nobody recorded, always the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.runtime.disk import RealDisk
from lag.export.export import export
from lag.export.place import ExportPlace
from lag.journal.reader import Wanted
from lag.journal.writer import JournalWriter, Origin, WriterLimits
from lag.report.data import Report
from tests.spark.test_jobs_report import EVERY_MS, START_MS, sample
from tests.unit.lag.export.parquet import need_pyarrow

SNAPSHOTS = 60
HOUR_MS = 3_600_000


def written(folder: Path, node: str, *, ahead_ms: int = 0, groups: dict[str, tuple[int, int]]) -> None:
    """Write ten minutes of groups that keep up, each in the snapshots from one number to before another."""
    origin = Origin(cluster="c", node=node, epoch=1)
    writer = JournalWriter(RealDisk(), str(folder), origin, WriterLimits(free_bytes_min=0))
    for number in range(SNAPSHOTS):
        now = START_MS + number * EVERY_MS + ahead_ms
        row = sample(now, end=1_000 + number * 100, committed=998 + number * 100, committed_ms=now - 300)
        assert writer.write(
            now, [((name, "t", 0), row) for name, (first, end) in groups.items() if first <= number < end]
        )
    writer.close(START_MS + SNAPSHOTS * EVERY_MS + ahead_ms)


@pytest.fixture(scope="module")
def report(spark: Any, shipped: Any, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Make the report of three nodes: one died in mid-snapshot, one's clock is an hour ahead, one is well."""
    from lag.rules.limits import Limits
    from lag.spark.jobs.history import Window
    from lag.spark.jobs.inputs import Input
    from lag.spark.jobs.report import ReportOptions, make_report

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
    window = Window(from_ms=START_MS, to_ms=START_MS + SNAPSHOTS * EVERY_MS)
    given = Input(journals=[str(root / name) for name in ("died", "ahead", "well")])
    return make_report(spark, ReportOptions(given=given, window=window, limits=Limits(), compared=False))


def test_only_what_was_recorded_to_the_end_is_well(report: Report) -> None:
    """A node that died, a queue that left, one that has just come, one known only from a clock that is ahead."""
    assert {part.group: part.status for part in report.groups} == {
        "well": "OK",
        "cut off": "UNKNOWN",
        "left": "UNKNOWN",
        "came": "INCOMPLETE",
        "of the future": "UNKNOWN",
    }
    told = {part.group: part.evidence for part in report.groups}
    assert "the newest sample is too old" in told["cut off"]
    assert "too few samples" in told["came"]
    assert all(part.cause == "" for part in report.groups)


def test_reasons_stand_in_the_report(report: Report) -> None:
    """Each with its folder."""
    for folder, reason in (("died", "torn"), ("died", "foreign")):
        assert any(f"/{folder}: " in gap and f"({reason})" in gap for gap in report.gaps), report.gaps


def test_exported_files_that_are_none_are_left_out_and_told(spark: Any, shipped: Any, tmp_path: Path) -> None:
    """Cut, of another program, with other columns, made too late: what they should have is not known, the rest is."""
    need_pyarrow()
    import pyarrow as pa
    from pyarrow import parquet

    from lag.rules.limits import Limits
    from lag.spark.jobs.history import Window
    from lag.spark.jobs.inputs import Input
    from lag.spark.jobs.report import ReportOptions, make_report

    place = ExportPlace(str(tmp_path / "exports"))
    for node in ("cut", "foreign", "columns", "well"):
        written(tmp_path / node, node, groups={f"of {node}": (0, SNAPSHOTS)})
        for until in (20, 40, SNAPSHOTS):
            export(RealDisk(), str(tmp_path / node), place, Wanted(until_ms=START_MS + until * EVERY_MS))
    files = {(path.name.split(".")[0], path.name.split(".")[2][:12].lstrip("0")): path
             for path in (tmp_path / "exports" / "queues").glob("*/*.parquet")}  # fmt: skip
    middle = files["cut", "20"]
    middle.write_bytes(middle.read_bytes()[:-40])
    files["foreign", "40"].write_bytes(b"another program's" * 50)
    write_table: Any = parquet.write_table
    write_table(pa.table({"a": [1, 2, 3]}), files["columns", "40"])
    window = Window(from_ms=START_MS, to_ms=START_MS + SNAPSHOTS * EVERY_MS)
    given = Input(exported=[place.url])
    report = make_report(spark, ReportOptions(given=given, window=window, limits=Limits(), compared=False))

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
