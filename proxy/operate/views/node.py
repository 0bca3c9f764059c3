"""The node itself: its state, memory, store and connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import UNSET, UnsetType

from broker.views import View
from proxy.node.views import RecoveryView
from proxy.operate.views.findings import Finding

State = Literal["starting", "recovering", "ready", "draining", "failed"]


class MemoryView(View, frozen=True, kw_only=True):
    """What the node holds for clients and groups.

    Attributes:
        held_bytes: Bytes held.
        max_bytes: The ceiling.
        pressure: The measures in force: none, eased, slowed, refusing or closing (docs/operations.md).
    """

    held_bytes: int
    max_bytes: int
    pressure: str = "none"


class StoreView(View, frozen=True, kw_only=True):
    """The data directory.

    Attributes:
        path: Where it is.
        used_bytes: Bytes that the store's files take.
        free_bytes: Bytes free on its file system.
        flush: When a publish is answered: `sync` or `async`.
    """

    path: str
    used_bytes: int
    free_bytes: int
    flush: str


class ConnectionView(View, frozen=True, kw_only=True):
    """One connection of a client.

    Attributes:
        address: Of the client.
        service: `producer` or `consumer`.
        since_ms: When it was made.
        requests: Requests so far.
        state: `idle`, `busy`, `waiting` (a parked pull) or `writing` (the client does not read its replies).
        unsent_bytes: Bytes of replies that wait because the client does not read.
        unsent_since_ms: Since when replies wait; null when none does.
        client: What the client says of itself, its library and version: at most 64 characters, not to be relied on;
            null where it says nothing.
    """

    address: str
    service: str
    since_ms: int
    requests: int
    state: str
    unsent_bytes: int = 0
    unsent_since_ms: int | None = None
    client: str | None = None


class LatencyView(View, frozen=True, kw_only=True):
    """A latency over the last one to two minutes, as exact as the buckets of its histogram.

    Attributes:
        name: That of the metric, without prefix and unit.
        labels: Its labels, by name.
        count: How many observations that is of.
        p50_seconds: Half of them took so long at most.
        p99_seconds: 99 of a hundred took so long at most.
    """

    name: str
    labels: Mapping[str, str]
    count: int
    p50_seconds: float
    p99_seconds: float


class ReadinessAnswer(View, frozen=True, kw_only=True):
    """Whether the node accepts and delivers messages.

    Attributes:
        ready: Whether it does.
        state: Where it is in its life.
        reasons: Why it does not, a sentence each.
        memory: What it holds in memory.
        publishes_refused: Publishes are refused since the disk is full; messages are delivered and acks accepted.
        level: `OK`, `WARN`, `ERR` or `UNKNOWN`, by findings and lag; readiness does not depend on it.
        findings: What needs attention.
        phase: While the store is recovered: see recovery in the node's figures.
        scanned_bytes: Likewise.
        total_bytes: Likewise.
        percent: Likewise.
        eta_seconds: Likewise.
    """

    ready: bool
    state: State
    reasons: Sequence[str]
    memory: MemoryView
    publishes_refused: bool
    level: str
    findings: Sequence[Finding]
    phase: str | UnsetType = UNSET
    scanned_bytes: int | UnsetType = UNSET
    total_bytes: int | UnsetType = UNSET
    percent: float | UnsetType = UNSET
    eta_seconds: float | UnsetType | None = UNSET


class StatsAnswer(View, frozen=True, kw_only=True):
    """The node's figures.

    Attributes:
        now_ms: Now, by the node's wall clock.
        version: Of pyddmq.
        access: Source of access rights: the `rules` of the section `access`. Without rules the Thrift ports are on the
            `loopback`, or on any address (`open`).
        state: Where the node is in its life.
        reasons: Why it is not ready, a sentence each; empty when it is.
        recovery: Progress of the recovery of this start; null without one.
        uptime_seconds: Since the node was started.
        event_loop_lag_seconds: Worst lateness of the event loop over the last 10 to 20 s.
        store: The data directory; null until it is open.
        memory: What the node holds in memory.
        findings: What needs attention.
        counters: Of every counter the sum over its labels, by name; /metrics has the labels.
        latencies: Latencies, the node's own first, then groups, the slowest first; without observations a latency is
            not listed.
        connections_total: How many clients are connected.
        connections: Their connections, the oldest first.
    """

    now_ms: int
    version: str
    access: str = "loopback"
    state: State
    reasons: Sequence[str]
    recovery: RecoveryView | None
    uptime_seconds: float
    event_loop_lag_seconds: float
    store: StoreView | None
    memory: MemoryView
    findings: Sequence[Finding]
    counters: Mapping[str, int]
    latencies: Sequence[LatencyView]
    connections_total: int
    connections: Sequence[ConnectionView]


class PartitionsOfGroup(View, frozen=True, kw_only=True):
    """Partitions of one topic in a group over Kafka.

    Attributes:
        group: The group.
        topic: The topic.
        partitions: Their numbers.
    """

    group: str
    topic: str
    partitions: Sequence[int]


class KafkaNode(View, frozen=True, kw_only=True):
    """A node, or another program, that shares groups over Kafka.

    Attributes:
        node: Its `brokerName`; of another program its client id.
        host: Where it runs, as the brokers see it; "" when that is not known.
        this: Whether it is the node that answers.
        other: Whether it is another program.
        parts: The partitions that it has.
        waiting: Partitions of the waiting topic that it owned last.
    """

    node: str
    host: str
    this: bool
    other: bool
    parts: Sequence[PartitionsOfGroup]
    waiting: Sequence[int]


class KafkaClusterNodes(View, frozen=True, kw_only=True):
    """The nodes that share groups over one cluster.

    Attributes:
        cluster: Its name.
        asked_ms: When the cluster answered last; null: it has not yet.
        trouble: Why it does not answer; "" for nothing.
        nodes: By name.
        unowned: Partitions that no member of their group has.
    """

    cluster: str
    asked_ms: int | None
    trouble: str
    nodes: Sequence[KafkaNode]
    unowned: Sequence[PartitionsOfGroup]


class NodesAnswer(View, frozen=True, kw_only=True):
    """The nodes that share groups over Kafka.

    Attributes:
        now_ms: Now, by the node's wall clock.
        clusters: By the order of the configuration.
    """

    now_ms: int
    clusters: Sequence[KafkaClusterNodes]
