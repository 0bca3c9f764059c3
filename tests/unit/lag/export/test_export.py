"""Journals as Parquet: every sample once, whatever was killed, by whichever node."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from broker.runtime.disk import RealDisk
from lag.blocks import GapKind
from lag.export.export import compact, date_of, export
from lag.export.names import ExportFile, parse
from lag.export.place import ExportFailed, ExportPlace
from lag.export.tables import arrow
from lag.journal.columns import QUEUES
from lag.journal.reader import JournalQuery
from lag.journal.tiers import DAY_MS
from lag.journal.writer import JournalOrigin, JournalWriter
from lag.samples import SAMPLE_FIELDS, EventKind, LagEvent, QueueSample, ScheduledSample
from pyddmq.testing.sim_disk import SimDisk
from tests.conftest import need_module
from tests.unit.lag.journal.grounds import FOLDER, LIMITS, Rows, content, put, rows_of, writer
from tests.unit.lag.samples import NOW_MS, fleet

DAY = NOW_MS // DAY_MS * DAY_MS


@pytest.fixture(autouse=True)
def _pyarrow() -> None:
    need_module("pyarrow", "pip install 'pyddmq[files]'")


def journal(node: str = "n1", *, epoch: int = 1, snapshots: int = 6) -> SimDisk:
    """Return a journal of some snapshots."""
    disk = SimDisk()
    made = JournalWriter(disk, FOLDER, JournalOrigin(cluster="c", node=node, epoch=epoch), LIMITS)
    for number, rows in enumerate(fleet(9, 4, snapshots)):
        if number == 2:
            made.note(LagEvent(time_ms=NOW_MS, kind=EventKind.PAUSE, group="g", detail="by hand"))
        time_ms = rows[0][1].time_ms
        made.write(time_ms, rows, [ScheduledSample(time_ms=time_ms, kind="timer", pending=3)] if number < 2 else [])
    return disk


def table_of(place: ExportPlace, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table that count."""
    return [row for live in place.live(table) for row in place.read(live).to_pylist()]


def samples_of(place: ExportPlace) -> Rows:
    """Return the samples that count, in the order of their files."""
    return [
        (
            (row["group"], row["topic"], row["queue"]),
            QueueSample(**{name: row[name] for name in SAMPLE_FIELDS}),
        )
        for row in table_of(place, "queues")
    ]


def test_every_sample_is_there_with_its_origin(tmp_path: Path) -> None:
    """As it was recorded, null where it was null; what waits and what happened beside it."""
    disk, place = journal(epoch=(1 << 64) - 2), ExportPlace(str(tmp_path))
    report = export(disk, FOLDER, place)
    assert (report.files, report.rows, report.snapshots, report.known) == (3, 24, 6, 0)
    assert samples_of(place) == rows_of(disk)
    rows = table_of(place, "queues")
    assert {(row["cluster"], row["node"], row["epoch"]) for row in rows} == {("c", "n1", "fffffffffffffffe")}
    assert [row["sequence"] for row in rows] == [number for number in range(6) for _ in range(4)]
    assert [(row["kind"], row["group"], row["sequence"]) for row in table_of(place, "events")] == [("pause", "g", 2)]
    assert [(row["kind"], row["pending"]) for row in table_of(place, "scheduled")] == [("timer", 3)] * 2


def test_second_run_exports_only_what_is_new(tmp_path: Path) -> None:
    """Also while the node writes."""
    disk, place = journal(snapshots=3), ExportPlace(str(tmp_path))
    assert export(disk, FOLDER, place).snapshots == 3
    again = export(disk, FOLDER, place)
    assert (again.files, again.known) == (0, 3)
    more = journal(snapshots=6)
    report = export(more, FOLDER, place)
    assert (report.snapshots, report.known) == (3, 3)
    assert samples_of(place) == rows_of(more)


def test_several_nodes_and_starts_share_a_place(tmp_path: Path) -> None:
    """Each has files of its own."""
    place = ExportPlace(str(tmp_path))
    for node, epoch in (("n1", 1), ("n1", 2), ("n 2/ü", 1)):
        export(journal(node, epoch=epoch), FOLDER, place)
    counts = Counter((row["node"], row["epoch"]) for row in table_of(place, "queues"))
    assert counts == dict.fromkeys([("n1", "0" * 15 + "1"), ("n1", "0" * 15 + "2"), ("n 2/ü", "0" * 15 + "1")], 24)


def test_days_have_folders_of_their_own(tmp_path: Path) -> None:
    """By UTC; time ranges are exact."""
    disk, place = SimDisk(), ExportPlace(str(tmp_path))
    made = writer(disk)
    for time_ms in (DAY - 1, DAY, DAY + 1, DAY + DAY_MS):
        made.write(time_ms, [(("g", "t", 0), QueueSample(time_ms=time_ms))])
    export(disk, FOLDER, place, JournalQuery(since_ms=DAY - 1, until_ms=DAY + DAY_MS))
    dates = {name.split("/")[1] for name in place.names("queues")}
    assert dates == {f"date={date_of(DAY - 1)}", f"date={date_of(DAY)}"}
    assert len(samples_of(place)) == 3


@pytest.mark.parametrize("writes", range(4))
def test_kill_between_files_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """The next run makes what is missing."""
    disk, place = journal(), ExportPlace(str(tmp_path))
    real, left = ExportPlace.write, writes

    def write(self: ExportPlace, file: ExportFile, data: object) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        real(self, file, data)

    with monkeypatch.context() as patch:
        patch.setattr(ExportPlace, "write", write)
        if writes < 3:
            with pytest.raises(KeyboardInterrupt):
                export(disk, FOLDER, place)
    export(disk, FOLDER, place)
    assert samples_of(place) == rows_of(disk)
    assert len(table_of(place, "events")) == 1
    assert len(table_of(place, "scheduled")) == 2


def test_file_that_is_not_whole_counts_for_nothing(tmp_path: Path) -> None:
    """It has not its name yet."""
    place = ExportPlace(str(tmp_path))
    export(journal(), FOLDER, place)
    (name,) = place.names("queues")
    whole = tmp_path / name
    part = whole.with_name(f"_unfinished.{whole.name}")
    part.write_bytes(whole.read_bytes()[:100])
    whole.unlink()
    assert samples_of(place) == []
    export(journal(), FOLDER, place)
    assert len(samples_of(place)) == 24


def test_compaction_makes_one_file_and_keeps_every_row(tmp_path: Path) -> None:
    """What it contains stays until the next time, and counts no more."""
    place = ExportPlace(str(tmp_path))
    for snapshots in range(1, 7):
        export(journal(snapshots=snapshots), FOLDER, place)
    assert len(place.live("queues")) == 6
    before = {table: table_of(place, table) for table in ("queues", "events", "scheduled")}
    date = date_of(NOW_MS)
    assert compact(place, date) == 2
    assert len(place.names("queues")) == 7
    assert len(place.live("queues")) == 1
    assert {table: table_of(place, table) for table in before} == before
    assert compact(place, date) == 0
    assert len(place.names("queues")) == 1
    assert {table: table_of(place, table) for table in before} == before
    assert export(journal(), FOLDER, place).known == 6


@pytest.mark.parametrize("steps", range(14))
def test_kill_while_compacting_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Before each file that is written or deleted, over two runs: what counts is the same rows throughout."""
    place = ExportPlace(str(tmp_path))
    for snapshots in range(1, 7):
        export(journal(snapshots=snapshots), FOLDER, place)
    tables = ("queues", "events", "scheduled")
    before = {table: table_of(place, table) for table in tables}
    write, remove, left = ExportPlace.write, ExportPlace.remove, steps

    def counted(do: Any) -> Any:
        def done(*arguments: Any) -> None:
            nonlocal left
            if not left:
                raise KeyboardInterrupt
            left -= 1
            do(*arguments)

        return done

    with monkeypatch.context() as patch:
        patch.setattr(ExportPlace, "write", counted(write))
        patch.setattr(ExportPlace, "remove", counted(remove))
        try:
            for _ in range(2):
                compact(place, date_of(NOW_MS))
        except KeyboardInterrupt:
            assert not left
        else:
            assert steps >= 9, "two tables are made, and seven or so small files deleted"
    assert {table: table_of(place, table) for table in tables} == before
    for _ in range(2):
        compact(place, date_of(NOW_MS))
    assert {table: table_of(place, table) for table in tables} == before
    assert [len(place.names(table)) for table in tables] == [1, 1, 1]


def test_compaction_does_not_close_a_hole(tmp_path: Path) -> None:
    """What is not exported yet still can be."""
    disk, place = journal(), ExportPlace(str(tmp_path))
    for since, until in ((0, 2), (4, 6)):
        export(disk, FOLDER, place, JournalQuery(since_ms=NOW_MS + since * 10_000, until_ms=NOW_MS + until * 10_000))
    assert compact(place, date_of(NOW_MS)) == 0
    export(disk, FOLDER, place)
    assert compact(place, date_of(NOW_MS)) == 1
    assert samples_of(place) == rows_of(disk)


@pytest.mark.parametrize("older", [1, 4])
def test_files_of_an_earlier_version_are_merged(tmp_path: Path, older: int) -> None:
    """Some or all of a day's: columns that they lack have their defaults, as for a reader."""
    pq = arrow().parquet
    place = ExportPlace(str(tmp_path))
    for snapshots in range(1, 5):
        export(journal(snapshots=snapshots), FOLDER, place)
    before = samples_of(place)
    for name in place.names("queues")[:older]:
        pq.write_table(pq.ParquetFile(tmp_path / name).read().drop_columns(["skipped", "base"]), tmp_path / name)
    assert compact(place, date_of(NOW_MS)) == 2
    assert len(place.live("queues")) == 1
    assert samples_of(place) == before


def test_files_of_a_later_version_are_left_as_they_are(tmp_path: Path) -> None:
    """None of their columns is lost; all else is merged."""
    pq = arrow().parquet
    place = ExportPlace(str(tmp_path))
    for snapshots in range(1, 5):
        export(journal(snapshots=snapshots), FOLDER, place)
    name = place.names("queues")[1]
    table = pq.ParquetFile(tmp_path / name).read()
    pq.write_table(table.append_column("colour", table.column("topic")), tmp_path / name)
    before = place.names("queues")
    assert compact(place, date_of(NOW_MS)) == 1
    assert place.names("queues") == before
    assert len(place.live("scheduled")) == 1


def test_damage_of_the_journal_is_told_and_ends_a_file(tmp_path: Path) -> None:
    """No file says that it holds what was not read."""
    disk, place = journal(), ExportPlace(str(tmp_path))
    data = bytearray(content(disk, "raw.0000000001.lag"))
    data[-5] ^= 1
    put(disk, "raw.0000000001.lag", bytes(data))
    later = writer(disk, epoch=1)
    later._sequence = 6
    later.write(NOW_MS + 60_000, [(("g", "t", 0), QueueSample(time_ms=NOW_MS + 60_000))])
    report = export(disk, FOLDER, place)
    assert [gap.kind for gap in report.gaps] == [GapKind.DAMAGED]
    ranges = [(live.first, live.last) for live in place.live("queues")]
    assert ranges == [(0, 4), (6, 6)]


def test_overlapping_files_give_each_row_once(tmp_path: Path) -> None:
    """As two exports at a time leave them."""
    disk, place = journal(), ExportPlace(str(tmp_path))
    export(disk, FOLDER, place, JournalQuery(until_ms=NOW_MS + 40_000))
    other = ExportPlace(str(tmp_path / "other"))
    export(disk, FOLDER, other, JournalQuery(since_ms=NOW_MS + 20_000))
    (name,) = other.names("queues")
    (tmp_path / "other" / name).rename(tmp_path / name)
    assert samples_of(place) == rows_of(disk)


def test_columns_are_those_of_a_sample(tmp_path: Path) -> None:
    """In the order of the contract, behind whose they are."""
    place = ExportPlace(str(tmp_path))
    export(journal(), FOLDER, place)
    (live,) = place.live("queues")
    names = place.read(live).column_names
    assert names == ["cluster", "node", "epoch", "sequence", "group", "topic", "queue", *SAMPLE_FIELDS]
    assert len(QUEUES.columns) == len(SAMPLE_FIELDS) - 1


@pytest.mark.parametrize("url", ["nowhere://bucket/x", "://"])
def test_place_that_is_none_is_told(url: str) -> None:
    """By its URL."""
    with pytest.raises(ExportFailed, match="not a valid place for an export"):
        ExportPlace(url)


def test_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """A file stands there."""
    (tmp_path / "queues").write_text("mine")
    (tmp_path / "scheduled").write_text("mine")
    with pytest.raises(ExportFailed, match=str(tmp_path)):
        export(journal(), FOLDER, ExportPlace(str(tmp_path)))


def test_file_url_is_a_folder(tmp_path: Path) -> None:
    """As any other URL of pyarrow's."""
    place = ExportPlace(f"file://{tmp_path}/below")
    export(journal(), FOLDER, place)
    assert parse(place.names("queues")[0]) is not None
    assert RealDisk().list(f"{tmp_path}/below") == ["events", "queues", "scheduled"]


def test_file_in_a_folder_is_synced_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power loss leaves no file that counts and is not whole; `compact` deletes those that it contains."""
    done: list[tuple[str, str]] = []

    def noted(name: str) -> None:
        before = getattr(os, name)

        def call(what: Any, *rest: Any) -> Any:
            path = what if isinstance(what, str) else os.readlink(f"/proc/self/fd/{what}")
            done.append((name, path.rpartition("/")[2]))
            return before(what, *rest)

        monkeypatch.setattr(os, name, call)

    for name in ("fdatasync", "fsync", "replace"):
        noted(name)
    file = ExportFile("queues", "2023-11-14", "n1", 1, 1, 1)
    ExportPlace(str(tmp_path / "lag")).write(file, b"rows")
    path = tmp_path / "lag" / file.name
    name = f"_unfinished.{path.name}"
    folders = [("fsync", each.name) for each in list(path.parents)[:2]]
    assert done == [("fdatasync", name), ("replace", name), *folders]
    assert path.read_bytes() == b"rows"
