"""Loops: every occurrence at its time, missed ones, topics that take nothing, clocks that step, cancels."""

from __future__ import annotations

import pytest

from broker.format.message import message_of
from broker.log.put import Put
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.recurring import metrics as counted
from broker.scheduled.recurring.loops import UNFOLD_COUNT
from broker.scheduled.recurring.occurrence import Occurrence
from broker.scheduled.timer.due import STEP_MESSAGES
from broker.scheduled.timer.names import TIMER_TOPIC
from broker.scheduled.timer.stages import TimerPipelineStage
from tests.integration.loop_tools import START_S, TOPIC, World, loop, once, uuid, walked, world
from tests.integration.store_tools import HOST

DAY = 86_400


def due_times(first: Occurrence) -> list[tuple[str, int]]:
    """Ids of all occurrences with their times, ms after the start."""
    return [(each.id, (each.at_s - START_S) * 1000) for each in walked(first)]


@pytest.mark.parametrize(
    "first",
    [
        loop(at=5, every=3, times=20),
        loop(at=3600, every=4 * 3600, times=10**6, expire=DAY),
        loop(at=60, growth=2, times=14),
        loop(at=60, growth=300, times=10**6, expire=3 * DAY),
    ],
    ids=["3s", "6h", "powers of 2", "powers of 300"],
)
def test_each_occurrence_is_delivered_at_its_very_millisecond(first: Occurrence) -> None:
    """Over days of virtual time, each under its own id, and then no more."""
    made = world()
    made.add(first)
    made.scheduler.advance(3 * DAY)
    assert made.delivered() == due_times(first)
    assert made.metrics.value(counted.ENDED, "exhausted") == 1
    assert made.metrics.value(counted.DELIVERED) == len(walked(first))


def test_loops_beyond_the_wheel_go_on() -> None:
    """An interval of 300 days, which is rolled on the way: the days pass in leaps, so that each is late by one."""
    made = world()
    first = loop(at=60, every=300 * DAY, times=3)
    made.add(first)
    for _ in range(605):
        made.clock.advance(DAY)
        made.scheduler.advance(2)
    assert made.ids() == [each.id for each in walked(first)]
    late = [at - (each.at_s - START_S) * 1000 for each, (_, at) in zip(walked(first), made.delivered(), strict=True)]
    assert all(0 <= each <= (DAY + 2) * 1000 for each in late)


def test_body_and_properties_stay_over_every_occurrence() -> None:
    """The last delivery has what the first had."""
    made = world()
    body = bytes(range(256))
    made.add(loop(times=5), body, color="red")
    made.scheduler.advance(301)
    queue = made.store.topics[TOPIC].queues[0]
    messages = [message_of(made.store.read(*unit[:2])) for unit in queue.read(0, queue.max_offset)]
    assert len(messages) == 5
    assert {bytes(message.stored_body) for message in messages} == {body}
    assert {message.properties["color"] for message in messages} == {"red"}
    assert all(message.properties.keys() == {"KEYS", "color", "UNIQ_KEY"} for message in messages)
    assert len({message.unique_key for message in messages}) == 5


def test_ten_thousand_missed_occurrences_let_others_pass() -> None:
    """W86: all are delivered in order, and what is due meanwhile comes in between."""
    made = world(segment_bytes=1 << 20)
    made.store.create_topic("other", 1)
    first = loop(at=-30_000, every=3, times=10_000)
    other = once(1, number=9)
    made.add(other, topic="other")
    put = Put(made.store.topics[TOPIC], 0, b"x", b"")
    made.store.append([made.loops.first(put, first)], born_ms=1, born_host=HOST)
    made.store.flush()
    made.clock.advance(1)
    # Each step is a bunch; the other message waits for a step or two, not for all of them.
    for _ in range(4):
        made.scheduler.run_turn()
    assert made.ids("other") == [other.id]
    assert len(made.ids()) <= 5 * UNFOLD_COUNT
    made.scheduler.advance(10)
    assert made.ids() == [each.id for each in walked(first)]


def test_missed_in_a_downtime_come_in_order_and_the_rhythm_goes_on() -> None:
    """A node that was down for an hour delivers what it missed at once, then the next one when it is due."""
    made = world()
    first = loop(at=60, every=60, times=100)
    made.add(first)
    made.scheduler.advance(150)
    made.stop()
    made.disk.kill()
    made.clock.advance(3600)
    made = world(made.disk, made.clock)
    made.scheduler.advance(1)
    assert made.ids() == [each.id for each in walked(first)[:62]]
    made.scheduler.advance(100)
    assert made.delivered()[62:] == due_times(first)[62:64]


def test_missed_of_many_loops_come_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many loops missed how much, a step has no more than its share, and all of it comes in order."""
    made = world()
    firsts = [loop(at=60, every=60, times=60, number=number) for number in range(30)]
    for first in firsts:
        made.add(first)
    made.timers.pause(TimerPipelineStage.DEQUEUE_PUT_MESSAGE)
    made.scheduler.advance(3660)
    made.timers.resume(TimerPipelineStage.DEQUEUE_PUT_MESSAGE)
    due, steps = made.timers.due, []
    deliver_due = due.deliver_due

    def counted_step(now_us: int) -> tuple[int, bool]:
        before = due.delivery.appended
        found = deliver_due(now_us)
        steps.append(due.delivery.appended - before)
        return found

    monkeypatch.setattr(due, "deliver_due", counted_step)
    made.scheduler.advance(1)
    assert max(steps) <= STEP_MESSAGES + UNFOLD_COUNT
    came = made.ids()
    for first in firsts:
        assert [each for each in came if each.endswith(first.uuid)] == [each.id for each in walked(first)]


def test_topic_that_is_gone_holds_up_nobody_and_loses_nothing() -> None:
    """W87: its loop waits, others go on; made again, what was missed comes, and the loop goes on."""
    made = world()
    made.store.create_topic("gone", 1)
    first, other = loop(every=60, times=10), loop(every=60, times=10, number=1)
    made.add(first, topic="gone")
    made.add(other)
    made.store.topic_changes.delete("gone")
    made.scheduler.advance(200)
    assert made.ids() == [each.id for each in walked(other)[:3]]
    made.store.create_topic("gone", 1)
    made.scheduler.advance(11)
    assert made.ids("gone") == [each.id for each in walked(first)[:3]]
    made.scheduler.advance(1000)
    assert made.ids("gone") == [each.id for each in walked(first)]
    assert made.ids() == [each.id for each in walked(other)]


def test_loop_of_a_deleted_topic_can_be_cancelled() -> None:
    """It is refused; the cancel ends it, and a topic of that name gets nothing of it."""
    made = world()
    made.store.create_topic("gone", 1)
    first = loop(every=60, times=10)
    made.add(first, topic="gone")
    made.store.topic_changes.delete("gone")
    made.scheduler.advance(200)
    made.store.create_topic("gone", 1)
    assert made.cancel(first, "gone") is CancelEffect.CANCELLED
    made.scheduler.advance(1000)
    assert made.ids("gone") == []


def test_clock_that_steps_delivers_nothing_early_or_twice() -> None:
    """D35: forward, what is due by the new time comes at once; back, the loop waits for its time by the clock."""
    made = world()
    first = loop(at=60, every=60, times=20)
    made.add(first)
    made.scheduler.advance(61)
    made.clock.set_wall_ms(made.clock.wall_ms() + 300_000)
    made.scheduler.advance(2)
    assert made.ids() == [each.id for each in walked(first)[:6]]
    made.clock.set_wall_ms(made.clock.wall_ms() - 200_000)
    made.scheduler.advance(190)
    assert len(made.ids()) == 6
    made.scheduler.advance(2000)
    assert made.ids() == [each.id for each in walked(first)]


# Cancels


@pytest.mark.parametrize("named", [0, 2, 3, 9])
def test_cancel_by_any_id_of_a_loop_ends_it(named: int) -> None:
    """The id of the add, of a past delivery, of the next and of a later one; again, it is cancelled still."""
    made = world()
    first = loop(every=60, times=10)
    other = loop(every=60, times=10, number=1)
    made.add(first)
    made.add(other)
    made.scheduler.advance(200)
    for _ in range(2):
        assert made.cancel(walked(first)[named]) is CancelEffect.CANCELLED
    made.scheduler.advance(2000)
    assert [each for each in made.ids() if each.endswith(uuid(0))] == [each.id for each in walked(first)[:3]]
    assert len(made.ids()) == 13
    assert made.cancel(walked(first)[named]) is CancelEffect.CANCELLED


def test_cancel_of_a_single_message() -> None:
    """Before its time it is cancelled, after that too late."""
    made = world()
    made.add(once(60))
    made.add(once(60, number=1))
    assert made.cancel(once(60)) is CancelEffect.CANCELLED
    made.scheduler.advance(100)
    assert made.ids() == [once(60, number=1).id]
    assert made.cancel(once(60, number=1)) is CancelEffect.TOO_LATE
    assert made.cancel(once(60)) is CancelEffect.CANCELLED


def test_cancel_of_what_is_past_or_was_never_there() -> None:
    """A loop that is exhausted and a message delivered at once are too late; others unknown, also in other topics."""
    made = world()
    made.store.create_topic("other", 1)
    first = loop(every=60, times=3)
    made.add(first)
    made.add(once(-5, number=1))
    assert made.cancel(loop(number=7)) is CancelEffect.UNKNOWN
    assert made.cancel(first, "other") is CancelEffect.UNKNOWN
    assert made.cancel(once(-5, number=1)) is CancelEffect.TOO_LATE
    made.scheduler.advance(1000)
    assert made.cancel(first) is CancelEffect.TOO_LATE
    assert len(made.ids()) == 4


def test_cancel_in_a_store_without_timers_is_unknown() -> None:
    """Nothing was ever added."""
    made = world()
    assert made.cancel(loop()) is CancelEffect.UNKNOWN
    assert TIMER_TOPIC not in made.store.topics


def test_cancel_among_missed_occurrences_ends_them() -> None:
    """The loop is in the middle of 10,000 missed ones, one bunch after the other."""
    made = world(segment_bytes=1 << 20)
    first = loop(at=-30_000, every=3, times=10_000)
    put = Put(made.store.topics[TOPIC], 0, b"x", b"")
    made.store.append([made.loops.first(put, first)], born_ms=1, born_host=HOST)
    made.store.flush()
    made.clock.advance(1)
    for _ in range(6):
        made.scheduler.run_turn()
    assert made.cancel(first) is CancelEffect.CANCELLED
    count = len(made.ids())
    assert 0 < count < 5000
    made.scheduler.advance(1000)
    assert made.ids() == [each.id for each in walked(first)[:count]]


def test_cancel_survives_a_kill() -> None:
    """It was answered; after kill -9 and a week nothing comes."""
    made = world()
    first = loop(every=60, times=100)
    made.add(first)
    made.scheduler.advance(100)
    assert made.cancel(first) is CancelEffect.CANCELLED
    made = made.again()
    made.clock.advance(7 * DAY)
    made.scheduler.advance(10)
    assert made.ids() == [first.id]
    assert made.cancel(first) is CancelEffect.CANCELLED


def test_cancel_ends_an_add_that_was_stored_twice() -> None:
    """The answer was lost with the node, and the add sent again: both go."""
    made = world()
    first = loop(every=60, times=100)
    made.add(first)
    made.add(first)
    made.scheduler.advance(130)
    assert len(made.ids()) == 4
    assert made.cancel(first) is CancelEffect.CANCELLED
    made.scheduler.advance(1000)
    assert len(made.ids()) == 4


def test_ended_loops_are_counted_by_how_they_ended() -> None:
    """A loop that is cancelled, and neither a cancel that comes again nor one of a single message."""
    made = world()
    for number in range(3):
        made.add(loop(every=60, times=2, number=number))
    made.add(once(60, number=3))
    for target in (loop(every=60, times=2), loop(every=60, times=2), once(60, number=3)):
        assert made.cancel(target) is CancelEffect.CANCELLED
    made.scheduler.advance(500)
    assert made.metrics.value(counted.ENDED, "cancelled") == 1
    assert made.metrics.value(counted.ENDED, "exhausted") == 2


# Moves


def pending(made: World) -> str:
    """UNIQ_KEY of the newest record that waited."""
    queue = made.store.topics[TIMER_TOPIC].queues[0]
    [(physical, size, _)] = queue.read(queue.max_offset - 1, 1)
    return message_of(made.store.read(physical, size)).unique_key


@pytest.mark.parametrize("to", [-500, 0, 100, 130, 179, 181, 300, 390, 5000])
@pytest.mark.parametrize("again", [False, True])
def test_moved_occurrence_is_delivered_then_and_the_loop_goes_on(to: int, again: bool) -> None:
    """Sooner, over, and later: only that one moves; the moments that pass before it come with it, in their order."""
    made = world()
    first = loop(at=60, every=60, times=6)
    made.add(first)
    made.scheduler.advance(100)
    assert made.timers.reschedule(TOPIC, pending(made), (START_S + to) * 1000).outcome is CancelEffect.CANCELLED
    if again:
        made = made.again()
    made.scheduler.advance(6000)
    moved = max(to, 100)
    times = [60, moved, *(max(moved, at) for at in (180, 240, 300, 360))]
    assert made.ids() == [each.id for each in walked(first)]
    assert [at // 1000 for _, at in made.delivered()] == times
    # What ended by itself; a move ends nothing.
    assert made.metrics.value(counted.ENDED, "cancelled") == 0
    assert made.metrics.value(counted.ENDED, "exhausted") == 1


def test_moved_loop_is_cancelled_by_its_id_as_ever() -> None:
    """Whichever record waits; and it is too late when what was moved was the last and is delivered."""
    made = world()
    first, last = loop(every=60, times=6), loop(at=60, times=1, number=1)
    made.add(last)
    made.add(first)
    made.timers.reschedule(TOPIC, pending(made), (START_S + 200) * 1000)
    made.scheduler.advance(100)
    assert made.ids() == [last.id]
    assert made.cancel(first) is CancelEffect.CANCELLED
    moved = (loop(at=200, times=1, number=2), once(200, number=3))
    for each in moved:
        made.add(each)
        assert made.timers.reschedule(TOPIC, pending(made), START_S * 1000).outcome is CancelEffect.CANCELLED
    made.scheduler.advance(1)
    assert sorted(made.ids()) == sorted(each.id for each in (last, *moved))
    assert [made.cancel(each) for each in moved] == [CancelEffect.TOO_LATE] * 2
