"""Consume-queue units: in memory, in files, and across both."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import RecordGone
from broker.queues.consume_queue import FILLER, FILLER_BYTES, UNIT, UNIT_BYTES, ConsumeQueue, Unit, syncing
from broker.queues.open_files import OpenFiles
from broker.runtime.seams import DiskFile
from pyddmq.testing import SimDisk

FOLDER = "/s/consumequeue/t/0"


def queue_on(
    disk: SimDisk, file_units: int = 8, *, queue_id: int = 0, open_files: OpenFiles | None = None
) -> ConsumeQueue:
    """A queue with small files."""
    disk.make_folder("/s")
    return ConsumeQueue("t", queue_id, root="/s", disk=disk, file_units=file_units, open_files=open_files)


def unit(number: int) -> Unit:
    """A unit that tells its number."""
    return (number * 100, 100, number)


def fill(queue: ConsumeQueue, count: int) -> None:
    """Add units, visible at once."""
    for number in range(queue.max_offset, queue.max_offset + count):
        assert queue.restore(number, UNIT.pack(*unit(number))) == 0


def test_staged_units_are_invisible_until_shown_and_can_be_dropped() -> None:
    """Readers see [min, max); what a failed flush staged is forgotten."""
    queue = queue_on(SimDisk())
    fill(queue, 2)
    queue.tail += UNIT.pack(*unit(2))
    queue.next_offset += 1
    assert queue.read(0, 9) == [unit(0), unit(1)]
    queue.forget_staged()
    assert (queue.next_offset, len(queue.tail)) == (2, 2 * UNIT_BYTES)


def test_files_have_rocketmqs_names_and_full_size() -> None:
    """Each file is named by the byte offset of its first unit and is created whole."""
    disk = SimDisk()
    queue = queue_on(disk)
    fill(queue, 20)
    assert queue.write_tail() == 20
    queue.sync()
    assert disk.list(FOLDER) == [f"{number * 160:020d}" for number in range(3)]
    assert disk.open(f"{FOLDER}/{320:020d}").read(0, 999) == b"".join(
        UNIT.pack(*unit(number)) for number in range(16, 20)
    ) + bytes(80)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 13), st.booleans()), max_size=8), st.integers(0, 60), st.integers(0, 40))
def test_reads_join_files_and_memory(steps: list[tuple[int, bool]], offset: int, count: int) -> None:
    """Wherever the units lie, a read gives the wanted ones in order."""
    queue = queue_on(SimDisk())
    for added, written in steps:
        fill(queue, added)
        if written:
            queue.write_tail()
            queue.sync()
    wanted = [unit(number) for number in range(offset, min(offset + count, queue.max_offset))]
    assert queue.read(offset, count) == wanted


def test_place_of_a_unit_is_read_once_until_the_queue_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures ask for the oldest unfinished message again and again; of a new life of the topic it is another one."""
    queue = queue_on(SimDisk())
    fill(queue, 20)
    assert queue.write_tail() == 20
    reads: list[int] = []
    read = queue.read

    def counted(offset: int, count: int) -> list[Unit]:
        reads.append(offset)
        return read(offset, count)

    monkeypatch.setattr(queue, "read", counted)
    assert [queue.place(offset) for offset in (3, 3, 4, 3)] == [(300, 100), (300, 100), (400, 100), (300, 100)]
    assert reads == [3, 4]
    for offset in range(20):
        queue.place(offset)
    reads.clear()
    assert queue.place(0) == (0, 100)
    assert reads == [0], "16 places are remembered at most"
    with pytest.raises(IndexError):
        queue.place(20)
    queue.start_at(3, 3)
    queue.restore(3, UNIT.pack(*unit(7)))
    assert queue.place(3) == (700, 100)


def test_gap_becomes_fillers_and_a_taken_offset_is_refused() -> None:
    """Offsets stay dense whatever the log lost, and none is given twice."""
    queue = queue_on(SimDisk())
    fill(queue, 1)
    assert queue.restore(3, UNIT.pack(*unit(3))) == 2
    assert queue.restore(2, UNIT.pack(*unit(2))) == -1
    assert queue.read(0, 9) == [unit(0), FILLER, FILLER, unit(3)]


def test_record_is_found_behind_fillers() -> None:
    """A gap before it does not stand for it."""
    queue = queue_on(SimDisk())
    fill(queue, 1)
    queue.restore(3, UNIT.pack(*unit(3)))
    assert queue.record_at(300) == unit(3)
    assert queue.record_at(0) == unit(0)
    assert queue.record_at(301) is None


def test_queue_that_starts_inside_a_file_begins_with_fillers() -> None:
    """RocketMQ finds fillers before the first unit."""
    disk = SimDisk()
    queue = queue_on(disk)
    queue.start_at(10, 10)
    fill(queue, 1)
    queue.write_tail()
    assert disk.open(f"{FOLDER}/{160:020d}").read(0, 60) == FILLER_BYTES * 2 + UNIT.pack(*unit(10))
    assert (queue.min_offset, queue.read(10, 5)) == (10, [unit(10)])
    with pytest.raises(RecordGone):
        queue.read(9, 1)


def test_cut_removes_everything_behind_the_tails_base() -> None:
    """Old units can never be taken for new ones: they are zeroed, later files deleted."""
    disk = SimDisk()
    queue = queue_on(disk)
    fill(queue, 30)
    queue.write_tail()
    again = queue_on(disk)
    again.start_at(0, 11)
    again.cut_files()
    assert disk.list(FOLDER) == [f"{0:020d}", f"{160:020d}"]
    assert disk.open(f"{FOLDER}/{160:020d}").read(60, 99) == bytes(99)
    assert again.read(0, 99) == [unit(number) for number in range(11)]


def test_minimum_follows_the_log() -> None:
    """Units whose records are gone are below the minimum; with the log whole nothing moves."""
    queue = queue_on(SimDisk())
    queue.restore(2, UNIT.pack(*unit(2)))
    fill(queue, 7)
    queue.advance_minimum(0)
    assert queue.min_offset == 0
    queue.advance_minimum(450)
    assert queue.min_offset == 5
    queue.advance_minimum(10_000)
    assert (queue.min_offset, queue.last_unit()) == (10, None)


def test_full_disk_keeps_the_units_in_memory() -> None:
    """Units that found no file stay readable and are written later."""
    disk = SimDisk()
    queue = queue_on(disk)
    fill(queue, 12)
    disk.capacity_bytes = 200
    with pytest.raises(OSError, match="No space") as error:
        queue.write_tail()
    assert error.value.errno == errno.ENOSPC
    assert queue.read(0, 99) == [unit(number) for number in range(12)]
    disk.capacity_bytes = None
    assert queue.write_tail() == 4
    assert queue.read(0, 99) == [unit(number) for number in range(12)]


def test_many_files_are_read_with_few_open() -> None:
    """A long queue is read through without keeping all its files open."""
    disk, open_files = SimDisk(), OpenFiles(5)
    queue = queue_on(disk, file_units=2, open_files=open_files)
    fill(queue, 60)
    queue.write_tail()
    queue.sync()
    assert [queue.read(number, 1)[0] for number in range(60)] == [unit(number) for number in range(60)]
    assert len(open_files) == 5
    queue.close()
    assert len(open_files) == 0


def test_queues_share_the_bound_and_the_one_used_last_stays_open() -> None:
    """However many queues there are: a file is opened again when its queue is used again."""
    disk, open_files = SimDisk(), OpenFiles(4)
    queues = [queue_on(disk, queue_id=number, open_files=open_files) for number in range(10)]
    for _ in range(2):
        for queue in queues:
            fill(queue, 3)
            queue.write_tail()
            queue.sync()
            assert queues[0].read(0, 1) == [unit(0)]
            assert open_files.find(queues[0], 0) is not None
            assert len(open_files) <= 4
    assert [queue.read(0, 99) for queue in queues] == [[unit(number) for number in range(6)]] * 10


def test_file_that_is_not_synced_is_never_closed() -> None:
    """A failed write is reported to those who had the file open; so its sync is made through the same descriptor."""
    disk, open_files = SimDisk(), OpenFiles(4)
    queues = [queue_on(disk, queue_id=number, open_files=open_files) for number in range(10)]
    for queue in queues:
        fill(queue, 3)
        queue.write_tail()
    files = [open_files.find(queue, 0) for queue in queues]
    assert None not in files
    for queue in queues[:8]:
        queue.sync()
    writing = syncing([queues[8]])
    next(writing)
    fill(queues[0], 30)
    queues[0].write_tail()
    queues[0].sync()
    assert [open_files.find(queue, 0) is not None for queue in queues[1:]] == [False] * 7 + [True] * 2
    assert list(writing) == []


def test_queue_takes_the_descriptor_of_an_idle_one_when_the_process_has_none_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And when no file is idle the error of the system is the queue's."""
    disk, open_files = SimDisk(), OpenFiles(100)
    queues = [queue_on(disk, queue_id=number, open_files=open_files) for number in range(10)]
    real_open = disk.open

    def open_few(path: str, *, create: bool = False) -> DiskFile:
        if len(open_files) >= 3:
            raise OSError(errno.EMFILE, "Too many open files", path)
        return real_open(path, create=create)

    monkeypatch.setattr(disk, "open", open_few)
    for queue in queues:
        fill(queue, 3)
        queue.write_tail()
        queue.sync()
    assert [queue.read(0, 99) for queue in queues] == [[unit(number) for number in range(3)]] * 10
    for queue in queues[:3]:
        fill(queue, 1)
        queue.write_tail()
    with pytest.raises(OSError, match="Too many open files"):
        queues[3].read(0, 1)
