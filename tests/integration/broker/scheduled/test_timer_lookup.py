"""Timers looked up by DDMQ's ids: what of a loop waited last, whichever delivery the id names."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest

from broker.query import NotFound
from broker.runtime.steps import run_now
from broker.scheduled.recurring import metrics as counted
from broker.scheduled.recurring.occurrence import parse_id
from broker.scheduled.timer.handle import RecallHandle
from broker.scheduled.timer.names import TIMER_TOPIC
from proxy.operate.changes.desk import ChangeRefused
from proxy.operate.changes.steps import MessageName
from proxy.operate.changes.timers import RescheduleBody, TimerCancelBody, timer_changes
from proxy.operate.lookups.messages import MessageSearch
from proxy.operate.lookups.timer_lookup import TimerLookup, TimerState
from tests.insides import opened_of
from tests.integration.loop_tools import START_S, TOPIC, World, loop, once, walked, world
from tests.patient import Producer
from tests.running_node import RunningNode


def looked(made: World, name: str, topic: str | None = None) -> TimerLookup:
    """Search for one."""
    found = TimerLookup(made.store, name, topic, broker_name="b")
    for _ in found.steps():
        pass
    return found


@pytest.mark.parametrize("named", [0, 1, 2, 5])
def test_any_id_of_a_loop_finds_what_waits(named: int) -> None:
    """The id of the add, of a past delivery, of the next and of a later one; after a cancel it is cancelled."""
    made = world()
    first = loop(every=60, times=10)
    made.add(first)
    made.scheduler.advance(130)
    name = walked(first)[named].id
    found = looked(made, name)
    assert (found.state, found.topic, found.due_ms) == (TimerState.PENDING, TOPIC, (START_S + 180) * 1000)
    assert made.timers.reschedule(found.topic, found.unique_key, (START_S + 200) * 1000).unique_key
    assert looked(made, name).due_ms == (START_S + 200) * 1000
    made.cancel(first)
    assert looked(made, name).state is TimerState.CANCELLED


def test_id_of_a_single_message_finds_it_waiting_and_delivered() -> None:
    """One that was delivered at once never waited: its topic has to be named."""
    made = world()
    made.add(once(60))
    assert looked(made, once(60).id).state is TimerState.PENDING
    made.scheduler.advance(100)
    assert looked(made, once(60).id).state is TimerState.DELIVERED
    past = made.add(once(-5, number=1))
    assert looked(made, past).state is TimerState.UNKNOWN
    assert looked(made, past, TOPIC).state is TimerState.DELIVERED
    assert looked(made, once(number=7).id, TOPIC).state is TimerState.UNKNOWN


def test_message_that_was_moved_to_the_past_was_delivered() -> None:
    """DDMQ's id stays that of the message: it says when and where it was delivered, not that a record was cancelled."""
    made = world()
    made.add(once(60))
    waiting = looked(made, once(60).id)
    assert made.timers.reschedule(TOPIC, waiting.unique_key, (START_S - 5) * 1000).unique_key
    found = looked(made, once(60).id)
    assert (found.state, found.due_ms) == (TimerState.DELIVERED, None)
    assert found.text().startswith("delivered at ")
    assert found.delivery is not None
    assert (found.delivery.queue_id, found.delivery.offset) == (0, 0)


@pytest.mark.parametrize(("moment", "said"), [(200, "2023-11-14T22:16:40"), (-5, "a time that has passed")])
def test_id_of_before_a_move_names_the_one_since(moment: int, said: str) -> None:
    """A timer has a new UNIQ_KEY once it is rescheduled; the old one says so, and is not called cancelled."""
    made = world()
    made.add(once(60))
    old = looked(made, once(60).id).unique_key
    new = made.timers.reschedule(TOPIC, old, (START_S + moment) * 1000).unique_key
    found = looked(made, old)
    assert found.state is TimerState.RESCHEDULED
    assert said in found.text()
    assert found.answer(now_ms=1).new_id == new
    assert new in found.text()
    if moment > 0:
        assert looked(made, new).state is TimerState.PENDING
        made.timers.cancel(TOPIC, new)
        assert looked(made, new).state is TimerState.CANCELLED


def shown(made: World, name: str, **parameters: str) -> list[tuple[str, str | None]]:
    """Topic and key of what `messages show` finds."""
    answer = run_now(MessageSearch(made.store, {"id": name, **parameters}, now_ms=START_S * 1000).steps())
    return [(each.topic, each.key) for each in answer.messages]


def test_messages_are_shown_by_ddmq_id_and_handle() -> None:
    """The record that waits, then the delivered message; each delivery of a loop by its own id."""
    made = world()
    made.add(once(60))
    handle = looked(made, once(60).id).answer(now_ms=1).handle or ""
    assert [topic for topic, _ in shown(made, once(60).id)] == [TIMER_TOPIC]
    assert [topic for topic, _ in shown(made, handle)] == [TIMER_TOPIC]
    first = loop(every=60, times=3, number=1)
    made.add(first)
    made.scheduler.advance(130)
    assert shown(made, once(60).id) == [(TOPIC, once(60).id)]
    assert (TOPIC, once(60).id) in shown(made, handle)
    second = walked(first)[1].id
    assert shown(made, second) == [(TOPIC, second)]
    at_once = made.add(once(-5, number=2))
    assert shown(made, at_once, topic=TOPIC) == [(TOPIC, at_once)]
    with pytest.raises(NotFound, match="--topic"):
        shown(made, at_once)


async def change(node: RunningNode, body: TimerCancelBody) -> Any:
    """POST /api/timers/cancel, on the node's thread."""
    [found] = [each for each in timer_changes(node.node) if each.name == "cancel_timers"]
    answer: Any = found.run(body)
    return await answer


def test_admin_port_cancels_a_loop_by_any_of_its_ids(tmp_path: Path) -> None:
    """Its whole rest is gone, it is counted as ended, and asked again it is cancelled still."""
    with RunningNode("topics:\n  orders: {queues: 1}\n", tmp_path) as node, Producer(node.producer) as producer:
        first = producer.send_delay("orders", b"x", at=time.time() + 3600, every=60, times=9)
        after = parse_id(first)
        assert after is not None
        later = after.later(2)
        assert later is not None
        for name in (later.id, first):
            body = TimerCancelBody(timers=[MessageName(id=name)])
            answer = node.wait_for(change(node, body))
            assert [each.outcome for each in answer.results] == ["cancelled"]
        assert node.call(lambda: node.node.runtime.metrics.value(counted.ENDED, "cancelled")) == 1


def test_list_with_a_name_that_is_refused_cancels_nothing(tmp_path: Path) -> None:
    """A refused request has changed nothing, whatever stands before the name."""
    with RunningNode("topics:\n  orders: {queues: 1}\n", tmp_path) as node, Producer(node.producer) as producer:
        timer = producer.send("orders", b"x", delay_ms=3_600_000).message_id
        foreign = str(RecallHandle("orders", "another", 1, timer))
        body = TimerCancelBody(timers=[MessageName(id=timer), MessageName(id=foreign)])
        with pytest.raises(ChangeRefused, match="the handle is from broker another"):
            node.wait_for(change(node, body))
        assert node.call(lambda: opened_of(node.node).timers.pending) == 1
        answer = node.wait_for(change(node, TimerCancelBody(timers=[MessageName(id=timer), MessageName(id=timer)])))
        assert [each.outcome for each in answer.results] == ["cancelled", "cancelled"]


def test_message_that_a_move_has_delivered_is_not_moved_again(tmp_path: Path) -> None:
    """It is too late then, and not called cancelled, as DDMQ's id is that of the message."""
    with RunningNode("topics:\n  orders: {queues: 1}\n", tmp_path) as node, Producer(node.producer) as producer:
        name = producer.send_delay("orders", b"x", at=time.time() + 3600)
        [move] = [each for each in timer_changes(node.node) if each.name == "reschedule_timer"]
        outcomes = []
        for at_ms in (1_000_000_000_000, 1 << 41):
            body = RescheduleBody(id=name, topic="orders", deliver_at_ms=at_ms)
            made = node.wait_for(cast("Any", move.run(body)))
            outcomes.append(made.outcome)
        assert outcomes == ["rescheduled", "tooLate"]
