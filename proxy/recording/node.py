"""What the recorder looks at: it is a part of the node, which therefore stands above it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from broker.deduplication.deduplication import Deduplication
from broker.scheduled.delay.delays import Delays
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from broker.transaction.transactions import Transactions
from conf import Config
from upstream.delivery.group import ConsumerGroup
from upstream.delivery.pauses import Pauses
from upstream.kafka.waiting.cluster import KafkaWaiting
from upstream.progress.progress import Progress


class Observed(Protocol):
    """A node whose store is open (`proxy.node.parts.Parts`)."""

    @property
    def config(self) -> Config:
        """The configuration in force."""

    @property
    def groups(self) -> Mapping[str, ConsumerGroup]:
        """The configured groups."""

    @property
    def store(self) -> Store:
        """The store."""

    @property
    def progress(self) -> Progress:
        """Trackers of all groups."""

    @property
    def pauses(self) -> Pauses:
        """Which groups are paused."""

    @property
    def delays(self) -> Delays:
        """Delivers delayed messages."""

    @property
    def timers(self) -> Timers:
        """Delivers timed ones."""

    @property
    def waiting_on_kafka(self) -> Mapping[str, KafkaWaiting]:
        """What waits on Kafka, by cluster."""

    @property
    def deduplication(self) -> Deduplication:
        """Messages of deduplicating producers."""

    @property
    def transactions(self) -> Transactions:
        """Halves and their decisions."""
