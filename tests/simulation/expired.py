"""Records that retention deletes in a run, read before they go: the account holds the promises over all records."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

from broker.log.durability import AwaitedSteps
from broker.queues.consume_queue import FILLER_SIZE
from broker.retention import ExpiringSegment, Relocation
from proxy.node.node import Node
from tests.insides import opened_of


class Record(NamedTuple):
    """One record of a topic's queue."""

    topic: str
    queue_id: int
    offset: int
    physical: int
    data: memoryview


class ExpiredRecords:
    """The last `RetentionHold` of a simulated node; a file waits while a group has unfinished messages in it.

    Args:
        node: The node that serves now.
    """

    def __init__(self, node: Callable[[], Node | None]) -> None:
        self._node = node
        self._found: dict[tuple[str, int, int], Record] = {}
        self._lost: dict[tuple[str, int, int], Record] = {}

    def of(self, topic: str, queue_id: int, *, below: int) -> list[Record]:
        """Deleted records of a queue, in its order."""
        found = [each for key, each in self._found.items() if key[:2] == (topic, queue_id) and each.offset < below]
        return sorted(found, key=lambda each: each.offset)

    def lost(self, topic: str, queue_id: int, offset: int) -> Record | None:
        """A record that went with a page of the log, as it was."""
        return self._lost.get((topic, queue_id, offset))

    def lose(self, record: Record) -> None:
        """Note that a record lies on a page that the disk does not give out any more."""
        self._lost[record[:3]] = record

    def needs(self, expiring: ExpiringSegment) -> bool:
        """Never: it reads what goes."""
        return False

    def relocate(self, expiring: ExpiringSegment, count_max: int) -> AwaitedSteps[Relocation]:
        """Read every record that goes, once all groups have finished them."""
        yield from ()
        node = self._node()
        if node is None or any(
            queue.tracker.watermark < expiring.minimums.get((queue.topic, int(queue.qid.rpartition("_")[2])), 0)
            for group in node.in_force.groups.values()
            for queue in group.group_queues()
        ):
            return Relocation.BLOCKED
        for (name, queue_id), minimum in expiring.minimums.items():
            topic = opened_of(node).store.topics.get(name)
            if topic is None:
                # It was deleted meanwhile, and read then.
                continue
            queue = topic.queues[queue_id]
            units = queue.read(queue.min_offset, minimum - queue.min_offset)
            for offset, (physical, size, _) in zip(itertools.count(queue.min_offset), units, strict=False):
                if size != FILLER_SIZE:
                    data = memoryview(bytes(opened_of(node).store.read(physical, size)))
                    self._found[name, queue_id, offset] = Record(name, queue_id, offset, physical, data)
        return Relocation.DONE

    def dropped(self, expiring: ExpiringSegment) -> None:
        """Nothing to forget."""
