"""Moving a group by hand: what is shown beforehand, what comes and what does not afterwards, and power cuts."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyddmq.testing import ManualScheduler, PowerCut
from tests.unit.upstream_world import QID, Client, World
from upstream.embedded.queues import EmbeddedQueues
from upstream.operate.positions import PositionTarget, TargetRefused, plan_move, positions
from upstream.state import JobState
from upstream.views import Move, Position
from upstream.waiting.buffer import PulledBatch

UNORDERED = {"topic": "t", "timeout": 60_000, "maxPullBatchSize": 100}
KEYED = {**UNORDERED, "orderKey": "KEY"}


def reset(world: World, targets: dict[int, int]) -> list[Move]:
    """Do what the admin port does: all queues in one piece."""
    trackers = {queue: world.group_queue(queue).tracker for queue in targets}
    moves = [plan_move(tracker, targets[queue]) for queue, tracker in trackers.items()]

    def change() -> None:
        for move in moves:
            world.progress.reset(trackers[move.queue], move.to)
        world.settle()

    world.group.restart_topic("t", change)
    world.turn_end()
    return moves


def places(world: World, client: Client) -> set[tuple[int, int]]:
    """Queue and offset of everything that comes now."""
    return {(job.queue_id, job.offset) for job in world.pull_all(client)}


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 19)), st.integers(0, 20))
def test_plan_tells_exactly_what_comes_again_and_what_never_comes(acked: set[int], to: int) -> None:
    """After a reset to N everything from N on comes, nothing below; the plan counted what that skips and repeats."""
    world = World(UNORDERED, queues=1)
    client = Client()
    world.publish(*[None] * 20)
    for job in world.pull_all(client):
        if job.offset in acked:
            world.answer(client, job)
    world.advance(61)  # the others' timeout
    [move] = reset(world, {0: to})
    unfinished = set(range(20)) - acked
    assert move.skipped == len([offset for offset in unfinished if offset < to])
    assert move.repeated == len([offset for offset in acked if offset >= to])
    assert places(world, Client()) == {(0, offset) for offset in range(to, 20)}
    assert world.group_queue().tracker.watermark == to
    world.kill()
    assert places(world, Client()) == {(0, offset) for offset in range(to, 20)}


def test_reset_keeps_order_per_key_and_answers_parked_pulls() -> None:
    """From the new position on, each key comes in order, one at a time; a parked pull gets the first."""
    world = World(KEYED, queues=2)
    client = Client()
    for queue in (0, 1, 0, 1):
        world.publish("k", queue=queue)
    seen = []
    while batch := world.pull(client):
        [job] = batch.jobs
        seen.append((job.queue_id, job.offset))
        world.answer(client, job)
    assert seen == [(0, 0), (1, 0), (0, 1), (1, 1)]
    got: list[PulledBatch] = []
    world.group.park(None, None, client, got.append)
    reset(world, {0: 0, 1: 1})
    [batch] = got
    again = [(job.queue_id, job.offset) for job in batch.jobs]
    assert again == [(0, 0)]
    job = batch.jobs[0]
    for expected in ((0, 1), (1, 1)):
        world.answer(client, job)
        [job] = world.pull_all(client)
        assert (job.queue_id, job.offset) == expected


def test_late_answers_after_a_reset_fit_the_new_position() -> None:
    """Forced while messages are out: a skipped one's ack is repeated, one still ahead counts and is not redelivered."""
    world = World(UNORDERED, queues=1)
    client, other = Client(), Client("10.0.0.2:1")
    world.publish(*[None] * 6)
    jobs = world.pull_all(client)
    reset(world, {0: 3})
    assert world.pull_all(other) == []  # what is out stays out until its timeout (D12)
    assert world.answer(client, jobs[0]).repeated == 1
    assert world.answer(client, jobs[4]).finished == 1
    world.advance(61)
    assert places(world, other) == {(0, 3), (0, 5)}


def test_drained_topic_goes_on_when_the_reset_is_given_up() -> None:
    """Draining for a reset that is not done costs nothing: the topic goes on where it was."""
    world = World(KEYED, queues=1)
    client = Client()
    world.publish("a", "a", "b")
    first, other = world.pull_all(client)
    draining = world.group.drain_topic("t")
    assert draining is not None
    assert not draining.drained
    world.group.undrain_topic("t")
    assert world.answer(client, first).finished == 1
    assert world.answer(client, other).finished == 1
    assert places(world, client) == {(0, 1)}


@pytest.mark.parametrize("seed", range(3))
def test_power_cut_at_every_change_moves_all_queues_or_none(seed: int) -> None:
    """Wherever the power goes, both queues stand where they stood or both where they were moved; acks hold."""
    cuts = moved = 0
    for changes in range(100):
        world = World(UNORDERED, queues=2)
        client = Client()
        for queue in (0, 1):
            world.publish(*[None] * 10, queue=queue)
        for job in world.pull_all(client):
            if job.offset in (0, 1, 2, 6):
                world.answer(client, job)
        world.progress.commit()
        world.progress.sync()
        world.sim.stop_after(changes)
        answered = False
        try:
            reset(world, {0: 1, 1: 8})
            answered = True
            world.progress.commit()
        except PowerCut:
            cuts += 1
        world.group.stop()
        world.scheduler = ManualScheduler(world.clock)
        world.sim.crash(Random(seed))
        world.open()
        found = places(world, Client())
        before = {(queue, offset) for queue in (0, 1) for offset in (3, 4, 5, 7, 8, 9)}
        after = {(0, offset) for offset in range(1, 10)} | {(1, 8), (1, 9)}
        assert found in (before, after)
        moved += found == after
        assert not answered or found == after
        assert world.count("pyddmq_offsets_foreign_total") == 0
        if cuts <= changes:  # it came to its end
            break
    assert cuts > 5
    assert moved > 1


def test_positions_show_what_is_finished_read_and_left() -> None:
    """Watermark, finished above it, next to read, end, lag and age per queue; groups without configuration too."""
    world = World(UNORDERED, queues=1)
    client = Client()
    world.publish(*[None] * 5)
    stored_ms = world.clock.wall_ms()
    jobs = world.pull_all(client)
    for job in (jobs[0], jobs[2]):
        world.answer(client, job)
    world.advance(5)
    world.progress.tracker("gone", "t", 0, first_offset=lambda: 5)
    one, two = positions(world.progress, EmbeddedQueues(world.store))
    assert one == Position(
        group="g",
        topic="t",
        queue=0,
        min=0,
        committed=1,
        finished_above=1,
        next=5,
        max=5,
        lag=3,
        oldest_ms=stored_ms,
    )
    assert (two.group, two.committed, two.lag, two.oldest_ms) == ("gone", 5, 0, None)
    assert [each.group for each in positions(world.progress, EmbeddedQueues(world.store), group="g")] == ["g"]


def test_targets_mean_what_they_say() -> None:
    """Offset, moment, shift and the two ends; an offset that the queue does not hold is refused with its range."""
    world = World(UNORDERED, queues=1)
    for _ in range(4):
        world.publish(None)
        world.advance(1)
    moment = world.clock.wall_ms() - 2000
    group_queue = world.group_queue()
    group_queue.tracker.finish_range(0, 2)

    def resolved(**target: object) -> int:
        return PositionTarget(**target).resolve(group_queue.tracker, group_queue.queue, EmbeddedQueues(world.store))  # type: ignore[arg-type]

    assert resolved(offset=4) == 4
    assert resolved(time_ms=moment) == 2
    assert (resolved(shift=-1), resolved(shift=-9), resolved(shift=1), resolved(shift=9)) == (1, 0, 3, 4)
    assert (resolved(end="earliest"), resolved(end="latest")) == (0, 4)
    with pytest.raises(TargetRefused, match=r"can be set to 0 .* up to 4"):
        resolved(offset=5)
    assert not PositionTarget().is_one
    assert not PositionTarget(offset=1, end="latest").is_one


def held_key(world: World) -> tuple[Client, Client]:
    """Have the first message of key "a" in queue 0 finished by an earlier holder while another client has it."""
    slow, present = Client(), Client("10.0.0.2:1")
    world.publish("a", "a", queue=0)
    [job] = world.pull_all(slow)
    world.advance(60)
    assert world.pull_all(present) == [job]
    world.answer(slow, job)
    assert job.state is JobState.HELD
    return slow, present


def test_held_key_holds_up_nobody_else_when_a_reset_is_given_up() -> None:
    """A reset does not wait for a held key for ever: given up, other keys go on at once and that one waits on."""
    world = World(KEYED, queues=1)
    slow, present = held_key(world)
    draining = world.group.drain_topic("t")
    assert draining is not None
    world.publish("b", queue=0)
    assert not draining.drained
    assert world.pull_all(slow) == []
    world.group.undrain_topic("t")
    assert places(world, slow) == {(0, 2)}
    world.group.apply("t", f"{QID}0", [0], [], present)
    assert places(world, slow) == {(0, 1)}


@pytest.mark.parametrize("targets", [{1: 1}, {0: 1}, {0: 0, 1: 1}])
@pytest.mark.parametrize("end", ["success", "fail", "timeout"])
def test_held_key_waits_on_in_the_generation_after_a_reset(targets: dict[int, int], end: str) -> None:
    """Forced while a client has a finished message, there or in another queue: its key waits for that client."""
    world = World(KEYED, queues=2)
    slow, present = held_key(world)
    world.publish("b", queue=0)
    world.publish("c", "d", queue=1)
    reset(world, targets)
    comes = [(0, 2), (1, 1)] if 1 in targets else [(0, 2), (1, 0), (1, 1)]
    jobs = world.pull_all(slow)
    assert sorted((job.queue_id, job.offset) for job in jobs) == comes
    for job in jobs:
        world.answer(slow, job)
    if end == "timeout":
        world.advance(61)
    else:
        done: tuple[list[int], list[int]] = ([0], []) if end == "success" else ([], [0])
        world.group.apply("t", f"{QID}0", *done, present)
        world.advance(2)
    again = 0 in targets and targets[0] == 0 and end != "success"
    assert places(world, Client("10.0.0.3:1")) == {(0, 0 if again else 1)}
