"""The table of timers: in which slot each stands, what is pending, and up to where everything is completed."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.runtime.steps import run_now
from broker.scheduled.timer.names import TimerOptions, slot_of
from broker.scheduled.timer.pending.log import MAGIC_DELETE, MAGIC_ROLL, MAGIC_TIMER, TimerLog, Unit
from broker.scheduled.timer.pending.table import CHUNK_UNITS, PendingTimerRecord, TimerTable, key_of
from broker.scheduled.timer.pending.wheel import TimerWheel
from pyddmq.testing import SimDisk

SECOND = 1000
NOW = 1_700_000_000_000
OPTIONS = TimerOptions(slots=90, roll_slots=30, log_file_bytes=52 * 8 + 16)
"""A round of 180 slots; what is due in 30 slots or more is rolled."""
TOPIC = 7


class Table:
    """A table over an empty timer log and wheel, which begins to read now."""

    def __init__(self) -> None:
        self.disk = SimDisk()
        self.disk.make_folder("/s")
        self.log = TimerLog("/s", disk=self.disk, file_bytes=OPTIONS.log_file_bytes)
        self.wheel = TimerWheel("/s", disk=self.disk, slots=OPTIONS.slots, precision_ms=OPTIONS.precision_ms)
        self.wheel.reset()
        self.table = TimerTable(self.log, self.wheel, OPTIONS, lambda unit: unit.slot_ms + 1)
        self.table.begin_at(NOW)
        self.physical = 0

    def entry(self, due_ms: int, *, replaces: int = -1, cancel: bool = False) -> PendingTimerRecord:
        """A record of the timer topic, behind all others in the log."""
        self.physical += 300
        return PendingTimerRecord(self.physical, 300, slot_of(due_ms, SECOND), due_ms, TOPIC, replaces, cancel)

    def enter(self, *dues: int, now_ms: int = NOW) -> list[int]:
        """Enter timers; return the commit-log offsets of their records."""
        entries = [self.entry(due) for due in dues]
        assert self.table.enter(entries, now_ms) == len(entries)
        return [entry.physical for entry in entries]

    def read(self, slots: int = 1, **options: bool) -> int:
        """Read so many slots; return how many timers they had."""
        return sum(run_now(self.table.read_slot(0, **options)) for _ in range(slots))

    def take(self, now_ms: int = NOW + 10**6) -> list[int]:
        """Take all that is due; return the commit-log offsets of their records."""
        return [self.log.unit(position).physical for position in self.table.coming.take(now_ms, 1000)]

    def unit(self, physical: int) -> Unit:
        """Unit of a record, which has one."""
        return self.log.unit(self.position(physical))

    def position(self, physical: int) -> int:
        """Where that is."""
        position = self.log.find(physical)
        assert position is not None
        return position

    def complete(self, *physicals: int) -> None:
        """Settle timers that were taken."""
        for physical in physicals:
            self.table.complete(self.unit(physical))

    def is_pending(self, physical: int) -> bool:
        """Whether a timer is neither completed nor under way."""
        return self.table.is_pending(self.unit(physical), self.position(physical))

    @property
    def pending(self) -> int:
        """How many timers need something."""
        return self.table.pending.get(TOPIC, 0)


# Entering


@pytest.mark.parametrize(
    ("seconds", "slot", "magic"),
    [
        (0, 0, MAGIC_TIMER),
        (29, 29, MAGIC_TIMER),
        (30, 15, MAGIC_TIMER | MAGIC_ROLL),
        (39, 15, MAGIC_TIMER | MAGIC_ROLL),
        (40, 30, MAGIC_TIMER | MAGIC_ROLL),
        (100_000, 30, MAGIC_TIMER | MAGIC_ROLL),
    ],
)
def test_far_timer_rolls_half_a_window_or_a_whole_one(seconds: int, slot: int, magic: int) -> None:
    """Half of it when the rest is short, so that the last roll is not a tiny one (TimerMessageStore.doEnqueue)."""
    made = Table()
    assert made.table.slot_for(NOW + seconds * SECOND, NOW + 999) == (NOW + slot * SECOND, magic)


def test_units_of_a_slot_lead_back_from_its_last_to_its_first() -> None:
    """The wheel names both ends and counts; a cancel counts against them."""
    made = Table()
    made.enter(NOW + 5001, NOW + 9001, NOW + 5002)
    made.table.enter([made.entry(NOW + 5003, cancel=True)], NOW)
    slot = made.wheel.get(NOW + 5000)
    assert slot is not None
    chain, _ = made.log.chain(slot.last, NOW + 5000, above=-1, count_max=9)
    assert [(unit.due_ms - NOW, unit.magic) for _, unit in chain] == [
        (5003, MAGIC_TIMER | MAGIC_DELETE),
        (5002, MAGIC_TIMER),
        (5001, MAGIC_TIMER),
    ]
    assert (chain[-1][0], slot.timers) == (slot.first, 1)


def test_slot_of_the_next_round_has_no_room_until_its_place_is_free() -> None:
    """Otherwise a slot whose timers wait would be written over. The rest of the batch waits, in its order."""
    made = Table()
    made.table.roll_slots = 1000
    made.enter(NOW + 1)
    far = [made.entry(NOW + each) for each in (179_001, 180_001, 5001)]
    assert made.table.enter(far, NOW) == 1
    assert made.pending == 2
    made.read()
    made.complete(*made.take())
    assert made.table.enter(far[1:], NOW) == 2


def test_failed_write_enters_nothing() -> None:
    """Neither in the wheel nor in the counts: the same entries are entered when the disk takes them."""
    made = Table()
    entries = [made.entry(NOW + 5001)]
    made.disk.fail("write", error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        made.table.enter(entries, NOW)
    assert (made.pending, made.wheel.get(NOW + 5000), made.log.count) == (0, None, 0)
    assert made.table.enter(entries, NOW) == 1
    assert made.pending == 1


def test_write_time_is_no_more_than_the_window_before_the_slot() -> None:
    """A unit holds the difference of both in 32 bits of ms, 24 days: a clock that was set back may be further away."""
    made = Table()
    made.enter(NOW + 29_001, now_ms=NOW - 60 * 86_400_000)
    [(_, _, _, write_ms, delay_ms, *_)] = made.log.raw(0, 1)
    assert (write_ms, delay_ms) == (NOW - 2000, 31_000)


def test_late_timer_stands_in_the_first_slot_that_is_not_completed_and_is_taken_next() -> None:
    """Its own slot is read already, and would never be looked at again."""
    made = Table()
    [waits] = made.enter(NOW + 4001)
    made.read(5)
    assert made.table.read_ms == NOW + 4000
    [late] = made.enter(NOW + 1)
    assert made.unit(late).slot_ms == NOW + 4000
    assert made.take() == [late, waits]
    made.complete(waits)
    assert made.table.read_ms == NOW + 4000
    made.complete(late)
    assert made.table.read_ms == made.table.next_ms == NOW + 5000


# Reading


def test_slots_are_taken_by_due_time_and_then_in_the_order_of_entering() -> None:
    """Whatever slot or chunk of a slot they were read with."""
    made = Table()
    sent = made.enter(NOW + 1005, NOW + 1003, NOW + 5, NOW + 1005, NOW + 1003)
    assert made.read(2) == 5
    assert made.take() == [sent[each] for each in (2, 1, 4, 0, 3)]


def test_timer_entered_while_its_slot_is_read_is_not_missed() -> None:
    """It is found by another look at the slot; it is not in `coming` twice."""
    made = Table()
    sent = made.enter(*[NOW + 500] * (CHUNK_UNITS + 1))
    steps = made.table.read_slot(0)
    next(steps)
    sent += made.enter(NOW + 500, NOW + 400)
    assert run_now(steps) == len(sent)
    assert made.take() == [sent[-1], *sent[:-1]]


def test_completed_slots_end_at_the_first_that_still_has_one_under_way() -> None:
    """Later slots that are done with do not move it: a checkpoint says that everything before is completed."""
    made = Table()
    first, second = made.enter(NOW + 1, NOW + 2001)
    made.read(4)
    assert made.take() == [first, second]
    made.complete(second)
    assert made.table.read_ms == NOW
    made.complete(first)
    assert made.table.read_ms == NOW + 4000


def test_slot_that_is_held_takes_a_late_timer_though_it_is_empty() -> None:
    """Until the next ones are entered; then it is completed like any other."""
    made = Table()
    made.read()
    assert not made.table.is_open
    made.read(hold=True)
    assert (made.table.is_open, made.table.read_ms) == (True, NOW + SECOND)
    [late] = made.enter(NOW + 1)
    assert made.take() == [late]
    made.complete(late)
    assert not made.table.is_open


def test_units_without_a_due_time_get_that_of_their_record() -> None:
    """RocketMQ's say none (D28); it is written into the unit, so that it is asked for once."""
    made = Table()
    made.enter(NOW + 500)
    made.log.set_due(0, 0)
    made.read()
    assert made.table.coming.next_due == NOW + 1
    assert made.log.unit(0).due_ms == NOW + 1


def test_empty_slots_are_passed_over_up_to_the_moment_or_the_next_timer() -> None:
    """The slot of the moment itself is passed over, too, and nothing is when the next one has a timer."""
    made = Table()
    made.table.skip_empty(NOW + 2500, 0)
    assert made.table.next_ms == NOW + 3000
    made.enter(NOW + 10_001)
    made.table.skip_empty(NOW + 20_000, 0)
    assert (made.table.next_ms, made.table.read_ms) == (NOW + 10_000, NOW + 10_000)
    made.table.skip_empty(NOW + 20_000, 0)
    assert made.table.next_ms == NOW + 10_000


def test_start_has_to_read_the_log_from_where_the_first_uncompleted_slot_was_read() -> None:
    """Nothing of that slot was delivered before; one that was passed over takes late ones, too."""
    made = Table()
    assert made.table.decided_from(900) == 900
    [first] = made.enter(NOW + 1)
    run_now(made.table.read_slot(100))
    made.table.skip_empty(NOW + 3000, 200)
    assert made.table.decided_from(900) == 100
    [late] = made.enter(NOW + 1500)
    made.complete(first)
    assert (made.table.read_ms, made.table.decided_from(900)) == (NOW + 1000, 100)
    made.complete(late)
    assert made.table.decided_from(900) == 900


# Replacing


def test_replaced_timer_is_marked_and_counted_once() -> None:
    """Whether its slot was read or not; what is under way cannot be replaced any more."""
    made = Table()
    soon, later, taken = made.enter(NOW + 2, NOW + 9001, NOW + 1)
    made.read()
    assert made.take(NOW + 1) == [taken]
    assert [made.is_pending(each) for each in (soon, later, taken)] == [True, True, False]
    assert [made.table.replace(each) for each in (soon, later, taken)] == [True, True, False]
    assert [made.table.replace(each) for each in (soon, later)] == [False, False]
    assert made.pending == 1
    assert not made.table.replace(10**9)


def test_record_that_replaces_a_timer_takes_it_out_when_it_is_entered() -> None:
    """A move: one timer is pending afterwards, the new one."""
    made = Table()
    [old] = made.enter(NOW + 5001)
    new = made.entry(NOW + 7001, replaces=old)
    made.table.enter([new], NOW)
    assert (made.is_pending(old), made.is_pending(new.physical), made.pending) == (False, True, 1)


def test_hand_over_leaves_only_what_is_pending_in_slots_that_were_read() -> None:
    """D30: RocketMQ reads those slots anew, and would deliver again what was delivered."""
    made = Table()
    sent = made.enter(NOW + 1, NOW + 2, NOW + 3)
    made.enter(NOW + 1001)
    made.read(2)
    made.complete(*made.take(NOW + 2))
    made.table.relink()
    slot = made.wheel.get(NOW)
    assert slot is not None
    chain, _ = made.log.chain(slot.last, NOW, above=-1, count_max=9)
    assert [(unit.physical, unit.previous) for _, unit in chain] == [(sent[2], -1)]
    assert slot.timers == 1
    assert all(made.position(each) in made.log.marked for each in sent[:2])


# All of it

STEPS = st.lists(
    st.tuples(st.sampled_from(["enter", "enter", "read", "take", "complete", "replace"]), st.integers(0, 1 << 16)),
    max_size=60,
)


@given(STEPS)
def test_each_timer_is_taken_once_unless_it_was_replaced(steps: list[tuple[str, int]]) -> None:
    """After each step what is pending is what the model knows, and nothing of it stands before `read_ms`."""
    made, waiting, under_way, taken = Table(), set[int](), list[int](), list[int]()
    for what, draw in steps:
        if what == "enter":
            waiting.update(made.enter(NOW + 1 + draw % 28_000, NOW + 1 + draw % 997))
        elif what == "read" and made.table.next_ms < NOW + 60_000:
            made.read(draw % 4)
        elif what == "take":
            took = made.take(NOW + draw % 30_000)
            assert waiting.issuperset(took)
            waiting.difference_update(took)
            under_way += took
            taken += took
        elif what == "complete" and under_way:
            made.complete(under_way.pop(draw % len(under_way)))
        elif what == "replace" and waiting:
            # One that is in `coming` stays there, marked, and is taken: whoever takes it sees the mark.
            waits = [each for each in waiting if made.unit(each).slot_ms >= made.table.next_ms]
            if waits:
                gone = sorted(waits)[draw % len(waits)]
                assert made.table.replace(gone)
                waiting.discard(gone)
        assert made.pending == len(waiting) + len(under_way)
        assert made.table.read_ms <= made.table.next_ms
        assert all(made.unit(each).slot_ms >= made.table.read_ms for each in [*waiting, *under_way])
        assert all(made.is_pending(each) for each in waiting)
        assert not any(made.is_pending(each) for each in under_way)
    assert len(set(taken)) == len(taken)


def test_roll_is_taken_when_its_slot_comes_up_and_a_timer_when_it_is_due() -> None:
    """A roll's due time is days away."""
    made = Table()
    made.enter(NOW + 500, NOW + 35_001)
    assert [key_of(made.log.unit(52 * place)) for place in (0, 1)] == [NOW + 500, NOW + 15_000]
    made.read(16)
    assert (made.table.coming.next_due, made.table.rolls.next_due) == (NOW + 500, NOW + 15_000)
