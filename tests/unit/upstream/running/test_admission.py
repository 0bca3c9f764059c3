"""Limits: who is held back, and by what, is told while it is so and no longer."""

from __future__ import annotations

from tests.unit.upstream_world import Client, World
from upstream.delivery.subscription import Subscription
from upstream.running.admission import THROTTLED


def running(world: World) -> Subscription:
    """Return the generation that runs."""
    subscription = world.group.generation_of(world.group_queue())
    assert subscription is not None
    return subscription


def test_rate_is_told_while_it_holds_messages() -> None:
    """Messages above maxTps wait for tokens; that is told and counted, and over when they have gone."""
    world = World({"topic": "t", "maxTps": 2})
    client = Client()
    world.publish("a", "b", "c")
    assert len(world.pull_all(client)) == 2
    assert running(world).throttled == ["maxTps 2"]
    assert world.count(THROTTLED, "g", "t", "maxTps") > 0
    world.advance(1)
    assert len(world.pull_all(client)) == 1
    assert running(world).throttled == []


def test_rate_over_all_proxies_is_told_by_its_name() -> None:
    """TotalMaxTps takes the place of maxTps, and is what an operator has to change."""
    world = World({"topic": "t", "maxTps": 1000, "totalMaxTps": 1})
    world.publish("a", "b", "c")
    assert len(world.pull_all(Client())) == 1
    assert running(world).throttled == ["totalMaxTps 1"]


def test_concurrency_is_told_until_an_answer_frees_a_permit() -> None:
    """With all permits out the rest waits for `concurrency`; a reload that raises it lets them go at once."""
    world = World({"topic": "t", "concurrency": 2})
    client = Client()
    world.publish("a", "b", "c")
    jobs = world.pull_all(client)
    assert len(jobs) == 2
    assert running(world).throttled == ["concurrency 2"]
    assert world.count(THROTTLED, "g", "t", "concurrency") > 0
    world.group.reconfigure(world.config({"topic": "t", "concurrency": 3}))
    jobs += world.pull_all(client)
    assert len(jobs) == 3
    assert running(world).throttled == []


def test_consume_lag_is_told_until_the_committed_offset_moves() -> None:
    """Reading stops maxConsumeLag messages beyond the committed offset, which is told by its name."""
    world = World({"topic": "t", "maxConsumeLag": 2}, queues=1)
    client = Client()
    world.publish("a", "b", "c", "d")
    first, second = world.pull_all(client)
    assert running(world).throttled == ["maxConsumeLag 2"]
    world.answer(client, second)
    assert world.pull_all(client) == []
    world.answer(client, first)
    assert len(world.pull_all(client)) == 2
    assert running(world).throttled == []


def test_nobody_is_throttled_whose_clients_do_not_pull() -> None:
    """What lies ready for pulls is not held back by a limit."""
    world = World({"topic": "t", "maxTps": 100, "concurrency": 100, "maxConsumeLag": 100})
    world.publish("a", "b", "c")
    assert running(world).throttled == []
