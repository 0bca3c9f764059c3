"""What an action raises beside plain errors, before and behind the order gate, and over a restart."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from actions.registry import BUILT_IN, Registry
from pyddmq.actions import Action, Failed, Job, RetryLater, Status
from tests.unit.upstream_world import Client, World

PATH = "$.case"


class Scripted(Action):
    """Raises or answers what is next for the body's number."""

    may_be_last = True
    needs_json = True
    script: ClassVar[dict[int, list[Any]]] = {}
    seen: ClassVar[list[int]] = []
    kept: ClassVar[list[Job]] = []

    def act(self, job: Job) -> Status:
        """See the class."""
        number = job.data["n"]
        self.seen.append(number)
        answers = self.script.get(number)
        answer = answers.pop(0) if answers else Status.CONTINUE
        if isinstance(answer, Exception):
            raise answer
        if answer is Status.ASYNCHRONIZED:
            self.kept.append(job)
        assert isinstance(answer, Status)
        return answer


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Scripted.script, Scripted.seen, Scripted.kept = {}, [], []


def world_of(*actions: str, **settings: Any) -> World:
    """A group whose pipeline has the scripted action."""
    registry = Registry({**BUILT_IN, "Scripted": Scripted})
    subscription = {"topic": "t", "actions": list(actions), "orderKey": PATH, **settings}
    return World(subscription, queues=1, registry=registry)


def send(world: World, *numbers: int, case: str = "a") -> None:
    """Publish messages of one case."""
    for number in numbers:
        world.stage(case, body={"n": number, "case": case})
    world.turn_end()


def done(world: World) -> int:
    """Messages that are finished, or wait for a client: of one case only the first, until it is answered."""
    client = Client()
    count = 0
    while jobs := world.pull_all(client):
        for job in jobs:
            world.answer(client, job)
    for group_queue in world.group.queues_by_topic["t"].values():
        count += group_queue.tracker.watermark
    return count


BEFORE = ("Json", "Scripted", "Async", "PullServer")
BEHIND = ("Json", "Async", "Scripted")


@pytest.mark.parametrize("actions", [BEFORE, BEHIND])
def test_retry_later_waits_in_its_place_uncounted(actions: tuple[str, ...]) -> None:
    """However often it is asked for: nothing of its key passes, no attempt is counted, nothing is dead-lettered."""
    Scripted.script = {1: [RetryLater(200, "not yet")] * 20}
    world = world_of(*actions, maxRetry=0, retryIntervals=[])
    send(world, 1, 2)
    world.advance(3.9)
    assert Scripted.seen.count(1) == 20
    assert done(world) == 0
    world.advance(0.2)
    assert Scripted.seen.count(1) == 21
    assert done(world) == 2
    assert world.count("pyddmq_retried_later_total") == 20
    assert not world.dead_letters()


@pytest.mark.parametrize("actions", [BEFORE, BEHIND])
def test_retry_later_comes_at_once_after_a_restart(actions: tuple[str, ...]) -> None:
    """Its wait is not journaled."""
    Scripted.script = {1: [RetryLater(3_600_000)]}
    world = world_of(*actions)
    send(world, 1)
    world.advance(60)
    assert Scripted.seen == [1]
    world.kill()
    assert Scripted.seen == [1, 1]


@pytest.mark.parametrize("actions", [BEFORE, BEHIND])
def test_failed_is_a_business_failure_with_its_reason(actions: tuple[str, ...]) -> None:
    """It comes again as retryIntervals says, then to the dead letters with its text; maxRetry has no say."""
    Scripted.script = {1: [Failed("no stock")] * 3}
    world = world_of(*actions, maxRetry=0, retryIntervals=[100, 200])
    send(world, 1, 2)
    world.advance(0.25)
    assert Scripted.seen.count(1) == 2
    assert done(world) == 0
    world.advance(1)
    assert Scripted.seen.count(1) == 3
    assert Scripted.seen[-1] == 2
    (letter,) = world.dead_letters()
    assert letter["DLQ_REASON"] == "failed 3 times: no stock"


@pytest.mark.parametrize("actions", [BEFORE, BEHIND])
def test_failures_are_counted_over_a_restart(actions: tuple[str, ...]) -> None:
    """An attempt is journaled before the next one, so a restart gives no more of them."""
    Scripted.script = {1: [Failed("no stock")] * 9}
    world = world_of(*actions, retryIntervals=[100, 60_000, 100])
    send(world, 1)
    world.advance(1)
    assert Scripted.seen == [1, 1]
    world.settle()
    world.kill()
    assert Scripted.seen == [1, 1] or actions == BEFORE
    world.advance(120)
    (letter,) = world.dead_letters()
    assert letter["DLQ_REASON"] == "failed 4 times: no stock"


def test_single_action_behind_the_gate_that_was_waited_for_is_the_last_one() -> None:
    """A job that waited behind its key, was parsed anew, kept and resumed has passed the last action: consumed."""
    Scripted.script = {1: [Status.ASYNCHRONIZED], 2: [Status.ASYNCHRONIZED]}
    world = world_of(*BEHIND)
    send(world, 1, 2)
    Scripted.kept[0].resume()
    assert Scripted.seen == [1, 2]
    Scripted.kept[1].resume()
    world.turn_end()
    assert Scripted.seen == [1, 2]
    assert world.group.stats().topics[0].lag == 0


def test_type_of_an_exception_and_its_text_stand_in_the_dead_letter() -> None:
    """Who reads the dead letters sees what was raised."""
    Scripted.script = {1: [KeyError("city")]}
    world = world_of(*BEHIND, maxRetry=0)
    send(world, 1)
    (letter,) = world.dead_letters()
    assert letter["DLQ_REASON"] == "KeyError: 'city'"
