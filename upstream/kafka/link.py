"""What is asked of a Kafka client: small protocols, each with a real version and one over a cluster in memory.

A client works in threads of its own and reports what happened by calls in the loop's thread, in the order in which it
happened: no record of a partition is reported before it is assigned or after it was revoked or lost. So a listener
needs no lock, and a record that was under way when its partition went is not seen.

Offsets, keys, values and headers are Kafka's: an offset is that of a record in its partition, a committed offset is the
next one to read, keys and values are bytes or null, headers are repeated names with bytes or null (D58 says what
becomes of them on the wire).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from upstream.kafka.cluster_facts import ClusterFacts
from upstream.kafka.lease import Lease

NOT_SENT = "NOT_SENT"
"""Code of a record that never left the node, since its cluster did not answer in time. librdkafka has no such code."""


class KafkaPartition(NamedTuple):
    """One partition."""

    topic: str
    partition: int


Headers = Sequence[tuple[str, bytes | None]]
"""Names may repeat."""


class KafkaRecord(NamedTuple):
    """One record as Kafka has it; `timestamp_ms` is -1 where it has none, `leader_epoch` where that is not known."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int = -1


class Assignment(NamedTuple):
    """A partition that this member was given; nothing of it is read before `read_from`.

    Attributes:
        low: First offset that is kept.
        high: Its end: the offset of the next record (the high watermark).
        committed: What the group has committed, be it still in the log or not; None: nothing.
        metadata: The text that was committed with it (D53).
        at_time: Offset of the first record at or after the moment that was asked for with the topic; None: not asked.
        stable: End of what may be read: below it no transaction is open; None: `high`.
        appeared: It was added, or its topic created, while the group existed; only of one without a commit.
        leader_epoch: What was committed is of records that this leader or earlier ones wrote; -1: not known.
        reused_from: Offsets from here on named other records for this member before; None: none did.
    """

    topic: str
    partition: int
    low: int
    high: int
    committed: int | None
    metadata: str
    at_time: int | None
    stable: int | None = None
    appeared: bool = False
    leader_epoch: int = -1
    reused_from: int | None = None

    @property
    def is_beyond(self) -> bool:
        """Whether the log is shorter than what the group has committed, and no epoch says since where it is another."""
        return self.committed is not None and self.committed > self.high and self.leader_epoch < 0

    @property
    def readable_end(self) -> int:
        """Where reading ends at present."""
        return self.high if self.stable is None else self.stable

    @property
    def place(self) -> KafkaPartition:
        """Its partition."""
        return KafkaPartition(self.topic, self.partition)


class LogBounds(NamedTuple):
    """Where the log of a partition begins and ends; attributes as those of `Assignment`."""

    place: KafkaPartition
    low: int
    high: int
    stable: int


class Commit(NamedTuple):
    """An offset to be committed, with its text; `leader_epoch` as that of `Assignment`."""

    topic: str
    partition: int
    offset: int
    metadata: str
    leader_epoch: int = -1


class KafkaFailure(Exception):
    """What Kafka, or the way to it, refused.

    Attributes:
        code: Its name as librdkafka has it, without the underscore in front: `ILLEGAL_GENERATION`, `MSG_TIMED_OUT`, ...
        fenced: The member is none of its group any more: what it had is others'.
        unknown: It is not known whether the request has happened.
        lost: Of a transaction: it will never be committed, and its transactional id has to be taken again.
    """

    def __init__(
        self, code: str, text: str, *, fenced: bool = False, unknown: bool = False, lost: bool = False
    ) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code
        self.fenced = fenced
        self.unknown = unknown
        self.lost = lost


Done = Callable[[KafkaFailure | None], None]
"""Told, in the loop's thread and never from within the call that was given it, how something ended."""

Broken = Callable[[KafkaFailure], None]
"""Called, in the loop's thread, when something has ended by a fault and works no more."""

Produced = Callable[[KafkaFailure | None, int, int], None]
"""Likewise, with partition and offset of the record; -1 each where they are not known."""


Ends = Callable[[Sequence[LogBounds], Mapping[KafkaPartition, KafkaFailure]], None]
"""Called, in the loop's thread, some time later, with the bounds of partitions' logs; and with what the cluster said of
the others."""


Topics = Callable[[Mapping[str, int], Mapping[str, KafkaFailure]], None]
"""Called likewise with the topics that are there, each with the number of its partitions; and with what the cluster
said of named topics that are missing, denied, or have a partition without a leader."""

TopicIds = Callable[[Mapping[str, str]], None]
"""Called likewise with the ids of topics; of those for which the cluster returns none, nothing."""

OffsetsReported = Callable[[Mapping[KafkaPartition, int | None] | None], None]
"""Told, in the loop's thread, some time later, offsets of partitions; None of one: no record is so late. None in all:
the cluster did not answer."""


class MemberListener(Protocol):
    """Listener to what becomes of a member of a group; in the loop's thread."""

    def assigned(self, assignments: Sequence[Assignment]) -> None:
        """Take partitions: they are this member's, further to those that it has.

        None at all says that the group was shared out, and this member gets no further ones.
        """

    def revoked(self, places: Sequence[KafkaPartition], done: Callable[[], None]) -> None:
        """Give partitions up: what is committed before `done` is called still counts.

        The client waits for `done`, but no longer than a bound of its own; then it is as if they were lost.
        """

    def lost(self, places: Sequence[KafkaPartition]) -> None:
        """Forget partitions: others may have them already, and no commit counts."""

    def records(self, records: Sequence[KafkaRecord]) -> None:
        """Take records, those of a partition by rising offset."""

    def at_end(self, place: KafkaPartition, offset: int) -> None:
        """Note that all up to an offset was reported: from the last record to it there is nothing to read."""

    def trouble_reported(self, failure: KafkaFailure | None) -> None:
        """Note that the cluster cannot be reached or refuses, or with None that all is well again."""

    def broken(self, failure: KafkaFailure) -> None:
        """Note that the member has ended by a fault: what it had was reported as lost, and it reports nothing more."""


class TopicSubscription(NamedTuple):
    """A topic that a member reads; a name that begins with `^` is a regular expression (D55).

    Attributes:
        time_ms: A moment to be looked up for partitions without a committed offset; None: none.
        late: A new group does not begin at the first record; so it is to be known which partitions appeared later.
    """

    name: str
    time_ms: int | None = None
    late: bool = False


class GroupMember(Protocol):
    """One member of one Kafka consumer group. Called in the loop's thread; no call waits for the network."""

    def join(self, listener: MemberListener, topics: Sequence[TopicSubscription]) -> None:
        """Join the group for these topics; once."""

    def subscribe(self, topics: Sequence[TopicSubscription]) -> None:
        """Read these topics from now on, and no others."""

    def read_from(self, place: KafkaPartition, offset: int, leader_epoch: int = -1) -> None:
        """Read an assigned partition from an offset on; what was under way of it is not reported any more.

        Args:
            place: Which.
            offset: The first that is read.
            leader_epoch: Of the last leader whose records are taken for known. Where the log differs from theirs since
                a lower offset (KIP-320), it is read from that on.
        """

    def pause(self, places: Sequence[KafkaPartition]) -> None:
        """Read no further records of these until `resume` or a new assignment; some may still be reported."""

    def resume(self, places: Sequence[KafkaPartition]) -> None:
        """Read on."""

    def commit(self, commits: Sequence[Commit], done: Done, *, soon: bool = False) -> None:
        """Commit offsets. The failure says that the member is fenced.

        Args:
            commits: One for each partition.
            done: Told how it ended.
            soon: Somebody waits for it: so this one and those of the next moments are sent without delay, at the cost
                of some work.
        """

    def ends(self, places: Sequence[KafkaPartition], reported: Ends) -> None:
        """Ask for first offsets and ends of assigned partitions; no answer while the cluster cannot be reached.

        A question for the same ones that comes before it is asked takes its place: that alone is answered.
        """

    def topics(self, names: Sequence[str], reported: Topics) -> None:
        """Ask which topics of these names, or of these expressions, are there; not told while it cannot be reached.

        The next question takes the place of one that was not asked yet.
        """

    def topic_ids(self, names: Sequence[str], reported: TopicIds) -> None:
        """Ask for the ids of topics; not told while the cluster cannot be reached."""

    def offsets_at(self, places: Sequence[KafkaPartition], time_ms: int, reported: OffsetsReported) -> None:
        """Ask for the first offsets whose records are of a moment (ms since the epoch) or later."""

    def abandon(self) -> None:
        """End without waiting for anything, as far as possible; no more calls back."""

    def leave(self, done: Callable[[], None]) -> None:
        """Leave the group; partitions are revoked first, as in a rebalance. Nothing is reported after `done`."""


Gap = tuple[int, int]
"""Offsets between which no record exists any more: start, and end (exclusive)."""

RecordsRead = Callable[[Sequence[KafkaRecord], Sequence[Gap]], None]
"""Called in the loop's thread, some time later, with the records that exist, and with the gaps where others were."""


class PartitionReader(Protocol):
    """Reads partitions at any offset, without a group."""

    def fetch(self, place: KafkaPartition, offsets: Sequence[int], there: RecordsRead) -> None:
        """Read records again.

        Args:
            place: Their partition.
            offsets: Ascending.
            there: Called once or, where the cluster cannot be reached, later than any bound. Each gap begins at an
                offset that was asked for, and reaches to the next record or to the end. Neither records nor gaps: the
                cluster says at present that it does not have the partition.
        """

    def close(self) -> None:
        """Read nothing more."""


class KafkaProducer(Protocol):
    """Appends records, idempotent and acknowledged by all in-sync replicas."""

    def produce(  # noqa: PLR0917 - as it is called for every record
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        done: Produced,
    ) -> None:
        """Append one record.

        Args:
            topic: Where to.
            partition: Which partition; None: as Java's client does by the key (murmur2), any without one.
            key, value, headers: The record's.
            done: Told once it is acknowledged, or has failed for good.

        Raises:
            KafkaFailure: It was not taken (the queue is full, the record too large): nothing was written, and `done`
                is not called.
        """

    def withdraw(self, done: Produced) -> bool:
        """Forget a record by the `done` of its `produce`; False: it may have left the node, and `done` is called."""

    def partitions(self, topic: str) -> int | None:
        """Return how many partitions a topic has, as known by now; None: not known (yet), or there is none."""

    def unreachable(self, topic: str) -> KafkaFailure | None:
        """Return why the cluster does not respond, as far as is known; asks it for a topic where that was long ago."""

    def close(self, seconds: float) -> None:
        """Wait at most so long for what is under way, and end. May be called in another thread."""


class OutgoingRecord(NamedTuple):
    """A record to be written; `partition` None: by the key, as `Producer.produce`."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


Written = Callable[[KafkaFailure | None, Mapping[str, KafkaFailure], Sequence[int]], None]
"""Called, in the loop's thread, when a transaction has ended: what failed, None: it is committed; which topics refused
their records, where it was aborted for that; and the offsets of its records in their order, where it is committed."""


class KafkaTransactions(Protocol):
    """Writes records under one transactional id: those of a call count together, or none does.

    Called in the loop's thread, one call after the other has ended. A failure of `write` is `fenced` where another has
    the id now; `unknown` where the transaction may be committed or not, `lost` where it is open and will never be
    committed: then only `begin` may follow; else it was aborted, and another may be written.
    """

    def begin(self, done: Done) -> None:
        """Take the id: who had it before is fenced, and its open transaction aborted, when `done` is called."""

    def write(self, records: Sequence[OutgoingRecord], done: Written, *, alone: str = "") -> None:
        """Write these as one transaction.

        Args:
            records: All of it.
            done: Called when it has ended.
            alone: A topic under suspicion: its records have seconds, and the others are written when they are
                acknowledged, so that nothing else waits for an open transaction. "": topics that acknowledge nothing
                for 60 ms while others do end it; they are named as refusing.
        """

    def close(self) -> None:
        """End. Waits for nothing, and `done` of a call under way is not called."""


class TopicScan(NamedTuple):
    """What is looked for in a topic: its partitions one after the other (`upstream.kafka.scan`).

    Attributes:
        topic: Its name.
        matches: Whether a record is wanted; called in another thread.
        partition: The only one; None: all.
        offset: The first that is looked at, in `partition`.
        begin: Partition and offset where an earlier scan ended.
        offsets: First offset that is looked at, by partition; of others the first that is kept.
        from_ms: Begin with the first record at this moment or later, ms since the epoch.
        to_ms: End before the first record at this moment or later.
        count_max: Records that are wanted at most.
        bytes_max: Bytes of records that are looked at; the last record may be above.
    """

    topic: str
    matches: Callable[[KafkaRecord], bool]
    partition: int | None = None
    offset: int = 0
    begin: tuple[int, int] = (0, 0)
    offsets: Mapping[int, int] = {}
    from_ms: int | None = None
    to_ms: int | None = None
    count_max: int = 1 << 30
    bytes_max: int = 1 << 62


class ScanFound(NamedTuple):
    """What one scan found.

    Attributes:
        records: Those that are wanted, by partition and offset.
        cursor: `begin` of the next scan; None: all was looked at.
        share: How much of all offsets was looked at, by this scan and those before it, 0.0 to 1.0.
        bounds: First offset and end of each partition, within the requested times.
        reached: The first offset that was not looked at, by partition.
    """

    records: list[KafkaRecord]
    cursor: tuple[int, int] | None
    share: float
    bounds: Mapping[int, tuple[int, int]] = {}
    reached: Mapping[int, int] = {}


ScanDone = Callable[[KafkaFailure | None, ScanFound], None]
"""Called, in the loop's thread, when a scan has ended; what was found before a failure is lost."""


class Checkpoint(NamedTuple):
    """What the cache of a waiting topic's partition has to be of to be used again.

    Attributes:
        log: The topic, by the ids of cluster and topic; "": not known, and no file is used again.
        boot: When the machine was booted, seconds since the epoch.
        low, high: Bounds of the log now.
        oldest_ms: A file that was written before this moment may lack tombstones.
    """

    log: str
    boot: int
    low: int
    high: int
    oldest_ms: int


LogLoaded = Callable[[KafkaFailure | None, Sequence[int]], None]
"""Called, in the loop's thread, when the file of a partition is complete, or why it is not; and with the offsets of
records that no version wrote."""


class KafkaClient(Protocol):
    """Makes the ways to one cluster."""

    @property
    def protocol_trouble(self) -> str:
        """Why members of `groupProtocol: auto` are classic; "": they are not."""

    def member(self, group: str, client_id: str, instance_id: str = "") -> GroupMember:
        """Return a member of a group that has not joined.

        Args:
            group: The group.
            client_id: How brokers name the member in their logs.
            instance_id: Kafka's `group.instance.id`: a member that joins with that of another takes over what it has,
                and the other is `broken` with FENCED_INSTANCE_ID; one that leaves keeps what it has for its session.
        """

    def reader(self) -> PartitionReader:
        """Return a reader."""

    def session_ms(self, reported: Callable[[int | None], None]) -> None:
        """Ask for the brokers' session time of groups by KIP-848; answered in the loop's thread, None: unknown."""

    def producer(self, broken: Broken) -> KafkaProducer:
        """Return a producer, one for all of a node; `broken` is called when it has ended by a fault."""

    def transactions(self, transactional_id: str, lease: Lease | None = None) -> KafkaTransactions:
        """Return what writes under a transactional id; no commit begins while a lease does not hold."""

    def look(self, topics: Sequence[str], reported: Callable[[ClusterFacts], None], groups: Sequence[str] = ()) -> None:
        """Ask what there is of the cluster, of these topics and of these groups; answered in the loop's thread."""

    def scan(self, scan: TopicScan, done: ScanDone) -> Callable[[], object]:
        """Look through a topic beside the loop, reading committed records and committing nothing.

        Returns:
            Ends the scan soon; `done` is called with what was found.
        """

    def load(self, place: KafkaPartition, path: str, checkpoint: Checkpoint, done: LogLoaded) -> Callable[[], object]:
        """Fill a file from a partition of a waiting topic, beside the loop (`upstream.kafka.waiting.loading`).

        Args:
            place: The partition.
            path: Of the file.
            checkpoint: What the file is of.
            done: Called when it has ended.

        Returns:
            Ends it soon; `done` is not called then.
        """
