"""How long messages take to a client and to their end: what is observed, in virtual time, to the message."""

from __future__ import annotations

from tests.unit.upstream_world import Client, World
from upstream.figures.latency import END_TO_END_SECONDS, HAND_OUT_SECONDS


def seen(world: World, name: str) -> dict[float, int]:
    """Observations by their bucket's bound in seconds."""
    counts = world.metrics.histogram(name, "g", "t").counts
    return {2**place / 1e6: count for place, count in enumerate(counts) if count}


HALF = 2**19 / 1e6
"""Bound of the bucket of half a second; those of one, two and four seconds are the next ones."""
ONE, TWO, FOUR = 2 * HALF, 4 * HALF, 8 * HALF


def test_a_batch_counts_as_often_as_it_has_messages() -> None:
    """From stored to handed out and to finished; each answer of a batch counts what it finished."""
    world, client = World(queues=1), Client()
    world.publish("a", "b", "c")
    world.advance(0.5)
    batch = world.pull(client)
    assert batch is not None
    world.advance(1.25)
    world.group.apply("t", batch.qid, [0, 1], [], client)
    world.advance(1.5)
    world.group.apply("t", batch.qid, [2], [], client)
    assert seen(world, HAND_OUT_SECONDS) == {HALF: 3}
    assert seen(world, END_TO_END_SECONDS) == {TWO: 2, FOUR: 1}
    assert world.metrics.histogram(END_TO_END_SECONDS, "g", "t").sum_us == 2 * 1_750_000 + 3_250_000


def test_a_retry_belongs_to_the_end_and_is_no_second_hand_out() -> None:
    """What comes again is as old as it is; those it comes with are as old as they are."""
    world, client = World({"topic": "t", "retryIntervals": [1000]}, queues=1), Client()
    world.publish("a")
    [job] = world.pull_all(client)
    world.answer(client, job, fail=True)
    world.advance(1.5)
    world.publish("b")
    world.advance(0.5)
    batch = world.pull(client)
    assert batch is not None
    assert [each.offset for each in batch.jobs] == [0, 1]
    assert batch.jobs[0].delivery is not None
    number = batch.jobs[0].delivery.number
    world.group.apply("t", batch.qid, [0, 1], [], client, {0: number, 1: number})
    assert seen(world, HAND_OUT_SECONDS) == {1e-6: 1, HALF: 1}
    assert seen(world, END_TO_END_SECONDS) == {HALF: 1, TWO: 1}


def test_a_late_success_is_an_end() -> None:
    """The answer that comes after its timeout counts once, with all the time that it took."""
    world, client = World({"topic": "t", "timeout": 1000}, queues=1), Client()
    world.publish("a")
    [job] = world.pull_all(client)
    world.advance(3.0)
    assert world.answer(client, job).finished == 1
    assert world.answer(client, job).repeated == 1
    assert seen(world, END_TO_END_SECONDS) == {FOUR: 1}


def test_what_cannot_be_read_any_more_is_not_observed() -> None:
    """A record that is damaged says no time; the message is handed on as it always was."""
    world, client = World(queues=1), Client()
    world.publish("a")
    [(physical, _, _)] = world.store.topics["t"].queues[0].read(0, 1)
    segment = world.sim.open(f"/data/commitlog/{0:020d}")
    segment.write(physical, [b"\x00\x00\x00\x00"])
    assert world.pull(client) is not None
    assert seen(world, HAND_OUT_SECONDS) == {}
