"""What the admin port sees of a node: one protocol, which answers with views (`broker.views`).

What the port may change stands in `proxy.operate.changes`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Protocol

from broker.query import Searchable
from broker.retry.redrive import Redrives
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import Clock
from broker.scheduled.delay.delays import Delays
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from broker.transaction.transactions import Transactions
from lag.samples import QueueSample
from proxy.node.parts import AccessMode
from proxy.node.trouble_facts import Troubles
from proxy.node.views import RecoveryView, ReloadResult
from proxy.operate.views.alarms import LagAlarmsAnswer
from proxy.operate.views.lag import LagAnswer, Mode
from proxy.operate.views.lag_history import LagTrend, ObjectivesAnswer
from proxy.operate.views.limits import LimitsAnswer
from proxy.operate.views.node import ConnectionView, MemoryView, State, StoreView
from proxy.operate.views.topics import TopicView
from upstream.views import GroupView, Position, StuckMessage


class NodeView(Protocol):
    """A node, as the admin port needs it. Every method is called on the loop's thread and returns at once.

    Attributes:
        version: Of pyddmq.
        cluster: Name of the cluster.
        broker_name: Name of the broker, which the handles of timers hold.
        clock: The node's clocks.
        metrics: The node's counters.
        limited_log: Told of faults; it writes a line per kind and minute.
    """

    version: str
    cluster: str
    broker_name: str
    clock: Clock
    metrics: Metrics
    limited_log: RateLimitedLog

    @property
    def state(self) -> State:
        """Where the node is in its life."""
        ...

    @property
    def reasons(self) -> Sequence[str]:
        """Why the node is not ready, a sentence each; empty when it is."""
        ...

    @property
    def recovery(self) -> RecoveryView | None:
        """How far the recovery of this start is; None when there is none."""
        ...

    @property
    def access(self) -> AccessMode:
        """What says who may do what."""
        ...

    @property
    def started_monotonic(self) -> float:
        """When the node was started, on the monotonic clock."""
        ...

    def topics(self) -> Sequence[TopicView]:
        """Every topic of the store, the system's too."""
        ...

    def groups(self, *, details_max: int) -> Sequence[GroupView]:
        """Every group, with at most `details_max` deliveries."""
        ...

    def stuck(self, *, group: str | None, count_max: int) -> tuple[Sequence[StuckMessage], int] | None:
        """Stuck messages, of one group when given, the oldest first, and how many there are; None: no such group."""
        ...

    def positions(self, *, group: str | None) -> Sequence[Position]:
        """Where groups stand, those without a configuration too; of one group when given."""
        ...

    def lag(self, *, group: str | None, limit: int, mode: Mode = "pyddmq") -> Generator[None, None, LagAnswer | None]:
        """Judge in steps how far groups are behind; one group when given, None where there is none of that name."""
        ...

    def trend(self, *, group: str | None, span_ms: int) -> Generator[None, None, LagTrend]:
        """Read in steps how lag went over the last so many ms: by group, or by queue of one."""
        ...

    def objectives(self, *, group: str | None, span_ms: int, target_ms: int) -> Generator[None, None, ObjectivesAnswer]:
        """Read in steps for which share of the last so many ms an objective was kept: by group, or by queue of one."""
        ...

    def samples(self, group: str) -> Mapping[tuple[str, int], Sequence[QueueSample]] | None:
        """Return the last samples of a group by topic and queue, oldest first; None: there is no such group."""
        ...

    def lag_alarms(self, *, group: str | None, limit: int) -> LagAlarmsAnswer | None:
        """Open alarms about that; of one group when given, None where there is none of that name."""
        ...

    def limits(self, *, limit: int, name: str | None) -> LimitsAnswer | None:
        """Clients that have limits; one when `name` is given, None where it is not counted."""
        ...

    def connections(self) -> Sequence[ConnectionView]:
        """Every open connection of the two Thrift ports."""
        ...

    def store(self) -> StoreView | None:
        """Return what is known of the data directory, or None before it is open."""
        ...

    def delays(self) -> Delays | None:
        """Return the delivery of delayed messages, or None before it is open."""
        ...

    def dead_letters(self) -> tuple[Store, Redrives] | None:
        """Return the store and what was redriven in it, or None before it is open."""
        ...

    def transactions(self) -> Transactions | None:
        """Return the transactions, or None before they are open."""
        ...

    def timers(self) -> Timers | None:
        """Return the delivery of timers, or None before it is open."""
        ...

    def searchable(self) -> Searchable | None:
        """Return the store for queries of messages, or None before it is open."""
        ...

    def memory(self) -> MemoryView:
        """What is held in memory, against the ceiling."""
        ...

    def troubles(self) -> Troubles:
        """What the node says of its troubles."""
        ...

    async def reload(self) -> ReloadResult:
        """Read the configuration again and apply what changed, all or nothing; what SIGHUP does."""
        ...
