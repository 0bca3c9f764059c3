"""The journal's writer: files roll, stops leave whole blocks, and a bad disk costs snapshots only."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from lag.blocks import GapKind
from lag.journal.reader import EventRow, QueueRow
from lag.journal.writer import EVENTS_MAX, FILE_MS, JournalOrigin, JournalWriter, WriterLimits
from lag.samples import EventKind, LagEvent, QueueSample
from pyddmq.testing.manual_time import ManualClock, ManualScheduler
from pyddmq.testing.sim_disk import PowerCut, SimDisk
from pyddmq.testing.sim_syncs import SimSyncs
from tests.unit.lag.journal.grounds import FOLDER, LIMITS, Rows, content, gaps_of, names, read, rows_of, writer
from tests.unit.lag.samples import NOW_MS, fleet

HOUR_MS = NOW_MS // FILE_MS * FILE_MS


def one(time_ms: int, end: int = 0) -> Rows:
    """Return a snapshot of one queue."""
    return [(("g", "t", 0), QueueSample(time_ms=time_ms, end=end))]


def test_snapshots_come_back_with_their_origin() -> None:
    """Every sample, in order, with cluster, node, epoch and sequence."""
    disk = SimDisk()
    journal = writer(disk, epoch=77)
    snapshots = fleet(3, 20, 4)
    for rows in snapshots:
        assert journal.write(rows[0][1].time_ms, rows)
    assert rows_of(disk) == [row for rows in snapshots for row in rows]
    found = [each for each in read(disk) if isinstance(each, QueueRow)]
    assert {(each.key.cluster, each.key.node, each.epoch) for each in found} == {("c", "n1", 77)}
    assert [each.sequence for each in found] == [number for number in range(4) for _ in range(20)]
    assert journal.written == 4


def test_snapshot_may_come_in_slices() -> None:
    """As a node reads its queues, a millisecond of them a turn."""
    disk = SimDisk()
    journal = writer(disk)
    (rows,) = fleet(4, 50, 1)
    journal.begin(NOW_MS)
    for start in range(0, 50, 7):
        journal.add(rows[start : start + 7])
    assert rows_of(disk) == []
    assert journal.end()
    assert rows_of(disk) == rows


def test_events_go_with_the_next_snapshot_and_at_the_end() -> None:
    """Noted at any time; what waits at a stop is written then."""
    disk = SimDisk()
    journal = writer(disk)
    start = LagEvent(time_ms=NOW_MS - 3, kind=EventKind.START)
    reset = LagEvent(time_ms=NOW_MS + 4, kind=EventKind.RESET, group="g", topic="t", queue=2, detail="5 to 7")
    journal.note(start)
    journal.write(NOW_MS, one(NOW_MS))
    journal.note(reset)
    journal.close(NOW_MS + 5)
    assert [each.event for each in read(disk) if isinstance(each, EventRow)] == [start, reset]


def test_events_that_nobody_writes_are_bounded() -> None:
    """The last thousand."""
    disk = SimDisk()
    journal = writer(disk)
    for number in range(EVENTS_MAX + 5):
        journal.note(LagEvent(time_ms=NOW_MS + number, kind=EventKind.RELOAD))
    journal.write(NOW_MS, ())
    found = [each.event.time_ms - NOW_MS for each in read(disk) if isinstance(each, EventRow)]
    assert found == list(range(5, EVENTS_MAX + 5))


@pytest.mark.parametrize(
    ("moments", "files"),
    [
        ([0, 1000, FILE_MS - 1], 1),
        ([FILE_MS - 1000, FILE_MS], 2),
        ([5000, 4999], 2),
        ([5000, 5000], 1),
        ([0, 3 * FILE_MS], 2),
    ],
)
def test_file_ends_with_its_hour_and_where_the_clock_steps_back(moments: list[int], files: int) -> None:
    """So that the moments of a file are in order, and within an hour."""
    disk = SimDisk()
    journal = writer(disk)
    expected: Rows = []
    for moment in moments:
        expected += one(HOUR_MS + moment, moment)
        journal.write(HOUR_MS + moment, one(HOUR_MS + moment, moment))
    assert len(names(disk)) == files
    assert rows_of(disk) == expected


def test_file_ends_at_its_size_and_each_can_be_read_alone() -> None:
    """A new file begins with whole rows."""
    disk = SimDisk()
    journal = writer(disk, limits=replace(LIMITS, file_bytes=1500))
    snapshots = fleet(5, 30, 12)
    for rows in snapshots:
        journal.write(rows[0][1].time_ms, rows)
    assert len(names(disk)) >= 3
    for name in names(disk)[:-1]:
        disk.remove(f"{FOLDER}/{name}")
    last = rows_of(disk)
    assert last
    assert [row for rows in snapshots for row in rows][-len(last) :] == last


def test_start_goes_on_in_a_file_of_its_own() -> None:
    """Whatever the one before left, nothing is written behind it."""
    disk = SimDisk()
    writer(disk, epoch=1).write(NOW_MS, one(NOW_MS, 1))
    before = content(disk, "raw.0000000001.lag")
    disk.kill()
    writer(disk, epoch=2).write(NOW_MS + 10_000, one(NOW_MS + 10_000, 2))
    assert names(disk) == ["raw.0000000001.lag", "raw.0000000002.lag"]
    assert content(disk, "raw.0000000001.lag") == before
    assert gaps_of(disk) == []


def test_kill_at_any_change_leaves_whole_snapshots() -> None:
    """What `write` returned from is read again, and of the one under way all or nothing."""
    snapshots = fleet(6, 5, 6)
    stop = 1
    while True:
        disk = SimDisk()
        journal = writer(disk, limits=replace(LIMITS, file_bytes=300))
        disk.stop_after(stop)
        done: Rows = []
        try:
            for rows in snapshots:
                journal.write(rows[0][1].time_ms, rows)
                done += rows
        except PowerCut:
            disk.kill()
            found = rows_of(disk)
            assert found[: len(done)] == done
            assert len(found) in (len(done), len(done) + 5)
            assert {gap.kind for gap in gaps_of(disk)} <= {GapKind.TORN}
            after = writer(disk, epoch=2)
            assert after.write(NOW_MS + 70_000, one(NOW_MS + 70_000, 9))
            assert rows_of(disk)[-1:] == one(NOW_MS + 70_000, 9)
            stop += 1
        else:
            assert stop > 10
            return


def test_failed_write_drops_the_snapshot_and_the_next_begins_a_file() -> None:
    """The node goes on; readers see that one is missing."""
    disk = SimDisk()
    journal = writer(disk)
    journal.write(NOW_MS, one(NOW_MS, 1))
    disk.fail("write", path_part="raw.")
    reset = LagEvent(time_ms=NOW_MS, kind=EventKind.RESET)
    journal.note(reset)
    assert not journal.write(NOW_MS + 10_000, one(NOW_MS + 10_000, 2))
    assert (journal.written, journal.dropped) == (1, 1)
    troubles = [journal.trouble]
    assert journal.write(NOW_MS + 20_000, one(NOW_MS + 20_000, 3))
    troubles.append(journal.trouble)
    assert [bool(each) for each in troubles] == [True, False]
    assert rows_of(disk) == [*one(NOW_MS, 1), *one(NOW_MS + 20_000, 3)]
    assert [(gap.kind, gap.from_ms, gap.to_ms) for gap in gaps_of(disk)] == [(GapKind.DROPPED, NOW_MS, NOW_MS + 20_000)]
    assert [each.event for each in read(disk) if isinstance(each, EventRow)] == [reset]


def test_full_disk_drops_snapshots_until_there_is_space() -> None:
    """Nothing raises, nothing half written stays in the way."""
    disk = SimDisk(capacity_bytes=300)
    journal = writer(disk)
    snapshots = fleet(7, 4, 6)
    written = [journal.write(rows[0][1].time_ms, rows) for rows in snapshots]
    assert not all(written)
    disk.capacity_bytes = None
    assert journal.write(NOW_MS + 60_000, one(NOW_MS + 60_000, 1))
    expected = [row for rows, whole in zip(snapshots, written, strict=True) if whole for row in rows]
    assert rows_of(disk) == [*expected, *one(NOW_MS + 60_000, 1)]
    assert journal.dropped == written.count(False)


def test_last_space_is_left_to_the_store() -> None:
    """Below `free_bytes_min` nothing is written, not even a file's head."""
    disk = SimDisk(capacity_bytes=10_000)
    disk.make_folder(FOLDER)
    journal = writer(disk, limits=WriterLimits(free_bytes_min=20_000))
    assert not journal.write(NOW_MS, one(NOW_MS))
    assert names(disk) == []
    assert "20000" in str(journal.trouble)


def test_folder_that_cannot_be_made_drops_snapshots() -> None:
    """A file stands in its place."""
    disk = SimDisk()
    disk.make_folder("/data/pyddmq")
    disk.open(FOLDER, create=True)
    journal = writer(disk)
    assert not journal.write(NOW_MS, one(NOW_MS))
    assert journal.dropped == 1


def test_file_that_ended_is_synced_beside_the_loop() -> None:
    """And survives a power loss whole; what the sync had not reached may be lost, and nothing raises."""
    disk = SimDisk()
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    syncs = SimSyncs(disk, scheduler, Random(1))
    journal = JournalWriter(disk, FOLDER, JournalOrigin(cluster="c", node="n", epoch=1), LIMITS, syncs=syncs)
    journal.write(HOUR_MS, one(HOUR_MS))
    journal.write(HOUR_MS + FILE_MS, one(HOUR_MS + FILE_MS))
    assert disk.synced_files == 0
    scheduler.advance(1.0)
    assert disk.synced_files == 1


def test_close_drops_a_snapshot_under_way() -> None:
    """Half of it is no snapshot."""
    disk = SimDisk()
    journal = writer(disk)
    journal.write(NOW_MS, one(NOW_MS))
    journal.begin(NOW_MS + 10_000)
    journal.add(one(NOW_MS + 10_000))
    journal.note(LagEvent(time_ms=NOW_MS, kind=EventKind.STOP))
    journal.close(NOW_MS + 10_000)
    assert rows_of(disk) == one(NOW_MS)
    assert [each.event.kind for each in read(disk) if isinstance(each, EventRow)] == [EventKind.STOP]
    assert journal.dropped == 1
