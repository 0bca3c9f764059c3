"""What was begun while a queue was there, and is durable when it has been taken away and given back."""

from __future__ import annotations

import asyncio

import pytest

from actions.registry import BUILT_IN, Registry
from pyddmq.actions import Action, Job, Status
from tests.contract.grounds import KafkaGround, MemoryGround
from tests.unit.calls_world import CallsWorld
from tests.unit.upstream_world import QID, Client


class CallsGround(CallsWorld, MemoryGround):
    """Partitions in memory, whose messages go through actions that await."""


class CallsOverKafka(CallsWorld, KafkaGround):
    """Likewise over a simulated Kafka."""


def slow_to_open(seconds: float) -> Registry:
    """Return actions of which `Push` takes its time to be opened."""

    class Push(Action):
        may_be_last = True

        async def open(self) -> None:
            await asyncio.sleep(seconds)

        async def act(self, job: Job) -> Status:
            return Status.FINISH

    return Registry({**BUILT_IN, "Push": Push})


@pytest.mark.parametrize("retry_topic", [False, True], ids=["dead letter", "retry"])
def test_record_of_an_earlier_term_finishes_nothing_of_the_next(retry_topic: bool) -> None:
    """The message is at work again, and finished by what becomes of it now."""
    ground = MemoryGround({"retryTopic": retry_topic, "retryIntervals": [60_000] * retry_topic}, queues=1)
    client = Client()
    ground.put("bad")
    [place] = ground.drain(client, 0.5)
    ground.group.apply(ground.topic, place[0], [], [place[1]], client)
    tracker = ground.group_queue().tracker
    assert tracker.undecided, "its record is on its way"
    ground.revoke()
    ground.give_back(0)
    assert place in ground.drain(client, 65 if retry_topic else 5), "it came back, with its wait"
    assert not tracker.is_finished(place[1])
    assert ground.ack(client, place) == 1
    assert tracker.is_finished(place[1])


@pytest.mark.parametrize("is_out", [False, True], ids=["idle", "in a call"])
def test_generation_after_a_revocation_has_actions_of_its_own(is_out: bool) -> None:
    """Those of the one before are closed, perhaps only when the next one is at work."""
    opened: list[Action] = []

    class Push(Action):
        may_be_last = True
        is_open = False

        async def open(self) -> None:
            opened.append(self)
            self.is_open = True

        async def act(self, job: Job) -> Status:
            if not self.is_open:
                raise ConnectionError("it is closed")
            await asyncio.sleep(1)
            return Status.FINISH

        async def close(self) -> None:
            await asyncio.sleep(0.01)
            self.is_open = False

    registry = Registry({**BUILT_IN, "Push": Push})
    ground = CallsGround({"actions": ["Push"], "maxRetry": 0}, queues=2, registry=registry)
    if is_out:
        ground.put("before", queue=1)
    ground.advance(0.5)
    ground.revoke()
    ground.advance(5)
    ground.put("after", queue=1)
    ground.advance(5)
    assert ground.count("pyddmq_error_attempts_total") == 0
    assert not ground.letters()
    assert ground.unfinished() == 0
    assert len(opened) == len(set(map(id, opened))) == 2


def test_partitions_that_come_while_actions_are_opened_are_read() -> None:
    """A member gets its partitions in a second, and a model is loaded in ten."""
    ground = CallsOverKafka({"actions": ["Push"]}, queues=2, registry=slow_to_open(10))
    for queue in range(2):
        ground.put("there before", queue=queue)
    ground.advance(15)
    assert [ground.committed(queue) for queue in range(2)] == [1, 1]


@pytest.mark.parametrize("comes", [False, True], ids=["one goes", "another one comes"])
def test_partitions_that_move_while_actions_are_opened_are_followed(comes: bool) -> None:
    """What is taken away is read no more, and what is given in its place is."""
    ground = CallsGround({"actions": ["Push"]}, queues=2, registry=slow_to_open(10))
    ground.advance(5)
    ground.revoke()
    if comes:
        ground.memory.give(ground.topic, 2)
        ground.put("in the new one", queue=2)
    ground.put("in the other one", queue=1)
    ground.advance(30)
    assert sorted(each.queue_id for each in ground.group.group_queues()) == ([1, 2] if comes else [1])
    assert ground.unfinished() == 0
    assert ground.count("pyddmq_finished_messages_total") == 1 + comes


@pytest.mark.parametrize("returns", [False, True], ids=["gone", "given back"])
def test_answer_while_actions_are_opened_counts_where_the_partition_is_back(returns: bool) -> None:
    """Its message is not delivered again, though no generation reads the partition yet."""

    class Slow(Action):
        opened = 0

        async def open(self) -> None:
            Slow.opened += 1
            await asyncio.sleep(0 if Slow.opened == 1 else 30)

        async def act(self, job: Job) -> Status:
            return Status.CONTINUE

    registry = Registry({**BUILT_IN, "Slow": Slow})
    ground = CallsOverKafka({"actions": ["Slow", "PullServer"], "timeout": 60_000}, queues=2, registry=registry)
    client = Client()
    for queue in range(2):
        ground.put("a", queue=queue)
    places = {place[0]: place for place in ground.drain(client, 5)}
    gone = ground.revoke()
    if returns:
        ground.give_back(gone)
    assert ground.group.apply(ground.topic, f"{QID}{gone}", [0], [], client).finished == returns
    assert ground.group.apply(ground.topic, f"{QID}{1 - gone}", [0], [], client).finished == 1
    ground.advance(40)
    assert not ground.drain(client, 5)
    assert len(places) == 2
    assert [ground.committed(queue) for queue in range(2)] == [
        1 if returns or queue != gone else 0 for queue in range(2)
    ]
