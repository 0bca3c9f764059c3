"""A node in virtual time that is killed while a timer is durable and its moment has not come."""

from __future__ import annotations

from random import Random

from actions.registry import Registry
from conf.loader import loads
from proxy.node.node import Node
from proxy.node.parts import Seams
from pyddmq.testing import NetworkFaults, SimDisk, SimNetwork, SimSyncs, VirtualClock, VirtualLoop
from pyddmq.testing.loop import Process
from tests.insides import opened_of

YAML = """
node: {segmentBytes: 4194304, producerPort: 9613, consumerPort: 9713}
topics:
  orders: {queues: 1}
"""
LOOK_SECONDS = 0.00005


class Machine:
    """What outlives a process: its disk, and time."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.disk = SimDisk()
        self.process = Process("none")

    def start(self) -> Node:
        """Start a node, whose syncs take no time."""
        self.process = Process("node")
        seams = Seams(
            loop=self.loop,
            clock=self.clock,
            disk=self.disk,
            randomness=Random(2),
            network=SimNetwork(self.loop, Random(1), NetworkFaults()),
            syncs=SimSyncs(self.disk, self.loop, Random(3), seconds_max=0.0),
        )
        node = Node(loads(YAML, actions=Registry()).config, seams=seams, registry=Registry())
        task = self.process.run(self.loop.create_task, node.start())
        self.loop.run(task.done, seconds=60)
        task.result()
        return node


def test_timer_that_is_durable_before_its_moment_is_not_shown_by_a_restart() -> None:
    """The next process waits for the moment before it is ready, and shows the timer once."""
    machine = Machine()
    node = machine.start()
    due_ms = machine.clock.wall_ms() + 5_000
    opened_of(node).store.put("orders", b"due", deliver_at_ms=due_ms)
    machine.loop.run(lambda: opened_of(node).store.commit.is_early, seconds=6)
    assert due_ms * 1000 - 4_000 <= machine.clock.wall_us() < due_ms * 1000
    assert opened_of(node).store.topics["orders"].queues[0].max_offset == 0
    machine.process.kill()
    machine.disk.kill()
    node = machine.start()
    assert machine.clock.wall_us() >= due_ms * 1000
    assert opened_of(node).store.topics["orders"].queues[0].max_offset == 1
    machine.loop.run(None, seconds=10)
    assert (opened_of(node).store.topics["orders"].queues[0].max_offset, opened_of(node).timers.pending) == (1, 0)


def test_timer_is_shown_to_the_microsecond_by_a_disk_that_is_quick_enough() -> None:
    """It is durable before, and visible when the wall clock says so; nothing that was set back shows it earlier."""
    machine = Machine()
    node = machine.start()
    queue = opened_of(node).store.topics["orders"].queues[0]
    due_ms = machine.clock.wall_ms() + 5_000
    for number in range(20):
        opened_of(node).store.put("orders", b"%d" % number, deliver_at_ms=due_ms + number * 7)
    for number in range(20):
        machine.loop.run(lambda number=number: queue.max_offset > number, seconds=10)  # type: ignore[misc]
        assert machine.clock.wall_us() == (due_ms + number * 7) * 1000
