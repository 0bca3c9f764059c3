"""A node in virtual time whose timers are due at once: its steps let the disk end first, unless it is slow."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from actions.registry import Registry
from conf.loader import loads
from proxy.node.node import Node
from proxy.node.parts import Seams
from pyddmq.testing import NetworkFaults, SimDisk, SimNetwork, SimSyncs, VirtualClock, VirtualLoop
from tests.insides import opened_of

YAML = """
node: {segmentBytes: 4194304, producerPort: 9613, consumerPort: 9713}
topics:
  orders: {queues: 1}
"""
COUNT = 3_000
LOOK_SECONDS = 0.00005


class Exactly(Random):
    """Has every sync take its longest time."""

    def random(self) -> float:
        """Return what neither leaves a sync out nor shortens it."""
        return 0.79


def steps_under_way(sync_seconds: float) -> int:
    """Have timers fall due at once on a disk whose syncs take so long; the most steps that were under way at a time."""
    loop = VirtualLoop()
    disk = SimDisk()
    seams = Seams(
        loop=loop,
        clock=VirtualClock(loop),
        disk=disk,
        randomness=Random(2),
        network=SimNetwork(loop, Random(1), NetworkFaults()),
        syncs=SimSyncs(disk, loop, Exactly(), seconds_max=sync_seconds),
    )
    node = Node(loads(YAML, actions=Registry()).config, seams=seams, registry=Registry())
    loop.run_task(node.start())
    due_ms = seams.clock.wall_ms() + 5_000
    for number in range(COUNT):
        opened_of(node).store.put("orders", b"%d" % number, deliver_at_ms=due_ms)
    loop.run(None, seconds=4.9)
    most = 0
    queue = opened_of(node).store.topics["orders"].queues[0]
    for _ in range(100_000):
        loop.run(None, seconds=LOOK_SECONDS)
        most = max(most, opened_of(node).timers.due.delivery.steps)
        if queue.max_offset == COUNT:
            break
    errors: list[Any] = loop.errors
    assert queue.max_offset == COUNT
    assert not errors
    loop.run_task(node.stop(drain_seconds=0))
    return most


@pytest.mark.parametrize(("sync_seconds", "most"), [(0.0005, 1), (0.02, 5)])
def test_steps_wait_for_a_quick_disk_and_not_for_a_slow_one(sync_seconds: float, most: int) -> None:
    """One at a time is under way where a sync takes a fraction of a millisecond, several where it takes many."""
    assert steps_under_way(sync_seconds) == most
