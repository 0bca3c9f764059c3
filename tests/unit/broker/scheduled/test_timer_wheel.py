"""The timer wheel: what a slot holds and when it is in the file, and which slot comes next."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.scheduled.timer.pending.wheel import Slot, TimerWheel
from pyddmq.testing import SimDisk

SLOTS = 5
PLACES = 2 * SLOTS


@given(
    written=st.lists(st.integers(PLACES, 5 * PLACES), max_size=8),
    changed=st.lists(st.integers(PLACES, 5 * PLACES), max_size=4),
    start=st.integers(PLACES, 3 * PLACES),
    length=st.integers(0, 6 * PLACES),
)
def test_next_used_slot_is_the_first_that_a_look_at_each_finds(
    written: list[int], changed: list[int], start: int, length: int
) -> None:
    """Within a round and over many of them, for slots on the disk and slots that are not written yet."""
    disk = SimDisk()
    disk.make_folder("/s")
    wheel = TimerWheel("/s", disk=disk, slots=SLOTS, precision_ms=1000)
    wheel.reset()
    for time in written:
        wheel.put(time * 1000, Slot(0, 0, 1))
    wheel.write()
    for time in changed:
        wheel.put(time * 1000, Slot(52, 52, 1))
    end = start + length
    each = [time for time in range(start, end) if wheel.get(time * 1000) is not None]
    assert wheel.next_used(start * 1000, end * 1000) == (each[0] if each else end) * 1000


def new_wheel(disk: SimDisk | None = None, *, slots: int = SLOTS, precision_ms: int = 1000) -> TimerWheel:
    """An empty wheel, written."""
    disk = disk or SimDisk()
    disk.make_folder("/s")
    wheel = TimerWheel("/s", disk=disk, slots=slots, precision_ms=precision_ms)
    wheel.reset()
    return wheel


def opened(disk: SimDisk, *, slots: int = SLOTS) -> TimerWheel:
    """The wheel that is on the disk."""
    wheel = TimerWheel("/s", disk=disk, slots=slots, precision_ms=1000)
    assert wheel.open()
    return wheel


@pytest.mark.parametrize("written", [False, True])
def test_slot_of_another_round_is_empty(*, written: bool) -> None:
    """A place is never cleared: its time tells whether it is the slot that was asked for."""
    wheel = new_wheel()
    wheel.put(12_000, Slot(0, 52, 2))
    if written:
        wheel.write()
    assert wheel.get(12_999) == Slot(0, 52, 2)
    assert wheel.get(12_000 - wheel.round_ms) is None
    assert wheel.get(12_000 + wheel.round_ms) is None
    wheel.put(12_000 + wheel.round_ms, Slot(104, 104, 1))
    assert wheel.get(12_000) is None


def test_empty_slot_stays_empty_when_the_wheel_is_opened_again() -> None:
    """Its place does not come back as a leftover that has the right time."""
    disk = SimDisk()
    wheel = new_wheel(disk)
    wheel.put(12_000, Slot(0, 52, 2))
    wheel.write()
    wheel.empty(12_000)
    assert wheel.get(12_000) is None
    wheel.empty(13_000)
    assert wheel.changed == 1
    wheel.write()
    wheel.close()
    assert opened(disk).get(12_000) is None


def test_what_changes_while_slots_are_written_waits_for_the_next_time() -> None:
    """The file gets what was taken; the later change is not lost, and not in the file before its unit is durable."""
    disk = SimDisk()
    wheel = new_wheel(disk)
    wheel.put(12_000, Slot(0, 0, 1))
    wheel.put(17_000, Slot(52, 52, 1))
    taken = wheel.take()
    wheel.put(12_000, Slot(0, 104, 2))
    wheel.write_taken(taken)
    assert wheel.changed == 1
    assert wheel.get(12_000) == Slot(0, 104, 2)
    assert opened(disk).get(12_000) == Slot(0, 0, 1)
    assert opened(disk).get(17_000) == Slot(52, 52, 1)


def test_slots_whose_write_fails_wait_on() -> None:
    """They are read as they were put, and written the next time."""
    disk = SimDisk()
    wheel = new_wheel(disk)
    wheel.put(12_000, Slot(0, 0, 1))
    disk.fail("write")
    with pytest.raises(OSError, match="Input/output"):
        wheel.write()
    assert (wheel.changed, wheel.get(12_000)) == (1, Slot(0, 0, 1))
    wheel.write()
    assert (wheel.changed, opened(disk).get(12_000)) == (0, Slot(0, 0, 1))


def test_wheel_of_an_earlier_process_is_synced_though_nothing_was_written_since() -> None:
    """What a killed process wrote last may be in the page cache alone; then it is durable, and not synced again."""
    disk = SimDisk()
    new_wheel(disk).put(12_000, Slot(0, 0, 1))
    wheel = opened(disk)
    before = disk.synced_files
    wheel.sync()
    wheel.sync()
    assert disk.synced_files == before + 1
    wheel.put(12_000, Slot(0, 0, 1))
    wheel.write()
    assert len(list(wheel.syncing())) == 1
    assert not list(wheel.syncing())


def test_file_of_another_size_is_no_wheel() -> None:
    """Slots would be looked for in other places; a missing one is none either."""
    disk = SimDisk()
    wheel = TimerWheel("/s", disk=disk, slots=SLOTS, precision_ms=1000)
    assert not wheel.open()
    new_wheel(disk)
    assert not TimerWheel("/s", disk=disk, slots=SLOTS + 1, precision_ms=1000).open()
    assert wheel.open()


def test_new_wheel_that_cannot_be_made_leaves_no_file() -> None:
    """A file without its size would be taken for a wheel of another one."""
    disk = SimDisk()
    wheel = new_wheel(disk)
    disk.fail("truncate")
    with pytest.raises(OSError, match="Input/output"):
        wheel.reset()
    assert not disk.exists("/s/timerwheel")


@pytest.mark.parametrize("precision_ms", [1000, 500, 200, 100])
def test_width_of_slots_is_told_by_their_times(precision_ms: int) -> None:
    """RocketMQ's configuration is not known, and with another width no slot would be found."""
    disk = SimDisk()
    theirs, now_ms = new_wheel(disk, precision_ms=precision_ms), 1_700_000_000_000
    assert opened(disk).precision_near(now_ms) == 1000
    for seconds in range(9):
        theirs.put(now_ms + seconds * precision_ms, Slot(0, 0, 1))
    theirs.write()
    assert opened(disk).precision_near(now_ms) == precision_ms


@pytest.mark.parametrize(
    ("slot", "leads_out"),
    [
        (Slot(0, 104, 3), False),
        (Slot(0, 156, 3), True),
        (Slot(-1, 52, 3), True),
        (Slot(104, 52, 3), True),
    ],
)
def test_slot_that_names_no_unit_of_the_log_leads_out(slot: Slot, *, leads_out: bool) -> None:
    """Only among those that are still to be read; one that was changed since the start counts as it is now."""
    disk = SimDisk()
    wheel = new_wheel(disk)
    wheel.put(17_000, slot)
    wheel.write()
    assert wheel.leads_out(10_000, 156) is leads_out
    assert not wheel.leads_out(18_000, 156)
    wheel.put(17_000, Slot(0, 52, 1))
    assert not wheel.leads_out(10_000, 156)
    wheel.put(17_000, Slot(0, 208, 1))
    assert wheel.leads_out(10_000, 156)
