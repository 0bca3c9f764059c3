"""onExhausted: a message that is out of attempts keeps its key, or its queue, for an operator."""

from __future__ import annotations

from typing import ClassVar

import pytest

from actions.registry import BUILT_IN, Registry
from proxy.operate.live_node import stuck_messages
from pyddmq.actions import Action, Job, Status
from tests.unit.upstream_world import Client, World
from upstream.figures.counters import DEAD_LETTERS, STOPPED
from upstream.job import UpstreamJob
from upstream.operate import heads
from upstream.operate.heads import Handled, HeadRefused
from upstream.state import JobState
from upstream.waiting.buffer import PulledBatch


def world_of(on_exhausted: str, *, queues: int = 1, **settings: object) -> World:
    """Make a group by key whose messages fail for good at their first fail."""
    return World(
        {"topic": "t", "orderKey": "KEY", "retryIntervals": [], "maxRetry": 0, "onExhausted": on_exhausted, **settings},
        queues=queues,
    )


def act(world: World, action: str, offset: int, *, queue: int = 0) -> Handled:
    """Do by hand what the admin port does."""
    head = heads.find_head(world.group, world.group_queue(queue), offset)
    if action == "retry":
        handled = heads.retry_now(head, force=False, progress=world.progress, clock=world.clock)
    elif action == "skip":
        handled = heads.skip(head, force=False, progress=world.progress)
    else:
        handled = heads.dead_letter(head, force=False, who="10.9.9.9")
    world.settle()
    return handled


def fail_first(world: World, client: Client) -> None:
    """Pull all and fail the first message, ack the rest."""
    first, *rest = world.pull_all(client)
    world.answer(client, first, fail=True)
    for job in rest:
        world.answer(client, job)


def bodies(world: World, client: Client) -> list[int]:
    """Pull all and ack it; returns the bodies."""
    jobs = world.pull_all(client)
    for job in jobs:
        world.answer(client, job)
    return [world.body(job) for job in jobs]


def one(world: World, client: Client) -> UpstreamJob:
    """Pull one message."""
    batch = world.pull(client)
    assert batch is not None
    [job] = batch.jobs
    return job


def permits(world: World) -> int:
    """Permits in use."""
    subscription = world.group.generation_of(world.group_queue())
    assert subscription is not None
    return subscription.permits.used


def test_stopped_key_waits_and_others_go_on() -> None:
    """A message out of attempts goes nowhere, its key waits, other keys go on, and it has no permit."""
    world = world_of("stopKey", concurrency=2)
    client = Client()
    world.publish("a", "a", "b", "c", "d", "e")
    fail_first(world, client)
    assert bodies(world, client) == [4, 5]
    assert bodies(world, client) == [6]
    world.advance(3600)
    assert world.pull_all(client) == []
    assert world.dead_letters() == []
    assert world.count(STOPPED, "g", "t", "fails") == 1
    [found], total = stuck_messages(world.group, clock=world.clock, count_max=10)
    assert (total, found.offset, found.state, found.waiting, found.reason) == (
        1,
        0,
        "stopped",
        1,
        "failed by 10.0.0.1:5000",
    )


def test_stop_outlives_a_restart_and_a_reload() -> None:
    """The stop is journaled: after a kill, and in a new generation, nothing of the key goes out."""
    world = world_of("stopKey")
    client = Client()
    world.publish("a", "a", "b")
    fail_first(world, client)
    world.settle()
    world.kill()
    assert world.pull_all(client) == []
    assert world.group_queue().live[0].state is JobState.STOPPED
    world.group.reconfigure(world.config({**world.subscriptions[0], "tags": ["*"]}))
    world.turn_end()
    world.advance(1)
    assert world.pull_all(client) == []
    assert world.group_queue().live[0].state is JobState.STOPPED


@pytest.mark.parametrize("restarted", [False, True])
def test_retry_gives_all_attempts_again(restarted: bool) -> None:
    """An operator's retry hands the message out first, and its attempts count anew, also after another restart."""
    world = world_of("stopKey", retryIntervals=[100])
    client = Client()
    world.publish("a", "a")
    for _ in range(2):
        [job] = world.pull_all(client)
        world.answer(client, job, fail=True)
        world.advance(0.1)
    world.settle()
    if restarted:
        world.kill()
    assert world.pull_all(client) == []
    assert act(world, "retry", 0).changed
    [job] = world.pull_all(client)
    assert world.body(job) == 1
    world.answer(client, job, fail=True)
    world.advance(0.1)
    [job] = world.pull_all(client)
    assert world.body(job) == 1
    world.answer(client, job)
    assert bodies(world, client) == [2]
    assert permits(world) == 0


def test_skip_and_dead_letter_end_a_stop() -> None:
    """Skip finishes the message, dead-letter gives it to the dead letters; then its key goes on."""
    world = world_of("stopKey")
    client = Client()
    world.publish("a", "a", "a")
    fail_first(world, client)
    act(world, "skip", 0)
    fail_first(world, client)
    act(world, "dead-letter", 1)
    assert [letter["body"] for letter in world.dead_letters()] == ["2"]
    assert world.count(DEAD_LETTERS, "g", "t", "operator") == 1
    assert bodies(world, client) == [3]
    assert permits(world) == 0


def test_late_success_ends_a_stop() -> None:
    """A client that answers after its timeout, when the message is stopped, has consumed it."""
    world = world_of("stopKey", timeout=1000)
    client = Client()
    world.publish("a", "a")
    [job] = world.pull_all(client)
    world.advance(1.0)
    assert world.group_queue().live[0].state is JobState.STOPPED
    world.answer(client, job)
    assert bodies(world, client) == [2]
    assert permits(world) == 0


@pytest.mark.parametrize("order_key", ["KEY", None])
def test_stopped_queue_stands_still_and_other_queues_go_on(order_key: str | None) -> None:
    """With stopQueue nothing more of the queue is handed out, whatever its key; other queues go on."""
    world = world_of("stopQueue", queues=2, orderKey=order_key, concurrency=4, maxPullBatchSize=1)
    client = Client()
    for number in range(12):
        world.publish(f"k{number}", queue=number % 2)
    first = one(world, client)
    assert first.queue_id == 0
    world.answer(client, first, fail=True)
    seen = [job for _ in range(12) for job in world.pull_all(client) if world.answer(client, job)]
    assert {job.queue_id for job in seen} == {1}
    assert len(seen) == 6
    with pytest.raises(HeadRefused, match="blocked by the message at offset 0"):
        act(world, "retry", 1)
    act(world, "skip", 0)
    assert [job.offset for _ in range(8) for job in world.pull_all(client) if world.answer(client, job)] == [
        1,
        2,
        3,
        4,
        5,
    ]
    assert permits(world) == 0


def test_stopped_queue_stands_still_after_a_restart() -> None:
    """What lies beyond the stopped message, and before it, is not handed out by the next process either."""
    world = world_of("stopQueue", concurrency=8)
    client = Client()
    world.publish("a", "b", "c", "d")
    jobs = world.pull_all(client)
    world.answer(client, jobs[1], fail=True)
    world.answer(client, jobs[3])
    world.settle()
    world.kill()
    assert world.pull_all(client) == []
    act(world, "retry", 1)
    assert sorted(bodies(world, client)) == [1, 2, 3]
    assert permits(world) == 0


def test_what_is_out_of_a_stopped_queue_comes_back_to_nobody() -> None:
    """A delivery of the queue that times out while it stands still waits with it, and holds no permit."""
    world = world_of("stopQueue", concurrency=2, maxRetry=5, timeout=1000, maxPullBatchSize=1)
    client = Client()
    world.publish("a", "b", "c")
    first, second = one(world, client), one(world, client)
    world.answer(client, first, fail=True)
    woken: list[PulledBatch] = []
    parked = world.group.park("t", None, Client("10.0.0.2:5000"), woken.append)
    world.advance(1.0)
    assert woken == []
    world.group.unpark(parked)
    assert world.pull_all(client) == []
    assert permits(world) == 0
    act(world, "skip", 0)
    again = one(world, client)
    assert again.offset == second.offset
    world.answer(client, again)
    assert bodies(world, client) == [3]


class Fails(Action):
    """Fails what it is given as often as it is told."""

    may_be_last = True
    left: ClassVar[int] = 0
    seen: ClassVar[list[int]] = []

    def act(self, job: Job) -> Status:
        Fails.seen.append(job.offset)
        if Fails.left:
            Fails.left -= 1
            raise ValueError("no such table")
        return Status.FINISH


@pytest.mark.parametrize("choice", ["stopKey", "stopQueue"])
def test_stop_of_a_pushed_message_runs_its_actions_again(choice: str) -> None:
    """Where an action is the end of the pipeline a stop is the same, and a retry runs the actions again."""
    Fails.left, Fails.seen = 1, []
    world = World(
        {"topic": "t", "orderKey": "KEY", "maxRetry": 0, "onExhausted": choice, "actions": ["Async", "Fails"]},
        queues=1,
        registry=Registry({**BUILT_IN, "Fails": Fails}),
    )
    world.publish("a", "a")
    world.advance(0)
    world.publish("b")
    world.advance(0)
    assert Fails.seen == ([0, 2] if choice == "stopKey" else [0])
    assert world.count(STOPPED, "g", "t", "errors") == 1
    act(world, "retry", 0)
    world.advance(0)
    assert Fails.seen == ([0, 2, 0, 1] if choice == "stopKey" else [0, 0, 2, 1])
    assert world.group_queue().tracker.watermark == 3
    assert permits(world) == 0


def test_reload_to_dead_letters_leaves_stops_alone() -> None:
    """The choice concerns what comes: what is stopped waits until somebody decides."""
    world = world_of("stopKey")
    client = Client()
    world.publish("a", "a", "b", "b")
    fail_first(world, client)
    world.group.reconfigure(world.config({**world.subscriptions[0], "onExhausted": "deadLetter"}))
    [job] = world.pull_all(client)
    world.answer(client, job, fail=True)
    assert [letter["body"] for letter in world.dead_letters()] == ["4"]
    assert world.group_queue().live[0].state is JobState.STOPPED
