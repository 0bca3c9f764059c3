"""What a node has: what it is given, and the parts that it is made of."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from actions.registry import Registry
from broker.deduplication.deduplication import Deduplication
from broker.retry.redrive import Redrives
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import Notices
from broker.runtime.seams import Clock, Disk, Scheduler, Syncs
from broker.scheduled.delay.delays import Delays
from broker.scheduled.recurring.loops import Loops
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from broker.transaction.transactions import Transactions
from conf import Config
from proxy.node.yielding import Yielding
from proxy.port.memory import MemoryWatch
from proxy.port.network import DESCRIPTORS_UNBOUNDED, Network
from proxy.port.server import ThriftServer
from proxy.services.consumer_service import ConsumerService
from proxy.services.topic_ports import TopicPorts
from upstream.budget import Budget
from upstream.delivery.group import ConsumerGroup
from upstream.delivery.pauses import Pauses
from upstream.progress.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """What a node takes from the outside world.

    Attributes:
        descriptors_max: As in `ServerLimits`.
        step_pause_seconds: Time left to others between two steps of a recovery; 0 is one turn of the loop.
        alarms: Makes the calls whose lateness counts; the loop, when absent.
        syncs: Makes syncs in the background; without it they are made at once.
    """

    loop: asyncio.AbstractEventLoop
    clock: Clock
    disk: Disk
    randomness: random.Random
    network: Network
    descriptors_max: int = DESCRIPTORS_UNBOUNDED
    step_pause_seconds: float = 0.0
    alarms: Scheduler | None = None
    syncs: Syncs | None = None


class Parts:
    """The parts of one node.

    The servers are there once it starts, everything about its store once that is open: see `proxy.node.node`.

    Attributes:
        config: The configuration in force; a reload puts another one there.
        leaving: Groups that a reload took out and that still drain.
        steps: Schedules what waits in the store: it is delivered in steps.
    """

    consumer: ThriftServer
    producer: ThriftServer
    consumer_service: ConsumerService
    store: Store
    ports: TopicPorts
    progress: Progress
    delays: Delays
    timers: Timers
    loops: Loops
    transactions: Transactions
    deduplication: Deduplication
    redrives: Redrives
    pauses: Pauses

    def __init__(self, config: Config, *, seams: Seams, registry: Registry, metrics: Metrics | None = None) -> None:
        """Set up; nothing is opened.

        Args:
            config: A checked configuration.
            seams: Loop, clock, disk, randomness, network.
            registry: Where actions are found by name.
            metrics: A registry to count in; a new one when absent.
        """
        self.config = config
        self.seams = seams
        self.registry = registry
        self.metrics = metrics or Metrics()
        self.notices = Notices(seams.clock)
        self.groups: dict[str, ConsumerGroup] = {}
        self.leaving: list[ConsumerGroup] = []
        self.budget = Budget(config.node.memory_max)
        self.memory = MemoryWatch(
            self.budget,
            groups=self.all_groups,
            clock=seams.clock,
            scheduler=seams.loop,
            metrics=self.metrics,
            notices=self.notices,
        )
        self.steps = Yielding(seams.alarms or seams.loop, lambda: self.store.unsettled)

    @property
    def qid_prefix(self) -> str:
        """Text in front of the queue number in every qid (W35: made in one place)."""
        return f"{self.config.node.broker_cluster}_{self.config.node.broker_name}_"

    def all_groups(self) -> list[ConsumerGroup]:
        """Return the configured groups and those that leave."""
        return [*self.groups.values(), *self.leaving]
