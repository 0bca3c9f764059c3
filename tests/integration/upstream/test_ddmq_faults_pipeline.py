"""Faults of DDMQ's pipeline, limits and order that must not come back, on simulated time and disk."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from actions.registry import BUILT_IN, Registry
from pyddmq.actions import Action, Job, Status
from tests.insides import place_of
from tests.unit.upstream_world import QID, Client, World
from upstream.delivery.results import Applied
from upstream.job import UpstreamJob
from upstream.waiting.buffer import BufferLimits


class Refusing(Action):
    """A last action that fails every message by its status."""

    may_be_last = True

    def act(self, job: Job) -> Status:
        return Status.FAIL


class Broken(Action):
    """A last action that raises for every message."""

    may_be_last = True

    def act(self, job: Job) -> Status:
        raise RuntimeError("the sink is down")


class Keeping(Action):
    """A last action that keeps its jobs; the test settles them."""

    may_be_last = True
    kept: list[Job]

    def open(self) -> None:
        self.kept = KEPT

    def act(self, job: Job) -> Status:
        self.kept.append(job)
        return Status.ASYNCHRONIZED


class Late(Action):
    """An action whose resource is absent when it is opened for the first time."""

    tries = 0

    def open(self) -> None:
        Late.tries += 1
        if Late.tries == 1:
            raise ConnectionError("not there yet")

    def act(self, job: Job) -> Status:
        return Status.CONTINUE


KEPT: list[Job] = []


def registry() -> Registry:
    """Make a registry with this file's actions beside the built-in ones."""
    return Registry({**BUILT_IN, "Refusing": Refusing, "Broken": Broken, "Keeping": Keeping, "Late": Late})


def used_permits(world: World, topic: str = "t") -> int:
    """Permits that the running subscription counts as taken."""
    subscription = place_of(world.group, topic).subscription
    assert subscription is not None
    return int(subscription.permits.used)


def bodies(world: World, jobs: list[UpstreamJob]) -> list[Any]:
    """Bodies of jobs, as JSON."""
    return [world.body(job) for job in jobs]


@pytest.mark.parametrize(
    ("action", "kind", "reason"), [("Refusing", "fails", "FAIL"), ("Broken", "errors", "the sink is down")]
)
def test_failure_in_the_last_action_keeps_the_body(action: str, kind: str, reason: str) -> None:
    """W13: the dead letter has body, reason and origin also when it was the last action that failed."""
    world = World(
        {"topic": "t", "actions": ["Async", action], "maxRetry": 1, "retryIntervals": [50]},
        queues=1,
        registry=registry(),
    )
    world.publish("k", body={"order": 7})
    world.advance(10)
    [letter] = world.dead_letters()
    assert (letter["body"], letter["KEYS"], letter["DLQ_ATTEMPTS"]) == ('{"order": 7}', "k", "2")
    assert (letter["DLQ_ORIGIN_TOPIC"], letter["DLQ_ORIGIN_OFFSET"]) == ("t", "0")
    assert reason in letter["DLQ_REASON"]
    assert world.count("pyddmq_dead_letters_total", "g", "t", kind) == 1


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"null", "null"),
        (b"[1]", "a list"),
        (b"{'a': 1}", "not JSON"),
        (b"7", "a number"),
    ],
)
def test_body_that_json_cannot_take_is_dead_lettered_with_the_reason(body: bytes, reason: str) -> None:
    """W17: nothing is consumed in silence; the message behind it goes on."""
    world = World({"topic": "t", "actions": ["Json", "Async", "PullServer"], "orderKey": "$.a"}, queues=1)
    world.publish("k", body=body)
    world.publish("k", body={"a": 1})
    assert bodies(world, world.pull_all(Client())) == [{"a": 1}]
    [letter] = world.dead_letters()
    assert letter["body"].encode() == body
    assert reason in letter["DLQ_REASON"]
    assert world.count("pyddmq_dead_letters_total", "g", "t", "unprocessable") == 1


def test_group_without_pulls_keeps_its_deliveries() -> None:
    """W34: a client that works for an hour on a batch finds its ack taken; nothing is delivered a second time."""
    world = World({"topic": "t", "timeout": 7_200_000}, queues=1)
    client = Client()
    world.publish("a", "b")
    jobs = world.pull_all(client)
    world.advance(3600)
    assert [world.answer(client, job) for job in jobs] == [Applied(finished=1)] * 2
    assert world.pull_all(client) == []
    world.publish("c")
    assert len(world.pull_all(client)) == 1


def test_job_settled_twice_is_finished_once() -> None:
    """W36: a second finish, fail or resume changes nothing: one permit comes back, one successor runs."""
    KEPT.clear()
    world = World(
        {"topic": "t", "actions": ["Async", "Keeping"], "orderKey": "KEY", "concurrency": 4},
        queues=1,
        registry=registry(),
    )
    world.publish("a", "a", "a", "b")
    assert [job.offset for job in KEPT] == [0, 3]
    first = KEPT[0]
    assert first.finish(True)
    assert not first.finish(True)
    assert not first.finish(False)
    first.resume()
    assert [job.offset for job in KEPT] == [0, 3, 1]
    assert used_permits(world) == 2
    assert world.count("pyddmq_finished_messages_total", "g", "t") == 1


def test_parked_pulls_survive_arrivals_that_they_cannot_take() -> None:
    """W40: with the line of waiting pulls full, an arrival for another topic loses neither a pull nor a message."""
    world = World({"topic": "a"}, {"topic": "b"}, queues=1, limits=BufferLimits(parked_max=3))
    client = Client()
    woken: list[str] = []
    for _ in range(3):
        world.group.park("a", 1, client, lambda batch: woken.append(batch.topic))
    world.publish("k", "k", topic="b")
    assert woken == []
    assert world.group.stats().parked_pulls == 3
    assert len(world.pull_all(client, "b")) == 2
    world.publish("k", "k", "k", topic="a")
    assert woken == ["a", "a", "a"]
    assert world.dead_letters() == []


def test_lag_limit_takes_no_permits() -> None:
    """W41: a topic stopped by maxConsumeLag for an hour has all of its permits left and goes on to the end."""
    world = World({"topic": "t", "maxConsumeLag": 2, "concurrency": 3}, queues=1)
    client = Client()
    world.publish(*[None] * 20)
    jobs = world.pull_all(client)
    for _ in range(60):
        world.publish(None)
        world.advance(0.05)
    assert used_permits(world) == len(jobs) == 2
    got = 0
    while jobs:
        got += len(jobs)
        for job in jobs:
            world.answer(client, job)
        jobs = world.pull_all(client)
    assert got == 80
    assert used_permits(world) == 0


def test_rate_tokens_are_not_spent_while_permits_are_out() -> None:
    """W42: a saturated subscription keeps its rate: a full second's worth is there when permits come free."""
    world = World({"topic": "t", "maxTps": 5, "concurrency": 1, "timeout": 3_600_000}, queues=1)
    client = Client()
    world.publish(*[None] * 20)
    [job] = world.pull_all(client)
    for _ in range(100):
        world.advance(0.1)
        world.publish(None)
    started = 0
    while True:
        world.answer(client, job)
        jobs = world.pull_all(client)
        if not jobs:
            break
        [job] = jobs
        started += 1
    assert started == 5


def test_jobs_of_an_old_generation_release_nothing_of_the_new_one() -> None:
    """W43: after a reload late answers for earlier deliveries leave the new limit as it is configured."""
    settings = {"topic": "t", "concurrency": 2, "timeout": 600_000}
    world = World(settings, queues=1)
    client = Client()
    world.publish(*[None] * 12)
    old = world.pull_all(client)
    assert len(old) == 2
    world.group.reconfigure(world.config({**settings, "actions": ["PullServer"]}))
    world.advance(31)
    world.publish(None)
    for job in old:
        assert world.answer(client, job).counted
    out = world.pull_all(client)
    got = len(out)
    while out:
        assert len(out) <= 2
        world.answer(client, out.pop(0))
        more = world.pull_all(client)
        got += len(more)
        out += more
    assert got == 11
    assert used_permits(world) == 0


def test_subscription_that_cannot_start_holds_nobody_up_and_is_tried_again() -> None:
    """W45: the group's other topic is consumed; five seconds later this one is, too, without anybody's help."""
    Late.tries = 0
    world = World({"topic": "a", "actions": ["Late", "PullServer"]}, {"topic": "b"}, queues=1, registry=registry())
    client = Client()
    world.publish("k", topic="a")
    world.publish("k", topic="b")
    [other] = world.pull_all(client)
    assert (other.topic, world.answer(client, other).finished) == ("b", 1)
    world.advance(5)
    assert [job.topic for job in world.pull_all(client)] == ["a"]
    assert Late.tries == 2


def test_stopped_group_leaves_nothing_behind() -> None:
    """W48: timers, listeners, parked pulls, deliveries and retries of a group end with it."""
    world = World({"topic": "t", "retryIntervals": [60_000], "timeout": 600_000}, queues=2)
    client = Client()
    world.publish(*[None] * 6)
    jobs = world.pull_all(client)
    world.answer(client, jobs[0], fail=True)
    world.group.park(None, 1, client, lambda batch: None)
    before = weakref.ref(world.group)
    world.group.stop()
    assert world.store.topics["t"].listeners == []
    del jobs
    world.group = world.make_group(world.config())
    world.advance(1)
    assert world.scheduler.next_due() is None
    gc.collect()
    assert before() is None


def test_retried_job_follows_the_settings_in_force() -> None:
    """W49: what was read before a live change is delivered again with the new timeout and batch size."""
    settings = {"topic": "t", "timeout": 1000, "maxPullBatchSize": 8, "retryIntervals": [100]}
    world = World(settings, queues=1)
    client = Client()
    world.publish(None, None, None)
    jobs = world.pull_all(client)
    world.group.reconfigure(world.config({**settings, "timeout": 10_000, "maxPullBatchSize": 1}))
    for job in jobs:
        world.answer(client, job, fail=True)
    world.advance(0.1)
    batches = [world.pull(client) for _ in range(3)]
    assert [len(batch.jobs) for batch in batches if batch] == [1, 1, 1]
    world.advance(9.9)
    assert world.pull(client) is None
    world.advance(0.2)
    assert len(world.pull_all(client)) == 3


def test_keys_are_compared_whole_and_per_topic() -> None:
    """W55: "Aa" and "BB" (one hash in Java) and one key in two topics do not wait for each other."""
    rules = {"orderKey": "KEY", "timeout": 600_000}
    world = World({"topic": "a", **rules}, {"topic": "b", **rules}, queues=1)
    client = Client()
    world.publish("Aa", "BB", "Aa", topic="a")
    world.publish("Aa", topic="b")
    assert sorted((job.topic, job.offset) for job in world.pull_all(client)) == [("a", 0), ("a", 1), ("b", 0)]


def test_queues_as_keys_are_told_apart_by_topic() -> None:
    """W55: by QID, queue 1 of topic `t` and queue 11 of `t1` and the like are lines of their own."""
    rules = {"orderKey": "QID", "timeout": 600_000}
    world = World({"topic": "t", **rules}, {"topic": "t1", **rules}, queues=12)
    client = Client()
    for topic, queue in (("t", 11), ("t1", 1), ("t", 1), ("t", 11)):
        world.publish("k", topic=topic, queue=queue)
    out = world.pull_all(client)
    assert sorted((job.topic, job.qid, job.offset) for job in out) == [
        ("t", f"{QID}1", 0),
        ("t", f"{QID}11", 0),
        ("t1", f"{QID}1", 0),
    ]


def test_message_without_its_key_is_unordered_and_counted() -> None:
    """W56: a missing or null value at the path is seen in the statistics and does not stop the others."""
    world = World({"topic": "t", "actions": ["Json", "Async", "PullServer"], "orderKey": "$.id"}, queues=1)
    for body in ({"id": 1}, {}, {"id": None}, {"id": {"a": 1}}, {"id": "1"}):
        world.publish("k", body=body)
    assert [job.offset for job in world.pull_all(Client())] == [0, 1, 2, 3]
    assert world.count("pyddmq_unordered_messages_total", "g", "t") == 3


def test_slow_topic_does_not_starve_another() -> None:
    """W57: a topic whose permits are all out and whose keys all wait leaves its group's other topic alone."""
    rules = {"orderKey": "KEY", "concurrency": 2, "timeout": 600_000}
    world = World({"topic": "slow", **rules}, {"topic": "quick", **rules}, queues=1, waiting_max=10)
    client = Client()
    world.publish(*["a", "b"] * 500, topic="slow")
    assert len(world.pull_all(client, "slow")) == 2
    world.publish(*[str(n) for n in range(50)], topic="quick")
    finished = 0
    while jobs := world.pull_all(client):
        finished += sum(world.answer(client, job).finished for job in jobs)
    assert finished == 50
