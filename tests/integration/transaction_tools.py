"""What the tests of transactions share: a store with its transactions, over simulated disk and time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from broker.log.put import Put
from broker.queues.offsets import ConsumerOffsets
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.steps import run_now
from broker.scheduled.delay.delays import Delays
from broker.store import Store
from broker.transaction.names import State
from broker.transaction.outcomes import EndOutcome
from broker.transaction.settings import CheckSettings
from broker.transaction.transactions import Transactions
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.integration.store_tools import HOST, ROOT, bodies, open_store
from tests.integration.waiting_tools import let_pass, make_durable

TOPIC = "t"
GROUP = "g"
START_MS = 1_700_000_000_000


@dataclass
class Broker:
    """A store with transactions."""

    store: Store
    transactions: Transactions
    delays: Delays
    disk: SimDisk
    clock: ManualClock
    scheduler: ManualScheduler
    metrics: Metrics

    def half(self, body: bytes, *, group: str = GROUP, topic: str = TOPIC, block: bytes = b"", **options: Any) -> str:
        """Store a half; return its handle."""
        put = self.transactions.half(Put(self.store.topics[topic], 0, body, block, flag=7), group=group, **options)
        [position] = self.store.append([put], born_ms=self.clock.wall_ms(), born_host=HOST)
        make_durable(self.store, self.scheduler)
        if self.store.failed is not None:
            raise self.store.failed
        return self.transactions.handle_of(position)

    def end(self, handle: str, state: State, *, group: str = GROUP, **options: Any) -> EndOutcome:
        """Decide, and let turns pass until that is answered."""
        found: list[EndOutcome] = []
        self.transactions.end(handle, group=group, state=state, done=found.append, **options)
        if self.store.commit.syncs is None:
            self.scheduler.run_until_idle()
        else:
            let_pass(self.scheduler, lambda: bool(found))
        [outcome] = found
        return outcome

    def commit(self, handle: str, **options: Any) -> EndOutcome:
        """Commit."""
        return self.end(handle, State.COMMIT, **options)

    def roll_back(self, handle: str, **options: Any) -> EndOutcome:
        """Roll back."""
        return self.end(handle, State.ROLLBACK, **options)

    def visible(self, topic: str = TOPIC) -> list[bytes]:
        """Bodies in the topic's queue 0, in its order."""
        return [body or b"" for body in bodies(self.store, topic, 0).values()]

    @property
    def undecided(self) -> int:
        """Undecided halves."""
        return self.transactions.halves.states.undecided

    def close(self) -> None:
        """Stop in an orderly way."""
        self.transactions.close()
        self.delays.close()
        self.store.close()

    def leave(self) -> None:
        """Stop without a farewell."""
        self.transactions.stop()
        self.delays.stop()
        self.store.abandon()

    def again(
        self, *, stop: Callable[[SimDisk], None] = SimDisk.kill, without: tuple[str, ...] = (), **options: Any
    ) -> Broker:
        """Stop without a farewell, remove files, and open what is left."""
        self.leave()
        stop(self.disk)
        remove(self.disk, without)
        return broker(self.disk, self.clock, **options)


def remove(disk: SimDisk, names: tuple[str, ...]) -> None:
    """Remove files of the store, where they are."""
    for name in names:
        if disk.exists(f"{ROOT}/{name}"):
            disk.remove(f"{ROOT}/{name}")


def broker(
    disk: SimDisk | None = None,
    clock: ManualClock | None = None,
    *,
    checks: CheckSettings | None = None,
    started: bool = True,
    **options: Any,
) -> Broker:
    """Open a store of a topic with one queue, and its transactions; without `started` no check has looked at a half."""
    disk, clock, metrics = disk or SimDisk(), clock or ManualClock(START_MS), Metrics()
    # Two openings never share their unique keys, also at one moment.
    store = open_store(disk, clock=clock, metrics=metrics, seed=disk.operations, **options)
    scheduler = ManualScheduler(clock)
    seams: dict[str, Any] = {
        "disk": disk,
        "clock": clock,
        "scheduler": scheduler,
        "metrics": metrics,
        "limited_log": RateLimitedLog(clock),
    }
    delays = run_now(Delays.opening(store, **seams))
    offsets = ConsumerOffsets.open(ROOT, disk=disk, clock=clock)
    transactions = run_now(Transactions.opening(store, offsets=offsets, settings=checks, **seams))
    store.create_topic(TOPIC, 1)
    store.create_topic("filling", 1)
    delays.start()
    if started:
        transactions.start()
        scheduler.run_until_idle()
    return Broker(store, transactions, delays, disk, clock, scheduler, metrics)
