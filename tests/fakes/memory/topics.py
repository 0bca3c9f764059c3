"""Topics and queues as one node sees them: what it was given, until that is revoked."""

from __future__ import annotations

from collections.abc import Callable

from tests.fakes.memory.cluster import Partition
from upstream.queues import UNKNOWN


class MemoryQueue:
    """`upstream.queues.QueueView` of one partition, as long as it is given to this node."""

    base_offset = void_from = 0
    reused_from = None

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.topic = partition.topic
        self.queue_id = partition.queue_id

    @property
    def min_offset(self) -> int:
        """First offset that is kept."""
        return self.partition.min_offset

    @property
    def max_offset(self) -> int:
        """End of the partition."""
        return self.partition.max_offset

    def void_above(self, offset: int) -> int:
        """No gap is known before it is read."""
        return 0

    def identity(self, offset: int, *, checked: bool = True) -> int:
        """Return the serial of the record there."""
        record = self.partition.records.get(offset)
        return UNKNOWN if record is None else record.serial


class MemoryTopic:
    """`upstream.queues.NodeTopic` of one node."""

    def __init__(self, name: str, queues: list[MemoryQueue]) -> None:
        self.name = name
        self.queues = queues
        self.listeners: list[Callable[[], None]] = []

    def reported(self) -> None:
        """Call the listeners; they may change."""
        for listener in list(self.listeners):
            listener()
