"""Live changes and generations of a group's configuration (D22)."""

from __future__ import annotations

import pytest

from actions.registry import ActionError
from tests.unit.upstream_world import Client, World
from upstream.buffer import Batch


def test_limits_change_live_without_disturbing_deliveries() -> None:
    """Concurrency, batch size, timeout and rate change under what is out; no generation ends."""
    world = World({"topic": "t", "concurrency": 1, "timeout": 60_000}, queues=1)
    client = Client()
    world.publish(*[None] * 10)
    [first] = world.pull_all(client)
    new = {"topic": "t", "concurrency": 8, "timeout": 1000, "maxPullBatchSize": 3}
    world.group.reconfigure(world.config(new))
    batch = world.pull(client)
    assert batch is not None
    assert len(batch.jobs) == 3
    world.advance(1)
    assert first in world.pull_all(client)
    assert world.answer(client, first).finished == 1


def test_changed_order_key_starts_a_new_generation_after_the_old_one_drained() -> None:
    """While something is out nothing new is read; its ack counts, and the new generation reads on from there."""
    world = World({"topic": "t"}, queues=1)
    client = Client()
    world.publish("a", "a", "a")
    batch = world.pull(client, count=1)
    assert batch is not None
    world.group.reconfigure(world.config({"topic": "t", "orderKey": "KEY"}))
    world.advance(1)
    assert world.pull_all(client) == []
    assert world.group.stats().topics[0].state == "draining"
    world.answer(client, batch.jobs[0])
    world.advance(0.1)
    assert world.group.stats().topics[0].state == "running"
    assert [world.body(job) for job in world.pull_all(client)] == [2]


def test_generation_that_does_not_drain_is_replaced_and_what_is_out_stays_out() -> None:
    """After 30 s the new generation starts; a delivery whose timeout has not passed is not handed out again (D12)."""
    world = World({"topic": "t", "timeout": 100_000}, queues=1)
    client, other = Client(), Client("10.0.0.7:1")
    world.publish("a", "a", "b")
    batch = world.pull(client, count=1)
    assert batch is not None
    world.group.reconfigure(world.config({"topic": "t", "orderKey": "KEY", "timeout": 100_000}))
    world.advance(31)
    assert [world.body(job) for job in world.pull_all(other)] == [3]
    applied = world.group.apply("t", batch.qid, [batch.jobs[0].offset], [], client)
    assert applied.finished == 1
    assert [world.body(job) for job in world.pull_all(other)] == [2]


def test_adopted_delivery_times_out_at_its_own_deadline() -> None:
    """What an old generation handed out comes again when that delivery's timeout passes, and not later."""
    world = World({"topic": "t", "timeout": 40_000}, queues=1)
    client = Client()
    world.publish("a")
    assert world.pull(client) is not None
    world.group.reconfigure(world.config({"topic": "t", "orderKey": "KEY", "timeout": 40_000}))
    world.advance(39)
    assert world.pull_all(client) == []
    world.advance(1.1)
    assert [world.body(job) for job in world.pull_all(client)] == [1]


def test_other_topic_and_parked_pulls_are_not_disturbed() -> None:
    """A new generation of one topic leaves the other's delivery and a parked pull alone."""
    world = World({"topic": "a"}, {"topic": "b"}, queues=1)
    client, waiting = Client(), Client()
    world.publish(None, topic="b")
    [job] = world.pull_all(client)
    woken: list[Batch] = []
    world.group.park(None, None, waiting, woken.append)
    world.group.reconfigure(world.config({"topic": "a", "tags": ["x"]}, {"topic": "b"}))
    world.publish(None, topic="a", tag="x")
    assert [batch.topic for batch in woken] == ["a"]
    assert world.answer(client, job).finished == 1


def test_last_topic_taken_out_or_disabled_really_stops() -> None:
    """Taking the last topic out ends its consumption (W24); putting it back goes on where it stood."""
    world = World({"topic": "t"}, queues=1)
    client = Client()
    world.publish(None, None)
    batch = world.pull(client, count=1)
    assert batch is not None
    world.group.reconfigure(world.config({"topic": "t", "enabled": False}))
    assert not world.group.has_topic("t")
    world.answer(client, batch.jobs[0])
    world.advance(1)
    assert world.pull_all(client) == []
    assert world.group.stats().topics == []
    world.publish(None)
    assert world.pull_all(client) == []
    world.group.reconfigure(world.config({"topic": "t"}))
    assert [world.body(job) for job in world.pull_all(client)] == [2, 3]


def test_result_for_a_disabled_topic_still_counts() -> None:
    """A success that arrives after the topic was taken out finishes its offset."""
    world = World({"topic": "t"}, queues=1)
    client = Client()
    world.publish(None)
    [job] = world.pull_all(client)
    world.group.reconfigure(world.config({"topic": "t", "enabled": False}))
    world.advance(31)
    applied = world.group.apply("t", job.qid, [0, 0, 9], [0], client)
    assert (applied.finished, applied.repeated, applied.ignored) == (1, 1, 2)


def test_action_that_cannot_be_made_changes_nothing() -> None:
    """A bad reload leaves the running configuration in force (promise 7)."""
    world = World({"topic": "t"}, queues=1)
    with pytest.raises(ActionError, match="Nope"):
        world.group.reconfigure(world.config({"topic": "t", "actions": ["Nope", "PullServer"]}))
    world.publish(None)
    assert len(world.pull_all(Client())) == 1


def test_added_topic_starts_and_unknown_one_is_tried_again() -> None:
    """A topic that is not in the store yet keeps nobody else from running, and starts once it is there."""
    world = World({"topic": "t"}, queues=1)
    world.group.reconfigure(world.config({"topic": "t"}, {"topic": "later"}))
    assert [topic.state for topic in world.group.stats().topics] == ["running", "starting"]
    world.store.create_topic("later", 1)
    world.publish(None, topic="later")
    world.advance(5)
    assert [job.topic for job in world.pull_all(Client())] == ["later"]


def test_held_key_outlasts_a_forced_change() -> None:
    """A key that waits for its present holder is not lost when the old generation is over its time (D12)."""
    old = {"topic": "t", "orderKey": "KEY", "timeout": 50_000}
    world = World(old, queues=1)
    slow, present = Client(), Client("10.0.0.2:1")
    world.publish("a", "a")
    [job] = world.pull_all(slow)
    world.advance(50)
    assert world.pull_all(present) == [job]
    world.answer(slow, job)
    world.group.reconfigure(world.config({**old, "pressureTraffic": True}))
    world.advance(45)
    assert world.pull_all(slow) == []
    world.advance(5.2)
    assert [world.body(each) for each in world.pull_all(slow)] == [2]


def test_drain_bound_of_the_node_changes_live() -> None:
    """After a reload with a shorter drainSeconds a generation that does not drain is replaced after that time."""
    world = World({"topic": "t", "timeout": 100_000}, queues=1)
    client = Client()
    world.publish("a", "b")
    assert world.pull(client, count=1) is not None
    changed = world.config({"topic": "t", "orderKey": "KEY", "timeout": 100_000})
    world.group.reconfigure(changed, drain_seconds=2)
    world.advance(1.5)
    assert world.group.stats().topics[0].state == "draining"
    world.advance(1)
    assert [world.body(job) for job in world.pull_all(client)] == [2]
