"""Messages whose dead letter retention has appended and the disk has not: they may still be answered or fail (D29)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from broker.log.durability import AwaitedSteps
from broker.retention import RetentionLimits
from pyddmq.testing import SimSyncs
from tests.integration.waiting_tools import drive, flush_in_background
from tests.unit.upstream.delivery.test_expiry import SEGMENT_BYTES, Aging, lost, ordered
from tests.unit.upstream_world import Client
from upstream.job import UpstreamJob
from upstream.state import JobState


def given(world: Aging, client: Client) -> dict[int, UpstreamJob]:
    """Messages of a file that is to go, out with a client, by offset; one more in the file that is kept."""
    world.fill("a", "b", "c", "d", "a")
    jobs = world.pull_all(client)
    world.clock.advance(11)
    world.store.checkpoint()
    world.store.retention.limits = RetentionLimits(log_bytes=world.store.retention.log_bytes - 1)
    return {job.offset: job for job in jobs}


def begun(world: Aging) -> AwaitedSteps[bool]:
    """Have retention begin, up to where dead letters are on their way to the disk."""
    flush_in_background(world.store, SimSyncs(world.sim, world.scheduler, Random(1)), world.scheduler)
    steps = world.store.retention.steps()
    while next(steps) is None:
        pass
    world.scheduler.run_until_idle()
    assert world.store.unsettled
    assert world.dead_letters() == []
    return steps


def end(world: Aging, steps: AwaitedSteps[bool]) -> None:
    """Have the file go."""
    assert drive(steps, world.scheduler)
    assert world.store.min_offset == SEGMENT_BYTES
    world.store.retention.limits = RetentionLimits()
    while world.store.unsettled:
        world.scheduler.advance(0.5)
    world.progress.flush()


def answer(world: Aging, client: Client, job: UpstreamJob, *, fail: bool) -> None:
    """Answer one message; the turn does not wait for the disk."""
    offsets: list[int] = [job.offset]
    world.group.apply(job.topic, job.qid, [] if fail else offsets, offsets if fail else [], client)
    world.progress.flush()


def origins(world: Aging) -> list[str]:
    """Offsets of the dead letters' origins."""
    return [letter["DLQ_ORIGIN_OFFSET"] for letter in world.dead_letters()]


@pytest.mark.parametrize(
    "settings",
    [{"retryIntervals": []}, {"retryIntervals": [3_600_000]}, {"retryTopic": True, "retryIntervals": [100]}],
    ids=["last attempt", "in place", "retry topic"],
)
def test_message_that_fails_meanwhile_is_dead_lettered_once(settings: dict[str, Any]) -> None:
    """Also when it was its last attempt, or the group sends failures to the retry topic; and its key goes on."""
    world = ordered(timeout=60_000, **settings)
    client = Client()
    jobs = given(world, client)
    steps = begun(world)
    answer(world, client, jobs[0], fail=True)
    end(world, steps)
    world.advance(3)
    assert origins(world) == ["0", "1", "2", "3"]
    # Nothing waits to come again.
    assert set(world.store.topics) - {"%RETRY%g"} == {"t", "%DLQ%g"}
    assert [job.offset for job in world.pull_all(client)] == [4]
    assert lost(world) == 0


def test_message_that_succeeds_meanwhile_is_finished() -> None:
    """It has a dead letter as well, as with a success that comes later, and comes to nobody again."""
    world = ordered(timeout=60_000)
    client = Client()
    jobs = given(world, client)
    steps = begun(world)
    answer(world, client, jobs[0], fail=False)
    assert [job.offset for job in world.pull_all(client)] == [4]
    end(world, steps)
    assert jobs[0].state is JobState.FINISHED
    assert origins(world) == ["0", "1", "2", "3"]
    world.kill()
    assert [job.offset for job in world.pull_all(Client())] == [4]
    assert lost(world) == 0


def test_group_that_begins_anew_meanwhile_does_not_read_it_again() -> None:
    """The generation that stands when the dead letter is durable is told, not the one that was there before."""
    world = ordered(timeout=60_000)
    client = Client()
    given(world, client)
    steps = begun(world)
    world.group.undrain_topic("t")
    world.scheduler.run_until_idle()
    end(world, steps)
    world.advance(120)
    assert sorted({job.offset for job in world.pull_all(Client())}) == [4]
    assert origins(world) == ["0", "1", "2", "3"]
