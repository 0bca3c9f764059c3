"""A node that is ended again and again, each time while it recovers from the end before."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any
from unittest.mock import patch

from broker.scheduled.timer import enqueuing
from tests.insides import opened_of
from tests.simulation.world import DATA, World

ENDS_MAX = 4
RECOVERY_SECONDS = (0.0, 0.02, 0.1, 0.3, 1.0)
"""How long a node may recover, or work, before its next end, at most."""
LOST_FILES = (
    ("timerwheel",),
    ("timerlog",),
    ("config/timercheck", "pyddmq/timers.json"),
    ("config/delayOffset.json", "pyddmq/delayOffset.json", "pyddmq/delays.json"),
)
"""What may be gone after a kill, alone or together (promise 4)."""


def end_again(world: World, random: Random) -> None:
    """End the node two to four times in a row, in any way, and perhaps without what it can make anew.

    It may have saved how far it was in between: what a recovery has not done yet must not count as done. Timers are
    entered in small steps, so that a run with hundreds of them has what one with millions has.
    """
    with patch.object(enqueuing, "STEP_RECORDS", random.choice((2, 10, enqueuing.STEP_RECORDS))):
        _end_again(world, random)


def _end_again(world: World, random: Random) -> None:
    world.kill()
    if random.random() < 0.5:
        _lose(world, random.sample(LOST_FILES, random.randrange(1, len(LOST_FILES) + 1)))
    for _ in range(random.randrange(1, ENDS_MAX)):
        node, task = world.begin()
        world.run(until=task.done, seconds=random.random() * random.choice(RECOVERY_SECONDS))
        end = random.choice(("stop", "stop", "kill", "power"))
        if task.done():
            task.result()
            world.serves(node)
            world.run(seconds=random.random() * random.choice(RECOVERY_SECONDS))
            if random.random() < 0.5:
                _save(world)
        elif end == "stop":
            _break_off(world, task)
        world.report.events[f"end_{end}_{'served' if task.done() and world.node else 'recovered'}"] += 1
        if end == "stop" and world.node is not None:
            world.stop()
        else:
            world.kill(power=end == "power")
    world.start()


def _break_off(world: World, task: asyncio.Task[Any]) -> None:
    """Have a node that recovers give up, as SIGTERM does."""
    assert world.process is not None
    world.process.run(task.cancel)
    world.run(until=task.done, seconds=60)
    assert task.cancelled()


def _save(world: World) -> None:
    """Have the node write down now how far it is, as it does every few seconds."""
    assert world.node is not None
    assert world.process is not None
    opened = opened_of(world.node)
    world.process.run(opened.store.checkpoint)
    world.process.run(lambda: opened.timers.checkpoints.now(clean=False))


def _lose(world: World, lost: list[tuple[str, ...]]) -> None:
    for name in (name for names in lost for name in names):
        path = f"{DATA}/{name}"
        if world.disk.is_folder(path):
            for file in world.disk.list(path):
                world.disk.remove(f"{path}/{file}")
        elif world.disk.exists(path):
            world.disk.remove(path)
    # (A power loss in which they come back is another matter.)
    for folder in (DATA, f"{DATA}/config", f"{DATA}/pyddmq", f"{DATA}/timerlog"):
        if world.disk.is_folder(folder):
            world.disk.sync_folder(folder)
    world.report.events["files_gone"] += 1
