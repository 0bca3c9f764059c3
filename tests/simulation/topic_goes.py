"""A topic that is deleted while messages wait for it, and made again."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any
from unittest.mock import patch

from broker.topic_changes import TopicChanges
from proxy.operate.changes.delays import DelayCancelBody
from proxy.operate.changes.steps import MessageName
from proxy.operate.changes.timers import TimerCancelBody
from proxy.operate.changes.topics import DeletionBody, TopicBody
from tests.insides import opened_of
from tests.simulation.fleeting import QUEUES, TOPIC, Fleeting
from tests.simulation.timer_changes import ask
from tests.simulation.world import World

CUT_SHARE = 0.3
CUT_MAX = 6
"""Writes, syncs and renames between the beginning of a deletion and the cut."""
CANCELS_MAX = 4
GONE_SECONDS = (0.0, 0.5, 3.0)


def lose_topic(world: World, random: Random) -> None:
    """Delete the topic or, where it is gone, make it again; cancel some that wait for it, and perhaps end the node."""
    if TOPIC not in opened_of(_node(world)).store.topics:
        topic_comes(world)
        return
    _delete(world, random)
    world.run(seconds=random.choice(GONE_SECONDS))
    known = world.fleeting.waiting()
    for _ in range(random.randrange(CANCELS_MAX)):
        # The youngest are those that most often still wait.
        if known:
            _cancel(world, known[-1 - min(int(random.expovariate(0.1)), len(known) - 1)])
    end = random.choice(("", "", "stop", "kill", "power"))
    if end == "stop":
        world.stop()
    elif end:
        world.kill(power=end == "power")
    if end:
        world.start()
        world.run(seconds=random.choice(GONE_SECONDS))
    if random.random() < 0.5:
        topic_comes(world)


def topic_comes(world: World) -> None:
    """Make the topic, unless it is there."""
    if TOPIC not in opened_of(_node(world)).store.topics:
        ask(world, "create_topic", TopicBody(topic=TOPIC, queues=QUEUES), None)
        world.report.events["topic_made"] += 1


def _delete(world: World, random: Random) -> None:
    store, deleting = opened_of(_node(world)).store, TopicChanges.deleting

    def looked_at(changes: TopicChanges, name: str, *, before: Callable[[], object]) -> Any:
        def look() -> None:
            before()
            world.fleeting.look(store)

        return deleting(changes, name, before=look)

    cut = random.randrange(CUT_MAX) if random.random() < CUT_SHARE else None
    with patch.object(TopicChanges, "deleting", looked_at):
        ask(world, "delete_topic", DeletionBody(topic=TOPIC, confirm=TOPIC), cut)
    if cut is not None:
        world.kill(power=random.random() < 0.5)
        world.loop.errors.clear()
        world.cutting = False
        world.start()
    store = opened_of(_node(world)).store
    world.report.events["topic_deleted"] += TOPIC not in store.topics
    world.fleeting.settle(store)


def _cancel(world: World, sent: Fleeting) -> None:
    sent.asked = True
    name = MessageName(id=sent.handle)
    if sent.in_level:
        answer = ask(world, "cancel_delays", DelayCancelBody(messages=[name]), None)
    else:
        answer = ask(world, "cancel_timers", TimerCancelBody(timers=[name]), None)
    sent.answer = answer.results[0].outcome
    world.report.events[f"fleeting_{sent.answer}"] += 1


def _node(world: World) -> Any:
    assert world.node is not None
    return world.node
