"""What a node says of its own troubles, as plain values: the rules of `proxy.operate.attention` are over these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from broker.opening.damage import DamageLeft
from proxy.limits.limiter import HeldClient

Labels = tuple[str, ...]
Risen = Mapping[str, Mapping[Labels, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationView:
    """The configuration file.

    It was refused at `refused_ms` for `problems` and nothing was accepted since, or it is gone since `missing_ms`;
    0 where that is not so. `text` is what was read of it last, without secrets.
    """

    file: str = ""
    text: str = field(default="", repr=False)
    refused_ms: int = 0
    problems: Sequence[str] = ()
    missing_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsView:
    """The encrypted ports.

    The files that were read last were refused at `refused_ms` for `refused`, 0 where they were taken. `expiring`: by
    service when its certificate expires, and `crls_expiring` when the first of its revocation lists does, epoch ms, of
    those that are reported by now.
    """

    refused: str = ""
    refused_ms: int = 0
    expiring: Mapping[str, int] = field(default_factory=dict)
    crls_expiring: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingView:
    """What waits for its moment.

    Timers and delay levels: `late_ms` is how long the first one is overdue, `refused` how many their topics refuse,
    `refused_because` why the first of them, `paused` the stages that an operator halted. Transactions: `undecided`
    ones, the oldest `undecided_ms` old, and `checked_ms`, the age at which one was asked about several times.
    """

    late_ms: int = 0
    refused: int = 0
    refused_because: str = ""
    paused: Sequence[str] = ()
    undecided: int = 0
    undecided_ms: int = 0
    checked_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTroubles:
    """A node's troubles; the defaults are those of a node that has none.

    Attributes:
        risen: By how much counters rose within the last minute, by name and labels.
        uptime_seconds: Since the start.
        acks_refused: Acks cannot be journaled, since the disk is full.
        publishes_refused: Publishes are refused for want of space, now.
        file_bytes: Size of a log file, which is what must be free for the next one.
        reserve_missing: Nothing is set aside for dead letters.
        damage: Of the log that is still kept.
        files_damaged: Small files that the start found damaged; copies of them were used, or the log.
        acks_damaged: Places of the ack journal that the start found damaged.
        index_failed: A write to an index file failed.
        configuration: The file, refused or gone.
        waiting: What waits for its moment.
        retention_blocked: A log file is due, and what is pending in it cannot be put elsewhere now.
        retention_waits: By group, unfinished messages that the configured limits of retention would delete, empty
            where they cannot be counted; None: the configured limits are in force.
        retries_unread: By retry topic, messages that no group of the node reads.
        failing: Work of the node that raises each time, by name, with what it raises.
        faults: Faults inside the node since the start, with the last one and how long ago it was.
        sync_seconds: Longest sync of the last minute.
        clock_forward_seconds: The wall clock was set forward by so much, `clock_forward_ago` seconds ago.
        clock_behind_seconds: By how much the wall clock is behind what it has shown before.
        stamps_ahead_seconds: By how much the latest store timestamp is ahead of the wall clock.
        kafka: Groups whose Kafka cluster is in trouble, each with what it said.
        kafka_unreachable: Clusters that do not respond to this node, each with the reason.
        kafka_producers: Clusters whose producer has ended by a fault, each with what it said.
        kafka_topics: Likewise of single topics: sentences, each with the groups that it concerns.
        kafka_classic: Why groups of `groupProtocol: auto` are classic, likewise.
        kafka_waiting: What is wrong with messages that wait on Kafka: by cluster, sentences.
        tls: The encrypted ports.
        limited: Clients that were held to a limit of theirs within the last minute.
        lag_webhook: Why the last change of a verdict was not posted; None: it was.
    """

    risen: Risen = field(default_factory=dict)
    uptime_seconds: float = 0.0
    acks_refused: bool = False
    publishes_refused: bool = False
    file_bytes: int = 0
    reserve_missing: bool = False
    damage: DamageLeft = field(default_factory=DamageLeft)
    files_damaged: Sequence[str] = ()
    acks_damaged: int = 0
    index_failed: bool = False
    configuration: ConfigurationView = ConfigurationView()
    waiting: WaitingView = WaitingView()
    retention_blocked: bool = False
    retention_waits: Mapping[str, int] | None = None
    retries_unread: Mapping[str, int] = field(default_factory=dict)
    failing: Mapping[str, str] = field(default_factory=dict)
    faults: int = 0
    last_fault: str = ""
    last_fault_ago: float = 0.0
    sync_seconds: float = 0.0
    clock_forward_seconds: float = 0.0
    clock_forward_ago: float = 0.0
    clock_behind_seconds: float = 0.0
    stamps_ahead_seconds: float = 0.0
    kafka: Mapping[str, str] = field(default_factory=dict)
    kafka_unreachable: Mapping[str, str] = field(default_factory=dict)
    kafka_producers: Mapping[str, str] = field(default_factory=dict)
    kafka_topics: Mapping[str, Sequence[str]] = field(default_factory=dict)
    kafka_classic: Mapping[str, Sequence[str]] = field(default_factory=dict)
    kafka_waiting: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tls: TlsView = TlsView()
    limited: Sequence[HeldClient] = ()
    lag_webhook: str | None = None
