"""What a node has from the end of its recovery on."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from broker.deduplication.deduplication import Deduplication
from broker.retry.redrive import Redrives
from broker.scheduled.delay.delays import Delays
from broker.scheduled.recurring.loops import Loops
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from broker.transaction.transactions import Transactions
from proxy.node.index_work import IndexWork
from proxy.node.retention_schedule import Retaining
from proxy.node.yielding import Yielding
from proxy.services.consumer_service import ConsumerService
from proxy.services.topic_ports import TopicPorts
from upstream.delivery.pauses import Pauses
from upstream.progress.progress import Progress, ProgressFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a node has from the end of its recovery on.

    Attributes:
        steps: Schedules what waits in the store: it is delivered in steps.
        retaining: Has log files deleted.
        index_work: Has the index built.
    """

    store: Store
    ports: TopicPorts
    progress: Progress
    steps: Yielding
    delays: Delays
    timers: Timers
    loops: Loops
    transactions: Transactions
    deduplication: Deduplication
    redrives: Redrives
    pauses: Pauses
    retaining: Retaining
    index_work: IndexWork
    consumer_service: ConsumerService

    @property
    def failure(self) -> str | None:
        """Why nothing is acknowledged any more, or None."""
        failed = self.store.failed or self.progress.failed
        return None if failed is None else str(failed)

    def start(self) -> None:
        """Have deliver what waits in the store."""
        for part in (self.delays, self.timers, self.transactions):
            part.start()

    def checkpoint(self) -> None:
        """Note how far the log is written."""
        self.store.checkpoint()
        self.deduplication.tick()

    def commit(self) -> None:
        """Begin to commit offsets; a failure has its line in the log and shows in readiness."""
        with contextlib.suppress(ProgressFailed):
            self.progress.begin_commit()

    def stop_working(self) -> None:
        """Do nothing in steps any more."""
        self.index_work.stop()
        for part in (self.retaining, self.delays, self.timers, self.transactions):
            part.stop()
