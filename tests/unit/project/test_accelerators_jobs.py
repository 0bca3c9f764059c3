"""The compiled loops over jobs against the Python that they stand for: the same deliveries, states and counts."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.runtime.accelerators import compiled
from tests.accelerator_ways import both, need_compiled, running
from tests.unit.upstream_world import Client, World
from upstream.job import DeliveredBatch, GroupQueue, JobFields, UpstreamJob
from upstream.state import JobState
from upstream.waiting import job_loops
from upstream.waiting.buffer import BufferLimits, PulledBatch

ORDERS: tuple[dict[str, Any], ...] = ({"orderKey": "KEY"}, {"orderKey": "QID"}, {})


@pytest.fixture(autouse=True)
def _compiled() -> None:
    need_compiled()


def job_facts(job: UpstreamJob) -> tuple[Any, ...]:
    """What the loops may change of a job, or read of it."""
    delivery = job.delivery
    out = None if delivery is None else (delivery.since, delivery.deadline, delivery.open)
    following = None if job.successor is None else job.successor.offset
    return job.offset, job.physical, job.size, job.key, job.state, job.step, job.deliveries, out, following


def world_facts(world: World) -> list[Any]:
    """Everything that a round changes, queue by queue."""
    found: list[Any] = []
    for group_queue in world.group.group_queues():
        subscription = world.group.generation_of(group_queue)
        assert subscription is not None
        outcomes = subscription.outcomes
        found.append([job_facts(job) for job in group_queue.live.values()])
        found.append([job.offset for job in group_queue.waiting])
        found.append(
            (
                group_queue.next,
                group_queue.gone,
                group_queue.listed,
                group_queue.line.jobs,
                group_queue.tracker.watermark,
                group_queue.tracker.ahead,
            )
        )
        found.append((group_queue.tracker.finished_ranges(), group_queue.tracker.place, group_queue.tracker.failures))
        found.append((outcomes.permits.used, outcomes.order.waiting, list(outcomes.order.tails), len(outcomes.ready)))
        found.append(len(outcomes.deadlines.open))
    found += [world.count("pyddmq_messages_delivered_total", "g", "t"), world.group.stats().in_flight_total]
    return found


def life(seed: int) -> list[Any]:
    """Let a group live through random rounds, and note what it did."""
    random = Random(seed)
    settings = {"topic": "t", **random.choice(ORDERS), "retryIntervals": [200, 900], "timeout": 700, "maxRetry": 3}
    settings |= {"concurrency": random.choice((3, 40, 500)), "maxPullBatchSize": random.choice((1, 4, 64))}
    world = World(
        settings, queues=random.choice((1, 3)), limits=BufferLimits(reply_bytes_max=random.choice((500, 9999)))
    )
    clients = [Client(f"10.0.0.{number}:5000") for number in range(3)]
    out: list[tuple[Client, PulledBatch]] = []
    trace: list[Any] = []

    def publish() -> None:
        for _ in range(random.randrange(1, 12)):
            key = random.choice((None, "a", "b", "c", f"k{random.randrange(500)}"))
            world.stage(key, queue=random.randrange(world.queues), body=bytes(random.randrange(400)))
        world.turn_end()

    def pull() -> None:
        client = random.choice(clients)
        batch = world.pull(client, count=random.choice((None, 0, 1, 2, 9)))
        if batch is not None:
            out.append((client, batch))
            facts = [job_facts(job) for job in batch.jobs]
            trace.append((batch.topic, batch.qid, facts, job_loops.places(batch.jobs)))

    def park() -> None:
        client = random.choice(clients)

        def woken(batch: PulledBatch) -> None:
            out.append((client, batch))
            trace.append((batch.qid, [job.offset for job in batch.jobs]))

        world.group.park(None, random.choice((None, 2)), client, woken)

    def answer() -> None:
        if not out:
            return
        holder, batch = out.pop(random.randrange(len(out)))
        by = holder if random.random() < 0.8 else random.choice(clients)
        offsets = [job.offset for job in batch.jobs]
        for other, more in out:
            # One result may answer several deliveries.
            if more.qid == batch.qid and other is holder and random.random() < 0.4:
                offsets += [job.offset for job in more.jobs]
        random.shuffle(offsets)
        cut = random.randrange(len(offsets) + 1) if random.random() < 0.3 else len(offsets)
        strange = random.choice(([], [], [], [-5], [1 << 62], offsets[:1]))
        numbers = {job.offset: 0 if job.delivery is None else job.delivery.number for job in batch.jobs}
        wrong = dict.fromkeys(offsets[:2], 5)
        deliveries = random.choice((None, None, {}, numbers, numbers | wrong))
        heard = by.carried = random.choice((0, 0, 0, 1))
        by.heard = random.choice((0, heard))
        trace.append(world.group.apply("t", batch.qid, offsets[:cut] + strange, offsets[cut:], by, deliveries))

    def go_on() -> None:
        world.advance(random.choice((0.05, 0.3, 0.8)))

    def give_back() -> None:
        if out:
            holder, batch = out.pop()
            world.group.give_back(batch, holder)

    def restart() -> None:
        world.turn_end()
        world.kill()
        out.clear()

    for step in random.choices(
        (publish, pull, park, answer, go_on, give_back, restart), (9, 10, 2, 9, 2, 1, 0.3), k=random.randrange(4, 60)
    ):
        step()
        trace.append((step.__name__, world_facts(world)))
    return trace


@given(st.integers(0, 1 << 32))
@example(1)
@example(7)
def test_group_lives_the_same_life_both_ways(seed: int) -> None:
    """Rounds of publishes, pulls, parked pulls, answers of every kind, timeouts, restarts: step by step the same."""
    assert isinstance(both(lambda: life(seed)), list)


def test_usual_rounds_are_the_accelerator_s() -> None:
    """Jobs that nothing is known of are made by the accelerator; those of a queue with failures one by one."""
    with running("compiled"):
        world = World({"topic": "t", "orderKey": "KEY"}, queues=1)
        client = Client()
        group_queue = world.group_queue()
        units = [(0, 100, 0, 7, group_queue), (100, 90, 0, 8, group_queue)]
        subscription = group_queue.subscription
        assert subscription is not None
        made = job_loops.make(UpstreamJob, subscription, units, [b"a", None])
        assert made is not None
        assert [job_facts(job) for job in made] == [
            (7, 0, 100, b"a", JobState.READ, 0, 0, None, None),
            (8, 100, 90, None, JobState.READ, 0, 0, None, None),
        ]
        assert [group_queue.live.pop(offset) for offset in (7, 8)] == made
        group_queue.check_until = 8
        assert job_loops.make(UpstreamJob, subscription, units, [b"a", None]) is None
        assert not group_queue.live
        world.publish("a")
        assert [job.offset for job in world.pull_all(client)] == [0]


def test_queues_of_a_round_may_take_turns() -> None:
    """Each job is told by what holds for its own queue, and stands in that queue's places."""
    with running("compiled"):
        world = World({"topic": "t", "orderKey": "KEY"}, queues=2)
        first, second = world.group_queue(0), world.group_queue(1)
        second.check_until = 50
        units = [(0, 100, 0, 0, first), (100, 90, 0, 50, second), (200, 80, 0, 1, first), (300, 70, 0, 51, second)]
        assert first.subscription is not None
        made = job_loops.make(UpstreamJob, first.subscription, units, [None] * 4)
        assert made is not None
        assert first.live == {0: made[0], 1: made[2]}
        assert second.live == {50: made[1], 51: made[3]}
        listed: list[GroupQueue] = []

        def enlist(group_queue: GroupQueue) -> None:
            group_queue.listed = True
            listed.append(group_queue)

        assert job_loops.buffer(made, enlist) == 340
        assert (list(first.waiting), list(second.waiting)) == ([made[0], made[2]], [made[1], made[3]])
        assert listed == [first, second]


def test_result_for_several_deliveries_is_taken_apart() -> None:
    """Each call ends where another delivery of the same holder begins, and what is no plain answer is kept aside."""

    def work() -> Any:
        world = World({"topic": "t"}, queues=1)
        client, other = Client(), Client("10.0.0.2:1")
        world.publish(*[None] * 6)
        batches = [world.pull(each, count=2) for each in (client, client, other)]
        group_queue = world.group_queue()
        found: tuple[list[int], list[int]] = ([], [])
        at, calls = 0, []
        while at < 8:
            at, delivery, last = job_loops.finish(
                [1, 4, 99, 0, 2, 3, 5, 3], at, group_queue, client, None, print, found, None
            )
            assert delivery is not None
            assert last is not None
            calls.append((at, last.offset, [batch is not None and delivery.jobs is batch.jobs for batch in batches]))
        return calls, found, sorted(group_queue.live)

    assert both(work) == (
        [(4, 0, [True, False, False]), (8, 3, [False, True, False])],
        ([1, 0, 2, 3], [4, 99, 5, 3]),
        [4, 5],
    )


def test_extension_type_has_the_fields_of_the_python() -> None:
    """All of them, with the same values when a job begins, and each can be set."""
    compiled_fields = vars(compiled("upstream.jobs_accelerator")[1])["JobFields"]
    names = sorted(JobFields.__slots__)
    assert names == sorted(name for name in vars(compiled_fields) if not name.startswith("__"))
    assert UpstreamJob.__base__ in {JobFields, compiled_fields}
    assert not UpstreamJob.__slots__
    given = (object(), object(), 7, 700, 100, b"key")
    python, extension = JobFields(*given), compiled_fields(*given)  # type: ignore[arg-type]
    assert [getattr(python, name) for name in names] == [getattr(extension, name) for name in names]
    for number, name in enumerate(names):
        setattr(extension, name, number)
        assert getattr(extension, name) == number


def test_accelerator_refuses_what_is_no_job() -> None:
    """Other objects are an error and not read as jobs."""

    class Other:
        state = JobState.OUT
        size = 1
        history = None

    delivery = DeliveredBatch(Client(), 0.0, 1.0, [])
    others: list[Any] = [Other()]
    with running("compiled"):
        for call in (
            lambda: job_loops.submit({}, others, print),
            lambda: job_loops.admit(deque(others), 1),
            lambda: job_loops.buffer(others, print),
            lambda: job_loops.take(deque(others), 1, 10),
            lambda: job_loops.hand_out(others, delivery, 0),
        ):
            with pytest.raises(TypeError, match="Cannot convert Other to"):
                call()
