"""Timers that are due: what is asked before one is delivered, what a step takes, what is refused and tried again."""

from __future__ import annotations

import pytest

from broker.errors import DamagedRecord, StoreFailed
from broker.scheduled.timer import due as module
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.due import DEFER_MS, RETRY_SECONDS, DueTimers
from broker.scheduled.timer.names import TIMER_TOPIC
from broker.scheduled.timer.pending.log import Taken, TimersDamaged
from tests.integration.timer_tools import Broker, broker

DELAY_MS = 5_000


def due(count: int = 1, *, topic: str = "t", delay_ms: int = DELAY_MS) -> tuple[Broker, DueTimers, list[Taken]]:
    """Timers that have just come due and were taken by nobody, and their units."""
    made = broker()
    if topic not in made.store.topics:
        made.store.create_topic(topic, 1)
    for number in range(count):
        made.send(b"%d" % number, delay_ms, topic)
    made.scheduler.advance(delay_ms / 1000 - 0.001)
    made.timers.stop()
    made.clock.advance(0.001)
    log = made.timers.table.log
    units = [Taken(log.position(number), log.unit(log.position(number))) for number in range(count)]
    return made, made.timers.due, units


def step(made: Broker) -> int:
    """Deliver as many as one step does, durably; return how many were taken."""
    count, _ = made.timers.due.deliver_due(made.clock.wall_us())
    made.store.flush()
    return count


def test_replaced_timer_needs_nothing_more() -> None:
    """The log says so before the wheel does."""
    made, timers, [message, _] = due(2)
    timers.superseded.add(message.unit.physical)
    assert timers.release(message) is None
    assert made.timers.pending == 1
    assert step(made) == 2
    assert made.delivered() == [b"1"]


def test_held_timer_waits_for_whoever_holds_it() -> None:
    """It is not delivered, nobody behind it waits, and it comes when it is let go."""
    made, timers, [message, _] = due(2)
    timers.hold(message.unit.physical)
    step(made)
    assert (made.delivered(), timers.held) == ([b"1"], {message.unit.physical: [message]})
    timers.let_go(message.unit.physical)
    step(made)
    assert (made.delivered(), timers.held) == ([b"1", b"0"], {})


@pytest.mark.parametrize("field", ["due_ms", "physical"])
def test_unit_that_says_other_things_than_its_record_is_damage(field: str) -> None:
    """Nothing is delivered by it: early, or another record."""
    made, timers, [message, _] = due(2)
    wrong = message.unit._replace(**{field: getattr(message.unit, field) + 1})
    with pytest.raises(TimersDamaged):
        timers.release(message._replace(unit=wrong))
    assert made.delivered() == []


def test_damaged_record_is_told_from_a_unit_that_names_none() -> None:
    """The queue of the timer topic knows where records are: then it is the record, which is lost alone."""
    made, timers, [message] = due()
    made.disk.flip_bit(f"/store/commitlog/{0:020d}", message.unit.physical + 4, 0)
    with pytest.raises(DamagedRecord):
        timers.release(message)
    assert step(made) == 1
    assert (made.delivered(), made.timers.pending, made.metrics.value(counted.LOST)) == ([], 0, 1)


def test_step_ends_where_its_records_have_enough_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is due as before, in its order; one is taken however long it is."""
    made, _, [message, *_] = due(3)
    monkeypatch.setattr(module, "STEP_BYTES", 2 * message.unit.size)
    assert step(made) == 2
    assert made.delivered() == [b"0", b"1"]
    monkeypatch.setattr(module, "STEP_BYTES", 1)
    assert step(made) == 1
    assert made.delivered() == [b"0", b"1", b"2"]


def test_refused_timer_is_kept_once_with_its_last_reason() -> None:
    """It is pending, is not delivered, and counts each try."""
    made, timers, [message] = due(topic="gone")
    made.store.topic_changes.delete("gone")
    step(made)
    timers.refuse(message, "another reason")
    [refused] = timers.refused.values()
    assert (refused.timer, refused.reason, refused.tries) == (message, "another reason", 2)
    assert (made.timers.pending, made.metrics.value(counted.REFUSED)) == (1, 2)
    assert timers.refused_units() == [[message.unit.physical, message.unit.size, message.unit.due_ms]]


def test_refused_timers_are_tried_again_those_tried_least_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bounded number at a time, and not before a while."""
    monkeypatch.setattr(module, "RETRIES_PER_STEP", 1)
    made, timers, [first, second] = due(2, topic="gone")
    made.store.topic_changes.delete("gone")
    step(made)
    assert timers.retry_at == made.clock.monotonic() + RETRY_SECONDS
    tried = []
    for _ in range(3):
        assert timers.retry()
        tried.append([timers.refused[each.unit.physical].tries for each in (first, second)])
    assert tried == [[2, 1], [2, 2], [3, 2]]
    made.store.create_topic("gone", 1)
    while timers.refused:
        timers.retry()
        made.store.flush()
    assert (sorted(made.delivered("gone")), made.timers.pending) == ([b"0", b"1"], 0)


def test_one_refused_too_many_is_put_again_for_later() -> None:
    """Its record is a new one, due a while later; where the store takes nothing it is kept all the same."""
    made, timers, [first, second, third] = due(3, topic="gone")
    timers.refused_max = 1
    timers.refuse(first, "no")
    timers.refuse(second, "no")
    made.store.flush()
    assert list(timers.refused) == [first.unit.physical]
    assert made.metrics.value(counted.DEFERRED) == 1
    queue = made.store.topics[TIMER_TOPIC].queues[0]
    assert queue.max_offset == 4
    made.timers.entering.read()
    made.timers.entering.enter()
    again = made.timers.table.log.unit(made.timers.table.log.position(3))
    assert again.due_ms == made.clock.wall_ms() + DEFER_MS
    made.disk.fail("write", path_part="commitlog")
    with pytest.raises(StoreFailed):
        made.store.put("t", b"x")
    timers.refuse(third, "no")
    assert list(timers.refused) == [first.unit.physical, third.unit.physical]


def test_what_is_stored_is_counted_with_how_late_it_was() -> None:
    """Once the store has it durably; a failed flush counts nothing."""
    made, timers, messages = due(2)
    made.clock.advance(0.25)
    timers.done(messages, made.store.writes.fail("a test", OSError(5, "no")))
    assert (made.metrics.value(counted.DELIVERED), made.timers.pending) == (0, 2)
    timers.done(messages, None)
    assert (made.metrics.value(counted.DELIVERED), made.timers.pending) == (2, 0)
    assert made.metrics.value(counted.LATE_MAX) == 250
