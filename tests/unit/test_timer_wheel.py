"""The timer wheel: which slot comes next, over any stretch of time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.scheduled.timer.wheel import Slot, TimerWheel
from broker.testing import SimDisk

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
