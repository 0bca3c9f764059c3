"""An operator's changes on a whole node in virtual time: what they wait for, and what becomes of open calls."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from broker.queues.topics import retry_topic
from broker.retry.backlog import unread_in
from proxy.access.audit import Who
from proxy.operate.changes.dead_letters import RedriveBody
from proxy.operate.changes.desk import Asker, ChangeDesk, ChangeRefused
from proxy.operate.changes.groups import HeadBody, PauseBody
from proxy.operate.changes.node import node_changes
from proxy.operate.changes.offsets import ResetBody
from proxy.operate.changes.topics import DeletionBody, TopicBody
from proxy.operate.views.changes import ResetResult
from pyddmq.testing import NetworkFaults, SimDisk, SimFile
from tests.insides import opened_of
from tests.simulation.caller import Caller, uids
from tests.simulation.operator import change
from tests.simulation.world import World


@pytest.fixture
def world() -> World:
    """A node on a good network, without clients of its own."""
    world = World(1, faults=NetworkFaults(delay_ms_max=0.2, fragment_share=0))
    world.start()
    return world


def reset_later(world: World, **how: Any) -> asyncio.Task[Any]:
    """Ask for a reset of by-key on orders and return what runs."""
    assert world.node is not None
    assert world.process is not None
    [found] = [each for each in node_changes(world.node) if each.name == "reset_offsets"]
    body = ResetBody(group="by-key", topic="orders", dry_run=False, **how)

    async def run() -> ResetResult:
        return await cast("Awaitable[ResetResult]", found.run(body))

    task: asyncio.Task[Any] = world.process.run(world.loop.create_task, run())
    return task


def test_reset_waits_until_what_is_out_is_answered(world: World) -> None:
    """Nothing more is handed out, the holder's answer ends the wait, and a parked pull gets what comes then."""
    caller = Caller(world, "10.9.0.1")
    for uid in (1, 2, 3):
        caller.send("orders", "k", uid=uid)
    [(place, _)] = caller.pull("by-key")
    task = reset_later(world, to="latest")
    world.run(seconds=1)
    assert not task.done()
    assert caller.pull("by-key") == []
    other = caller.other()
    parked = other.pull_later("by-key", linger_ms=20_000)
    assert caller.answer("by-key", place, success=True)
    world.run(until=task.done, seconds=2)
    answer = task.result()
    assert answer.changed is True
    assert sum(queue.skipped for queue in answer.queues) == 2
    assert not parked.answered
    caller.send("orders", "k", uid=4)
    world.run(until=lambda: parked.answered, seconds=5)
    assert [message.properties["uid"] for message in parked.messages] == ["4"]


def test_reset_that_waits_in_vain_changes_nothing(world: World) -> None:
    """After its time it is refused, and the key goes on where it was, in order."""
    caller = Caller(world, "10.9.0.1")
    for uid in (1, 2):
        caller.send("orders", "k", uid=uid)
    [(place, _)] = caller.pull("by-key")
    task = reset_later(world, to="latest", wait_seconds=0.5)
    world.run(until=task.done, seconds=2)
    with pytest.raises(ChangeRefused, match="still in flight with clients"):
        task.result()
    world.run(seconds=0.2)
    assert caller.pull("by-key") == []
    assert caller.answer("by-key", place, success=True)
    assert uids(caller.pull("by-key", linger_ms=1000)) == [2]


def test_wait_for_a_reset_ends_with_the_node(world: World) -> None:
    """A stop during the wait refuses the reset; after the next start everything stands where it stood."""
    caller = Caller(world, "10.9.0.1")
    caller.send("orders", "k", uid=1)
    caller.pull("by-key")
    task = reset_later(world, to="latest")
    world.run(seconds=0.2)
    assert world.node is not None
    assert world.process is not None
    stopping = world.process.run(world.loop.create_task, world.node.stop(drain_seconds=1))
    world.run(until=stopping.done, seconds=10)
    assert task.done()
    with pytest.raises(ChangeRefused, match="nothing was reset"):
        task.result()
    world.kill()
    world.start()
    assert uids(Caller(world, "10.9.0.2").pull("by-key", linger_ms=1000)) == [1]


def test_parked_pulls_stay_parked_while_paused_and_are_answered_after(world: World) -> None:
    """A pull that waits while the group is paused gets nothing until it is resumed, or comes back empty at its end."""
    caller = Caller(world, "10.9.0.1")
    parked = caller.pull_later("by-key", linger_ms=10_000)
    short = caller.other().pull_later("by-key", linger_ms=500)
    world.run(seconds=0.1)
    assert change(world, "pause", PauseBody(group="by-key")) is not None
    caller.other().send("orders", "k", uid=1)
    world.run(seconds=2)
    assert not parked.answered
    assert short.answered
    assert short.messages == []
    assert change(world, "resume", PauseBody(group="by-key")) is not None
    world.run(until=lambda: parked.answered, seconds=1)
    assert len(parked.messages) == 1


def test_changes_are_refused_unless_the_node_is_ready(world: World) -> None:
    """Unknown groups, topics and queues are named; a failed node takes no changes and says why."""
    assert world.node is not None
    changes = {each.name: each for each in node_changes(world.node)}
    for name, body, sentence in [
        ("pause", PauseBody(group="nobody"), "Group 'nobody' does not exist"),
        ("pause", PauseBody(group="by-key", topic="events"), "does not subscribe to topic 'events'; it has: orders"),
        ("skip_message", HeadBody(group="by-key", topic="orders", queue=9, offset=0), "has no queue 9"),
        ("reset_offsets", ResetBody(group="x", topic="orders", to="latest"), "has no offsets on 'orders'"),
        ("reset_offsets", ResetBody(group="by-key", topic="orders"), "Pass exactly one of"),
        ("reset_offsets", ResetBody(group="by-key", topic="orders", to_offset=5), "can be set to 0"),
    ]:
        with pytest.raises(ChangeRefused, match=sentence):
            _run(world, changes[name].run, body)
    world.disk.fail("sync", path_part="commitlog")
    with pytest.raises(AssertionError):
        Caller(world, "10.9.0.1").send("orders", "k", uid=1)
    with pytest.raises(ChangeRefused, match="The node is failed"):
        _run(world, changes["pause"].run, PauseBody(group="by-key"))


def _run(world: World, act: Any, body: Any) -> Any:
    async def run() -> Any:
        answer = act(body)
        return await answer if asyncio.iscoroutine(answer) else answer

    assert world.process is not None
    task = world.process.run(world.loop.create_task, run())
    world.run(until=task.done, seconds=10)
    return task.result()


def test_group_cannot_be_moved_on_its_retry_topic() -> None:
    """Its subscriptions read that beside their own; the refusal says what there is instead."""
    world = World(1, faults=NetworkFaults(delay_ms_max=0.2, fragment_share=0), retry_topic=True)
    world.start()
    assert world.node is not None
    [found] = [each for each in node_changes(world.node) if each.name == "reset_offsets"]
    body = ResetBody(group="free", topic="%RETRY%free", to="earliest", dry_run=False)
    task = world.loop.create_task(cast("Any", found.run(body)))
    world.run(until=task.done, seconds=1)
    with pytest.raises(ChangeRefused, match="cannot be reset there while it runs"):
        task.result()


def test_group_is_moved_past_a_retry_topic_that_it_does_not_read(world: World) -> None:
    """What a consumer of RocketMQ failed waits there; the finding that says so ends, and the group goes on."""
    assert world.node is not None
    node, topic = world.node, retry_topic("by-key")
    opened_of(node).store.create_topic(topic, 1, system=True)
    opened_of(node).store.put(topic, b"x")
    world.run(seconds=1)
    assert [each.topic for each in unread_in(opened_of(node).store, opened_of(node).progress.offsets.get)] == [topic]
    [found] = [each for each in node_changes(node) if each.name == "reset_offsets"]
    for dry_run in (True, False):
        answer = _run(world, found.run, ResetBody(group="by-key", topic=topic, to="latest", dry_run=dry_run))
        assert [(move.queue, move.skipped) for move in answer.queues] == [(0, 1)]
        world.run(seconds=2)
        assert bool([*unread_in(opened_of(node).store, opened_of(node).progress.offsets.get)]) == dry_run
    world.kill()
    world.start()
    assert not [*unread_in(opened_of(world.node).store, opened_of(world.node).progress.offsets.get)]


@pytest.mark.parametrize(
    "name", ["pause", "resume", "retry_message", "dead_letter_message", "redrive_dead_letters", "delete_topic"]
)
def test_nobody_waits_while_a_change_is_made_durable(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No sync is made in the turn of the request; what it changed is durable when it is answered."""
    assert world.node is not None
    assert world.process is not None
    caller = Caller(world, "10.9.0.1")
    caller.send("orders", "k", uid=1)
    [(place, _)] = caller.pull("by-key")
    assert caller.answer("by-key", place, success=False)
    head = HeadBody(group="by-key", topic="orders", queue=int(place.qid.rpartition("_")[2]), offset=place.offset)
    body = {
        "redrive_dead_letters": RedriveBody(group="by-key", dry_run=False),
        "delete_topic": DeletionBody(topic="made", confirm="made"),
        "retry_message": head,
        "dead_letter_message": head,
    }.get(name, PauseBody(group="by-key"))
    before = {
        "resume": ("pause", PauseBody(group="by-key")),
        "redrive_dead_letters": ("dead_letter_message", head),
        "delete_topic": ("create_topic", TopicBody(topic="made", queues=2)),
    }
    # Its files are made at once.
    opened_of(world.node).store.create_topic("%DLQ%by-key", 1, system=True)
    if name in before:
        assert change(world, *before[name]) is not None
    world.run(until=lambda: world.node is not None and not opened_of(world.node).store.unsettled, seconds=1)
    [found] = [each for each in node_changes(world.node) if each.name == name]

    def at_once(*_: object) -> None:
        raise OSError(errno.EIO, "a sync at once")

    # Those beside the loop, of the ack journal too, go on.
    monkeypatch.setattr(SimFile, "sync", at_once)
    monkeypatch.setattr(SimDisk, "sync_folder", at_once)
    # None of these takes no time.
    monkeypatch.setattr(world.node.parts.seams.syncs, "_random", SimpleNamespace(random=lambda: 0.5))

    async def run() -> Any:
        answer = found.run(body)
        return await answer if asyncio.iscoroutine(answer) else answer

    task = world.process.run(world.loop.create_task, run())
    world.run(seconds=0)
    assert (task.done(), world.node.failure) == (False, None)
    monkeypatch.undo()
    world.run(until=task.done, seconds=5)
    answer = task.result()
    assert getattr(answer, "changed", True)
    world.kill(power=True)
    node = world.start()
    if name in ("pause", "resume"):
        assert (opened_of(node).pauses.of("by-key", "orders") is not None) == (name == "pause")
    elif name == "delete_topic":
        assert "made" not in opened_of(node).store.topics
    elif name == "redrive_dead_letters":
        assert answer.redriven == 1
        assert uids(Caller(world, "10.9.0.2").pull("by-key", linger_ms=1000)) == [1]
    elif name == "dead_letter_message":
        assert opened_of(node).store.topics["%DLQ%by-key"].queues[0].max_offset == 1
    else:
        assert uids(Caller(world, "10.9.0.2").pull("by-key", linger_ms=1000)) == [1]


def test_reset_on_a_node_that_fails_meanwhile_leaves_its_topic_at_work(world: World) -> None:
    """Nothing is reset, and what is there is handed out: a failed disk stops writing, not serving."""
    caller = Caller(world, "10.9.0.1")
    for uid, key in ((1, "k"), (2, "k"), (3, "other")):
        caller.send("orders", key, uid=uid)
    [(place, _), *_] = caller.pull("by-key", count=1)
    task = reset_later(world, to="latest")
    world.run(seconds=0.2)
    assert world.node is not None
    opened_of(world.node).store.writes.fail("writing the commit log", OSError(5, "Input/output error"))
    world.run(until=task.done, seconds=5)
    with pytest.raises(ChangeRefused, match="The node is failed"):
        task.result()
    assert uids(caller.pull("by-key", linger_ms=1000)) == [3]
    assert caller.answer("by-key", place, success=True)


def test_reset_whose_caller_goes_away_leaves_its_topic_at_work(world: World) -> None:
    """Its wait ends, nothing is reset, and the topic goes on."""
    caller = Caller(world, "10.9.0.1")
    for uid, key in ((1, "k"), (2, "other")):
        caller.send("orders", key, uid=uid)
    assert uids(caller.pull("by-key", count=1)) == [1]
    task = reset_later(world, to="latest")
    world.run(seconds=0.2)
    task.cancel()
    assert uids(caller.pull("by-key", linger_ms=1000)) == [2]


def test_other_changes_go_first_while_a_reset_waits(world: World) -> None:
    """A pause does not wait for the clients that a reset waits for; another reset of the same is refused."""
    caller = Caller(world, "10.9.0.1")
    caller.send("orders", "k", uid=1)
    [(place, _)] = caller.pull("by-key")
    assert world.node is not None
    assert world.process is not None
    desk = ChangeDesk(world.node.runtime.metrics, OpenGate(), world.node.parts.audit)
    changes = {each.name: each for each in node_changes(world.node)}

    def ask(name: str, body: dict[str, Any]) -> asyncio.Task[Any]:
        assert world.process is not None
        request = cast("Any", Asked(json.dumps(body).encode()))
        task: asyncio.Task[Any] = world.process.run(world.loop.create_task, desk.run(request, changes[name]))
        return task

    move = {"group": "by-key", "topic": "orders", "to": "latest", "dryRun": False}
    reset = ask("reset_offsets", move)
    world.run(seconds=0.2)
    pause, second = ask("pause", {"group": "by-key"}), ask("reset_offsets", move)
    world.run(until=lambda: pause.done() and second.done(), seconds=1)
    assert pause.result().paused_topics == ["orders"]
    with pytest.raises(ChangeRefused, match="Another reset"):
        second.result()
    assert not reset.done()
    assert caller.answer("by-key", place, success=True)
    world.run(until=reset.done, seconds=2)
    assert reset.result().changed is True


class OpenGate:
    """Lets everybody do everything."""

    def enter(self, request: object, *, is_change: bool = False) -> Asker:
        return Asker(Who(address="127.0.0.1"), None)

    def allow_change(self, request: object, asker: Asker, change: object, body: object) -> None:
        pass


class Asked:
    """A request as the desk reads it."""

    content_type, remote, host, scheme = "application/json", "127.0.0.1", "127.0.0.1", "http"
    headers: ClassVar[dict[str, str]] = {"Host": "127.0.0.1"}

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def read(self) -> bytes:
        """Return the body."""
        return self._body


def test_reset_of_a_group_that_is_taken_out_meanwhile_moves_nothing(world: World) -> None:
    """Its answers count while it drains; where it stood is where it goes on when it is put back."""
    caller = Caller(world, "10.9.0.1")
    for uid in (1, 2):
        caller.send("orders", "k", uid=uid)
    [(place, _), *_] = caller.pull("by-key", count=1)
    task = reset_later(world, to="latest")
    world.run(seconds=0.2)

    def take_out(wanted: dict[str, Any]) -> None:
        wanted["groups"] = [each for each in wanted["groups"] if each["group"] != "by-key"]

    world.reload(take_out)
    assert caller.answer("by-key", place, success=True)
    world.run(until=task.done, seconds=5)
    with pytest.raises(ChangeRefused, match="nothing was reset"):
        task.result()
    world.run(seconds=2)
    assert world.reload(lambda _: None).accepted
    assert uids(Caller(world, "10.9.0.2").pull("by-key", linger_ms=2000)) == [2]
