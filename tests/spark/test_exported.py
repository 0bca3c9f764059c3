"""Exported Parquet, read by Spark: each row that counts once, of the days asked for."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from broker.runtime.disk import RealDisk
from lag.export.export import compact, export
from lag.export.missing import mixed
from lag.export.place import ExportPlace
from lag.export.tables import arrow
from lag.journal.reader import EventRow, JournalQuery, JournalReader, QueueRow
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits
from lag.samples import SAMPLE_FIELDS, EventKind, LagEvent, QueueSample
from tests.conftest import need_module

DAY_MS = 86_400_000
NOON_MS = 19_848 * DAY_MS + DAY_MS // 2
"""2024-05-05, 12:00 UTC."""
EVERY_MS = 2 * 3_600_000
SNAPSHOTS = 36
END_MS = NOON_MS + SNAPSHOTS * EVERY_MS
KEY = ("cluster", "node", "group", "topic", "queue", "epoch", "sequence")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Write three days of two nodes; the second misses six hours."""
    need_module("pyarrow", "pip install 'pyddmq[files]'")
    found = {}
    for node in ("n 1", "n2"):
        folder = found[node] = str(tmp_path_factory.mktemp("journal"))
        origin = JournalOrigin(cluster="c", node=node, epoch=(1 << 64) - 7)
        writer = JournalWriter(RealDisk(), folder, origin, WriterLimits(free_bytes_min=0))
        for number in range(SNAPSHOTS):
            now = NOON_MS + number * EVERY_MS
            if number == 7:
                writer.note(LagEvent(time_ms=now - 1, kind=EventKind.RESET, group="a", detail="by hand"))
                writer.note(LagEvent(time_ms=now - 1, kind=EventKind.RELOAD))
            sample = QueueSample(time_ms=now, start=0, end=number, matched=0.5, held_reason="x")
            if node == "n 1" or not 20 <= number < 30:
                assert writer.write(now, [((group, "t", 3), sample) for group in ("a", "it's")])
        writer.close(END_MS)
    return found


@pytest.fixture(scope="module")
def place(folders: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> ExportPlace:
    """Export both to one place, in a folder whose name has what patterns are made of."""
    place = ExportPlace(f"{tmp_path_factory.mktemp('exports')}/all [x] {{1}}*")
    for folder in folders.values():
        for until in (10, 20, SNAPSHOTS):
            export(RealDisk(read_only=True), folder, place, JournalQuery(until_ms=NOON_MS + until * EVERY_MS))
    return place


def test_rows_are_those_of_the_journals(spark: Any, shipped: Any, folders: dict[str, str], place: ExportPlace) -> None:
    """Samples and events of a window, of all groups or some, with the columns of the journals' source."""
    from lag.report.options import Input
    from lag.spark.jobs import inputs
    from lag.spark.sources.journal_rows import ROWS

    wanted = JournalQuery(since_ms=NOON_MS + 3 * EVERY_MS, until_ms=NOON_MS + 15 * EVERY_MS, groups=frozenset({"it's"}))
    items = [item for each in folders.values() for item in JournalReader(RealDisk(), each).read(wanted)]
    given = Input(exported=[place.url], groups=wanted.groups)
    samples = inputs.samples(spark, given, wanted.since_ms or 0, wanted.until_ms or 0)
    events = inputs.events(spark, given, wanted.since_ms or 0, wanted.until_ms or 0)

    assert sorted(samples.columns) == sorted(ROWS["samples"])
    assert {row["tier"] for row in samples.select("tier").distinct().collect()} == {"raw"}
    found = {tuple(row[name] for name in (*KEY, *SAMPLE_FIELDS)) for row in samples.collect()}
    assert len(found) == 24
    assert found == {
        (*astuple(item.key), f"{item.epoch:016x}", item.sequence, *astuple(item.sample))
        for item in items
        if isinstance(item, QueueRow)
    }
    assert sorted((row["node"], row["kind"]) for row in events.collect()) == sorted(
        (item.node, item.event.kind.value) for item in items if isinstance(item, EventRow)
    )


def test_days_that_are_not_asked_for_are_not_read(spark: Any, shipped: Any, place: ExportPlace) -> None:
    """Nor files that another contains, nor what is no exported file."""
    from lag.spark.sources.exported import exported

    day = NOON_MS // DAY_MS * DAY_MS + DAY_MS
    folder = Path(place.url) / "queues" / "date=2024-05-06"
    (folder / "notes.parquet").write_text("mine")
    before = exported(spark, place.url, "queues", since_ms=day, until_ms=day + DAY_MS)
    counted = before.count()
    assert compact(place, "2024-05-06") > 0
    after = exported(spark, place.url, "queues", since_ms=day + 3_600_000, until_ms=day + DAY_MS - 3_600_000)
    assert {file.split("/")[-2] for file in after.inputFiles()} == {"date=2024-05-06"}
    assert len(after.inputFiles()) == 2, "one of each node"
    assert counted == 48
    assert exported(spark, place.url, "queues", since_ms=day, until_ms=day + DAY_MS).count() == counted
    assert exported(spark, place.url, "queues", since_ms=0, until_ms=1_000).count() == 0


def test_overlapping_files_give_each_row_once(
    spark: Any, shipped: Any, folders: dict[str, str], tmp_path: Path
) -> None:
    """As two exports at a time leave them."""
    from lag.spark.sources.exported import exported

    disk, first = RealDisk(read_only=True), ExportPlace(f"{tmp_path}/first")
    export(disk, folders["n2"], first, JournalQuery(until_ms=NOON_MS + 4 * EVERY_MS))
    second = ExportPlace(f"{tmp_path}/second")
    export(disk, folders["n2"], second, JournalQuery(since_ms=NOON_MS + 2 * EVERY_MS, until_ms=NOON_MS + 6 * EVERY_MS))
    for name in second.names("queues"):
        (tmp_path / "second" / name).rename(tmp_path / "first" / name)
    found = exported(spark, first.url, "queues", since_ms=0, until_ms=END_MS)
    assert sorted(row.sequence for row in found.where("`group` = 'a'").collect()) == list(range(6))


def test_two_nodes_of_one_name_are_told(spark: Any, shipped: Any, tmp_path: Path) -> None:
    """Whose starts overlap, with the sentence of the other engine."""
    from lag.spark.sources.exported import exported_gaps

    place = ExportPlace(f"{tmp_path}/exports")
    for epoch in (1, 2):
        folder = f"{tmp_path}/{epoch}"
        origin = JournalOrigin(cluster="c", node="n", epoch=epoch)
        writer = JournalWriter(RealDisk(), folder, origin, WriterLimits(free_bytes_min=0))
        for number in range(9):
            now = NOON_MS + number * EVERY_MS + epoch * EVERY_MS // 2
            assert writer.write(now, [(("g", "t", 0), QueueSample(time_ms=now))])
        writer.close(NOON_MS + 10 * EVERY_MS)
        export(RealDisk(read_only=True), folder, place)
    found = exported_gaps(spark, place.url, since_ms=NOON_MS, until_ms=END_MS)
    begins = [NOON_MS + epoch * EVERY_MS // 2 for epoch in (1, 2)]
    starts = [("c", "n", begin, begin + 8 * EVERY_MS) for begin in begins]
    assert found == [(begin, f"{place.url}: {text}") for begin, text in mixed(starts, NOON_MS)] != []


def test_what_is_missing_is_told(spark: Any, shipped: Any, place: ExportPlace, tmp_path: Path) -> None:
    """Times without samples, and snapshots that were not exported; a place of nothing is refused."""
    from lag.spark.sources.exported import exported_gaps
    from lag.spark.sources.options import OptionRefused

    begin = NOON_MS + 19 * EVERY_MS
    found = exported_gaps(spark, place.url, since_ms=NOON_MS, until_ms=END_MS)
    assert found == [(begin, f"{place.url}: n2: nothing was recorded for {11 * EVERY_MS // 1000} s (silent)")]
    name = next(each for each in place.names("queues") if "/date=2024-05-05/n2" in each)
    with pytest.raises(OptionRefused, match="has no exported samples; `pyddmq lag export --to"):
        exported_gaps(spark, str(tmp_path), since_ms=NOON_MS, until_ms=END_MS)
    other = tmp_path / "queues" / "date=2024-05-05"
    other.mkdir(parents=True)
    for first, last in ((0, 1), (4, 5)):
        file = Path(name).name.split(".")[0:2]
        (other / f"{'.'.join(file)}.{first:012d}-{last:012d}.parquet").write_bytes(
            (Path(place.url) / name).read_bytes()
        )
    assert (NOON_MS, f"{tmp_path}: n2: 2 snapshots are missing (dropped)") in exported_gaps(
        spark, str(tmp_path), since_ms=NOON_MS, until_ms=END_MS
    )


def test_columns_that_an_earlier_version_did_not_have_have_their_defaults(
    spark: Any, shipped: Any, tmp_path: Path
) -> None:
    """Without how many were skipped nothing would be known of how many were finished."""
    from lag.spark.sources.exported import exported

    writer = JournalWriter(
        RealDisk(), f"{tmp_path}/j", JournalOrigin(cluster="c", node="n", epoch=1), WriterLimits(free_bytes_min=0)
    )
    assert writer.write(NOON_MS, [(("g", "t", 0), QueueSample(time_ms=NOON_MS, start=0, end=9, committed=9))])
    writer.close(NOON_MS)
    place = ExportPlace(f"{tmp_path}/e")
    export(RealDisk(read_only=True), f"{tmp_path}/j", place)
    pq, [name] = arrow().parquet, place.names("queues")
    later = ["skipped", "failing", "succeeded_ms", "base"]
    pq.write_table(pq.ParquetFile(f"{place.url}/{name}").read().drop_columns(later), f"{place.url}/{name}")
    rows = exported(spark, place.url, "queues", since_ms=NOON_MS, until_ms=END_MS)
    [row] = rows.collect()
    assert [row[each] for each in later] == [0, 0, None, None]
