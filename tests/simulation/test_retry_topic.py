"""A whole node under faults, whose clients fail nearly half of what a group with a retry topic gets (D37)."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.clients import ConsumerHabits, ProducerHabits
from tests.simulation.faults import FAULTS
from tests.simulation.world import World

FAULTS_USED = ("kill", "kill_twice", "lose_power", "stop", "cut_within", "fill_disk", "fail_sync", "reset_connections")


@pytest.mark.parametrize("seed", range(3))
def test_retries_through_the_topic_survive_every_fault(seed: int) -> None:
    """Kills, power losses, full and failing disks: nothing acknowledged comes again, nothing is dropped."""
    world, random = World(seed, retry_topic=True), Random(f"retries {seed}")
    world.start()
    world.add_producer(ProducerHabits(pause_seconds=0.05))
    for group in ("by-key", "by-path"):
        world.add_consumer(group)
    for topic in (None, "orders", "events"):
        world.add_consumer("free", ConsumerHabits(fail_share=0.4), topic=topic)
    for _ in range(6):
        world.run(seconds=random.random() * 3)
        FAULTS[random.choice(FAULTS_USED)](world, random)
    world.run(seconds=1)
    world.settle()
    assert world.ledger.retries.count > 10
    world.check()
