"""Consume-queue units: in memory, in files, and across both."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import RecordGone
from broker.queues.consume_queue import FILLER, FILLER_BYTES, UNIT, UNIT_BYTES, ConsumeQueue, Unit
from pyddmq.testing import SimDisk

FOLDER = "/s/consumequeue/t/0"


def queue_on(disk: SimDisk, file_units: int = 8) -> ConsumeQueue:
    """A queue with small files."""
    disk.make_folder("/s")
    return ConsumeQueue("t", 0, root="/s", disk=disk, file_units=file_units)


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


def test_gap_becomes_fillers_and_a_taken_offset_is_refused() -> None:
    """Offsets stay dense whatever the log lost, and none is given twice."""
    queue = queue_on(SimDisk())
    fill(queue, 1)
    assert queue.restore(3, UNIT.pack(*unit(3))) == 2
    assert queue.restore(2, UNIT.pack(*unit(2))) == -1
    assert queue.read(0, 9) == [unit(0), FILLER, FILLER, unit(3)]


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
    disk = SimDisk()
    queue = queue_on(disk, file_units=2)
    fill(queue, 60)
    queue.write_tail()
    queue.sync()
    assert [queue.read(number, 1)[0] for number in range(60)] == [unit(number) for number in range(60)]
    assert len(queue._files) <= 5
    queue.close()
