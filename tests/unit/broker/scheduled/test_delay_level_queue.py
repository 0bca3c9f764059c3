"""One delay level: the ranges of what is settled, due times that never fall, and what is taken when."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.queues.consume_queue import FILLER_BYTES, UNIT, ConsumeQueue
from broker.scheduled.delay.level_queue import DelayLevel, LevelMessage, Ranges, RefusedDelay
from pyddmq.testing import ManualClock, SimDisk

DELAY_MS = 10_000
LATE = 10**9


def new_level(*dues: int | None, clock: ManualClock | None = None) -> DelayLevel:
    """A level whose queue has messages of 100 bytes with these due times; None stands for a filler."""
    queue = ConsumeQueue("t", 0, root="/r", disk=SimDisk(), file_units=1000)
    for offset, due in enumerate(dues):
        queue.restore(offset, FILLER_BYTES if due is None else UNIT.pack(offset * 100, 100, due))
    return DelayLevel(3, DELAY_MS, queue, clock or ManualClock(1000))


def offsets(level: DelayLevel, now_ms: int = LATE, *, count_max: int = 100, bytes_max: int = 1 << 20) -> list[int]:
    """Take what is due; return its offsets."""
    level.look()
    return [each.offset for each in level.take(now_ms, count_max, bytes_max)]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=30), st.integers(0, 50))
def test_ranges_are_a_set(added: list[tuple[int, int]], cut: int) -> None:
    """Against a plain set, cut at the end."""
    ranges, plain = Ranges(), set[int]()
    for start, count in added:
        ranges.add(start, start + count)
        plain.update(range(start, start + count))
        assert len(ranges) == len(plain)
        assert all((offset in ranges) == (offset in plain) for offset in range(60))
        assert all(
            ranges.within(begin, end) == len(plain & set(range(begin, end)))
            for begin in range(0, 60, 7)
            for end in range(begin, 60, 5)
        )
        assert all(ranges.after(each) == min(set(range(each, 61)) - plain) for each in range(60))
    end = ranges.cut(cut)
    while cut in plain:
        cut += 1
    assert end == cut
    assert all(start >= cut for start, _ in ranges.ranges)


class Event(NamedTuple):
    """What happens next: a message is sent, the clock is stepped by ms, or seconds pass."""

    what: str
    amount: int = 0


EVENTS = st.one_of(
    st.just(Event("send")),
    st.builds(Event, st.just("step"), st.sampled_from([-7_200_000, -4_000, -7, 3, 2_500, 7_200_000])),
    st.builds(Event, st.just("pass"), st.sampled_from([0, 1, 4, 9, 11])),
)


@settings(max_examples=200)
@given(st.lists(EVENTS, max_size=40))
def test_message_comes_when_it_is_due_or_its_delay_has_passed_whatever_the_clock_does(events: list[Event]) -> None:
    """D35: not before the wall clock shows its moment, or it has waited; not after both, seen at each second."""
    queue = ConsumeQueue("t", 0, root="/r", disk=SimDisk(), file_units=1000)
    clock = ManualClock(10_000_000)
    level = DelayLevel(1, DELAY_MS, queue, clock)
    sent: list[tuple[int, float]] = []
    taken: set[int] = set()

    def look() -> None:
        level.look()
        level.check_clock()
        found = [each.offset for each in level.take(clock.wall_ms(), 1000, LATE)]
        assert not taken & set(found), "twice"
        taken.update(found)
        for offset, (due_ms, at) in enumerate(sent):
            if offset in found:
                waited_ms = (clock.monotonic() - at) * 1000
                assert clock.wall_ms() >= due_ms or waited_ms >= DELAY_MS, "early"
            elif offset not in taken:
                assert clock.wall_ms() < due_ms, "late"
        for offset in taken:
            assert level.is_tried(offset)

    for event in events:
        if event.what == "send":
            due_ms = clock.wall_ms() + DELAY_MS
            queue.restore(len(sent), UNIT.pack(len(sent) * 100, 100, due_ms))
            sent.append((due_ms, clock.monotonic()))
        elif event.what == "step":
            clock.set_wall_ms(clock.wall_ms() + event.amount)
        else:
            for _ in range(event.amount):
                clock.advance(1)
                look()
        look()
    for _ in range(DELAY_MS // 1000 + 1):
        clock.advance(1)
        look()
    assert len(taken) == len(sent), "what was noticed to be due too late waits one delay at most"


@given(st.lists(st.integers(0, 12), max_size=6), st.sets(st.integers(0, 12), min_size=1), st.sets(st.integers(0, 12)))
def test_settling_many_is_settling_each(before: list[int], offsets: set[int], refused: set[int]) -> None:
    """Position, what is settled above it and what is refused are the same, whatever was settled before."""
    found = []
    for many in (False, True):
        queue = ConsumeQueue("t", 0, root="/r", disk=SimDisk(), file_units=1000)
        level = DelayLevel(1, 10_000, queue, ManualClock())
        for offset in before:
            level.complete(offset)
        messages = [LevelMessage(1, offset, offset * 100, 100, 5) for offset in sorted(offsets)]
        level.refused = {offset: RefusedDelay(messages[0], "refused", 0) for offset in sorted(refused)}
        if many:
            level.complete_all(messages)
        else:
            for message in messages:
                level.complete(message.offset)
        tried = [level.is_tried(offset) for offset in range(14)]
        found.append((level.position, tried, level.completed.ranges, list(level.refused)))
    assert found[0] == found[1]


def test_what_was_delivered_behind_a_filler_is_not_taken_again() -> None:
    """A filler where the level stands completes what is behind it: damage took the record before a delivered one."""
    level = new_level(5, None, 5, 5)
    level.complete(0)
    level.complete(2)
    assert offsets(level) == [3]
    assert level.pending == 1


def test_message_is_taken_at_its_due_time_and_once() -> None:
    """In the order of the queue; what is not due holds those behind it, which are due later."""
    level = new_level(5, 6, 6, 7)
    assert offsets(level, 4) == []
    assert offsets(level, 6) == [0, 1, 2]
    assert offsets(level, 6) == []
    assert level.head() == LevelMessage(3, 3, 300, 100, 7)


def test_take_is_bounded_but_never_empty_when_something_is_due() -> None:
    """By count and by bytes; a message larger than all the bytes of a step would wait for ever."""
    level = new_level(*[5] * 6)
    assert offsets(level, count_max=2) == [0, 1]
    assert offsets(level, bytes_max=250) == [2, 3]
    assert offsets(level, bytes_max=1) == [4]


def test_filler_is_completed_on_the_way() -> None:
    """A record that was lost is not waited for."""
    level = new_level(None, 5, None)
    assert offsets(level) == [1]
    assert (level.position, level.pending) == (1, 1)
    level.complete(1)
    assert (level.position, level.pending) == (3, 0)


def test_position_is_the_first_that_is_not_completed() -> None:
    """It passes at once what was settled behind it; a start begins there and delivers none of those again."""
    level = new_level(*[5] * 5)
    offsets(level)
    for offset in (3, 1, 2):
        level.complete(offset)
    assert (level.position, level.pending, level.completed.ranges) == (0, 2, [[1, 4]])
    level.complete(0)
    assert (level.position, level.pending, level.completed.ranges) == (4, 1, [])


def test_held_message_is_passed_over_until_it_is_let_go() -> None:
    """A cancel is about to take its place."""
    level = new_level(5, 5, 5, 5)
    level.held = {0, 2}
    assert level.head() == LevelMessage(3, 1, 100, 100, 5)
    assert offsets(level) == [1, 3]
    level.held.clear()
    level.give_back([0, 1, 2, 3])
    level.complete(1)
    assert offsets(level) == [0, 2, 3]


def test_message_given_back_is_taken_again_and_refused_ones_before_it_stay_refused() -> None:
    """Those from it on are looked at anew, and are refused no more."""
    level = new_level(*[5] * 4)
    offsets(level)
    message = LevelMessage(3, 1, 100, 100, 5)
    level.refused = {1: RefusedDelay(message, "refused", 0), 3: RefusedDelay(message, "refused", 0)}
    level.give_back([2, 3])
    assert list(level.refused) == [1]
    assert offsets(level) == [2, 3]


@pytest.mark.parametrize(("asked", "position"), [(-1, 0), (2, 3), (9, 4)])
def test_level_begins_within_its_queue_behind_what_is_completed(asked: int, position: int) -> None:
    """A saved position may lie outside of a queue that was made anew; it never goes back."""
    level = new_level(*[5] * 4)
    level.complete(2)
    level.refused = {0: RefusedDelay(LevelMessage(3, 0, 0, 100, 5), "refused", 0)}
    level.begin_at(asked)
    assert (level.position, level.is_tried(position - 1), level.is_tried(position)) == (position, True, False)
    assert list(level.refused) == ([0] if position == 0 else [])
    level.begin_at(0)
    assert level.position == position


def test_clock_that_was_set_back_makes_nothing_wait_longer_than_the_delay() -> None:
    """D35: what was stored before the step is due a delay after it was noticed, and what is due earlier stays."""
    clock = ManualClock(1000)
    level = new_level(500, 50_000, 50_001, clock=clock)
    level.look()
    level.check_clock()
    assert [each.due_ms for each in level.waiting(0)] == [500, 11_000, 11_000]
    level.queue.restore(3, UNIT.pack(300, 100, 11_500))
    level.look()
    clock.advance(1)
    level.check_clock()
    assert [each.due_ms for each in level.waiting(0)] == [500, 11_000, 11_000, 11_500]


def test_clock_that_is_set_right_again_hurries_nothing() -> None:
    """What a step back promised counts from then on by the monotonic clock: two hours forward are not waited time."""
    clock = ManualClock(1000)
    level = new_level(50_000, 50_001, clock=clock)
    level.look()
    level.check_clock()
    assert [each.due_ms for each in level.waiting(0)] == [11_000, 11_000]
    clock.set_wall_ms(41_000)
    assert [each.due_ms for each in level.waiting(0)] == [50_000, 50_001]
    assert offsets(level, 41_000) == []


def test_what_came_after_a_step_back_does_not_wait_for_what_came_before() -> None:
    """Its moment is sooner; what is given back of either run is taken again, and of the other nothing."""
    clock = ManualClock(1000)
    level = new_level(50_000, 50_001, 40_000, 40_001, clock=clock)
    level.look()
    clock.set_wall_ms(41_000)
    assert offsets(level, 41_000, count_max=1) == [2]
    assert level.head() == LevelMessage(3, 3, 300, 100, 40_001)
    assert offsets(level, 41_000) == [3]
    level.give_back([3])
    assert [level.is_tried(offset) for offset in range(4)] == [False, False, True, False]
    assert offsets(level, 60_000) == [0, 1, 3]
    level.give_back([1, 3])
    assert offsets(level, 60_000) == [1, 3]
    for offset in (2, 3, 1, 0):
        level.complete(offset)
    assert (level.position, level.pending, level.head()) == (4, 0, None)


def test_runs_are_bounded() -> None:
    """A clock that is set back again and again makes later messages wait for earlier ones, never come before."""
    level = new_level(*range(1000, 0, -1))
    assert offsets(level, 936, count_max=1000) == [], "the 64th run has all from there on, the latest first"
    assert offsets(level, 937, count_max=1000) == list(range(63, 1000))


def test_due_times_are_looked_at_a_bounded_number_at_a_time() -> None:
    """A level of millions is opened in steps; whether all of it was seen is told."""
    level = new_level(9, 8, 7, 1)
    assert not level.look(3)
    assert level.look(3)
