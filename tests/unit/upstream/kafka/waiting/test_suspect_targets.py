"""Targets that hang, refuse or are deleted: others go on, and each message is delivered once, in its target's order."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest

from tests.waiting_world import WaitingWorld
from upstream.kafka.link import KafkaFailure
from upstream.kafka.waiting.cluster import WaitingRefused


def late(world: WaitingWorld, topic: str = "orders") -> list[int]:
    """How late each message was, ms."""
    return [moments[0] - world.added[name] for name, moments in world.delivered(topic).items()]


def spread(world: WaitingWorld, count: int, *, step_ms: int = 50, ahead_ms: int = 1_000) -> None:
    """Have messages to a healthy target be due one after the other."""
    for number in range(count):
        world.nodes[0].add(f"m{number}", world.now_ms + ahead_ms + step_ms * number)


@pytest.mark.parametrize("answering", [False, True])
def test_target_that_hangs_costs_others_little(answering: bool) -> None:
    """A tenth of a second, once; not its attempts, and not while Kafka cannot end the transaction."""
    world = WaitingWorld(partitions=1)
    world.settle()
    spread(world, 200)
    world.coordinator.hanging.add("events")
    if answering:
        world.coordinator.answering.add("events")
    for number in range(5):
        world.nodes[0].add(f"e{number}", world.now_ms + 3_000 + number, topic="events")
    world.run(14)
    delays = late(world)
    assert len(delays) == 200
    assert max(delays) < 400
    assert sum(each > 200 for each in delays) < 10
    assert world.delivered("events") == {}
    assert any("topic events takes no waiting messages" in each for each in world.nodes[0].waiting.troubles())


def test_target_that_hung_gets_its_messages_in_order() -> None:
    """Once each, when it acknowledges again; the finding ends."""
    world = WaitingWorld(partitions=1)
    world.settle()
    world.coordinator.hanging.add("events")
    for number in range(30):
        world.nodes[0].add(f"e{number}", world.now_ms + 1_000 + 200 * number, topic="events")
    world.run(20)
    world.coordinator.hanging.clear()
    world.run(35)
    assert list(world.delivered("events")) == [f"e{number}" for number in range(30)]
    assert {len(each) for each in world.delivered("events").values()} == {1}
    assert world.nodes[0].waiting.troubles() == []


def test_target_that_was_slow_once_is_tried_while_another_hangs() -> None:
    """It needs no id that the other one took."""
    world = WaitingWorld(partitions=1)
    world.settle()
    world.coordinator.hanging |= {"events", "orders"}
    for topic in ("events", "orders"):
        world.nodes[0].add(topic, world.now_ms + 1_000, topic=topic)
    world.run(1.3)
    world.coordinator.hanging.remove("orders")
    world.run(8)
    assert (list(world.delivered()), world.delivered("events")) == (["orders"], {})


def test_suspicion_is_shared_by_the_partitions_of_a_node() -> None:
    """One of them finds it out, also where the others have something for it later."""
    world = WaitingWorld(partitions=4)
    world.settle()
    world.coordinator.hanging.add("events")
    world.nodes[0].add("first", world.now_ms + 1_000, topic="events")
    world.run(6)
    for number in range(40):
        world.nodes[0].add(f"e{number}", world.now_ms + 300, topic="events")
        world.nodes[0].add(f"m{number}", world.now_ms + 300)
    world.run(3)
    assert len(world.delivered()) == 40
    assert len(world.coordinator.stuck) == 1
    assert max(late(world)) < 300


def test_target_that_hangs_does_not_refuse_new_messages() -> None:
    """What is late for it alone is no reason to take none for others."""
    world = WaitingWorld(partitions=1)
    world.settle()
    world.coordinator.hanging.add("events")
    world.nodes[0].add("e", world.now_ms + 1_000, topic="events")
    world.run(60)
    world.nodes[0].add("m", world.now_ms + 1_000)
    world.run(3)
    assert list(world.delivered()) == ["m"]


def test_message_that_is_tried_is_cancelled_afterwards() -> None:
    """The request waits for the end of the transaction, and its outcome is true."""
    world = WaitingWorld(partitions=1)
    world.settle()
    world.kafka.refusals["events"] = KafkaFailure("NOT_ENOUGH_REPLICAS", "too few replicas")
    for name in ("a", "b"):
        world.nodes[0].add(name, world.now_ms + 1_000, topic="events")
    world.run(1.3)
    outcomes = []
    for _ in range(60):
        outcomes.append(world.nodes[0].ask("a", topic="events"))
        world.run(0.02)
        if len(outcomes) == 30:
            world.kafka.refusals.clear()
    world.run(10)
    assert {each for [each] in outcomes} == {"cancelled"}
    assert list(world.delivered("events")) == ["b"]


def test_target_that_is_deleted_meanwhile_costs_others_little() -> None:
    """Its messages wait, and are delivered where it is there again."""
    world = WaitingWorld(partitions=1)
    world.settle()
    spread(world, 100)
    for number in range(3):
        world.nodes[0].add(f"e{number}", world.now_ms + 3_000, topic="events")
    world.run(2.5)
    world.kafka.missing.add("events")
    world.run(6)
    assert len(late(world)) == 100
    assert max(late(world)) < 400
    world.kafka.missing.clear()
    world.run(40)
    assert len(world.delivered("events")) == 3


@pytest.mark.parametrize("seed", range(4))
def test_seeds_of_targets(seed: int) -> None:
    """Targets that hang, refuse and recover, and nodes that are killed: nothing early, nothing lost, nothing twice."""
    world = WaitingWorld(seed, nodes=2, partitions=2)
    drawn = world.random
    world.kafka.partitions("events.WAITING.DLQ", 1)
    world.settle()
    for number in range(150):
        topic = drawn.choice(("orders", "orders", "events"))
        node = drawn.choice(world.nodes)
        if all(place.state == "serving" for each in world.nodes for place in each.waiting.owners.values()):
            with contextlib.suppress(WaitingRefused):
                node.add(f"m{number}", world.now_ms + drawn.randint(0, 3_000), topic=topic)
        if drawn.random() < 0.1:
            world.coordinator.hanging ^= {"events"}
            world.coordinator.answering = set(drawn.sample(["events"], drawn.randint(0, 1)))
        if drawn.random() < 0.05:
            world.kafka.refusals["events"] = KafkaFailure("NOT_ENOUGH_REPLICAS", "too few replicas")
        elif drawn.random() < 0.1:
            world.kafka.refusals.clear()
        if drawn.random() < 0.02:
            drawn.choice(world.nodes).kill()
            world.start(f"again{number}")
        world.run(drawn.uniform(0.02, 0.4))
    world.coordinator.hanging.clear()
    world.kafka.refusals.clear()
    world.run(60)
    found = {**world.delivered(), **world.delivered("events")}
    assert Counter(len(each) for each in found.values()) == {1: len(found)}
    assert world.added.keys() - found.keys() == set()
    assert min(found[name][0] - due for name, due in world.added.items()) >= 0
