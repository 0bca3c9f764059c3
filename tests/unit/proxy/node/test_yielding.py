"""Steps that would follow at once wait for the sync on its way, for a millisecond at most; others do not."""

from __future__ import annotations

import pytest

from proxy.node.yielding import PAUSE_SECONDS, Yielding
from pyddmq.testing import ManualClock, ManualScheduler


class World:
    """A scheduler of each kind, and the names of the steps that ran."""

    def __init__(self) -> None:
        self.scheduler = ManualScheduler(ManualClock())
        self.syncing = False
        self.yielding = Yielding(self.scheduler, lambda: self.syncing)
        self.ran: list[str] = []

    def sync(self) -> None:
        """Have something on its way to the disk."""
        self.syncing = True

    def synced(self) -> None:
        """Have it there."""
        self.syncing = False
        self.yielding.synced()

    def ran_now(self) -> list[str]:
        """Let everything run that is ready; returns what ran since the last call."""
        self.scheduler.run_until_idle()
        ran = list(self.ran)
        self.ran.clear()
        return ran


@pytest.fixture
def world() -> World:
    """Nothing is scheduled, and no sync on its way."""
    return World()


def test_steps_follow_at_once_without_a_sync(world: World) -> None:
    """Also after one has ended."""
    world.yielding.call_soon(world.ran.append, "soon")
    world.yielding.call_later(0.0, world.ran.append, "later")
    assert world.ran_now() == ["soon", "later"]
    world.sync()
    world.synced()
    world.yielding.call_soon(world.ran.append, "after")
    assert world.ran_now() == ["after"]


def test_steps_wait_for_the_end_of_the_sync_in_their_order(world: World) -> None:
    """A sync that begins as the other ends does not hold those that have waited."""
    world.sync()
    world.yielding.call_later(0.0, world.ran.append, "first")
    world.yielding.call_soon(world.ran.append, "second")
    assert world.ran_now() == []
    world.synced()
    world.sync()
    world.yielding.call_soon(world.ran.append, "third")
    assert world.ran_now() == ["first", "second"]
    world.synced()
    assert world.ran_now() == ["third"]


def test_slow_disk_is_not_waited_for(world: World) -> None:
    """After the pause the step runs, and each one that follows has a pause of its own; none runs twice."""
    world.sync()
    for name in ("first", "second"):
        world.yielding.call_soon(world.ran.append, name)
        world.scheduler.advance(PAUSE_SECONDS / 2)
        assert world.ran_now() == []
        world.scheduler.advance(PAUSE_SECONDS / 2)
        assert world.ran_now() == [name]
    world.synced()
    world.scheduler.advance(1.0)
    assert world.ran_now() == []


def test_moments_are_kept_while_a_sync_is_on_its_way(world: World) -> None:
    """What has a time of its own, as the next due timer, comes then."""
    world.sync()
    world.yielding.call_later(PAUSE_SECONDS / 4, world.ran.append, "due")
    world.scheduler.advance(PAUSE_SECONDS / 4)
    assert world.ran_now() == ["due"]


def test_withdrawn_steps_do_not_run(world: World) -> None:
    """Neither while they wait nor when they were passed on."""
    world.sync()
    waiting = world.yielding.call_soon(world.ran.append, "waiting")
    passed = world.yielding.call_soon(world.ran.append, "passed on")
    waiting.cancel()
    world.synced()
    passed.cancel()
    assert world.ran_now() == []
