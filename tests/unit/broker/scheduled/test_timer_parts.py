"""What timers stand on: which of them are pending, what is taken out, what slots say, names and room."""

from __future__ import annotations

import pytest

from broker.errors import StoreError
from broker.format.java import tags_code
from broker.scheduled.timer import parts as module
from broker.scheduled.timer.names import TIMER_TOPIC, slot_of
from broker.scheduled.timer.parts import AHEAD_MS, TimerParts
from broker.scheduled.timer.pending.log import TimersDamaged
from tests.integration.timer_tools import START_MS, TOPIC, Broker, broker

DELAY_MS = 90_000


def waiting(count: int = 1) -> tuple[Broker, TimerParts, list[int]]:
    """Timers that are in the wheel, and where their records stand."""
    made = broker()
    for number in range(count):
        made.send(b"%d" % number, DELAY_MS)
    made.scheduler.advance(0.5)
    assert not made.timers.entering.lag
    queue = made.store.topics[TIMER_TOPIC].queues[0]
    return made, made.timers.parts, [physical for physical, _, _ in queue.read(0, count)]


def test_timer_is_pending_from_its_record_until_it_is_replaced() -> None:
    """Before it is entered as well as in the wheel; not once a record that is not entered yet takes its place."""
    made = broker(start=False)
    made.send(b"a", DELAY_MS)
    parts = made.timers.parts
    [(physical, _, _)] = made.store.topics[TIMER_TOPIC].queues[0].read(0, 1)
    assert made.timers.entering.lag == 1
    assert parts.is_pending(physical, 0)
    parts.take_out(physical)
    assert parts.due.superseded == {physical}
    assert not parts.is_pending(physical, 0)


def test_what_is_taken_out_of_the_wheel_is_not_delivered_and_not_counted() -> None:
    """The others of its slot are."""
    made, parts, [first, second] = waiting(2)
    assert (parts.pending, parts.is_pending(first, 0), parts.is_pending(second, 1)) == (2, True, True)
    parts.take_out(first)
    assert (parts.pending, parts.is_pending(first, 0), parts.is_pending(second, 1)) == (1, False, True)
    made.scheduler.advance(DELAY_MS / 1000)
    assert made.delivered() == [b"1"]
    assert not parts.is_pending(second, 1)


@pytest.mark.parametrize("error", [None, StoreError("the sync failed")])
def test_held_timer_goes_on_where_its_replacement_is_not_durable(error: StoreError | None) -> None:
    """It is taken out only with a record in its place."""
    made, parts, [physical] = waiting()
    parts.due.hold(physical)
    made.scheduler.advance(DELAY_MS / 1000)
    assert made.delivered() == []
    parts.replaced(physical, error)
    made.scheduler.advance(1)
    assert made.delivered() == ([] if error is None else [b"0"])
    assert (parts.pending, parts.due.held) == (0, {})


def test_timer_that_cannot_be_taken_out_is_not_delivered_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its unit cannot be read: the next step finds that, too, and until then its record counts as replaced."""
    _, parts, [physical] = waiting()

    def find(_: int) -> int:
        raise TimersDamaged("gone")

    monkeypatch.setattr(parts.table.log, "find", find)
    parts.due.hold(physical)
    parts.replaced(physical, None)
    assert parts.due.superseded == {physical}
    assert not parts.is_pending(physical, 0)


def test_slot_tells_how_many_it_has() -> None:
    """None without a timer topic, and while its files have still to be made."""
    made = broker(start=False)
    parts = made.timers.parts
    slot_ms = slot_of(START_MS + DELAY_MS, 1000)
    assert parts.in_slot(slot_ms) == 0
    made.send(b"a", DELAY_MS)
    assert parts.is_fresh
    assert parts.is_mending
    assert parts.in_slot(slot_ms) == 0
    _, parts, _ = waiting(3)
    assert parts.in_slot(slot_ms) == 3
    assert parts.in_slot(slot_ms + 1000) == 0


def test_slot_is_read_ahead_of_its_time_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a millisecond sooner, and not above the bound of what is in memory."""
    _, parts, _ = waiting()
    next_ms = parts.table.next_ms
    assert not parts.is_slot_due(next_ms - AHEAD_MS - 1)
    assert parts.is_slot_due(next_ms - AHEAD_MS)
    monkeypatch.setattr(module, "COMING_MAX", 0)
    assert not parts.is_slot_due(next_ms)


def test_topic_without_a_name_is_called_by_its_hash() -> None:
    """It was deleted; one that is made later is found."""
    made, parts, _ = waiting()
    assert parts.topic_name(tags_code(TOPIC.encode())) == TOPIC
    unknown = tags_code(b"later")
    assert parts.topic_name(unknown) == str(unknown)
    made.store.create_topic("later", 1)
    assert parts.topic_name(unknown) == "later"
