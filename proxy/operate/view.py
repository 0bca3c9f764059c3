"""What the admin port sees of a node: one protocol, and plain records that it answers with.

What the port may change stands in `proxy.operate.changes`. Moments (`since_ms`) are Unix times in milliseconds of the
node's wall clock; whoever shows them subtracts them from the `now_ms` of the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:  # The command line imports this module, and a command shall not wait for the whole broker.
    from broker.query import Searchable
    from broker.retry.redrive import Redrives
    from broker.runtime.metrics import Metrics
    from broker.runtime.rate_limited_log import Notices
    from broker.runtime.seams import Clock
    from broker.scheduled.delay.delays import Delays
    from broker.scheduled.timer.timers import Timers
    from broker.store import Store
    from broker.transaction.transactions import Transactions
    from proxy.node.startup import RecoveryView
    from proxy.node.trouble_facts import Troubles

State = Literal["starting", "recovering", "ready", "draining", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRange:
    """The offsets that a queue holds: from `min` up to, not including, `max`."""

    queue: int
    min: int
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """One topic of the store; `system` topics belong to the broker (dead letters and the like)."""

    topic: str
    queues: Sequence[QueueRange]
    system: bool
    message_type: str = "MIXED"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLag:
    """How far a group is in one queue.

    `committed` is the first offset not known to be finished, `produced` the end of the queue, `lag` their distance in
    messages, `lag_seconds` the age of the message at `committed` (0.0 when the lag is 0).
    """

    qid: str
    committed: int
    produced: int
    lag: int
    lag_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckKey:
    """An order key whose first job holds others up (D15).

    `holder` is the address of the client that has the first job, or None while nobody does; `state` says where it is
    then (a word of docs/delivery.md). `attempts` counts its deliveries so far, `since_ms` is when it first failed or,
    while it has not, went out, `waiting` how many wait behind it (None where that is not counted). `reason` is that of
    its last failure; `earlier`: it had failed before `since_ms`, in an earlier process or
    generation. Also used for messages that fail again and again; `key` is None for one without a key.
    """

    key: str | None
    topic: str
    qid: str
    offset: int
    attempts: int
    holder: str | None
    since_ms: int
    waiting: int | None = None
    state: str = "retrying"
    reason: str = ""
    earlier: bool = False


WHEREABOUTS = {
    "retrying": "waits for its retry",
    "buffered": "ready, no client has pulled it",
    "ready": "ready, waits for a permit or the rate",
    "running": "in an action",
    "burying": "on its way to the dead letters",
    "sending": "on its way to the retry topic",
    "undecided": "its dead letter or retry may be stored, the next start knows",
    "held": "finished, its key waits for the answer of its holder",
    "dead letter refused": "its dead letter is refused, tried again",
}
"""Where the first job of a key is while no client has it, by its state."""


def whereabouts(state: str) -> str:
    """Say where a job is that no client has."""
    return WHEREABOUTS.get(state, state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One message that is out: handed to `holder` at `since_ms` and not answered yet (D12)."""

    topic: str
    qid: str
    offset: int
    holder: str
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionView:
    """A group on one topic; `state` is a word such as running, draining or waiting.

    `in_flight` counts messages out with clients, `waiting` those behind their key, `buffered` those that the next
    pull gets, `retrying` those whose next attempt is not due yet. `reading_stopped`: so many wait behind their keys
    that no more are read (D15). `paused_since_ms`: an operator paused it then, from the address `paused_by`.
    `owner`: who inside the program consumes its queues instead (D36).
    `stuck_keys` may be cut short by the node; `stuck_keys_total` counts all of them. So with `failing`: messages that
    failed several times and are not finished. `burials_refused` counts those whose dead letter the store refuses,
    `problem` says why the subscription does not start.

    `lost` messages were deleted by retention before the group was given them, the last at `lost_at_ms`, since the node
    was started. Its oldest unfinished message is deleted in `expires_seconds` at the earliest, or when `expires_bytes`
    more were written; `expires_share` is what is left of the nearer limit (1.0 to 0.0). None: no such limit, or no lag.
    """

    topic: str
    state: str
    in_flight: int
    waiting: int
    queues: Sequence[QueueLag]
    buffered: int = 0
    retrying: int = 0
    reading_stopped: bool = False
    stuck_keys: Sequence[StuckKey] = ()
    stuck_keys_total: int = 0
    failing: Sequence[StuckKey] = ()
    failing_total: int = 0
    burials_refused: int = 0
    problem: str = ""
    paused_since_ms: int | None = None
    paused_by: str | None = None
    owner: str | None = None
    lost: int = 0
    lost_at_ms: int = 0
    expires_seconds: float | None = None
    expires_bytes: int | None = None
    expires_share: float | None = None

    @property
    def lag(self) -> int:
        """Messages not yet finished, over all queues."""
        return sum(queue.lag for queue in self.queues)

    @property
    def lag_seconds(self) -> float:
        """Age in seconds of the oldest message not yet finished."""
        return max((queue.lag_seconds for queue in self.queues), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A consumer group; `parked` counts its pulls that wait for a message.

    `in_flight` may be cut short by the node, oldest first; `in_flight_total` counts all.
    """

    group: str
    topics: Sequence[SubscriptionView]
    in_flight: Sequence[Delivery] = ()
    in_flight_total: int = 0
    parked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckView:
    """A message that holds others of its key up, or has failed and is not finished.

    `key` is None for an unordered message, `message_id` when the record cannot be read, `holder` while no client has
    it.
    `due_ms` is when it comes again by itself (its retry, or its holder's timeout), None when nothing is set.
    """

    group: str
    topic: str
    key: str | None
    queue: int
    qid: str
    offset: int
    message_id: str | None
    state: str
    attempts: int
    holder: str | None
    since_ms: int
    due_ms: int | None
    waiting: int
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionView:
    """Where a group stands in a queue.

    The queue holds offsets from `min` up to, not including, `max`. `committed` is the first offset not known to be
    finished, `finished_above` counts those finished above it, `next` is the next one to be read, `lag` counts the
    unfinished, `oldest_ms` is when the message at `committed` was stored (None when there is none).
    """

    group: str
    topic: str
    queue: int
    min: int
    max: int
    committed: int
    finished_above: int
    next: int
    lag: int
    oldest_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionView:
    """One client connection; `service` is `producer` or `consumer`, `state` a word such as idle or parked."""

    address: str
    service: str
    since_ms: int
    requests: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreView:
    """The data directory: bytes that the store's files take, and bytes free on its file system."""

    path: str
    used_bytes: int
    free_bytes: int
    flush: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryView:
    """What the node holds for clients and groups, in bytes, its ceiling, and the measures in force.

    `pressure` is none, eased, slowed, refusing or closing (docs/operations.md).
    """

    held_bytes: int
    max_bytes: int
    pressure: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadOutcome:
    """What a reload did: a sentence per change, or, when it was refused, the sentences that say why.

    A refused reload has changed nothing (promise 7).
    """

    accepted: bool
    changes: Sequence[str] = ()
    problems: Sequence[str] = ()
    warnings: Sequence[str] = field(default=())


class NodeView(Protocol):
    """A node, as the admin port needs it. Every method is called on the loop's thread and returns at once."""

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
    def version(self) -> str:
        """Version of pyddmq."""
        ...

    @property
    def notices(self) -> Notices:
        """Told of faults; it writes a line per kind and minute."""
        ...

    @property
    def clock(self) -> Clock:
        """The node's clocks."""
        ...

    @property
    def started_monotonic(self) -> float:
        """When the node was started, on the monotonic clock."""
        ...

    @property
    def metrics(self) -> Metrics:
        """The node's counters."""
        ...

    def topics(self) -> Sequence[TopicView]:
        """Every topic of the store, the system's too."""
        ...

    def groups(self, *, details_max: int) -> Sequence[GroupView]:
        """Every group, with at most `details_max` deliveries per group and stuck keys per subscription."""
        ...

    def stuck(self, *, group: str | None, count_max: int) -> tuple[Sequence[StuckView], int] | None:
        """Stuck messages, of one group when given, the oldest first, and how many there are; None: no such group."""
        ...

    def positions(self, *, group: str | None) -> Sequence[PositionView]:
        """Where groups stand, those without a configuration too; of one group when given."""
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

    @property
    def broker_name(self) -> str:
        """Name of the broker, which the handles of timers hold."""
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

    async def reload(self) -> ReloadOutcome:
        """Read the configuration again and apply what changed, all or nothing; what SIGHUP does."""
        ...
