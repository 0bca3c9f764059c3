"""The report of exported files without Spark: that of their journals, with what is missing among the files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from broker.runtime.disk import RealDisk
from lag.export.export import export
from lag.export.names import parse
from lag.export.place import ExportFailed, ExportPlace
from lag.journal.reader import JournalQuery
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits
from lag.report.data import LagReportData
from lag.report.engine.exported import exported_at_most
from lag.report.engine.local import make_locally
from lag.report.options import Input, ReportOptions, ReportWindow
from lag.rules.limits import LagLimits
from lag.samples import EventKind, LagEvent, QueueSample
from tests.conftest import need_module
from tests.unit.lag.rules.cases import BEGIN
from tests.unit.lag.wild_queues import wild_queue

EVERY_MS = 10_000
DISK = RealDisk(read_only=True)


@pytest.fixture(autouse=True)
def _pyarrow() -> None:
    need_module("pyarrow", "pip install 'pyddmq[files]'")


def options(given: Input, rounds: int) -> ReportOptions:
    """Return options of a window over some rounds."""
    window = ReportWindow(from_ms=BEGIN, to_ms=BEGIN + rounds * EVERY_MS)
    return ReportOptions(given=given, window=window, limits=LagLimits(), compared=False)


def exported(tmp_path: Path, rounds: int, without: range = range(0), until: int | None = None) -> ExportPlace:
    """Write a journal in which some rounds are missing, and export it."""
    writer = JournalWriter(
        RealDisk(), f"{tmp_path}/j", JournalOrigin(cluster="c", node="n 1", epoch=7), WriterLimits(free_bytes_min=0)
    )
    for number in range(rounds):
        now = BEGIN + number * EVERY_MS
        if number not in without:
            sample = QueueSample(time_ms=now, start=0, end=90 + number, committed=90, held_reason="x" * (number % 3))
            assert writer.write(now, [(("g", "t", 3), sample)])
    writer.close(BEGIN + rounds * EVERY_MS)
    place = ExportPlace(f"{tmp_path}/e")
    export(DISK, f"{tmp_path}/j", place, JournalQuery(until_ms=until))
    return place


def report_of(place: ExportPlace, rounds: int) -> LagReportData:
    """Return the report of exported files."""
    return make_locally(DISK, options(Input(exported=[place.url]), rounds))


def test_report_is_that_of_the_journal(tmp_path: Path) -> None:
    """Of random queues with an event, figure by figure."""
    random, rounds = Random(4714), 90
    queues = {("g", f"t{number % 3}", number): wild_queue(random) for number in range(30)}
    writer = JournalWriter(
        RealDisk(), f"{tmp_path}/j", JournalOrigin(cluster="c", node="n", epoch=7), WriterLimits(free_bytes_min=0)
    )
    writer.note(LagEvent(time_ms=BEGIN + 25_000, kind=EventKind.RESET, group="g", topic="t1", detail="by hand"))
    for number in range(rounds):
        now = BEGIN + number * EVERY_MS
        rows = [
            (key, each) for key, samples in queues.items() for each in samples if now - EVERY_MS < each.time_ms <= now
        ]
        assert writer.write(now, rows or [(("closing", "t", 0), QueueSample(time_ms=now))])
    writer.close(BEGIN + rounds * EVERY_MS)
    place = ExportPlace(f"{tmp_path}/e")
    export(DISK, f"{tmp_path}/j", place)
    of_journal = make_locally(DISK, options(Input(journals=[f"{tmp_path}/j"]), rounds))
    of_files = report_of(place, rounds)
    assert len({part.status for part in of_files.groups}) == 2
    assert any(part.incidents for part in of_files.groups)
    assert replace(of_files, sources=of_journal.sources, gaps=of_journal.gaps) == of_journal
    assert exported_at_most([place.url], BEGIN, BEGIN + 1) >= of_files.samples


def test_times_without_samples_are_gaps(tmp_path: Path) -> None:
    """Which file names do not explain."""
    place = exported(tmp_path, 40, without=range(20, 30))
    assert report_of(place, 40).gaps == [f"{place.url}: n 1: nothing was recorded for 110 s (silent)"]


def test_two_nodes_of_one_name_are_told(tmp_path: Path) -> None:
    """Whose starts overlap; the starts of one node follow each other."""
    place = ExportPlace(f"{tmp_path}/e")
    for epoch, rounds in ((1, range(20)), (2, range(20, 40)), (3, range(10, 15))):
        folder = f"{tmp_path}/{epoch}"
        writer = JournalWriter(
            RealDisk(), folder, JournalOrigin(cluster="c", node="n 1", epoch=epoch), WriterLimits(free_bytes_min=0)
        )
        for number in rounds:
            now = BEGIN + number * EVERY_MS
            assert writer.write(now, [(("g", "t", 3), QueueSample(time_ms=now, start=0, end=90, committed=90))])
        writer.close(BEGIN + 40 * EVERY_MS)
        export(DISK, folder, place)
        gaps = report_of(place, 40).gaps
        assert [gap.startswith(f"{place.url}: n 1: two starts") for gap in gaps] == [True] * (epoch == 3)


def test_snapshots_that_were_not_exported_are_gaps(tmp_path: Path) -> None:
    """By the names of the files, and not as silence besides; a file that cannot be read is one, too."""
    place = exported(tmp_path, 40, until=BEGIN + 10 * EVERY_MS)
    [name] = place.names("queues")
    file = parse(name)
    assert file is not None
    late = file._replace(first=15, last=18)
    Path(place.url, late.name).write_bytes(b"not Parquet")
    later = ExportPlace(f"{tmp_path}/later")
    export(DISK, f"{tmp_path}/j", later, JournalQuery(since_ms=BEGIN + 30 * EVERY_MS))
    for each in later.names("queues"):
        Path(later.url, each).rename(Path(place.url, each))
    assert report_of(place, 40).gaps == [
        f"{place.url}: {late.name} cannot be read (damaged)",
        f"{place.url}: n 1: 20 snapshots are missing (dropped)",
    ]


def test_place_of_nothing_is_refused(tmp_path: Path) -> None:
    """With what would make it."""
    with pytest.raises(ExportFailed, match="has no exported samples; `pyddmq lag export --to"):
        report_of(ExportPlace(str(tmp_path)), 3)


def test_secret_of_a_place_is_in_no_text() -> None:
    """Of a report, or of an error."""
    assert Input(exported=["s3://KEY:secret@bucket/lag"]).sources == ["s3://***@bucket/lag"]
    for url in ("s3://KEY:secret @bucket/lag", "none://KEY:secret@bucket/lag"):
        with pytest.raises(ExportFailed) as caught:
            ExportPlace(url)
        assert "***@bucket/lag is not a valid place for an export" in str(caught.value)
        assert "secret" not in str(caught.value)
