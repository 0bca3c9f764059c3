"""No message that waits is late: what the node delivers is compared with what clients were answered, all the while.

The bound is generous, since a run has slow disks and full queues. A wait that never ends is what it is for.
"""

from __future__ import annotations

from broker.format.properties import parse_properties
from broker.format.record import split
from broker.queues.consume_queue import FILLER_SIZE
from proxy.node.node import Node
from tests.insides import opened_of
from tests.simulation.facts import PromiseBroken, Publish
from tests.simulation.world import World

LOOK_SECONDS = 0.25
LATE_SECONDS = 3.0
TOPICS = ("orders", "events")


class Punctual:
    """Looks at a node of a run now and then, from its start on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._node: Node | None = None
        self._read_to: dict[tuple[str, int], int] = {}
        self._seen_to: dict[tuple[str, int], int] = {}
        """Likewise over all nodes of the run."""
        self._late_since: dict[int, float] = {}
        self._back_at = float("-inf")
        self._wall_ms, self._time = world.clock.wall_ms(), world.loop.time()
        self.delivered: set[int] = set()
        """Messages that are in their topic."""
        self._plan()

    def _plan(self) -> None:
        self._world.loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        try:
            self.look()
        except PromiseBroken as error:
            self._world.report_broken(error)
        else:
            self._plan()

    def look(self) -> None:
        """See what has been delivered since the last look, and what should have been. Raises PromiseBroken: 8."""
        world = self._world
        node, now = world.node, world.loop.time()
        wall_ms = world.clock.wall_ms()
        if wall_ms - self._wall_ms < round((now - self._time) * 1000) - 1:
            self._back_at = now
        self._wall_ms, self._time = wall_ms, now
        if node is not None and node is self._node and node.state in ("ready", "draining") and not world.cutting:
            self._read(node, now, wall_ms)
        if node is None or node.state != "ready" or world.cutting or world.disk.capacity_bytes is not None:
            self._late_since.clear()
            # After a start a level's message may wait for its delay once more (D35).
            self._back_at = now
            return
        if node is not self._node:
            # What the power took is written anew under the same offsets, and a level's message may wait again (D35).
            self._node, self._back_at = node, now
            self._read_to.clear()
            self._read(node, now, wall_ms)
        for publish in world.ledger.publishes.values():
            self._check(publish, now, wall_ms)

    def _read(self, node: Node, now: float, wall_ms: int) -> None:
        store = opened_of(node).store
        for name in TOPICS:
            for queue in store.topics[name].queues:
                if queue.min_offset > self._seen_to.get((name, queue.queue_id), 0):
                    self._excuse(name, now, wall_ms)
                start = max(self._read_to.get((name, queue.queue_id), 0), queue.min_offset)
                for physical, size, _ in queue.read(start, queue.max_offset - start):
                    if size != FILLER_SIZE:
                        properties = parse_properties(bytes(split(store.read(physical, size))[1]))
                        self.delivered.add(int(properties["uid"]))
                self._read_to[name, queue.queue_id] = self._seen_to[name, queue.queue_id] = max(start, queue.max_offset)

    def _excuse(self, topic: str, now: float, wall_ms: int) -> None:
        """Retention has deleted messages between two looks: any that were due by now."""
        for publish in self._world.ledger.publishes.values():
            due = None if publish.timer is None else publish.timer.due(self._world.walls)
            if publish.topic == topic and due is not None and (wall_ms >= due[0] or now >= due[1]):
                self.delivered.add(publish.uid)

    def _check(self, publish: Publish, now: float, wall_ms: int) -> None:
        timer = publish.timer
        if timer is None or publish.uid in self.delivered:
            self._late_since.pop(publish.uid, None)
            return
        due = timer.due(self._world.walls)
        if due is not None and publish.wait is not None and publish.wait.kind == "level":
            due = due[0], max(due[1], self._back_at + publish.wait.ms / 1000)
        if due is None or (wall_ms < due[0] and now < due[1]):
            self._late_since.pop(publish.uid, None)
            return
        late = now - self._late_since.setdefault(publish.uid, now)
        if late > LATE_SECONDS:
            raise PromiseBroken(8, f"message {publish.uid} with {publish.wait} is late by {late:.2f} s or more")
