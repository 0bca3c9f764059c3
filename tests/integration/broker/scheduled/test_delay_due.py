"""What of the delay levels is due: when the next step is, what it takes, and what becomes of what is refused."""

from __future__ import annotations

from typing import cast

import pytest

from broker.queues.topics import Topic
from broker.runtime.step_size import STEPS_MAX
from broker.scheduled.delay import due as module
from broker.scheduled.delay import metrics as counted
from broker.scheduled.delay.due import RETRY_SECONDS, DueDelays
from tests.integration.delay_tools import TOPIC, Broker, broker


def opened(*levels: int) -> tuple[Broker, DueDelays]:
    """A store with a message of each of these levels; nothing is delivered but by hand."""
    made = broker(start=False)
    for number, level in enumerate(levels):
        made.send(b"%d" % number, level)
    for each in made.delays.levels.values():
        each.look()
    return made, made.delays.due


def step(made: Broker) -> bool:
    """Deliver what is due, and make it durable; whether the store took it."""
    taken = made.delays.due.deliver_due()
    made.store.flush()
    return taken


def topics(made: Broker) -> dict[str, Topic]:
    """Return the store's topics, to be changed as no caller may."""
    return cast("dict[str, Topic]", made.store.topics)


def lose_topic(made: Broker) -> None:
    """Take the topic away, so that what goes there is refused."""
    topics(made).pop(TOPIC)


def test_next_moment_is_that_of_the_level_whose_first_is_due_first() -> None:
    """Not of the lowest level: a message of a long one may have waited for most of its time."""
    made, due = opened(3)
    assert due.seconds_left() == 10.0
    made.clock.advance(9.5)
    made.send(b"later", 1)
    assert due.seconds_left() == 0.5


def test_store_without_delays_has_nothing_to_wait_for() -> None:
    """And none that was delivered is waited for again."""
    made, due = opened()
    assert due.seconds_left() is None
    made.send(b"x", 1)
    made.clock.advance(1)
    assert step(made)
    assert due.seconds_left() is None
    assert made.delivered() == [b"x"]


def test_levels_share_a_step_and_none_starves() -> None:
    """A burst of one level takes its share of a step, and the other level's message is in the first."""
    made, due = opened(*[1] * 20, 2)
    made.clock.advance(5)
    due.step_size.most = 8
    step(made)
    assert b"20" in made.delivered()
    assert len(made.delivered()) < 12
    for _ in range(10):
        step(made)
    assert made.delivered()[:1] == [b"0"]
    assert sorted(made.delivered(), key=int) == [b"%d" % number for number in range(21)]


def test_message_is_waiting_until_its_delivery_is_durable() -> None:
    """A cancel asks: what is under way is neither waiting nor over."""
    made, due = opened(1, 1)
    assert (due.is_waiting(1, 0, 0), due.is_over(1, 0)) == (True, False)
    made.clock.advance(1)
    due.deliver_due()
    assert (due.is_waiting(1, 0, 0), due.is_over(1, 0)) == (False, False)
    made.store.flush()
    assert (due.is_waiting(1, 0, 0), due.is_over(1, 0)) == (False, True)
    assert (due.is_over(1, 1), due.is_over(1, 2), due.is_over(9, 0)) == (True, True, True)


def test_steps_on_their_way_are_bounded() -> None:
    """Each takes what is due; with so many not durable the next one waits for the first."""
    made, due = opened(*[1] * 40)
    made.clock.advance(1)
    due.step_size.most = 1
    for _ in range(STEPS_MAX):
        assert not due.is_full
        due.deliver_due()
    assert due.is_full
    made.store.flush()
    assert not due.is_full


def test_refused_message_is_tried_again_and_again_not_at_each_step() -> None:
    """After RETRY_SECONDS, counted, with the last reason; it is delivered once its topic is there."""
    made, due = opened(1)
    topic = made.store.topics[TOPIC]
    lose_topic(made)
    made.clock.advance(1)
    step(made)
    [refused] = due.levels[1].refused.values()
    assert (refused.tries, due.seconds_left()) == (1, RETRY_SECONDS)
    step(made)
    assert refused.tries == 1
    made.clock.advance(RETRY_SECONDS)
    step(made)
    step(made)
    assert (refused.tries, due.retries, made.metrics.value(counted.REFUSED)) == (2, 1, 2)
    due.measure()
    assert made.metrics.value(counted.REFUSED_NOW) == 1
    topics(made)[TOPIC] = topic
    made.clock.advance(RETRY_SECONDS)
    step(made)
    due.measure()
    assert (made.delivered(), made.metrics.value(counted.REFUSED_NOW), due.levels[1].refused) == ([b"0"], 0, {})


def test_retries_take_those_first_that_were_tried_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only so many at a time: a topic that is gone for good does not cost a step the whole of its backlog."""
    monkeypatch.setattr(module, "RETRIES_PER_STEP", 2)
    made, due = opened(1, 1, 1)
    lose_topic(made)
    made.clock.advance(1)
    step(made)
    for wanted in ([2, 2, 1], [3, 2, 2], [3, 3, 3]):
        made.clock.advance(RETRY_SECONDS)
        step(made)
        assert [each.tries for each in due.levels[1].refused.values()] == wanted


def test_level_with_too_many_refused_waits_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept apart is bounded; behind it the level's messages stay where they are, in the log."""
    monkeypatch.setattr(module, "REFUSED_MAX", 2)
    made, due = opened(1, 1)
    topic = made.store.topics[TOPIC]
    lose_topic(made)
    made.clock.advance(1)
    step(made)
    assert len(due.levels[1].refused) == 2
    topics(made)[TOPIC] = topic
    made.send(b"behind", 1)
    made.send(b"other", 2)
    made.clock.advance(5)
    step(made)
    assert made.delivered() == [b"other"]
    made.clock.advance(RETRY_SECONDS)
    step(made)
    step(made)
    assert sorted(made.delivered()) == [b"0", b"1", b"behind", b"other"]


def test_held_message_is_not_tried_again() -> None:
    """A cancel is about to take its place: it would be delivered and cancelled."""
    made, due = opened(1)
    topic = made.store.topics[TOPIC]
    lose_topic(made)
    made.clock.advance(1)
    step(made)
    topics(made)[TOPIC] = topic
    due.levels[1].held.add(0)
    made.clock.advance(RETRY_SECONDS)
    step(made)
    assert made.delivered() == []
    due.levels[1].held.clear()
    made.clock.advance(RETRY_SECONDS)
    step(made)
    assert made.delivered() == [b"0"]


def test_lateness_is_that_of_the_first_and_not_of_what_was_refused() -> None:
    """A topic that was missing for a day says nothing about how exact the levels are."""
    made, _ = opened(1)
    made.clock.advance(1.25)
    step(made)
    assert made.metrics.value(counted.LATE_MAX) == 250
    made.send(b"refused", 1)
    topic = made.store.topics[TOPIC]
    lose_topic(made)
    made.clock.advance(1)
    step(made)
    topics(made)[TOPIC] = topic
    made.clock.advance(RETRY_SECONDS)
    step(made)
    assert made.delivered() == [b"0", b"refused"]
    assert made.metrics.value(counted.LATE_MAX) == 250
