"""The transactional ids of a partition: targets that hang take them, and others take their place."""

from __future__ import annotations

import pytest

from tests.unit.upstream.kafka.waiting.test_suspect_targets import late, spread
from tests.waiting_world import WaitingWorld


def test_owner_goes_on_whatever_number_of_targets_hangs() -> None:
    """Each takes an id, and another takes its place: others are delivered, and a cancel is decided."""
    world = WaitingWorld(partitions=1)
    for number in range(8):
        world.kafka.partitions(f"ill{number}", 1)
    world.settle()
    spread(world, 400)
    for number in range(8):
        topic = f"ill{number}"
        world.coordinator.hanging.add(topic)
        world.coordinator.answering.add(topic)
        world.nodes[0].add(topic, world.now_ms + 1_000 + 1_500 * number, topic=topic)
    world.run(24)
    assert len(world.coordinator.stuck) >= 8
    delays = late(world)
    assert len(delays) == 400
    assert sum(each > 200 for each in delays) < 40
    assert max(delays) < 400
    outcome = world.nodes[0].ask("ill3", topic="ill3")
    world.run(2)
    assert outcome == ["cancelled"]
    world.coordinator.hanging.clear()
    world.run(40)
    assert [len(world.delivered(f"ill{number}")) for number in range(8)] == [1, 1, 1, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("restarted", ["n0", "n1"])
def test_takeover_does_not_wait_for_a_transaction_that_cannot_end(restarted: str) -> None:
    """The next owner goes on without its id when the lease of the former one is over; each message comes once."""
    world = WaitingWorld(partitions=1)
    world.settle()
    world.coordinator.hanging.add("events")
    world.nodes[0].add("e", world.now_ms + 1_000, topic="events")
    world.nodes[0].add("m", world.now_ms + 8_000)
    world.run(1.3)
    world.nodes[0].kill()
    node = world.start(restarted)
    world.run(20)
    assert world.coordinator.stuck
    assert (list(world.delivered()), world.delivered("events")) == (["m"], {})
    world.coordinator.hanging.clear()
    world.run(35)
    assert (list(world.delivered()), list(world.delivered("events"))) == (["m"], ["e"])
    assert node.waiting.troubles() == []


def test_takeover_takes_the_ids_that_the_former_owner_had_last() -> None:
    """Not those that it gave up: nothing is waited for."""
    world = WaitingWorld(partitions=1)
    world.settle()
    world.coordinator.hanging.add("events")
    world.nodes[0].add("e", world.now_ms + 1_000, topic="events")
    world.run(5)
    [place] = world.nodes[0].waiting.owners
    assert world.nodes[0].waiting.owners[place].lanes.text == "3 1 2"
    world.nodes[0].kill()
    node = world.start("n0")
    world.run(3)
    assert node.served == [0]


def test_former_owner_writes_nothing_by_an_id_that_its_successor_went_on_without() -> None:
    """It hears nothing of its loss, and its id works again when its successor has not taken it."""
    world = WaitingWorld(nodes=2, partitions=1)
    world.settle()
    [former] = [node for node in world.nodes if node.served]
    [lanes] = [each.lanes for each in former.waiting.owners.values()]
    former.add("e", world.now_ms + 1_000, topic="events")
    for number in range(40):
        former.add(f"m{number}", world.now_ms + 14_000 + 100 * number)
    world.run(0.9)
    # The end of this transaction is not taken everywhere, of which its owner hears nothing.
    world.coordinator.ends_late.add("events")
    world.run(0.3)
    assert world.coordinator.stuck == ["__pyddmq_waiting-0-0"]
    former.client.members[0].paused = True
    world.run(15)
    [successor] = [node for node in world.nodes if node is not former]
    assert successor.served == [0]
    assert world.coordinator.stuck == ["__pyddmq_waiting-0-0"]
    world.coordinator.ends_late.clear()
    world.run(30)
    assert "0" in lanes.text.split()
    assert {name: len(moments) for name, moments in world.delivered().items()} == {f"m{n}": 1 for n in range(40)}
    assert {len(moments) for moments in world.delivered("events").values()} == {1}
