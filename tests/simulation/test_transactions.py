"""A whole node under faults, with many producers of transactions: each ends once, as decided, or stays unseen."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.clients import ProducerHabits
from tests.simulation.faults import FAULTS
from tests.simulation.world import World

FAULTS_USED = ("kill", "kill_twice", "lose_power", "stop", "cut_within", "fill_disk", "fail_sync", "reset_connections")


@pytest.mark.parametrize("seed", range(6))
def test_transactions_end_once_under_every_fault(seed: int) -> None:
    """Committed ones are there exactly once, rolled back and undecided ones never; no decision is ever undone."""
    world, random = World(seed), Random(f"transactions {seed}")
    world.start()
    world.add_producer(ProducerHabits(pause_seconds=0.2))
    for group in ("by-key", "by-path", "free"):
        world.add_consumer(group)
    for number in (90, 91):
        world.add_halves(number=number)
    for number in (92, 93):
        world.add_checked(number=number)
    for _ in range(6):
        world.run(seconds=random.random() * 2)
        FAULTS[random.choice(FAULTS_USED)](world, random)
    world.run(seconds=1)
    world.settle()
    world.check()
    account = world.halves
    assert len([name for name in account.stored if account.fates[name] == "commit"]) > 10
    assert account.checks, "nobody was asked"
