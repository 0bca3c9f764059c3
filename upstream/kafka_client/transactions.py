"""Transactions, by a producer of librdkafka's for one transactional id, in a thread of its own.

A transaction is begun, filled and committed by one order. What of it failed decides what its owner hears: a record that
a topic refuses aborts the whole; a commit that did not end in time is unknown. Where a topic does not acknowledge its
records, or the abort fails, the transaction is lost: it was not to be committed, and the next `begin` has Kafka abort
it. Kafka ends a transaction only when all its partitions take the end: until then its id cannot be had again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from broker.runtime.seams import Clock
from upstream.calls.seams import ThreadLoop
from upstream.kafka.lease import Lease
from upstream.kafka.link import Done, KafkaFailure, KafkaPartition, OutgoingRecord, Written
from upstream.kafka_client.lookups import END_MOMENT, offsets_at, partitions_of
from upstream.kafka_client.package import KafkaUnusable, cause_of, confluent, failure_of
from upstream.kafka_client.posting import Post
from upstream.kafka_client.producer import writable
from upstream.kafka_client.query_thread import QueryThread
from upstream.kafka_client.settings import Settings

TRANSACTION_SECONDS = 10
"""An open transaction of an owner that is still is aborted by the cluster after so long."""
_CALL_SECONDS = 5.0
_BESIDE_SECONDS = 0.06
"""So long may a topic acknowledge nothing while others do."""
_ABORT_SECONDS, _ABORT_LOST_SECONDS = 1.0, 0.2
_PROBE_SECONDS = 1.0
_ANY_TOPIC = "__transaction_state"
"""Asked for so that a connection is there when an id is taken: else librdkafka waits 500 ms."""
_COMMIT_ATTEMPTS = 3
_BEGIN_ATTEMPTS = 6
_KNOWN_SECONDS = 60.0
_WARM_SECONDS = 300.0
"""Below librdkafka's `metadata.max.age.ms`, 15 minutes."""
_IDLE_SECONDS, _LOOK_SECONDS = 0.02, 1.0
_FENCED = frozenset({"FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_TRANSACTION_STATE"})


class LibrdkafkaTransactions:
    """`upstream.kafka.link.KafkaTransactions`.

    Attributes:
        lease: While it does not hold, no commit begins.
    """

    def __init__(
        self,
        transactional_id: str,
        client_id: str,
        *,
        settings: Settings,
        loop: ThreadLoop,
        clock: Clock,
        queries: QueryThread,
        query_consumer: Callable[[], Any],
        known: dict[str, float],
    ) -> None:
        """Set up; the producer is made by `begin`.

        Args:
            transactional_id: The id.
            client_id, settings, loop, clock, asking, asker: As of `LibrdkafkaProducer`.
            known: Topics that are there, and when each is asked for again; of all ids.
        """
        self._name = transactional_id
        self._client_id = client_id
        self._settings = settings
        self._clock = clock
        self._queries = queries
        self._query_consumer = query_consumer
        self._post = Post(loop)
        self._package = confluent()
        self._producer: Any = None
        self._fatal: KafkaFailure | None = None
        self._known = known
        self.lease: Lease | None = None
        self._warm: dict[str, float] = {}
        self._closed = False
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._live, daemon=True, name=f"kafka-{transactional_id}")
        self._thread.start()

    def begin(self, done: Done) -> None:
        """Take the id."""
        self._orders.put(lambda: self._begin(done))

    def write(self, records: Sequence[OutgoingRecord], done: Written, *, alone: str = "") -> None:
        """Write these as one transaction; topics that are not known to be there are asked for first (K9)."""
        done = self._ended(records, done)
        topics = {each.topic for each in records} - {alone}
        self._refresh(topics & self._known.keys())
        unknown = sorted(topics - self._known.keys())
        if not unknown:
            self._orders.put(lambda: self._ordered(records, done, alone))
            return

        def query() -> Callable[[], None]:
            found = {name: partitions_of(self._query_consumer(), name, led=True) for name in unknown}
            return lambda: self._looked(found, records, done, alone)

        def unanswered() -> None:
            if not self._closed:
                done(KafkaFailure("TRANSPORT", "the cluster does not respond"), {}, ())

        self._queries.submit(query, unanswered)

    def close(self) -> None:
        """End."""
        self._closed = True
        self._orders.put(None)

    def _refresh(self, topics: Collection[str]) -> None:
        """Ask again beside the work for topics that were found a while ago."""
        now = self._clock.monotonic()
        old = [name for name in topics if self._known[name] < now]
        if not old:
            return

        def query() -> Callable[[], None]:
            found = {name: partitions_of(self._query_consumer(), name, led=True) for name in old}
            return lambda: self._forget(found)

        self._known.update(dict.fromkeys(old, now + _KNOWN_SECONDS))
        self._queries.submit(query)

    def _learn(self, found: Mapping[str, int | KafkaFailure]) -> dict[str, KafkaFailure]:
        """Note which topics are there; returns the others."""
        until = self._clock.monotonic() + _KNOWN_SECONDS
        missing = {name: each for name, each in found.items() if isinstance(each, KafkaFailure)}
        self._known.update((name, until) for name in found if name not in missing)
        return missing

    def _forget(self, found: Mapping[str, int | KafkaFailure]) -> None:
        for name in self._learn(found):
            self._known.pop(name, None)

    def _looked(
        self, found: dict[str, int | KafkaFailure], records: Sequence[OutgoingRecord], done: Written, alone: str
    ) -> None:
        if self._closed:
            return
        missing = self._learn(found)
        if missing:
            done(next(iter(missing.values())), missing, ())
        else:
            self._orders.put(lambda: self._ordered(records, done, alone))

    # In the thread

    def _live(self) -> None:
        while True:
            cold = self._cold()
            try:
                order = self._orders.get(timeout=_IDLE_SECONDS if cold else _LOOK_SECONDS)
            except Empty:
                if cold:
                    self._warm_up(cold)
                continue
            if order is None:
                break
            order()
        self._drop()

    def _cold(self) -> str:
        """Return a topic whose leaders the producer may not know; "": none."""
        if self._producer is None:
            return ""
        now = self._clock.monotonic()
        return next((name for name in tuple(self._known) if self._warm.get(name, 0.0) < now), "")

    def _warm_up(self, topic: str) -> None:
        """Have the producer learn the leaders of a topic before it writes.

        Else it asks at its first record, and where it asks a broker that hangs, healthy topics wait for seconds.
        """
        self._warm[topic] = self._clock.monotonic() + _WARM_SECONDS
        with contextlib.suppress(self._package.KafkaException):
            self._producer.list_topics(topic, timeout=_BESIDE_SECONDS)

    def _ordered(self, records: Sequence[OutgoingRecord], done: Written, alone: str) -> None:
        try:
            if alone:
                if (failure := self._probe(alone)) is not None:
                    self._report(done, failure, {alone: failure}, ())
                    return
                self._known[alone] = self._clock.monotonic() + _KNOWN_SECONDS
            self._write(records, done, alone)
        except Exception as error:
            cause = cause_of(error)
            failure = KafkaFailure("FAIL", repr(error)) if cause is None else self._failure(cause)
            # What became of the transaction is not known.
            self._report(done, KafkaFailure(failure.code, str(failure), fenced=failure.fenced, unknown=True), {}, ())

    def _probe(self, topic: str) -> KafkaFailure | None:
        """Have each leader of a topic answer: one that does not would keep the transactional id."""
        try:
            # A new one asks no broker that is still what is there.
            consumer = self._settings.reader(self._client_id)
        except KafkaUnusable as error:
            return KafkaFailure("NO_CLIENT", str(error))
        try:
            found = partitions_of(consumer, topic, led=True)
            if isinstance(found, KafkaFailure):
                return found
            places = {KafkaPartition(topic, number): END_MOMENT for number in range(found)}
            offsets_at(consumer, places, seconds=_PROBE_SECONDS)
        except self._package.KafkaException as error:
            return self._failure(error)
        finally:
            consumer.close()
        return None

    def _drop(self) -> None:
        if self._producer is not None:
            with contextlib.suppress(self._package.KafkaException):
                self._producer.purge()
            # What is open stays so: the next owner's fence aborts it.
            self._producer = None

    def _ended(self, records: Sequence[OutgoingRecord], done: Written) -> Written:
        """Ask again for the topics of a transaction that failed: one may have been deleted, or lost its leader."""

        def ended(failure: KafkaFailure | None, refused: Mapping[str, KafkaFailure], offsets: Sequence[int]) -> None:
            if failure is not None:
                for name in refused or {each.topic for each in records}:
                    self._known.pop(name, None)
            done(failure, refused, offsets)

        return ended

    def _report(self, call: Callable[..., None], *arguments: Any) -> None:
        def reported() -> None:
            if not self._closed:
                call(*arguments)

        self._post(reported)

    def _begin(self, done: Done) -> None:
        self._drop()
        self._warm.clear()
        self._fatal = None
        try:
            self._producer = self._settings.transactional(self._client_id, self._name, TRANSACTION_SECONDS)
            self._settings.give_password(self._producer)
            self._init()
        except (self._package.KafkaException, KafkaUnusable) as error:
            failure = (
                KafkaFailure("NO_CLIENT", str(error)) if isinstance(error, KafkaUnusable) else self._failure(error)
            )
            self._drop()
            self._report(done, failure)
            return
        self._report(done, None)

    def _init(self) -> None:
        """Take the id; a cluster that is slow gets more time, since a new producer would begin from nothing."""
        with contextlib.suppress(self._package.KafkaException):
            self._producer.list_topics(_ANY_TOPIC, timeout=_ABORT_SECONDS)
        for attempt in range(1, _BEGIN_ATTEMPTS + 1):
            try:
                self._producer.init_transactions(_CALL_SECONDS)
            except self._package.KafkaException as error:
                if self._closed or attempt == _BEGIN_ATTEMPTS or not error.args[0].retriable():
                    raise
            else:
                return

    def _write(self, records: Sequence[OutgoingRecord], done: Written, alone: str) -> None:
        if self._producer is None:
            self._report(done, KafkaFailure("STATE", "no transaction was begun", lost=True), {}, ())
            return
        self._settings.give_password(self._producer)
        filling = _Filling(self._producer, records, self._clock)
        try:
            self._producer.begin_transaction()
            if alone:
                filling.write({alone}, _CALL_SECONDS)
            if filling.is_well:
                filling.write({each.topic for each in records} - {alone}, _BESIDE_SECONDS)
        except BufferError:
            self._abort(KafkaFailure("QUEUE_FULL", "too many records wait"), {}, done)
            return
        except self._package.KafkaException as error:
            self._abort(self._failure(error), {}, done)
            return
        found = {name: failure_of(error, self._settings.hide(error.str())) for name, error in filling.errors.items()}
        # A record that was purged, since another failed, says nothing of its topic.
        refused = {name: each for name, each in found.items() if not each.code.startswith("PURGE")}
        if filling.waiting:
            for name in filling.waiting:
                refused[name] = KafkaFailure("TIMED_OUT", f"topic {name} has not acknowledged its messages")
            failure = KafkaFailure("TIMED_OUT", "not all messages were acknowledged in time", lost=True)
            self._report(done, failure, refused, ())
            self._abort_lost()
        elif found:
            self._abort(next(iter((refused or found).values())), refused, done)
        elif self.lease is not None and not self.lease.holds:
            self._abort(KafkaFailure("LEASE_EXPIRED", "another node may have the partition"), {}, done)
        else:
            self._commit(filling.offsets, done)

    def _commit(self, offsets: Sequence[int], done: Written) -> None:
        for attempt in range(1, _COMMIT_ATTEMPTS + 1):
            try:
                self._producer.commit_transaction(_CALL_SECONDS)
            except self._package.KafkaException as error:
                failure = self._failure(error)
                [reason] = error.args
                if failure.fenced:
                    self._report(done, failure, {}, ())
                elif reason.txn_requires_abort():
                    self._abort(failure, {}, done, unknown=True)
                elif reason.retriable() and attempt < _COMMIT_ATTEMPTS:
                    continue
                else:
                    self._report(done, KafkaFailure(failure.code, str(failure), unknown=True), {}, ())
                return
            self._report(done, None, {}, offsets)
            return

    def _abort(
        self, failure: KafkaFailure, refused: dict[str, KafkaFailure], done: Written, *, unknown: bool = False
    ) -> None:
        """Abort; where that fails the transaction ends by the next `begin`; after a commit it is not known how."""
        if not failure.fenced:
            try:
                self._producer.abort_transaction(_ABORT_SECONDS)
            except self._package.KafkaException as error:
                found = self._failure(error)
                self._drop()
                lost = not found.fenced and not unknown
                failure = KafkaFailure(found.code, str(found), fenced=found.fenced, unknown=unknown, lost=lost)
            else:
                # Of a record alone it would not be known whether it was written; now none is.
                failure.unknown = False
        self._report(done, failure, refused, ())

    def _abort_lost(self) -> None:
        """Have the cluster abort what is open, without waiting for the topics that hang.

        Until it does, consumers of the others read nothing further. The next `begin` would have it do so, too, but by
        new connections, which takes up to a second.
        """
        with contextlib.suppress(self._package.KafkaException):
            # Else the abort waits for what is under way.
            self._producer.purge()
            self._producer.abort_transaction(_ABORT_LOST_SECONDS)
        self._drop()

    def _failure(self, error: Any) -> KafkaFailure:
        found = failure_of(error)
        if found.code in _FENCED:
            return KafkaFailure(found.code, f"another node writes as {self._name}", fenced=True)
        return KafkaFailure(found.code, self._settings.hide(str(found)))


class _Filling:
    """The records of a transaction on their way.

    Attributes:
        offsets: Of acknowledged records; -1: not yet.
        errors: The first one of each topic.
    """

    def __init__(self, producer: Any, records: Sequence[OutgoingRecord], clock: Clock) -> None:
        self._producer = producer
        self._records = records
        self._clock = clock
        self._left: dict[str, int] = {}
        self.offsets = [-1] * len(records)
        self.errors: dict[str, Any] = {}

    @property
    def is_well(self) -> bool:
        """Whether all that was written is acknowledged."""
        return not self.errors and not self.waiting

    @property
    def waiting(self) -> list[str]:
        """Topics that have not acknowledged all."""
        return [name for name, count in self._left.items() if count]

    def write(self, topics: Collection[str], beside_seconds: float) -> None:
        """Write the records of some topics, and wait for each topic at most so long after the others.

        Where the others are slow, too, for as long again as they took.
        """
        for place, each in enumerate(self._records):
            if each.topic in topics:
                self._left[each.topic] = self._left.get(each.topic, 0) + 1
                self._producer.produce(
                    each.topic,
                    value=each.value,
                    key=each.key,
                    partition=-1 if each.partition is None else each.partition,
                    headers=writable(each.headers) or None,
                    on_delivery=partial(self._delivered, place, each.topic),
                )
        began = self._clock.monotonic()
        last = until = began + _CALL_SECONDS
        while (left := sum(self._left.values())) and (now := self._clock.monotonic()) < until:
            self._producer.poll(until - now)
            if sum(self._left.values()) < left:
                heard = self._clock.monotonic()
                until = min(last, heard + max(beside_seconds, heard - began))

    def _delivered(self, place: int, topic: str, error: Any, message: Any) -> None:
        # Nothing of the package's is called here: a fatal error may be on its way up.
        self._left[topic] -= 1
        if error is None:
            self.offsets[place] = message.offset()
        else:
            self.errors.setdefault(topic, error)
