"""Timer log and wheel after a power loss: what is ahead of the other, or torn, is found at the start (D27)."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import StoreError
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.pending.wheel import SLOT, SLOT_BYTES
from pyddmq.testing import ManualClock, PowerCut, SimDisk
from tests.integration.store_tools import ROOT
from tests.integration.timer_tools import SMALL, START_MS, TOPIC, Broker, broker

WHEEL = f"{ROOT}/timerwheel"
LAST_FILE = f"{ROOT}/timerlog/{0:020d}"


def follow_slots(made: Broker) -> None:
    """Read the units of every slot to come; raises TimersDamaged where one leads to what is not of its own."""
    table = made.timers.table
    if made.timers.entering.queue is None or made.timers.parts.is_mending:
        return
    for slot_ms in range(table.read_ms, table.read_ms + table.wheel.round_ms, table.wheel.precision_ms):
        for _ in table.slot_units(slot_ms):
            pass


def run_until(disk: SimDisk, clock: ManualClock, changes: int, random: Random) -> None:
    """Publish for moments that are near, seconds away, or rolled, and let time pass, until the disk stops."""
    disk.stop_after(changes)
    with contextlib.suppress(PowerCut, StoreError, OSError):
        made = broker(disk, clock, segment_bytes=16384, flush="async")
        for number in range(6):
            for _ in range(random.randrange(4)):
                made.store.put(TOPIC, b"%d" % number, delay_ms=random.choice((1, 700, 1000, 2500, 6000, 130_000)))
            made.scheduler.advance(random.choice((0.3, 1.0, 6.0, 20.0)))
        if random.random() < 0.5:
            made.close()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=4), st.integers(0, 1 << 30))
def test_every_slot_leads_to_its_units_after_power_losses(stops: list[int], seed: int) -> None:
    """Without a sync per flush, the power cut at any change of the disk, one time after the other."""
    disk, clock, random = SimDisk(), ManualClock(START_MS), Random(seed)
    for changes in stops:
        run_until(disk, clock, changes, random)
        disk.crash(random)
        made = broker(disk, clock, segment_bytes=16384, flush="async", start=False)
        follow_slots(made)
        made.leave()
        disk.kill()


def waiting() -> Broker:
    """Three timers, due in 60, 61 and 61 s, and a checkpoint of them."""
    made = broker()
    for number, delay in enumerate((60_000, 61_000, 61_000)):
        made.send(b"%d" % number, delay)
    made.scheduler.advance(6)
    return made


def torn(made: Broker, slot: tuple[int, int, int]) -> None:
    """Put other positions and another count into the slot of 61 s."""
    time = (START_MS + 60_999) // 1000
    made.disk.open(WHEEL).write(time % (2 * SMALL.slots) * SLOT_BYTES, [SLOT.pack(time, *slot, 0)])


@pytest.mark.parametrize("slot", [(52, 0, 0), (52, 156, 3), (52, 1 << 40, 2), (-1, 104, 2)])
def test_a_slot_that_leads_out_of_the_timer_log_is_found_at_the_start(slot: tuple[int, int, int]) -> None:
    """Torn, or ahead of the log: log and wheel are made anew at once, not when the slot comes up."""
    made = waiting()
    torn(made, slot)
    made = made.again()
    assert (made.metrics.value(counted.DAMAGED), made.metrics.value(counted.REBUILT)) == (1, 1)
    follow_slots(made)
    made.scheduler.advance(60)
    assert made.delivered() == [b"0", b"1", b"2"]
    assert made.metrics.value(counted.DAMAGED) == 1


def test_slots_are_believed_after_a_clean_stop_and_after_a_kill() -> None:
    """Nothing is made anew where nothing is wrong."""
    made = waiting()
    made.send(b"3", 62_000)
    made.scheduler.advance(1)
    made = made.again()
    made.close()
    made = broker(made.disk, made.clock)
    made.scheduler.advance(70)
    assert made.delivered() == [b"0", b"1", b"2", b"3"]
    assert made.metrics.value(counted.REBUILT) == 0


def test_files_made_anew_have_the_size_that_was_asked_for() -> None:
    """Also where those before had none that one could use."""
    made = waiting()
    whole = made.disk.open(LAST_FILE).size()
    made.disk.open(LAST_FILE).truncate(52 * 2)
    made.disk.remove(f"{ROOT}/pyddmq/timers.json")
    made.disk.remove(f"{ROOT}/config/timercheck")
    made = made.again()
    made.scheduler.advance(1)
    assert made.disk.open(LAST_FILE).size() == whole
    made.scheduler.advance(60)
    assert made.delivered() == [b"0", b"1", b"2"]


@pytest.mark.parametrize("half", ["cancel", "moved"])
def test_move_of_which_a_half_is_gone_has_not_been(half: str) -> None:
    """A record behind it shows that it was written: the timer comes at its old moment, once, over further kills."""
    made = broker()
    key = made.send(b"x", 60_000)
    made.scheduler.advance(1)
    cancel = made.store.end
    made.timers.reschedule(TOPIC, key, START_MS + 90_000)
    found = made.store.record_at(cancel)
    assert found is not None
    made.send(b"behind", 70_000)
    made.leave()
    made.disk.kill()
    made.disk.flip_bit(f"{ROOT}/commitlog/{0:020d}", (cancel if half == "cancel" else cancel + found.size) + 89)
    for _ in range(2):
        made = broker(made.disk, made.clock)
        assert made.pending == 2
        made.leave()
        made.disk.kill()
    made = broker(made.disk, made.clock)
    assert made.timers.cancel(TOPIC, made.send(b"y", 1000)) is CancelEffect.CANCELLED
    made.scheduler.advance(100)
    assert made.times() == [60_000, 71_000]
