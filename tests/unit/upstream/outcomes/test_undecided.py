"""A disk that fails while a retry or a dead letter is written: only a restart tells whether it is there (D27)."""

from __future__ import annotations

from random import Random

import pytest

from proxy.operate.live_node import stuck_messages
from tests.unit.retry_world import RetryWorld
from tests.unit.upstream_world import Client, World
from upstream.job import UpstreamJob
from upstream.operate import heads
from upstream.operate.heads import HeadRefused
from upstream.state import JobState

KEYED = {"topic": "t", "orderKey": "KEY", "maxRetry": 0, "timeout": 1000, "retryIntervals": []}


def restart(world: World, *, power_lost: bool) -> None:
    """Start again: what was written and not synced is there, or went with the power."""
    world.group.stop()
    world.scheduler = type(world.scheduler)(world.clock)
    if power_lost:
        world.sim.crash(Random(1), modes=("none",))
    else:
        world.sim.kill()
    world.sim.heal()
    world.open()


def sent_back(world: RetryWorld, client: Client) -> UpstreamJob:
    """Fail a message whose retry record is written and not synced."""
    batch = world.pull(client, count=1)
    assert batch is not None
    world.sim.fail("sync", path_part="/commitlog/")
    world.answer(client, batch.jobs[0], fail=True)
    assert world.store.failed is not None
    return batch.jobs[0]


def dead_lettered(world: World, client: Client) -> UpstreamJob:
    """Let a message use up its attempts; its dead letter is written and not synced."""
    batch = world.pull(client, count=1)
    assert batch is not None
    world.sim.fail("sync", path_part="/commitlog/")
    world.advance(1)
    assert world.store.failed is not None
    return batch.jobs[0]


def coming(world: World, client: Client) -> list[int]:
    """Bodies of what comes within a minute, each answered with success."""
    found = []
    for _ in range(60):
        for job in world.pull_all(client):
            found.append(world.body(job))
            world.answer(client, job)
        world.advance(1)
    return found


@pytest.mark.parametrize("power_lost", [False, True])
def test_message_whose_retry_could_not_be_synced_waits_for_the_restart(power_lost: bool) -> None:
    """It is neither retried in place nor given up: after the restart it comes once, as the retry or itself."""
    world, client = RetryWorld(), Client()
    world.publish(None, queue=0)
    job = sent_back(world, client)
    assert job.state is JobState.UNDECIDED
    assert coming(world, client) == []
    assert world.count("pyddmq_messages_undecided_total", "g", "t") == 1
    restart(world, power_lost=power_lost)
    assert coming(world, client) == [1]


def test_success_after_the_fail_is_not_taken_while_its_retry_is_undecided() -> None:
    """Only who failed it can say so: the fail stands, and the retry is what comes."""
    world, client = RetryWorld(), Client()
    world.publish(None, queue=0)
    job = sent_back(world, client)
    assert world.answer(client, job).counted is False
    assert world.count("pyddmq_stale_results_total", "g", "t", "sent_back") == 1
    restart(world, power_lost=False)
    assert coming(world, client) == [1]


@pytest.mark.parametrize("power_lost", [False, True])
def test_message_whose_dead_letter_could_not_be_synced_waits_for_the_restart(power_lost: bool) -> None:
    """Its key waits; after the restart it is in the dead letters, or comes again if the record is not there."""
    world, client = World(KEYED, queues=1), Client()
    world.publish("a", "a", "b")
    job = dead_lettered(world, client)
    assert job.state is JobState.UNDECIDED
    assert coming(world, client) == [3]
    restart(world, power_lost=power_lost)
    letters = [letter["body"] for letter in world.dead_letters()]
    assert letters == ([] if power_lost else ["1"])
    assert coming(world, client) == ([1, 2] if power_lost else [2])


@pytest.mark.parametrize("power_lost", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_success_that_comes_while_a_dead_letter_is_undecided_counts(power_lost: bool, when: str) -> None:
    """It is answered as taken, so the message never comes again, whether the record is there or not."""
    world, client = World(KEYED, queues=1), Client()
    world.publish("a", "a")
    if when == "after":
        job = dead_lettered(world, client)
        assert world.answer(client, job).finished == 1
    else:
        batch = world.pull(client, count=1)
        assert batch is not None
        [job] = batch.jobs
        world.sim.fail("sync", path_part="/commitlog/")
        world.scheduler.advance(1)
        assert job.state is JobState.BURYING
        assert world.answer(client, job).finished == 1
    world.progress.sync()
    assert coming(world, client) == [2]
    world.progress.sync()
    restart(world, power_lost=power_lost)
    assert coming(world, client) == []


def test_undecided_message_is_left_alone_by_the_next_generation() -> None:
    """A reload on the failed node gives it to nobody, and its key still waits."""
    world, client = World(KEYED, queues=1), Client()
    world.publish("a", "a", "b")
    dead_lettered(world, client)
    world.group.reconfigure(world.config({**KEYED, "pressureTraffic": True}))
    assert coming(world, client) == [3]
    restart(world, power_lost=False)
    assert coming(world, client) == [2]


def test_undecided_message_is_shown_and_no_operator_can_settle_it() -> None:
    """`groups stuck` names it; retry, skip and dead-letter are refused with what to do."""
    world, client = World(KEYED, queues=1), Client()
    world.publish("a", "a")
    head = world.head(dead_lettered(world, client))
    [stuck], total = stuck_messages(world.group, clock=world.clock, count_max=9)
    assert (stuck.state, stuck.waiting, total) == ("undecided", 1, 1)
    with pytest.raises(HeadRefused, match="restart"):
        heads.retry_now(head, force=True, progress=world.progress, clock=world.clock)
    with pytest.raises(HeadRefused, match="restart"):
        heads.skip(head, force=True, progress=world.progress)
    with pytest.raises(HeadRefused, match="restart"):
        heads.dead_letter(head, force=True, who="test")


def test_generation_that_ends_while_a_dead_letter_is_written_hands_its_message_to_nobody() -> None:
    """The next one waits for the record instead, and the key goes on when it is durable."""
    world, client = World(KEYED, queues=1), Client()
    world.publish("a", "a")
    assert world.pull(client, count=1) is not None
    world.scheduler.advance(1)
    world.group.restart_topic("t")
    assert world.group.pull(None, None, client) is None
    world.turn_end()
    assert [letter["body"] for letter in world.dead_letters()] == ["1"]
    assert coming(world, client) == [2]


def test_message_that_two_generations_find_unprocessable_is_dead_lettered_once() -> None:
    """The second finds it before the order gate, while the first one's dead letter is on its way."""
    path = {"topic": "t", "orderKey": "$.k", "actions": ["Json", "Async", "PullServer"]}
    world, client = World(path, queues=1), Client()
    world.stage("a", body=b"no json")
    world.store.flush()
    assert [job.state for job in world.group_queue().live.values()] == [JobState.BURYING]
    world.group.restart_topic("t")
    world.advance(2)
    assert [letter["body"] for letter in world.dead_letters()] == ["no json"]
    world.publish("a", body=b'{"k": 1}')
    assert [bytes(job.body) for job in world.pull_all(client)] == [b'{"k": 1}']
