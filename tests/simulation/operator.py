"""An operator at work on a simulated node: pauses, and stuck messages settled by hand, by the node's own changes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from random import Random
from typing import Any, cast

from broker.format.properties import parse_properties
from broker.format.record import split
from broker.queues.topics import retry_topic
from broker.views import View
from proxy.node.node import Node
from proxy.operate.changes.desk import ChangeRefused
from proxy.operate.changes.groups import HeadBody, PauseBody
from proxy.operate.changes.node import node_changes
from proxy.operate.changes.offsets import ResetBody
from proxy.operate.live_node import stuck_messages
from proxy.operate.views.changes import ResetResult
from tests.insides import opened_of
from tests.simulation.ledger import Place, PromiseBroken, Stamp
from tests.simulation.retry_places import is_retry
from tests.simulation.stored import QID_PREFIX
from tests.simulation.world import World
from upstream.figures.counters import DELIVERED
from upstream.views import StuckMessage

HOST = "operator"


def change(world: World, name: str, body: Any) -> View | None:
    """Have the running node make a change; None when it refuses."""
    assert world.node is not None
    assert world.process is not None
    [found] = [each for each in node_changes(world.node) if each.name == name]

    async def run() -> View | None:
        try:
            answer = found.run(body)
            return await answer if inspect.isawaitable(answer) else answer
        except ChangeRefused:
            return None

    task: asyncio.Task[View | None] = world.process.run(world.loop.create_task, run())
    world.run(until=task.done, seconds=60)
    return task.result()


def pause_group(world: World, random: Random) -> None:
    """Pause a group, perhaps kill the node meanwhile, see that it gets nothing, and resume it."""
    assert world.node is not None
    group = random.choice(sorted(world.node.in_force.groups))
    if change(world, "pause", PauseBody(group=group)) is None:
        raise PromiseBroken(6, f"{group} could not be paused")
    before = _delivered(world.node, group)
    world.run(seconds=0.5 + random.random())
    if random.random() < 0.5:
        _nothing_since(world.node, group, before)
        before = 0
        world.kill(power=random.random() < 0.5)
        world.run(seconds=random.random() * 0.4)
        world.start()
        world.run(seconds=0.5 + random.random())
    assert world.node is not None
    _nothing_since(world.node, group, before)
    if change(world, "resume", PauseBody(group=group)) is None:
        raise PromiseBroken(6, f"{group} could not be resumed")


def _nothing_since(node: Node, group: str, before: int) -> None:
    now = _delivered(node, group)
    if now != before:
        raise PromiseBroken(6, f"{group} is paused and was handed {now - before} messages")


def _delivered(node: Node, group: str) -> int:
    return sum(
        node.runtime.metrics.value(DELIVERED, group, topic) for topic in node.in_force.groups[group].topic_names()
    )


def operate(world: World, random: Random) -> None:
    """Settle stuck messages of all groups by hand for a while: due now, skipped, or given up; never by force."""
    for _ in range(12):
        world.run(seconds=random.random() * 0.2)
        assert world.node is not None
        for group in sorted(world.node.in_force.groups):
            for message in _stuck(world.node, group)[:2]:
                _settle(world, group, message, random.choice(["retry", "skip", "dead_letter"]))


def end_stops(world: World, random: Random) -> None:
    """Decide about every message of the group by key that is stopped."""
    assert world.node is not None
    for message in _stuck(world.node, "by-key", count_max=10_000):
        if message.state == "stopped":
            _settle(world, "by-key", message, random.choice(["retry", "skip", "dead_letter"]))


def _stuck(node: Node, group: str, *, count_max: int = 5) -> list[StuckMessage]:
    return stuck_messages(node.in_force.groups[group], clock=node.parts.seams.clock, count_max=count_max)[0]


def _settle(world: World, group: str, message: StuckMessage, action: str) -> None:
    place = Place(message.topic, message.qid, message.offset)
    body = HeadBody(
        group=group, topic=message.topic, queue=message.queue, offset=message.offset, key=message.key, force=False
    )
    origin = _origin(world, group, place)
    stamp = now(world)
    answer = change(world, f"{action}_message", body)
    world.report.events[f"operator_{action}" if answer is not None else "operator_refused"] += 1
    if answer is not None and action == "skip":
        # To everybody else it is as if a client had consumed it.
        world.ledger_of(group).answered(group, place, HOST, stamp, True)
        world.ledger_of(group).confirmed(group, place, now(world))
    elif action == "dead_letter":
        world.ledger_of(group).given_up.add((group, origin))


def reset_offsets(world: World, random: Random) -> None:
    """Move a group on one of its topics: back, on, or to the end, once what is out is answered.

    The group without order only where it has a retry topic, in which what it failed waits on.
    """
    assert world.node is not None
    assert world.process is not None
    group = "free" if world.retry_topic else random.choice(("by-key", "by-path"))
    topic = random.choice(("orders", "events")[: 1 if group == "by-key" else 2])
    how: dict[str, Any] = random.choice(
        [{"shift_by": -random.randrange(1, 20)}, {"shift_by": random.randrange(1, 20)}, {"to": "latest"}]
    )
    body = ResetBody(group=group, topic=topic, dry_run=False, wait_seconds=10, **how)
    [found] = [each for each in node_changes(world.node) if each.name == "reset_offsets"]

    async def run() -> None:
        try:
            answer = await cast("Awaitable[ResetResult]", found.run(body))
        except ChangeRefused:
            world.report.events["reset_refused"] += 1
            return
        # In the very turn of the reset: nothing is handed out before this.
        moved = [each for each in answer.queues if each.changes]
        to = {f"{QID_PREFIX}{each.queue}": each.to for each in moved}
        world.ledger.reset(group, topic, to, now(world))
        world.ledger.note(world.loop.time(), f"{group} is moved on {topic} to {to}")
        world.report.events["reset_made"] += 1
        world.report.events["reset_with_retries"] += group == "free"
        world.report.events["reset_passed_over"] += sum(each.skipped for each in moved)
        world.report.events["reset_repeated"] += sum(each.repeated for each in moved)

    task = world.process.run(world.loop.create_task, run())
    world.run(until=task.done, seconds=60)
    task.result()


def _origin(world: World, group: str, place: Place) -> Place:
    """Where a stuck message was published: of one in the group's retry topic that is told by its record."""
    if not is_retry(place):
        return place
    assert world.node is not None
    store = opened_of(world.node).store
    queue = store.topics[retry_topic(group)].queues[int(place.qid.rpartition("_")[2])]
    [(physical, size, _)] = queue.read(place.offset, 1)
    uid = int(parse_properties(bytes(split(store.read(physical, size))[1]))["uid"])
    return world.ledger.retries.named(group, place, uid)


def now(world: World) -> Stamp:
    """Return a stamp of this moment."""
    mark = world.network.mark()
    return Stamp(mark.sequence, mark.turn, mark.time, world.ledger.life)
