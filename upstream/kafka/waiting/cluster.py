"""A node's part in the waiting topic of one cluster: what it owns, what it appends, what it asks other owners."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple

from broker.format.numbers import whole_number
from broker.runtime.bundle import Runtime
from broker.runtime.later import Later, Repeated
from broker.transaction.settings import CheckSettings
from upstream.kafka.cluster_facts import ClusterFacts, TopicFacts
from upstream.kafka.lease import Lease
from upstream.kafka.link import (
    Assignment,
    Checkpoint,
    Commit,
    Done,
    KafkaClient,
    KafkaFailure,
    KafkaPartition,
    KafkaProducer,
    KafkaRecord,
    OutgoingRecord,
)
from upstream.kafka.waiting import records
from upstream.kafka.waiting.batches import Batches
from upstream.kafka.waiting.cache import PartitionCache
from upstream.kafka.waiting.lanes import TransactionTurns
from upstream.kafka.waiting.owner import OwnerWays, PartitionOwner
from upstream.kafka.waiting.records import Identity, KeyState, PartitionStatus, WaitingRecord
from upstream.kafka.waiting.requests import OwnerRequests
from upstream.kafka.waiting.rows import CachedRecord
from upstream.kafka.waiting.seat import SESSION_SECONDS, Seat
from upstream.kafka.waiting.statuses import WaitingStatuses
from upstream.kafka.waiting.topics import WaitingSettings, problem_of

STATUS_SECONDS = 1.0
_LOOK_SECONDS, _LOOK_AGAIN_SECONDS, _LOOK_SOON_SECONDS = 600.0, 15.0, 3.0
_JOIN_AGAIN_SECONDS = 5.0
_STANDS_SECONDS = 20.0
_LATE_MS_MAX = 30_000
"""An owner that is later takes no further messages."""
_RIVAL_SECONDS = 30.0
_TOMBSTONES_MS = 86_400_000
"""How long Kafka keeps tombstones, where a topic does not say."""
_DAY_MS = 86_400_000


class WaitingRefused(Exception):
    """A message cannot wait in Kafka.

    Attributes:
        why: "missing": not set up; "unknown": the cluster has not answered yet; "limited": above a limit or late;
            "far": due too far ahead.
    """

    def __init__(self, why: Literal["missing", "unknown", "limited", "far"], text: str) -> None:
        super().__init__(text)
        self.why = why


class KafkaCheck(NamedTuple):
    """A half that its producers are asked about; `times`: which check this is, from 1."""

    identity: Identity
    message: WaitingRecord
    times: int


class KafkaWaiting:
    """The part of one node.

    Args:
        settings: As configured.
        client: Makes members and transactions; its session is short.
        producer: Appends requests and statuses.
        runtime: Clock, timers, randomness, counts.
        new_id: Makes a message id.

    Attributes:
        settings: As given.
        requests: What it asks of owners, itself among them.
        owners: What it owns.
        checks: When halves are checked and discarded; replaced by a reload.
        statuses: What owners said of their partitions.
    """

    def __init__(
        self,
        settings: WaitingSettings,
        client: KafkaClient,
        producer: KafkaProducer,
        runtime: Runtime,
        new_id: Callable[[], bytes],
    ) -> None:
        self.settings = settings
        self.checks = CheckSettings()
        self.owners: dict[KafkaPartition, PartitionOwner] = {}
        self.statuses = WaitingStatuses(settings, runtime)
        self._client = client
        self._producer = producer
        self._runtime = runtime
        self._clock = runtime.clock
        self._new_id = new_id
        self._facts: TopicFacts | None = None
        self._log_id = ""
        self._problem: tuple[Literal["missing", "unknown"], str] | None = (
            "unknown",
            "the cluster has not responded yet; send again",
        )
        self._trouble = ""
        self._ended_by = ""
        """Why the last member has ended; "" since another one is in the group."""
        self._rival_at: float | None = None
        """When a node of this node's name was last heard of; None: there is none."""
        self._closed = False
        self._committed_at = runtime.clock.monotonic()
        self._lease = Lease(runtime.clock, SESSION_SECONDS, regained=self._lease_regained)
        self.requests = OwnerRequests(settings, producer, runtime)
        self._turns = TransactionTurns()
        self._fetching: dict[str, list[Callable[[], None]]] = {}
        self._fetches = 0
        self._look = Later(runtime.scheduler, self._look_now)
        self._tick = Repeated(runtime.scheduler, STATUS_SECONDS, self._report_status)
        drawn = f"{runtime.random.getrandbits(64):016x}"
        self._owned = Seat(
            partial(client.member, settings.topic, f"pyddmq-{settings.node}", settings.node),
            settings.topic,
            self,
            runtime,
        )
        # Nothing is committed for it, so its group ends with it.
        self._answers = Seat(
            partial(client.member, f"{settings.answers_topic}-{settings.node}-{drawn}", f"pyddmq-{settings.node}"),
            settings.answers_topic,
            _Answers(self),
            runtime,
        )

    def start(self) -> None:
        """Look at the topics, and take part once they are as they have to be."""
        self._look_now()

    def leave(self, done: Callable[[], None]) -> None:
        """Give all partitions up and leave."""
        self._closed = True
        self._look.cancel()
        self._tick.end()
        self.requests.end()
        left = 2

        def one() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._close_all()
                done()

        self._owned.end(one)
        self._answers.end(one)

    # Appending

    def record(self, identity: Identity, message: WaitingRecord) -> OutgoingRecord:
        """Return the record that has a message wait.

        Raises:
            WaitingRefused: It may not.
        """
        self.check(identity, message.due_ms)
        key = identity.key(f"{self._runtime.random.getrandbits(64):016x}")
        value = records.encode(message._replace(at_ms=self._clock.wall_ms()))
        settings = self.settings
        return OutgoingRecord(settings.topic, identity.partition(settings.partitions), key, value)

    def check(self, identity: Identity, due_ms: int) -> None:
        """Check that a message may wait until then. Raises WaitingRefused."""
        settings = self.settings
        if self._problem is not None:
            raise WaitingRefused(*self._problem)
        if due_ms - self._clock.wall_ms() > settings.ahead_ms:
            days = (due_ms - self._clock.wall_ms()) / _DAY_MS
            limit = settings.ahead_ms / _DAY_MS
            text = f"the message is due in {days:,.1f} days; the limit is {limit:,.1f} (waiting.maxDelaySec)"
            raise WaitingRefused("far", text)
        behind_ms = self.statuses.behind_ms(identity.partition(settings.partitions))
        if behind_ms > _LATE_MS_MAX:
            text = f"waiting messages are delivered {behind_ms / 1000:.0f} s late; send more slowly"
            raise WaitingRefused("limited", text)
        most = settings.topic_pending
        if most and (count := self.statuses.pending(identity.topic)) >= most:
            text = f"{count} messages of topic {identity.topic} wait; the limit is waiting.maxPendingPerTopic"
            raise WaitingRefused("limited", text)
        most = settings.principal_pending if identity.principal else 0
        if most and (count := self.statuses.pending_of(identity.principal)) >= most:
            text = f"{count} messages of {identity.principal} wait; the limit is waiting.maxPendingPerPrincipal"
            raise WaitingRefused("limited", text)

    # Transactions

    def find(self, identity: Identity) -> CachedRecord | None:
        """Return a message, waiting or ended; None: there is none, or another node owns its partition."""
        place = KafkaPartition(self.settings.topic, identity.partition(self.settings.partitions))
        owner = self.owners.get(place)
        return None if owner is None or owner.state != "serving" else owner.cache.find(identity.text)

    def undecided_of(self, principal: str) -> int:
        """Return how many halves of a principal are undecided; those of other nodes' partitions as of a second ago."""
        served = [each for each in self.owners.values() if each.state == "serving"]
        here = sum(each.cache.undecided[principal] for each in served)
        return here + self.statuses.undecided_of(principal, {each.place.partition for each in served})

    def fetch_checks(self, group: str, count_max: int, principal: str) -> list[KafkaCheck]:
        """Return due checks of a producer group, of the partitions that this node owns; each counts as made.

        Args:
            group: The producer group.
            count_max: At most so many.
            principal: Whose halves; "": all.
        """
        found: list[KafkaCheck] = []
        owners = self._open_owners()
        # Each fetch begins with another partition, so that one with many due checks does not hold up the others.
        self._fetches += 1
        begin = self._fetches % max(1, len(owners))
        for owner in owners[begin:] + owners[:begin]:
            for row, times in owner.fetch_checks(group, count_max - len(found), principal):
                message = records.decode(row.value)
                assert isinstance(message, WaitingRecord), "a half has a message"
                found.append(KafkaCheck(records.parse_key(row.key)[0], message, times))
        return found

    def give_back(self, check: KafkaCheck) -> None:
        """Take a check back that no producer got."""
        identity = check.identity
        owner = self.owners.get(KafkaPartition(self.settings.topic, identity.partition(self.settings.partitions)))
        if owner is not None:
            owner.give_back(identity.text, check.times)

    def on_checks(self, group: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call something when checks of a producer group become due; returns the undoing."""
        callbacks = self._fetching.setdefault(group, [])
        callbacks.append(callback)

        def undo() -> None:
            callbacks.remove(callback)
            if not callbacks and self._fetching.get(group) is callbacks:
                del self._fetching[group]

        return undo

    def _checks_due(self, group: str) -> None:
        for callback in list(self._fetching.get(group, ())):
            self._runtime.scheduler.call_soon(callback)

    def heard(self, value: bytes | None) -> None:
        """Take an answer or a status."""
        answer = records.decode_answer(value)
        if isinstance(answer, PartitionStatus):
            if self._rival_at is not None and answer.node == self.settings.node:
                self._rival_at = self._clock.monotonic()
            self.statuses.note(answer)
        elif answer is not None:
            self.requests.answered(*answer)

    # The topics

    def _look_now(self) -> None:
        self._client.look([self.settings.topic, self.settings.answers_topic], self._looked)

    def _looked(self, facts: ClusterFacts) -> None:
        if self._closed:
            return
        settings = self.settings
        if facts.trouble:
            # What was known before is still the best that is known.
            if self._facts is None:
                self._problem = "unknown", f"Kafka cluster {settings.cluster} cannot be reached: {facts.trouble}"
            self._look.after(_LOOK_SOON_SECONDS if self._facts is None else _LOOK_AGAIN_SECONDS)
            return
        topic = facts.topics.get(settings.topic)
        text = problem_of(settings, topic, settings.answers_topic in facts.topics, facts.hidden)
        self._problem = ("missing", text) if text else None
        self.requests.usable = not text
        if topic is not None:
            self._log_id = f"{facts.id}/{topic.id}" if facts.id and topic.id else ""
            begins = self._facts is None and not text
            if not text:
                self._facts = topic
            if begins:
                self._owned.join()
                self._answers.join()
                self._tick.begin()
        self._look.after(_LOOK_AGAIN_SECONDS if text else _LOOK_SECONDS)

    # Owning: `upstream.kafka.link.MemberListener`

    def assigned(self, assignments: Sequence[Assignment]) -> None:
        """Take partitions over; not those that were assigned while this node leaves."""
        if self._owned.member is None:
            return
        self._owned.given()
        self._ended_by = ""
        for each in assignments:
            old = self.owners.pop(each.place, None)
            if old is not None:
                old.close()
            try:
                owner = self._owner(each.place, each.metadata)
            except (sqlite3.Error, OSError) as error:
                self._unusable(error)
                return
            self.owners[each.place] = owner
            owner.begin(each, self._checkpoint(each))
            if owner.state == "closed":
                return  # Its cache cannot be used.

    def revoked(self, places: Sequence[KafkaPartition], done: Callable[[], None]) -> None:
        """Give partitions up, each after what is being written."""
        left = 1

        def one() -> None:
            nonlocal left
            left -= 1
            if not left:
                done()

        for place in places:
            owner = self.owners.pop(place, None)
            if owner is not None:
                left += 1
                owner.end(one)
        one()

    def lost(self, places: Sequence[KafkaPartition]) -> None:
        """Forget partitions."""
        for place in places:
            owner = self.owners.pop(place, None)
            if owner is not None:
                owner.close()
        if not self.owners:
            self._owned.lost()

    def records(self, found: Sequence[KafkaRecord]) -> None:
        """Hand records to their owners."""
        by_number: dict[int, list[KafkaRecord]] = {}
        for each in found:
            by_number.setdefault(each.partition, []).append(each)
        for number, each_records in by_number.items():
            if (owner := self.owners.get(KafkaPartition(self.settings.topic, number))) is not None:
                owner.records(each_records)

    def at_end(self, place: KafkaPartition, offset: int) -> None:
        """Likewise of an end."""
        if (owner := self.owners.get(place)) is not None:
            owner.at_end(offset)

    def trouble_reported(self, failure: KafkaFailure | None) -> None:
        """Note that the cluster is in trouble, or well."""
        if self._rival_at is not None:
            return
        self._trouble = "" if failure is None else str(failure)

    def broken(self, failure: KafkaFailure) -> None:
        """Have another member."""
        self._trouble, self._ended_by = "", str(failure)
        self._close_all()
        if failure.code == "FENCED_INSTANCE_ID":
            self._stand_down()
        elif not self._closed:
            self._owned.anew(_JOIN_AGAIN_SECONDS)

    def _stand_down(self) -> None:
        """Leave the partitions to a node of the same name, until nothing was heard of it for a while."""
        node, self._ended_by = self.settings.node, ""
        self._owned.member = None
        self._rival_at = self._clock.monotonic()
        self._trouble = (
            f"another node with brokerName {node} has taken over the waiting messages of this one; give each node its "
            f"own node.brokerName; this node serves none until {_RIVAL_SECONDS:.0f} s after the other has ended"
        )
        self._runtime.limited_log.note("kafka_waiting_same_name", self.settings.cluster, node=node)

    def _owner(self, place: KafkaPartition, lanes: str) -> PartitionOwner:
        settings = self.settings
        member, ids = self._owned.assigned, f"{settings.topic}-{place.partition}-"
        cache = PartitionCache(self._cache_path(place), self._runtime.disk)
        batches = Batches(
            cache,
            topic=settings.topic,
            answers_topic=settings.answers_topic,
            partition=place.partition,
            remember_ms=settings.remember_ms,
            checks=lambda: self.checks,
            new_id=self._new_id,
        )
        return PartitionOwner(
            place,
            cache,
            batches,
            ways=OwnerWays(
                cluster=settings.cluster,
                node=settings.node,
                transactions=lambda number: self._client.transactions(f"{ids}{number}", self._lease),
                lanes=lanes,
                lease=self._lease,
                confirm=lambda owner, done: self._commit([owner], done),
                ends=partial(member.ends, [place]),
                read_from=partial(member.read_from, place),
                unusable=self._unusable,
                turns=self._turns,
                checks=lambda: self.checks,
                fetching=self._fetching.keys(),
                due=self._checks_due,
                suspected=self._suspected,
                load=partial(self._client.load, place),
            ),
            runtime=self._runtime,
        )

    def _lease_regained(self) -> None:
        for each in self.owners.values():
            each.wake()

    def _suspected(self, topic: str, text: str) -> None:
        for each in self.owners.values():
            each.suspect(topic, text)

    def _cache_path(self, place: KafkaPartition) -> str:
        if not self.settings.folder:
            return ":memory:"
        self._runtime.disk.make_folder(self.settings.folder, durable=False)
        return f"{self.settings.folder}/{self.settings.cluster}-{place.partition}.db"

    def _checkpoint(self, assignment: Assignment) -> Checkpoint:
        keeps_ms = whole_number((self._facts.settings if self._facts else {}).get("delete.retention.ms"))
        if keeps_ms is None:
            keeps_ms = _TOMBSTONES_MS
        return Checkpoint(
            self._log_id,
            round(self._clock.wall_ms() / 1000 - self._clock.since_boot()),
            assignment.low,
            assignment.high,
            self._clock.wall_ms() - keeps_ms // 2,
        )

    def _unusable(self, error: Exception) -> None:
        """Leave all partitions to others: this node cannot keep what it reads."""
        self._ended_by = f"the cache of waiting messages cannot be used: {error}"
        self._runtime.limited_log.note("kafka_waiting_cache_failed", self.settings.cluster, error=str(error))
        member, self._owned.member = self._owned.member, None
        if member is not None:
            member.leave(lambda: None)
        self._owned.anew(_LOOK_AGAIN_SECONDS)

    def _close_all(self) -> None:
        owners, self.owners = list(self.owners.values()), {}
        for each in owners:
            each.close()

    # For operators

    def _report_status(self) -> None:
        """Say what becomes of each partition, and look whether its log became shorter."""
        if self._rival_at is not None and self._clock.monotonic() - self._rival_at > _RIVAL_SECONDS:
            self._rival_at = None
            self._trouble = ""
            self._owned.join()
        # An owner that finds its cache unusable is given up at once.
        found = [each.status() for each in list(self.owners.values())]
        for status in found:
            self.statuses.note(status)
            try:
                self._producer.produce(
                    self.settings.answers_topic, None, None, records.encode_status(status), (), lambda *_: None
                )
            except KafkaFailure:
                break
        for owner in self.owners.values():
            owner.look()
        self._look_at_member()
        self._owned.look()
        self._answers.look()
        self.statuses.measure(found)

    def _look_at_member(self) -> None:
        """Show that the member is alive, or replace it: one that cannot commit is not a member any more (D80)."""
        now = self._clock.monotonic()
        member = self._owned.member
        if member is None or not self.owners:
            self._committed_at = now
        elif now - self._committed_at > _STANDS_SECONDS:
            self.broken(KafkaFailure("TIMED_OUT", "no commit has succeeded, so the member is replaced"))
            member.abandon()
            self._committed_at = now
        else:
            self._commit(list(self.owners.values()), lambda _: None)

    def _commit(self, owners: Sequence[PartitionOwner], done: Done) -> None:
        """Have the group know how far owners have read, and the ids by which they write; it extends the lease."""
        sent = self._lease.now()

        def ended(failure: KafkaFailure | None) -> None:
            if failure is None:
                self._committed_at = self._clock.monotonic()
                self._lease.extend(sent)
            done(failure)

        if (member := self._owned.member) is not None:
            found = [Commit(*each.place, each.cache.position, each.lanes.text) for each in owners]
            member.commit(found, ended, soon=True)

    def troubles(self) -> list[str]:
        """Return what is wrong, as sentences."""
        found = [] if self._problem is None else [self._problem[1]]
        found += [each for each in (self._trouble, self._ended_by) if each]
        return found + self.statuses.troubles(complete=self._facts is not None)

    def page(self, after: tuple[int, bytes], limit: int, topic: str, level: int = -1) -> list[tuple[int, bytes]]:
        """Return waiting messages as `PartitionCache.page` does, of the partitions that this node owns."""
        found = [each for owner in self._open_owners() for each in owner.cache.page(after, limit, topic, level)]
        return sorted(found)[:limit]

    def waits(self, key: bytes) -> CachedRecord | None:
        """Return the message of a key of a page, without its body; None: it waits no more, or not with this node."""
        found = (each.cache.listed(key) for each in self._open_owners())
        return next((row for row in found if row is not None), None)

    def levels(self, topic: str = "") -> list[tuple[int, int, int]]:
        """Return number, messages and first due time of delay levels, of the partitions that this node owns."""
        return [each for owner in self._open_owners() for each in owner.cache.levels(topic)]

    def halves(self, state: KeyState, begin_ms: int, limit: int, topic: str, group: str) -> Iterator[CachedRecord]:
        """Yield halves as `PartitionCache.halves` says, of this node's partitions; one by one, as they may be large."""
        found = [(each.cache, each.cache.halves(state, begin_ms, limit, topic, group)) for each in self._open_owners()]
        keys = sorted([(made, key, number) for number, (_, some) in enumerate(found) for made, key in some])
        for _, key, number in keys[:limit]:
            if (row := found[number][0].find(records.identity_text(key))) is not None:
                yield row

    def count_due(self, begin_ms: int, end_ms: int, *, halves: bool, topic: str, level: int) -> int:
        """Return as `PartitionCache.count_due` says, of the partitions that this node owns."""
        caches = [owner.cache for owner in self._open_owners()]
        return sum(each.count_due(begin_ms, end_ms, halves=halves, topic=topic, level=level) for each in caches)

    def _open_owners(self) -> list[PartitionOwner]:
        return [each for each in self.owners.values() if each.state != "closed"]

    def owned(self) -> list[PartitionStatus]:
        """Return how the partitions that this node owns are."""
        return [each.status() for each in self._open_owners()]


class _Answers:
    """`upstream.kafka.link.MemberListener` of the answers topic: what is new in it."""

    def __init__(self, waiting: KafkaWaiting) -> None:
        self._waiting = waiting

    def assigned(self, assignments: Sequence[Assignment]) -> None:
        member = self._waiting._answers.member
        if member is None:
            return  # It is leaving.
        self._waiting._answers.given()
        for each in assignments:
            member.read_from(each.place, each.high)

    def revoked(self, places: Sequence[KafkaPartition], done: Callable[[], None]) -> None:
        done()

    def lost(self, places: Sequence[KafkaPartition]) -> None:
        self._waiting._answers.lost()

    def records(self, found: Sequence[KafkaRecord]) -> None:
        for each in found:
            self._waiting.heard(each.value)

    def at_end(self, place: KafkaPartition, offset: int) -> None:
        pass

    def trouble_reported(self, failure: KafkaFailure | None) -> None:
        pass

    def broken(self, failure: KafkaFailure) -> None:
        self._waiting._answers.anew(_JOIN_AGAIN_SECONDS)
