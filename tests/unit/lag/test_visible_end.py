"""The visible end: what was set last, or the one before; never anything else."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from lag.visible_end import COPY_BYTES, FILE_BYTES, VisibleEnd, VisibleEndState, read_visible_end
from pyddmq.testing.manual_time import ManualClock
from pyddmq.testing.sim_disk import PowerCut, SimDisk

PATH = "/visible-end"


def test_what_was_set_is_read() -> None:
    """With its moment and its start; and that the node has stopped."""
    disk = SimDisk()
    clock = ManualClock(wall_ms=1000)
    end = VisibleEnd(disk, PATH, clock, 7)
    assert read_visible_end(disk, PATH) is None
    end.set(100)
    clock.advance(1.0)
    end.set(250)
    assert read_visible_end(disk, PATH) == VisibleEndState(offset=250, time_ms=2000, epoch=7, sequence=2, is_live=True)
    end.close()
    found = read_visible_end(disk, PATH)
    assert found is not None
    assert (found.offset, found.is_live) == (250, False)


def test_next_start_goes_on_counting_and_may_lie_lower() -> None:
    """Recovery cuts what was not whole: the newest write counts, not the highest end."""
    disk = SimDisk()
    VisibleEnd(disk, PATH, ManualClock(), 1).set(500)
    disk.kill()
    VisibleEnd(disk, PATH, ManualClock(), 2).set(400)
    found = read_visible_end(disk, PATH)
    assert found is not None
    assert (found.offset, found.epoch, found.sequence) == (400, 2, 2)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=8), st.integers(0, FILE_BYTES - 1), st.integers(1, 255))
def test_any_damage_leaves_one_of_the_last_two(steps: list[int], position: int, flip: int) -> None:
    """A flipped byte in one copy leaves the other."""
    disk = SimDisk()
    end = VisibleEnd(disk, PATH, ManualClock(), 1)
    offsets = [sum(steps[: count + 1]) for count in range(len(steps))]
    for offset in offsets:
        end.set(offset)
    file = disk.open(PATH)
    data = bytearray(file.read(0, FILE_BYTES))
    data[position] ^= flip
    file.write(0, [bytes(data)])
    found = read_visible_end(disk, PATH)
    assert (found.offset if found else None) in {*offsets[-2:], offsets[-1] if len(offsets) > 1 else None}


@pytest.mark.parametrize("stop", range(1, 7))
def test_kill_at_any_write_leaves_one_of_the_last_two(stop: int) -> None:
    """Half a write is no copy."""
    disk = SimDisk()
    disk.stop_after(stop)
    done = [0]
    try:
        end = VisibleEnd(disk, PATH, ManualClock(), 1)
        for offset in range(10, 100, 10):
            end.set(offset)
            done.append(offset)
    except PowerCut:
        disk.kill()
    found = read_visible_end(disk, PATH)
    assert (0 if found is None else found.offset) in (done[-1], done[-1] + 10)


def test_failed_write_stops_it_and_nothing_else() -> None:
    """The end stays behind, and the node goes on."""
    disk = SimDisk()
    end = VisibleEnd(disk, PATH, ManualClock(), 1)
    end.set(10)
    disk.fail("write")
    end.set(20)
    end.set(30)
    end.close()
    assert end.trouble is not None
    found = read_visible_end(disk, PATH)
    assert found is not None
    assert found.offset == 10


def test_end_that_falls_is_a_bug() -> None:
    """It is asserted."""
    end = VisibleEnd(SimDisk(), PATH, ManualClock(), 1)
    end.set(10)
    with pytest.raises(AssertionError):
        end.set(9)


def test_file_of_another_size_is_none() -> None:
    """Nothing is read into it."""
    disk = SimDisk()
    disk.open(PATH, create=True).write(0, [b"x" * (COPY_BYTES + 3)])
    assert read_visible_end(disk, PATH) is None
    VisibleEnd(disk, PATH, ManualClock(), 1).set(5)
    assert read_visible_end(disk, PATH) is not None


def test_reader_beside_a_writer_sees_only_what_was_set(tmp_path: Path) -> None:
    """A real file, written as fast as can be; what is read never goes back."""
    path = str(tmp_path / "visible-end")
    end = VisibleEnd(RealDisk(), path, SystemClock(), 1)
    end.set(0)
    stop = threading.Event()

    def write() -> None:
        offset = 0
        while not stop.is_set():
            offset += 3
            end.set(offset)

    writer = threading.Thread(target=write)
    writer.start()
    disk, last = RealDisk(read_only=True), 0
    try:
        for _ in range(2000):
            found = read_visible_end(disk, path)
            assert found is not None
            assert found.offset % 3 == 0
            assert found.offset >= last - 3
            last = found.offset
    finally:
        stop.set()
        writer.join()
