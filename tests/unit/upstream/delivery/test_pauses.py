"""Pausing a group by hand: nothing is handed out or run, answers are taken, restarts and reloads do not undo it."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time
from typing import ClassVar

import pytest

from actions.registry import BUILT_IN, Registry
from broker.errors import StoreUnreadable
from broker.runtime.file_writes import at_once
from pyddmq.actions import Action, Job, Status
from pyddmq.testing import ManualClock, PowerCut, SimDisk
from tests.unit.upstream_world import ROOT, Client, World
from upstream.delivery.pauses import PauseConflict, Pauses
from upstream.waiting.buffer import PulledBatch

KEYED = {"topic": "t", "orderKey": "KEY", "timeout": 10_000, "retryIntervals": [1000], "maxPullBatchSize": 10}


def test_paused_group_hands_out_nothing_and_takes_answers() -> None:
    """Pulls come back empty or stay parked, also after retries and timeouts; what is out may be answered."""
    world = World(KEYED, queues=1)
    client = Client()
    world.publish("a", "b", "a")
    first, second = world.pull_all(client)
    got: list[PulledBatch] = []
    world.group.park(None, None, client, got.append)
    assert world.pause()
    assert not world.pause()
    assert world.answer(client, first).finished == 1
    world.answer(client, second, fail=True)
    world.publish("c", None)
    world.advance(30)
    assert world.pull_all(client) == []
    assert got == []
    assert world.group.stats().topics[0].paused_since_ms is not None
    assert world.resume()
    [batch] = got
    assert [job.offset for job in batch.jobs] + [job.offset for job in world.pull_all(client)] == [1, 2, 3, 4]


def test_pause_survives_restarts_reloads_and_the_groups_absence() -> None:
    """Until `resume` it holds: after a kill, for a new generation, and for one topic alone."""
    world = World(KEYED, {"topic": "u"}, queues=1)
    world.publish("a")
    world.publish("b", topic="u")
    world.pause("t")
    world.kill()
    client = Client()
    assert [job.topic for job in world.pull_all(client)] == ["u"]
    world.group.reconfigure(world.config({**KEYED, "pressureTraffic": True}, {"topic": "u"}))
    world.advance(1)
    assert world.pull_all(client) == []
    assert [topic.paused_since_ms is not None for topic in world.group.stats().topics] == [True, False]
    world.resume("t")
    assert [job.topic for job in world.pull_all(client)] == ["t"]


class Worker(Action):
    """Consumes by itself, without pulls."""

    may_be_last = True
    done: ClassVar[list[str]] = []
    fails: ClassVar[bool] = False

    def act(self, job: Job) -> Status:
        self.done.append(bytes(job.body).decode())
        return Status.FAIL if self.fails else Status.FINISH


def test_paused_actions_do_not_run_either() -> None:
    """A pipeline that needs no pulls stands still too, retries included."""
    Worker.done.clear()
    registry = Registry({**BUILT_IN, "Worker": Worker})
    world = World({**KEYED, "actions": ["Worker"], "retryIntervals": [1000] * 5}, queues=1, registry=registry)
    Worker.fails = True
    world.publish("a")
    world.pause()
    Worker.fails = False
    world.publish("b")
    world.advance(20)
    assert Worker.done == ["1"]
    world.resume()
    world.advance(2)
    assert sorted(Worker.done) == ["1", "1", "2"]


def test_pause_of_many_pending_retries_leaves_the_loop_to_others() -> None:
    """They are looked at every second, which takes as long as there are many of them, and not its square."""

    class Failing(Action):
        may_be_last = True

        def act(self, job: Job) -> Status:
            return Status.FAIL

    many = 20_000
    settings = {"actions": ["Failing"], "concurrency": many, "retryIntervals": [1000, -1]}
    world = World({"topic": "t", **settings}, queues=1, registry=Registry({**BUILT_IN, "Failing": Failing}))
    for _ in range(many // 1000):
        world.publish(*[None] * 1000)
    assert world.pause()
    assert world.group.stats().topics[0].retrying == many
    before = process_time()
    world.advance(3)
    assert process_time() - before < 3
    assert world.group.stats().topics[0].retrying == many


def test_topic_of_a_paused_group_is_not_resumed_by_itself() -> None:
    """Resuming the group resumes its topics too; one topic of a paused group cannot be resumed."""
    world = World(KEYED, queues=1)
    world.pause("t")
    world.pause()
    with pytest.raises(PauseConflict, match="whole group g is paused"):
        world.resume("t")
    assert world.resume()
    assert not world.resume()
    assert world.group.stats().topics[0].paused_since_ms is None


def fresh(disk: SimDisk) -> Pauses:
    """Open the pauses of a disk."""
    disk.make_folder(f"{ROOT}/pyddmq")
    return Pauses.open(ROOT, disk=disk, clock=ManualClock())


def stops() -> Iterator[tuple[SimDisk, int]]:
    """Yield disks that stop at one change after the other."""
    for changes in range(40):
        disk = SimDisk()
        at_once(disk, fresh(disk).pausing("g", "one", who="x"))
        disk.stop_after(changes)
        yield disk, changes


def test_stop_at_every_change_leaves_the_old_or_the_new_pauses() -> None:
    """An answered pause holds; one that was cut off is there whole or not at all, and the file can be read."""
    cuts = 0
    for disk, changes in stops():
        answered = False
        try:
            at_once(disk, fresh(disk).pausing("g", "two", who="x"))
            answered = True
        except PowerCut:
            cuts += 1
        disk.kill()
        again = fresh(disk)
        assert again.of("g", "one") is not None
        if answered:
            assert again.of("g", "two") is not None
        if cuts <= changes:
            break
    assert cuts > 5


def test_flipped_bit_costs_no_pause_and_two_damaged_copies_say_what_to_do() -> None:
    """Each copy stands in for the other; with both damaged the node does not guess."""
    for name in ("paused.json", "paused-copy.json"):
        disk = SimDisk()
        at_once(disk, fresh(disk).pausing("g", None, who="x"))
        disk.flip_bit(f"{ROOT}/pyddmq/{name}", 20)
        assert fresh(disk).of("g", "anything") is not None
    disk.flip_bit(f"{ROOT}/pyddmq/paused.json", 20)
    with pytest.raises(StoreUnreadable, match="delete them, start, and pause again"):
        fresh(disk)
