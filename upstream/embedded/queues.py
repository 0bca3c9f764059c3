"""The store as progress sees it: its queues, its committed offsets, and what RocketMQ had in hand."""

from __future__ import annotations

from collections.abc import Callable, Generator

from broker.errors import DamagedRecord, RecordGone
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.offsets import ConsumerOffsets
from broker.queues.time_search import offset_at
from broker.runtime.bundle import Runtime
from broker.store import Store
from upstream.embedded.taking_over import taking_over
from upstream.progress.progress import Progress
from upstream.queues import UNKNOWN, CommittedOffsets, QueueView, TakeOver
from upstream.source import Stored


class EmbeddedQueues:
    """The queues of one store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def truncated_to(self) -> int:
        """Where recovery cut the log."""
        truncated_to = self.store.recovery.truncated_to
        return UNKNOWN if truncated_to is None else truncated_to

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Return a queue, or None when the store has none of that name and number."""
        found = self.store.topics.get(topic)
        if found is None or queue_id >= len(found.queues):
            return None
        return found.queues[queue_id]

    def make_durable(self) -> None:
        """Sync the log where a flush does not. Raises OSError."""
        self.store.make_durable()

    def opening_offsets(self, root: str, runtime: Runtime, *, finish_writes: Callable[[], None]) -> ConsumerOffsets:
        """Read consumerOffset.json. Raises OSError, StoreUnreadable."""
        return ConsumerOffsets.open(
            root, disk=runtime.disk, clock=runtime.clock, metrics=runtime.metrics, finish_writes=finish_writes
        )

    def taking_over(self, offsets: CommittedOffsets) -> Generator[None, None, TakeOver]:
        """Read, in steps, what RocketMQ's POP consumers had in hand. Raises OSError."""
        assert isinstance(offsets, ConsumerOffsets), "those that were opened here"
        return taking_over(self.store, self.queue, offsets)

    def offset_at(self, queue: QueueView, time_ms: int) -> int:
        """Search by store timestamps."""
        return offset_at(self.store, own(queue), time_ms)

    def stored(self, queue: QueueView, offset: int) -> Stored | None:
        """Read it from the record."""
        if offset >= queue.max_offset:
            return None
        try:
            physical, size = own(queue).place(max(offset, queue.min_offset))
            stored_ms = self.store.stored_ms(physical, size)
        except (DamagedRecord, RecordGone, IndexError):
            return None
        return Stored(stored_ms, self.store.retention.left(physical, stored_ms))


def own(queue: QueueView) -> ConsumeQueue:
    """Return a queue as what it is here."""
    assert isinstance(queue, ConsumeQueue), "a queue of this broker"
    return queue


def offsets_of(progress: Progress) -> ConsumerOffsets:
    """Return the committed offsets of a node over a store, for other parts that keep some there."""
    assert isinstance(progress.offsets, ConsumerOffsets), "opened by EmbeddedQueues"
    return progress.offsets
