"""What the recorder looks at, and to whom it hands what it saw. Protocols only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from broker.deduplication.deduplication import Deduplication
from broker.scheduled.delay.delays import Delays
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from broker.transaction.transactions import Transactions
from conf import Config
from lag.samples import LagEvent, QueueSample, ScheduledSample
from upstream.delivery.group import ConsumerGroup
from upstream.delivery.pauses import Pauses
from upstream.kafka.waiting.cluster import KafkaWaiting
from upstream.progress.progress import Progress


class Observed(Protocol):
    """A node whose store is open (`proxy.node.parts.Parts`)."""

    @property
    def config(self) -> Config:
        """The configuration in force."""
        ...

    @property
    def groups(self) -> Mapping[str, ConsumerGroup]:
        """The configured groups."""
        ...

    @property
    def store(self) -> Store:
        """The store."""
        ...

    @property
    def progress(self) -> Progress:
        """Trackers of all groups."""
        ...

    @property
    def pauses(self) -> Pauses:
        """Which groups are paused."""
        ...

    @property
    def delays(self) -> Delays:
        """Delivers delayed messages."""
        ...

    @property
    def timers(self) -> Timers:
        """Delivers timed ones."""
        ...

    @property
    def waiting_on_kafka(self) -> Mapping[str, KafkaWaiting]:
        """What waits on Kafka, by cluster."""
        ...

    @property
    def deduplication(self) -> Deduplication:
        """Messages of deduplicating producers."""
        ...

    @property
    def transactions(self) -> Transactions:
        """Halves and their decisions."""
        ...


class SampleSink(Protocol):
    """Keeps rounds (`lag.journal.writer.JournalWriter`); raises for nothing that the disk does.

    Attributes:
        trouble: Why the last round is not kept; None: it is.
    """

    trouble: str | None

    def note(self, event: LagEvent) -> None:
        """Keep an event with the next round."""
        ...

    def begin(self, time_ms: int) -> None:
        """Begin a round of this moment."""
        ...

    def add(self, rows: Iterable[tuple[tuple[str, str, int], QueueSample]]) -> None:
        """Add queues, each by group, topic and number."""
        ...

    def end(self, scheduled: Iterable[ScheduledSample] = ()) -> bool:
        """Write the round; False: it is not kept."""
        ...

    def close(self, time_ms: int) -> None:
        """Write the events that wait, and end."""
        ...
