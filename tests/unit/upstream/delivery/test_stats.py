"""What a group says of itself: lag, what is out with whom since when, and which keys hold others up."""

from __future__ import annotations

from typing import Any

from tests.unit.upstream_world import Client, World
from upstream.delivery.stats import KEYS_MAX, StatsReader, TopicOffsets, subscription_view
from upstream.retention_losses import NONE, Loss
from upstream.views import Delivery, QueueLag, SubscriptionView

ORDERED: dict[str, Any] = {
    "topic": "t",
    "orderKey": "KEY",
    "actions": ["Async", "PullServer"],
    "concurrency": 1_000,
    "maxPullBatchSize": 32,
    "timeout": 60_000,
    "retryIntervals": [1_000] * 10,
}


def read(world: World) -> tuple[SubscriptionView, list[Delivery]]:
    """Read what there is of topic `t`."""
    reader = StatsReader(times=world.broker(), clock=world.clock)
    return reader.topic("t", "running", list(world.group.group_queues()), world.group._slots["t"])


def lag(**known: Any) -> QueueLag:
    """One queue, all of it finished unless said otherwise."""
    return QueueLag(**{"qid": "q", "committed": 0, "produced": 0, "lag": 0, "lag_seconds": 0.0, **known})


def test_what_is_out_stands_with_its_holder_and_since_when() -> None:
    """Of each message the client that has it, by address and what it says of itself, in wall-clock time."""
    world = World(ORDERED, queues=1)
    world.publish("a", "b")
    since_ms = world.clock.wall_ms()
    batch = world.pull(Client("10.0.0.9:1", "carrera-go 1.2"), count=1)
    assert batch is not None
    world.advance(5)
    silent = world.pull(Client("10.0.0.8:1"), count=1)
    assert silent is not None
    _, out = read(world)
    assert [(each.holder, each.holder_client, each.offset, each.since_ms) for each in out] == [
        ("10.0.0.9:1", "carrera-go 1.2", 0, since_ms),
        ("10.0.0.8:1", None, 1, since_ms + 5_000),
    ]


def test_key_that_holds_others_up_tells_how_many_wait() -> None:
    """Only messages with others behind them are listed, the oldest first; who waits is counted and not listed."""
    world = World(ORDERED, queues=1)
    world.publish("a", "a", "a", "alone", "b", "b")
    client = Client("10.0.0.9:1", "lib")
    while world.pull(client) is not None:
        pass
    view, _ = read(world)
    assert (view.waiting, view.in_flight, view.stuck_keys_total) == (3, 3, 2)
    assert [(each.key, each.offset, each.waiting, each.holder_client) for each in view.stuck_keys] == [
        ("a", 0, 2, "lib"),
        ("b", 4, 1, "lib"),
    ]


def test_failing_message_is_counted_from_its_fifth_failure_on() -> None:
    """Four failures may be bad luck; those with most attempts are named first, with the reason of the last."""
    world = World(ORDERED, queues=1)
    world.publish("a")
    client = Client()
    for attempt in range(1, 6):
        [job] = world.pull_all(client)
        world.answer(client, job, fail=True)
        view, _ = read(world)
        assert view.failing_total == (attempt == 5)
        assert view.retrying == 1
        world.advance(1)
    view, _ = read(world)
    assert [(each.offset, each.attempts, each.reason) for each in view.failing] == [(0, 5, "failed by 10.0.0.1:5000")]


def test_named_keys_are_bounded_and_their_number_is_not() -> None:
    """A thousand stuck keys make no answer long."""
    world = World(ORDERED, queues=1)
    for n in range(KEYS_MAX + 5):
        world.publish(f"k{n}", f"k{n}")
    while world.pull(Client()) is not None:
        pass
    view, _ = read(world)
    assert (view.stuck_keys_total, len(view.stuck_keys)) == (KEYS_MAX + 5, KEYS_MAX)


def test_lag_of_a_topic_is_the_sum_of_its_queues_and_the_age_of_the_oldest() -> None:
    """And the nearest limit of retention: a queue without one does not hide another's."""
    queues = [
        lag(lag=3, lag_seconds=7.5, expires_seconds=90.0, expires_share=0.5),
        lag(lag=4, lag_seconds=2.0, expires_bytes=100, expires_share=0.25),
    ]
    view = subscription_view("t", "running", queues, Loss(messages=2, at_ms=9))
    assert (view.lag, view.lag_seconds, view.lost, view.lost_at_ms) == (7, 7.5, 2, 9)
    assert (view.expires_seconds, view.expires_bytes, view.expires_share) == (90.0, 100, 0.25)


def test_topic_without_a_queue_has_no_lag() -> None:
    """As a group's of which none is given to this node."""
    view = subscription_view("t", "waiting", [], NONE)
    assert (view.lag, view.lag_seconds, view.expires_seconds, view.lost_at_ms) == (0, 0.0, None, None)


def test_lag_in_seconds_is_the_age_of_the_message_at_the_committed_offset() -> None:
    """Not of the last one; and 0 when everything is finished, however long ago."""
    world = World(ORDERED, queues=1)
    world.publish("a")
    world.advance(30)
    world.publish("b")
    view, _ = read(world)
    assert (view.lag, view.lag_seconds) == (2, 30.0)
    client = Client()
    for job in world.pull_all(client):
        world.answer(client, job)
    world.advance(30)
    view, _ = read(world)
    assert (view.lag, view.lag_seconds) == (0, 0.0)


def test_offsets_of_a_topic_stand_by_the_names_of_its_queues() -> None:
    """What is committed is the watermark: an ack above an unfinished message does not move it."""
    world = World(ORDERED, queues=1)
    world.publish("a", "b")
    client = Client()
    jobs = world.pull_all(client)
    world.answer(client, jobs[1])
    [group_queue] = world.group.group_queues()
    assert TopicOffsets.of("t", [group_queue]) == TopicOffsets(
        "t", {group_queue.qid: 0}, {group_queue.qid: 2}, {group_queue.qid: 0}
    )
    world.answer(client, jobs[0])
    assert TopicOffsets.of("t", [group_queue]).consumed == {group_queue.qid: 2}
