"""A whole node under faults, with a group whose failed messages go through its retry topic (D37)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.simulation.clients import ConsumerHabits, ProducerHabits
from tests.simulation.faults import FAULTS
from tests.simulation.ledger import Ledger, Place, Stamp
from tests.simulation.world import World, settings

FAULTS_USED = ("kill", "kill_twice", "lose_power", "stop", "cut_within", "fill_disk", "fail_sync", "reset_connections")


class RetryLedger(Ledger):
    """Knows a message that comes from the retry topic for what it is: the same one, at another place."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self.retried = 0
        self._first: dict[int, Place] = {}
        self._again: dict[tuple[str, Place], Place] = {}

    def _place(self, place: Place, uid: int) -> None:
        super()._place(place, uid)
        self._first[uid] = place

    def delivered(self, group: str, place: Place, client: str, stamp: Stamp, *, uid: int, **what: Any) -> None:
        """Note a delivery at the place where the message was published."""
        if "retry" in place.qid:
            self.retried += 1
            first = self._again.setdefault((group, place), self._first[uid])
            assert first == self._first[uid], f"{place} named two messages"
            place = first
        super().delivered(group, place, client, stamp, uid=uid, **what)

    def answered(self, group: str, place: Place, client: str, stamp: Stamp, success: bool) -> None:
        """Note a result, for the place where the message was published."""
        super().answered(group, self._again.get((group, place), place), client, stamp, success)

    def confirmed(self, group: str, place: Place, stamp: Stamp) -> None:
        """Note that a success counts, for the place where the message was published."""
        super().confirmed(group, self._again.get((group, place), place), stamp)


@pytest.mark.parametrize("seed", range(3))
def test_retries_through_the_topic_survive_every_fault(seed: int) -> None:
    """Kills, power losses, full and failing disks: nothing acknowledged comes again, nothing is dropped."""
    world, random = World(seed, make_ledger=RetryLedger), Random(f"retries {seed}")
    wanted = settings()
    for subscription in wanted["groups"][2]["topics"]:
        subscription.update(retryTopic=True, retryIntervals=[0, 60, 1500])
    world.config = world._load(wanted).config
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

    def over() -> bool:
        assert world.node is not None
        return not world.node.timers.pending and world._nothing_left()

    assert world.run(until=over, seconds=30)
    world.run(seconds=5)
    assert isinstance(world.ledger, RetryLedger)
    assert world.ledger.retried > 10
    world.check()
