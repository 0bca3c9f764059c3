"""The commit log by itself: where records go, what can be read when, and what a failed disk leaves."""

from __future__ import annotations

import errno
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import DamagedRecord, RecordGone
from broker.format.record import BLANK, BLANK_BYTES, MAGIC_BLANK
from broker.log.commit_log import CommitLog, segment_name
from pyddmq.testing import SimDisk
from tests.unit.broker.format.test_record import plain

SEGMENT = 1024
FOLDER = "/s/commitlog"
SPARE = "/s/pyddmq/segment.new"


def new_log(disk: SimDisk | None = None) -> tuple[SimDisk, CommitLog]:
    """An empty log whose folders are there."""
    disk = disk or SimDisk()
    disk.make_folder(FOLDER)
    disk.make_folder("/s/pyddmq")
    return disk, CommitLog("/s", disk=disk, segment_bytes=SEGMENT)


def put(log: CommitLog, *bodies: bytes, contiguous: bool = False) -> list[tuple[int, int]]:
    """Stage records of these bodies, sealed; return where, and how large."""
    sizes = [len(plain(body=body, seal=True)) for body in bodies]
    places = log.reserve(sizes, contiguous=contiguous)
    log.stage(places, sizes, [plain(body=b, physical=at, seal=True) for b, at in zip(bodies, places, strict=True)])
    return list(zip(places, sizes, strict=True))


def show(log: CommitLog) -> None:
    """Write and sync what is staged, and let it be read."""
    log.write()
    log.sync()
    log.visible_end = log.end


# Where records go


@given(st.lists(st.lists(st.integers(1, SEGMENT - BLANK_BYTES), min_size=1, max_size=6), max_size=8))
def test_no_record_crosses_a_segments_end_and_a_blank_fills_what_is_left(appends: list[list[int]]) -> None:
    """Records and blanks tile the log from its beginning on, in the order of the appends."""
    disk, log = new_log()
    found: list[tuple[int, int]] = []
    for sizes in appends:
        places = log.reserve(sizes, contiguous=False)
        log.stage(places, sizes, [b"x" * size for size in sizes])
        found += zip(places, sizes, strict=True)
    log.write()
    for (at, size), (following, _) in pairwise(found):
        blank = following - at - size
        if blank:
            assert following % SEGMENT == 0
            header = disk.open(f"{FOLDER}/{segment_name(at - at % SEGMENT)}").read((at + size) % SEGMENT, BLANK_BYTES)
            assert BLANK.unpack(header) == (blank, MAGIC_BLANK)
    for at, size in found:
        assert at // SEGMENT == (at + size + BLANK_BYTES - 1) // SEGMENT, "a blank still fits behind it"
        assert disk.open(f"{FOLDER}/{segment_name(at - at % SEGMENT)}").read(at % SEGMENT, size) == b"x" * size


def test_contiguous_records_share_a_segment() -> None:
    """What would be divided between two goes to the next one as a whole."""
    _, log = new_log()
    put(log, bytes(400))
    first, second = put(log, bytes(200), bytes(200), contiguous=True)
    assert first[0] == SEGMENT
    assert second[0] == SEGMENT + first[1]


def test_reserve_that_finds_the_disk_full_leaves_the_log_as_it_was() -> None:
    """Nothing is staged and no half-made file is left, so the same append succeeds later at the same place."""
    disk, log = new_log()
    [(at, size)] = put(log, bytes(800))
    disk.capacity_bytes = SEGMENT + 100
    with pytest.raises(OSError, match="No space") as refused:
        put(log, bytes(800))
    assert refused.value.errno == errno.ENOSPC
    assert (log.end, list(log.segments)) == (at + size, [0])
    assert not disk.exists(SPARE)
    disk.capacity_bytes = None
    assert put(log, bytes(800))[0][0] == SEGMENT


@pytest.mark.parametrize("step", ["create", "truncate", "allocate", "sync", "replace", "sync_folder"])
def test_claim_that_fails_at_any_step_adds_no_segment(step: str) -> None:
    """A file is a segment when its size and its name are durable, and not before."""
    disk, log = new_log()
    disk.fail(step)
    with pytest.raises(OSError, match="Input/output"):
        log.claim(0)
    assert not log.segments
    assert not disk.exists(SPARE)
    log.claim(0)
    assert disk.open(f"{FOLDER}/{segment_name(0)}").size() == SEGMENT


def test_claimed_file_holds_nothing_of_a_leftover() -> None:
    """An attempt that was broken off may have left bytes, which would look like records."""
    disk, log = new_log()
    disk.open(SPARE, create=True).write(0, [b"\xff" * SEGMENT])
    log.claim(0)
    assert disk.open(f"{FOLDER}/{segment_name(0)}").read(0, SEGMENT) == bytes(SEGMENT)


def test_capacity_ends_at_the_first_segment_that_is_missing() -> None:
    """A segment claimed behind a gap is of no use to the next append."""
    _, log = new_log()
    for number in (0, 1, 3):
        log.claim(number)
    assert log.capacity_end == 2 * SEGMENT


# What can be read


def test_staged_record_is_not_read_before_it_is_visible() -> None:
    """Not when it is staged, and not when it is written: whoever syncs says from when on."""
    _, log = new_log()
    [(at, size)] = put(log, b"hello")
    with pytest.raises(DamagedRecord, match="size, magic or position is wrong"):
        log.read(at, size)
    log.write()
    with pytest.raises(DamagedRecord, match="end is outside of the log"):
        log.read(at, size)
    log.visible_end = log.end
    assert log.read(at, size) == plain(body=b"hello", physical=at, seal=True)


def test_read_refuses_what_is_not_the_record_that_was_asked_for() -> None:
    """Another size, another place, a place behind the last segment, one that no record can begin at."""
    _, log = new_log()
    [(at, size), (other, _)] = put(log, b"hello", b"other")
    show(log)
    for wrong_at, wrong_size in ((at, size + 1), (other + 1, size), (SEGMENT + 4, size), (SEGMENT - 8, size)):
        with pytest.raises(DamagedRecord):
            log.read(wrong_at, wrong_size)


def test_cold_record_is_compared_with_its_sum_and_a_warm_one_is_not() -> None:
    """D2: what this process wrote lies in the page cache; what an earlier one wrote may come from a bad disk."""
    disk, log = new_log()
    [(at, size)] = put(log, b"hello")
    show(log)
    disk.flip_bit(f"{FOLDER}/{segment_name(0)}", at + 88)
    log.read(at, size)
    log.chill(log.end)
    with pytest.raises(DamagedRecord, match="its checksum is wrong"):
        log.read(at, size)


def test_full_segment_is_cold_when_it_is_mapped_a_minute_after_it_was_left() -> None:
    """Until then its pages are those that were written; the segment in use never is."""
    _, log = new_log()
    put(log, bytes(800), bytes(800))
    show(log)
    log.forget_idle()
    for _ in range(59):
        log.forget_idle()
        log.view(0)
    assert log.cold_end == 0
    for _ in range(3):
        log.forget_idle()
    log.view(1)
    assert log.cold_end == 0
    log.view(0)
    assert log.cold_end == SEGMENT


def test_locate_finds_what_read_finds_and_refuses_what_read_refuses() -> None:
    """Over several segments, with the same records; a wrong place among them is an error, not a wrong body."""
    _, log = new_log()
    bodies = [bytes([number]) * 300 for number in range(7)]
    places = put(log, *bodies)
    show(log)
    log.chill(log.end)
    found = log.locate([(at, size, 0) for at, size in places])
    assert [bytes(view[start:end]) for view, start, end, _, _ in found] == bodies
    with pytest.raises(DamagedRecord):
        log.locate([(places[0][0], places[0][1], 0), (places[1][0], places[1][1] + 1, 0)])


def test_forgotten_segment_is_gone_and_views_of_it_stay() -> None:
    """A reader that holds its bytes keeps them; the next one is told that they are kept no more."""
    disk, log = new_log()
    places = put(log, bytes(800), bytes(800))
    show(log)
    record = log.read(*places[0])
    kept = bytes(record)
    log.remove(0)
    log.forget(0)
    disk.sync_folder(FOLDER)
    assert record == kept
    assert log.min_offset == SEGMENT
    with pytest.raises(RecordGone):
        log.read(*places[0])
    log.read(*places[1])


# Writing, syncing, cutting


def test_each_segment_is_written_once_and_synced_oldest_first() -> None:
    """One write for each segment touched, whatever number of records; a second call finds nothing to do."""
    disk, log = new_log()
    places = put(log, *[bytes(300)] * 6)
    before = disk.operations
    written = log.write()
    assert disk.operations - before == len({at // SEGMENT for at, _ in places}) == 3
    assert written == sum(size for _, size in places) + 2 * BLANK_BYTES
    assert log.write() == 0
    oldest = [log.unsynced]
    assert [log.sync(), log.sync()] == [True, False]
    oldest.append(log.unsynced)
    assert oldest == [log.segments[0], None]


def test_segment_synced_beside_the_log_is_not_synced_again() -> None:
    """The others still are."""
    disk, log = new_log()
    put(log, bytes(800), bytes(800))
    log.write()
    log.synced(log.segments[0])
    log.synced(log.segments[0])
    before = disk.synced_files
    assert log.sync()
    assert disk.synced_files - before == 1


def test_cut_makes_everything_behind_empty_and_says_where_something_was() -> None:
    """The segment of the end is cleared from there on, whole ones behind it go, empty ones stay claimed."""
    disk, log = new_log()
    places = put(log, bytes(300), bytes(300), bytes(800))
    log.claim(2)
    show(log)
    end = places[1][0]
    assert list(log.cut(end)) == [True, True, False]
    assert sorted(log.segments) == [0, 2]
    left = disk.open(f"{FOLDER}/{segment_name(0)}").read(0, SEGMENT)
    assert left[:end] == plain(body=bytes(300), physical=0, seal=True)
    assert left[end:] == bytes(SEGMENT - end)


@pytest.mark.parametrize("seed", range(12))
def test_what_was_cut_does_not_come_back_with_a_power_loss(seed: int) -> None:
    """Otherwise records that were given up would stand behind others that took their place."""
    disk, log = new_log()
    places = put(log, bytes(300), bytes(300), bytes(800))
    show(log)
    list(log.cut(places[1][0]))
    disk.crash(Random(seed))
    assert disk.list(FOLDER) == [segment_name(0)]
    assert not any(disk.open(f"{FOLDER}/{segment_name(0)}").read(places[1][0], SEGMENT))


# Opening


def test_opened_log_has_the_segments_that_are_whole_and_names_the_others() -> None:
    """An empty last file, of a claim that was broken off by RocketMQ, goes; names of another kind are not looked at."""
    disk, _ = new_log()
    for name, size in ((0, SEGMENT), (SEGMENT, 100), (2 * SEGMENT + 1, SEGMENT), (3 * SEGMENT, 0)):
        disk.open(f"{FOLDER}/{segment_name(name)}", create=True).truncate(size)
    disk.open(f"{FOLDER}/readme", create=True)
    log = CommitLog("/s", disk=disk, segment_bytes=SEGMENT)
    assert log.open() == [(segment_name(SEGMENT), 100), (segment_name(2 * SEGMENT + 1), SEGMENT)]
    assert list(log.segments) == [0]
    assert not disk.exists(f"{FOLDER}/{segment_name(3 * SEGMENT)}")


def test_empty_file_before_the_last_is_strange_and_stays() -> None:
    """Only the last one can be what a stop left."""
    disk, _ = new_log()
    for name, size in ((0, 0), (SEGMENT, SEGMENT)):
        disk.open(f"{FOLDER}/{segment_name(name)}", create=True).truncate(size)
    log = CommitLog("/s", disk=disk, segment_bytes=SEGMENT)
    assert log.open() == [(segment_name(0), 0)]
    assert disk.exists(f"{FOLDER}/{segment_name(0)}")
