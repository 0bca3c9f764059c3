"""One node's ways to a Kafka in memory: `upstream.kafka.link.KafkaClient`."""

from __future__ import annotations

import contextvars
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.runtime.disk import RealDisk
from tests.fakes.kafka.cluster import SimKafka
from tests.fakes.kafka.link import Answer, SimLink
from tests.fakes.kafka.member import SimMember
from tests.fakes.kafka.transactions import SimCoordinator, SimTransactions
from upstream.kafka.cluster_facts import ClusterFacts, MemberFacts, TopicFacts
from upstream.kafka.lease import Lease
from upstream.kafka.link import (
    Broken,
    Checkpoint,
    Gap,
    Headers,
    KafkaFailure,
    KafkaPartition,
    KafkaRecord,
    LogLoaded,
    Produced,
    RecordsRead,
    ScanDone,
    ScanFound,
    TopicScan,
)
from upstream.kafka.scan import ScanProgress, partitions_of_scan
from upstream.kafka.waiting.loading import LogLoad

_AGAIN_SECONDS = 0.1
_LOADED = 7
"""Records of a log that are loaded together."""
_NAMES = itertools.count(1)


class SimClient:
    """`upstream.kafka.link.KafkaClient` of one node.

    Attributes:
        link: Its connections, which break and heal together.
        protocol_trouble: Why its members are classic.
    """

    protocol_trouble = ""

    def __init__(self, cluster: SimKafka) -> None:
        self._cluster = cluster
        self.link = cluster.link()
        self.members: list[SimMember] = []
        self.readers: list[SimReader] = []
        self.producers: list[SimProducer] = []
        self.writers: list[SimTransactions] = []

    def member(self, group: str, client_id: str, instance_id: str = "") -> SimMember:
        """Return a member."""
        member = SimMember(self._cluster, self.link, group, client_id, instance_id)
        self.members.append(member)
        return member

    def reader(self) -> SimReader:
        """Return a reader."""
        reader = SimReader(self._cluster, self.link)
        self.readers.append(reader)
        return reader

    def session_ms(self, reported: Callable[[int | None], None]) -> None:
        """As the cluster has it."""
        self._cluster.scheduler.call_later(0.01, reported, int(self._cluster.session_seconds * 1000))

    def producer(self, broken: Broken = lambda _: None) -> SimProducer:
        """Return a producer."""
        producer = SimProducer(self._cluster, self.link, broken)
        self.producers.append(producer)
        return producer

    def transactions(self, transactional_id: str, lease: Lease | None = None) -> SimTransactions:
        """Return what writes under an id."""
        made = SimTransactions(self._cluster, coordinator_of(self._cluster), self.link, transactional_id, lease)
        self.writers.append(made)
        return made

    def look(self, topics: Sequence[str], reported: Callable[[ClusterFacts], None], groups: Sequence[str] = ()) -> None:
        """As the cluster is, some time later."""

        def request(answer: Answer) -> None:
            found = {name: self._cluster.topics[name] for name in topics if name in self._cluster.topics}
            facts = {
                name: TopicFacts(
                    len(each), 0, 1, 1, self._cluster.settings.get(name, {"cleanup.policy": "compact"}), None, name
                )
                for name, each in found.items()
            }
            names = frozenset(self._cluster.topics)
            members = {name: _members(self._cluster, name) for name in groups}
            answer(reported, ClusterFacts(names=names, topics=facts, members=members, brokers=1, id="sim"))

        self.link.ask(request, lambda failure: reported(ClusterFacts(trouble=str(failure))))

    def scan(self, scan: TopicScan, done: ScanDone) -> Callable[[], object]:
        """At once, some time later; there is nothing to stop."""

        def request(answer: Answer) -> None:
            try:
                answer(done, None, _found(self._cluster, scan))
            except KafkaFailure as failure:
                answer(done, failure, ScanFound([], None, 0.0))

        self.link.ask(request, lambda failure: done(failure, ScanFound([], None, 0.0)))
        return lambda: None

    def load(self, place: KafkaPartition, path: str, checkpoint: Checkpoint, done: LogLoaded) -> Callable[[], object]:
        """In pieces, at once, some time later."""
        stopped: list[bool] = []

        def ended(failure: KafkaFailure | None, damaged: Sequence[int]) -> None:
            if not stopped:
                done(failure, damaged)

        def request(answer: Answer) -> None:
            partition, damaged = self._cluster.found(place), list[int]()
            records = [] if partition is None else partition.read(checkpoint.low, 1 << 30)
            load = LogLoad(path, RealDisk(), checkpoint)
            for at in range(0, len(records), _LOADED):
                load.append(records[at : at + _LOADED], lambda record: damaged.append(record.offset))
            load.complete(records[-1].offset + 1 if records else checkpoint.low, self._cluster.clock.wall_ms())
            answer(ended, None, damaged)

        self.link.ask(request, lambda failure: ended(failure, []))
        return lambda: stopped.append(True)

    def kill(self) -> None:
        """The node has died."""
        for writer in self.writers:
            writer.close()
        for member in self.members:
            member.kill()
        for producer in self.producers:
            producer.dead = True


def _members(cluster: SimKafka, group: str) -> list[MemberFacts]:
    found: dict[SimMember, dict[str, list[int]]] = {}
    for each in cluster.group(group).members:
        assert isinstance(each, SimMember), "all members are simulated"
        found[each] = {}
    for place, owner in cluster.group(group).owners.items():
        if isinstance(owner, SimMember) and owner in found:
            found[owner].setdefault(place.topic, []).append(place.partition)
    return [MemberFacts(each.client_id, "10.0.0.1", partitions) for each, partitions in found.items()]


def _found(cluster: SimKafka, scan: TopicScan) -> ScanFound:
    """Look through partitions of a topic. Raises KafkaFailure."""
    partitions = cluster.topics.get(scan.topic)
    if partitions is None:
        raise KafkaFailure("UNKNOWN_TOPIC_OR_PART", f"topic {scan.topic} does not exist, or lacks partitions")
    bounds = {}
    for number in partitions_of_scan(scan, len(partitions)):
        each = partitions[number]
        records = each.read(0, 1 << 30)

        def first(moment: int, end: int, records: Sequence[KafkaRecord] = records) -> int:
            return next((record.offset for record in records if record.timestamp_ms >= moment), end)

        begin = each.low if scan.from_ms is None else first(scan.from_ms, each.stable)
        bounds[number] = begin, each.stable if scan.to_ms is None else first(scan.to_ms, each.stable)
    progress = ScanProgress(scan, bounds)
    while (place := progress.place) is not None:
        record = next(iter(partitions[place[0]].read(place[1], 1)), None)
        if record is None:
            progress.end()
        else:
            progress.take(record, len(record.value or b"") + len(record.key or b""))
    return progress.result()


class SimReader:
    """`upstream.kafka.link.PartitionReader`.

    Attributes:
        closed: Nothing is read any more.
    """

    def __init__(self, cluster: SimKafka, link: SimLink) -> None:
        self._cluster = cluster
        self._link = link
        self.closed = False

    def fetch(self, place: KafkaPartition, offsets: Sequence[int], there: RecordsRead) -> None:
        """Read again; once more where no answer comes."""

        def request(answer: Answer) -> None:
            partition = self._cluster.found(place)
            if partition is None:
                answer(there, [], [])
                return
            records, end = partition.records, max(partition.high, max(offsets) + 1)
            gaps: list[Gap] = []
            for each in offsets:
                if each not in records and not (gaps and each < gaps[-1][1]):
                    gaps.append((each, min((offset for offset in records if offset > each), default=end)))
            answer(there, [records[each] for each in offsets if each in records], gaps)

        def failed(_: KafkaFailure) -> None:
            if not self.closed:
                self._cluster.scheduler.call_later(_AGAIN_SECONDS, self.fetch, place, offsets, there)

        self._link.ask(request, failed)

    def close(self) -> None:
        """Nothing is held."""
        self.closed = True


class _Sent(NamedTuple):
    """A record on its way."""

    number: int
    topic: str
    partition: int | None
    record: tuple[bytes | None, bytes | None, Headers]
    done: Produced
    until: float


class SimProducer:
    """`upstream.kafka.link.KafkaProducer`: idempotent, so one batch after the other, each until it is acknowledged.

    Attributes:
        dead: Its process is none any more.
    """

    def __init__(self, cluster: SimKafka, link: SimLink, broken: Broken = lambda _: None) -> None:
        self._broken = broken
        self._context = contextvars.copy_context()
        self._name = next(_NAMES)
        self._cluster = cluster
        self._link = link
        self._waiting: deque[_Sent] = deque()
        self._batch: list[_Sent] = []
        self._number = 0
        self._sending = False
        self.dead = False

    def produce(  # noqa: PLR0917 - as the protocol says
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        done: Produced,
    ) -> None:
        """Append some time later."""
        if self.dead:
            raise KafkaFailure("FATAL", "the producer has ended")
        self._number += 1
        until = self._cluster.now() + self._cluster.sent_seconds_max
        self._waiting.append(_Sent(self._number, topic, partition, (key, value, tuple(headers)), done, until))
        self._send()

    def withdraw(self, done: Produced) -> bool:
        """Forget a record of no batch yet."""
        here = [each for each in self._waiting if each.done is done]
        self._waiting = deque(each for each in self._waiting if each.done is not done)
        return bool(here)

    def partitions(self, topic: str) -> int | None:
        """As they are."""
        found = self._cluster.topics.get(topic)
        return None if found is None else len(found)

    def unreachable(self, topic: str) -> KafkaFailure | None:
        """As it is."""
        return KafkaFailure("ALL_BROKERS_DOWN", "no broker responds") if self._cluster.down else None

    def close(self, seconds: float) -> None:
        """Nothing is held."""

    def fail(self, failure: KafkaFailure) -> None:
        """End by a fatal error: what is under way is reported with it, and nothing more is sent."""
        if not self.dead:
            self.dead = True
            self._cluster.in_here(self._context, self._failed, failure)

    def _failed(self, failure: KafkaFailure) -> None:
        under_way, self._waiting, self._batch = [*self._batch, *self._waiting], deque(), []
        for each in under_way:
            each.done(failure, -1, -1)
        self._broken(failure)

    def _send(self) -> None:
        if self._sending or not self._waiting or self.dead:
            return
        if self._cluster.producers_denied is not None:
            self.fail(self._cluster.producers_denied)
            return
        self._sending = True
        batch, self._waiting = list(self._waiting), deque()
        self._batch = batch

        def request(answer: Answer) -> None:
            answer(reported, [self._append(each) for each in batch])

        def reported(ends: Sequence[tuple[KafkaFailure | None, int, int]]) -> None:
            self._sending = False
            if self.dead:
                return
            self._batch = []
            for each, end in zip(batch, ends, strict=True):
                each.done(*end)
            self._send()

        def failed(failure: KafkaFailure) -> None:
            self._cluster.scheduler.call_later(_AGAIN_SECONDS, again)

        def again() -> None:
            self._sending = False
            if self.dead:
                return
            self._batch = []
            now = self._cluster.now()
            self._waiting.extendleft(reversed([each for each in batch if each.until > now]))
            for each in batch:
                if each.until <= now:
                    each.done(KafkaFailure("MSG_TIMED_OUT", "not acknowledged", unknown=True), -1, -1)
            self._send()

        self._link.ask(request, failed)

    def _append(self, sent: _Sent) -> tuple[KafkaFailure | None, int, int]:
        if sent.topic in self._cluster.missing:
            return KafkaFailure("UNKNOWN_TOPIC_OR_PART", f"there is no topic {sent.topic}"), -1, -1
        limit = self._cluster.limits.get(sent.topic)
        if limit is not None and len(sent.record[1] or b"") > limit:
            return KafkaFailure("MSG_SIZE_TOO_LARGE", f"topic {sent.topic} takes {limit} bytes"), -1, -1
        count = len(self._cluster.partitions(sent.topic))
        key = sent.record[0]
        number = sent.partition if sent.partition is not None else sum(key or b"") % count
        return None, *self._cluster.append_once(
            self._name, sent.number, KafkaPartition(sent.topic, number % count), sent.record
        )


def coordinator_of(cluster: SimKafka) -> SimCoordinator:
    """Return the one coordinator of a cluster's transactions."""
    if cluster.coordinator is None:
        cluster.coordinator = SimCoordinator(cluster)
    found = cluster.coordinator
    assert isinstance(found, SimCoordinator), "made above"
    return found
