"""The journal's reader: whole blocks before any damage, the damage by its name, and nothing raised."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lag.blocks import VERSION, BlockGap, FileHead, FileKind, GapKind, encode_block, encode_head, salt_of
from lag.journal.reader import EventRow, JournalQuery, JournalReader, ScheduledRow
from lag.journal.scan import Block
from lag.journal.writer import FILE_MS
from lag.samples import EventKind, LagEvent, QueueSample, ScheduledSample
from pyddmq.testing.sim_disk import SimDisk
from tests.unit.lag.journal.grounds import FOLDER, Rows, content, gaps_of, put, read, rows_of, writer
from tests.unit.lag.samples import NOW_MS, events, fleet, keys, queue_samples, scheduled_samples

RAW = "raw.0000000001.lag"
SNAPSHOTS = fleet(8, 6, 5)


def journal_of(snapshots: list[Rows]) -> SimDisk:
    """Return a disk with one file of these."""
    disk = SimDisk()
    journal = writer(disk)
    for rows in snapshots:
        journal.write(rows[0][1].time_ms, rows)
    return disk


@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(keys, queue_samples), max_size=4),
            st.lists(scheduled_samples, max_size=3),
            st.lists(events, max_size=3),
        ),
        max_size=4,
    )
)
def test_any_sequence_comes_back_exactly(
    snapshots: list[tuple[Rows, list[ScheduledSample], list[LagEvent]]],
) -> None:
    """Samples, what waits, and events, through files."""
    disk = SimDisk()
    journal = writer(disk)
    for number, (rows, scheduled, noted) in enumerate(snapshots):
        for event in noted:
            journal.note(event)
        assert journal.write(NOW_MS + number * 10_000, rows, scheduled)
    found = read(disk)
    assert rows_of(disk) == [row for rows, _, _ in snapshots for row in rows]
    waiting = [each.sample for each in found if isinstance(each, ScheduledRow)]
    assert waiting == [sample for _, scheduled, _ in snapshots for sample in scheduled]
    reported = [each.event for each in found if isinstance(each, EventRow)]
    assert reported == [event for _, _, noted in snapshots for event in noted]
    assert gaps_of(disk) == []


def test_any_cut_gives_the_whole_blocks_before_it() -> None:
    """At each byte of a file."""
    whole = content(journal_of(SNAPSHOTS), RAW)
    seen = set()
    for size in range(len(whole)):
        disk = SimDisk()
        put(disk, RAW, whole[:size])
        found, gaps = rows_of(disk), gaps_of(disk)
        assert found == [row for rows in SNAPSHOTS for row in rows][: len(found)]
        assert len(found) % 6 == 0
        seen.add((len(found), bool(gaps)))
        assert {gap.kind for gap in gaps} <= {GapKind.TORN}
    # A cut between two blocks is none.
    assert seen == {(0, True), *((count, torn) for count in range(0, 30, 6) for torn in (True, False))}


def test_any_flipped_byte_gives_the_whole_blocks_before_it() -> None:
    """At each byte of a file, by some bit."""
    whole = content(journal_of(SNAPSHOTS), RAW)
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        disk = SimDisk()
        put(disk, RAW, bytes(damaged))
        found, gaps = rows_of(disk), gaps_of(disk)
        assert found == [row for rows in SNAPSHOTS for row in rows][: len(found)]
        assert len(found) < 30
        assert [gap.kind for gap in gaps] in ([GapKind.DAMAGED], [GapKind.TORN], [GapKind.FOREIGN])
        assert gaps[0].path == f"{FOLDER}/{RAW}"


@given(st.binary(max_size=80))
def test_any_bytes_behind_a_right_sum_are_named(payload: bytes) -> None:
    """A defect of a writer is a damage, not an exception."""
    head = encode_head(FileHead(kind=FileKind.RAW, cluster="c", node="n", epoch=1, sequence=0, first_ms=0, last_ms=1))
    disk = SimDisk()
    data = payload or b"\0"
    put(disk, RAW, head + encode_block(salt_of(head), len(head), data) + data)
    found = list(JournalReader(disk, FOLDER).blocks())
    assert len(found) == 1
    if isinstance(found[0], BlockGap):
        assert found[0].kind is GapKind.DAMAGED
        assert found[0].position == len(head)


def test_damage_costs_its_own_file_only() -> None:
    """The next one is read, and the gap says from when to when."""
    disk = journal_of(SNAPSHOTS[:3])
    data = bytearray(content(disk, RAW))
    data[-1] ^= 1
    put(disk, RAW, bytes(data))
    after = writer(disk, epoch=2)
    after.write(NOW_MS + FILE_MS, SNAPSHOTS[3])
    (gap,) = gaps_of(disk)
    assert (gap.kind, gap.from_ms, gap.to_ms) == (GapKind.DAMAGED, NOW_MS + 10_000, NOW_MS + FILE_MS)
    assert len(rows_of(disk)) == 18


def test_block_of_another_file_is_none() -> None:
    """Its sum is that of a place in a file."""
    one, other = SimDisk(), SimDisk()
    writer(one, epoch=1).write(NOW_MS, SNAPSHOTS[0])
    writer(other, epoch=2).write(NOW_MS, SNAPSHOTS[0])
    first, second = content(one, RAW), content(other, RAW)
    put(one, RAW, first + second[len(first) // 2 :][-40:])
    assert gaps_of(one)[0].kind in (GapKind.DAMAGED, GapKind.TORN)
    assert rows_of(one) == SNAPSHOTS[0]


def test_foreign_and_newer_files_are_told() -> None:
    """Each by its reason; files that are being made are not looked at."""
    disk = journal_of(SNAPSHOTS[:1])
    put(disk, "notes.txt", b"mine")
    put(disk, "minute.0000000001-0000000001.lag.new", b"half")
    put(disk, "raw.0000000002.lag", b"PAR1 and so on")
    whole = bytearray(content(disk, RAW))
    newer = encode_head(FileHead(kind=FileKind.RAW, cluster="c", node="n", epoch=1, sequence=0, first_ms=0, last_ms=1))
    put(disk, "raw.0000000003.lag", _with_version(newer, VERSION + 1))
    put(disk, "raw.0000000004.lag", bytes(whole))
    found = gaps_of(disk)
    assert [(gap.kind, gap.path.rpartition("/")[2]) for gap in found] == [
        (GapKind.FOREIGN, "notes.txt"),
        (GapKind.FOREIGN, "raw.0000000002.lag"),
        (GapKind.NEWER, "raw.0000000003.lag"),
    ]
    assert f"version {VERSION + 1}" in found[2].reason
    assert len(rows_of(disk)) == 12


def _with_version(head: bytes, version: int) -> bytes:
    from broker.runtime.sums import crc32

    changed = head[:4] + version.to_bytes(2, "little") + head[6:12]
    return changed + crc32(head[16:], crc32(changed)).to_bytes(4, "little") + head[16:]


def test_file_that_the_disk_does_not_give_out_is_told() -> None:
    """And the others are read."""
    disk = journal_of(SNAPSHOTS[:1])
    put(disk, "raw.0000000002.lag", content(disk, RAW))
    disk.fail("read", path_part="raw.0000000001")
    assert [gap.kind for gap in gaps_of(disk)] == [GapKind.UNREADABLE]


def test_time_without_snapshots_is_told() -> None:
    """From when to when."""
    disk = journal_of(SNAPSHOTS[:2])
    late = NOW_MS + 10_000 + 31_000
    writer(disk, epoch=2).write(late, [(("g", "t", 0), QueueSample(time_ms=late))])
    (gap,) = gaps_of(disk)
    assert (gap.kind, gap.from_ms, gap.to_ms) == (GapKind.SILENT, NOW_MS + 10_000, late)


def test_rows_are_given_by_time_group_and_topic() -> None:
    """And files that hold none of the time are not read."""
    disk = SimDisk()
    journal = writer(disk)
    for hour in range(4):
        time_ms = NOW_MS + hour * FILE_MS
        journal.note(LagEvent(time_ms=time_ms, kind=EventKind.PAUSE, group="b"))
        journal.write(
            time_ms,
            [((group, topic, 0), QueueSample(time_ms=time_ms)) for group in "ab" for topic in "tu"],
            [ScheduledSample(time_ms=time_ms, kind="timer", topic="t")],
        )
    disk.read_bytes.clear()
    wanted = JournalQuery(
        since_ms=NOW_MS + 2 * FILE_MS,
        until_ms=NOW_MS + 3 * FILE_MS,
        groups=frozenset("a"),
        topics=frozenset("t"),
    )
    assert rows_of(disk, wanted) == [(("a", "t", 0), QueueSample(time_ms=NOW_MS + 2 * FILE_MS))]
    assert not [each for each in read(disk, wanted) if isinstance(each, EventRow)]
    assert len([each for each in read(disk, wanted) if isinstance(each, ScheduledRow)]) == 1
    assert len(rows_of(disk, JournalQuery(since_ms=NOW_MS + FILE_MS, until_ms=NOW_MS + FILE_MS + 1))) == 4


def test_gaps_outside_of_the_time_are_not_told() -> None:
    """Of those at its edges that reach into it, all are."""
    disk = SimDisk()
    journal = writer(disk)
    for time_ms in (0, 1_000_000, 1_010_000, 2_000_000, 2_010_000, 3_000_000):
        journal.write(NOW_MS + time_ms, [(("g", "t", 0), QueueSample(time_ms=NOW_MS + time_ms))])
    wanted = JournalQuery(since_ms=NOW_MS + 1_500_000, until_ms=NOW_MS + 2_500_000)
    assert [gap.to_ms for gap in gaps_of(disk, wanted)] == [NOW_MS + 2_000_000, NOW_MS + 3_000_000]
    wanted = JournalQuery(since_ms=NOW_MS + 1_005_000, until_ms=NOW_MS + 1_500_000)
    assert [gap.to_ms for gap in gaps_of(disk, wanted)] == [NOW_MS + 2_000_000]


@pytest.mark.parametrize("folder", ["/nowhere", "/data"])
def test_folder_without_a_journal_has_nothing(folder: str) -> None:
    """No rows, no gap: whoever asks says that there is no journal."""
    disk = SimDisk()
    disk.make_folder("/data")
    assert list(JournalReader(disk, folder).read()) == []


def test_events_and_gaps_are_read_without_rows() -> None:
    """For who wants nothing else: no row of a queue is decoded, whatever its bytes are."""
    disk = SimDisk()
    journal = writer(disk)
    journal.note(LagEvent(time_ms=NOW_MS, kind=EventKind.RELOAD, detail="changed"))
    rows = fleet(1, 3, 2)
    for number, each in enumerate(rows):
        assert journal.write(NOW_MS + number * 10_000, each)
    journal.close(NOW_MS + 20_000)
    reader = JournalReader(disk, FOLDER)
    blocks = [each for each in reader.blocks(by_columns=None) if isinstance(each, Block)]
    assert [len(each.queues) + len(each.pieces) for each in blocks] == [0, 0]
    assert [event.kind for each in blocks for event in each.events] == [EventKind.RELOAD]
