"""Reload (D22): what did not change is not disturbed, and what is refused changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from pyddmq.actions import Action
from pyddmq.testing import NetworkFaults
from tests.simulation.caller import Caller
from tests.simulation.world import World, settings


def _world() -> World:
    world = World(1, faults=NetworkFaults(delay_ms_max=0.2, fragment_share=0))
    world.start()
    return world


def _drop_free(settings: dict[str, Any]) -> None:
    del settings["groups"][2]


def _renew_free(settings: dict[str, Any]) -> None:
    for topic in settings["groups"][2]["topics"]:
        topic["actions"] = ["PullServer"]
        topic["tags"] = ["blue"]


def test_parked_pull_of_an_untouched_group_survives_a_reload() -> None:
    """A pull that waits while another group is renewed or removed is answered by the next message."""
    for change in (_renew_free, _drop_free):
        world = _world()
        caller = Caller(world, "10.9.0.1")
        parked = caller.pull_later("by-key", linger_ms=20_000)
        world.run(seconds=0.5)
        assert world.reload(change).accepted
        world.run(seconds=1)
        assert not parked.answered
        caller.other().send("orders", "k", uid=1)
        world.run(seconds=0.5)
        assert [message.key for message in parked.messages] == ["k"]


def test_unanswered_delivery_of_an_untouched_group_survives_a_reload() -> None:
    """What is out before a reload of another group is not delivered again by it, and its ack still counts."""
    for change in (_renew_free, _drop_free):
        world = _world()
        caller = Caller(world, "10.9.0.1")
        caller.send("orders", "k", uid=1)
        caller.send("orders", "k", uid=2)
        first = caller.pull("by-key")
        assert [place.offset for place, _ in first] == [0]
        assert world.reload(change).accepted
        assert caller.other().pull("by-key", linger_ms=500) == []
        caller.answer("by-key", first[0][0], success=True)
        assert [place.offset for place, _ in caller.pull("by-key")] == [1]


def test_timeout_of_an_untouched_delivery_goes_on_through_a_reload() -> None:
    """The clock of a delivery runs on: it comes again at its timeout, neither earlier nor later."""
    world = _world()
    caller = Caller(world, "10.9.0.1")
    caller.send("orders", "k", uid=1)
    caller.pull("by-key")
    began = world.loop.time()
    world.run(seconds=0.7)
    assert world.reload(_renew_free).accepted
    again = caller.other().pull("by-key", linger_ms=5_000)
    assert len(again) == 1
    assert 1.45 < world.loop.time() - began < 1.6


def test_new_generation_of_the_changed_group_waits_for_what_is_out() -> None:
    """The changed group hands out nothing that its old generation still has out; its ack counts for the new one."""
    world = _world()
    caller = Caller(world, "10.9.0.1")
    caller.send("events", "k", uid=1)
    out = caller.pull("free")
    assert len(out) == 1
    assert world.reload(lambda settings: settings["groups"][2]["topics"][1].update(actions=["PullServer"])).accepted
    assert caller.other().pull("free", linger_ms=300) == []
    caller.answer("free", out[0][0], success=True)
    caller.send("events", "k", uid=2)
    assert [uid for _, uid in caller.pull("free", linger_ms=5_000)] == [2]


def test_bad_reload_names_the_place_and_changes_nothing() -> None:
    """Promise 7: the error names file, line and key, and a waiting pull does not notice."""
    world = _world()
    caller = Caller(world, "10.9.0.1")
    parked = caller.pull_later("by-key", linger_ms=20_000)
    before = world.config

    def spoil(settings: dict[str, Any]) -> None:
        settings["groups"][0]["topics"][0]["maxPullBatchSize"] = "many"

    result = world.reload(spoil)
    assert not result.accepted
    assert "simulated.yaml:" in result.problems[0]
    assert "maxPullBatchSize" in result.problems[0]
    assert world.config is before
    caller.other().send("orders", "k", uid=1)
    world.run(seconds=0.5)
    assert parked.answered


def _take_another_port(settings: dict[str, Any]) -> None:
    settings["node"]["backlog"] = 7


def _lower_the_queues(settings: dict[str, Any]) -> None:
    settings["topics"]["orders"]["queues"] = 1


def _name_a_broken_action(settings: dict[str, Any]) -> None:
    settings["groups"][2]["topics"][1]["actions"] = ["tests.simulation.test_reload:NoBank", "PullServer"]


class NoBank(Action):
    """An action whose constructor fails."""

    def __init__(self) -> None:
        raise OSError("no bank")


@pytest.mark.parametrize(
    ("change", "key", "text"),
    [
        (_take_another_port, "node.backlog", "cannot change while the node runs; restart it for 7"),
        (_lower_the_queues, "topics.orders.queues", "the number of queues can only grow"),
        (_name_a_broken_action, "groups[free].topics[events].actions", "cannot be created: OSError: no bank"),
    ],
)
def test_reload_that_cannot_be_applied_names_the_place(
    change: Callable[[dict[str, Any]], None], key: str, text: str
) -> None:
    """Promise 7: also what is right in itself, and wrong for the running node, has file, line and key."""
    world = _world()
    before = world.config
    wanted = settings(world.ack_flush, world.flush)
    change(wanted)
    last = key.rpartition(".")[2]
    lines = yaml.safe_dump(wanted, sort_keys=False).splitlines()
    [problem] = world.reload(change).problems
    place, found, why = problem.split(": ", 2)
    file, line = place.split(":")
    assert (file, found) == ("simulated.yaml", key)
    assert last in lines[int(line) - 1]
    assert text in why
    assert world.config is before


def test_group_that_still_drains_is_named_with_its_place() -> None:
    """Taken out and put back while a message is out: refused until it has left, and the entry is named."""
    world = _world()
    caller = Caller(world, "10.9.0.1")
    caller.send("events", "k", uid=1)
    assert len(caller.pull("free")) == 1
    assert world.reload(_drop_free).accepted
    [problem] = world.reload(lambda _: None).problems
    place, key, text = problem.split(": ", 2)
    assert place.startswith("simulated.yaml:")
    assert (key, "still drains" in text) == ("groups[free]", True)
