"""Transactions, by a producer of librdkafka's for one transactional id, in a thread of its own.

A transaction is begun, filled and committed by one order. What of it failed decides what its owner hears: a record that
a topic refuses, or that was not acknowledged in time, aborts the whole; a commit that did not end in time is unknown.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from broker.runtime.seams import Clock
from upstream.calls.seams import ThreadLoop
from upstream.kafka.link import Done, KafkaFailure, OutgoingRecord, Written
from upstream.kafka_client.lookups import partitions_of
from upstream.kafka_client.package import KafkaUnusable, confluent, failure_of
from upstream.kafka_client.posting import Post
from upstream.kafka_client.producer import writable
from upstream.kafka_client.query_thread import Asking
from upstream.kafka_client.settings import Settings

TRANSACTION_SECONDS = 10
"""An open transaction of an owner that stands still is aborted by the cluster after so long."""
_CALL_SECONDS = 5.0
_COMMIT_ATTEMPTS = 3
_BEGIN_ATTEMPTS = 6
_KNOWN_SECONDS = 60.0
_FENCED = frozenset({"FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_TRANSACTION_STATE"})


class LibrdkafkaTransactions:
    """`upstream.kafka.link.KafkaTransactions`."""

    def __init__(
        self,
        transactional_id: str,
        client_id: str,
        *,
        settings: Settings,
        loop: ThreadLoop,
        clock: Clock,
        asking: Asking,
        asker: Callable[[], Any],
    ) -> None:
        """Set up; the producer is made by `begin`. Arguments as of `LibrdkafkaProducer`."""
        self._name = transactional_id
        self._client_id = client_id
        self._settings = settings
        self._clock = clock
        self._asking = asking
        self._asker = asker
        self._post = Post(loop)
        self._package = confluent()
        self._producer: Any = None
        self._fatal: KafkaFailure | None = None
        self._known: dict[str, float] = {}
        """Topics that are there, and until when nothing else is to be expected."""
        self._closed = False
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._live, daemon=True, name=f"kafka-{transactional_id}")
        self._thread.start()

    def begin(self, done: Done) -> None:
        """Take the id."""
        self._orders.put(lambda: self._begin(done))

    def write(self, records: Sequence[OutgoingRecord], done: Written) -> None:
        """Write these as one transaction; topics that are not known to be there are asked for first (K9)."""
        now = self._clock.monotonic()
        unknown = sorted({each.topic for each in records if self._known.get(each.topic, 0.0) < now})
        if not unknown:
            self._orders.put(lambda: self._ordered(records, done))
            return

        def ask() -> Callable[[], None]:
            found = {name: partitions_of(self._asker(), name) for name in unknown}
            return lambda: self._looked(found, records, done)

        def unanswered() -> None:
            if not self._closed:
                done(KafkaFailure("TRANSPORT", "the cluster does not respond"), {}, ())

        self._asking.ask(ask, unanswered)

    def close(self) -> None:
        """End."""
        self._closed = True
        self._orders.put(None)

    def _looked(self, found: dict[str, int | KafkaFailure], records: Sequence[OutgoingRecord], done: Written) -> None:
        if self._closed:
            return
        missing = {name: each for name, each in found.items() if isinstance(each, KafkaFailure)}
        until = self._clock.monotonic() + _KNOWN_SECONDS
        self._known.update((name, until) for name in found if name not in missing)
        if missing:
            done(next(iter(missing.values())), missing, ())
        else:
            self._orders.put(lambda: self._ordered(records, done))

    # In the thread

    def _live(self) -> None:
        while (order := self._orders.get()) is not None:
            order()
        self._drop()

    def _ordered(self, records: Sequence[OutgoingRecord], done: Written) -> None:
        try:
            self._write(records, done)
        except Exception as error:
            # A fatal error is raised through the callbacks that follow it, as the cause of what they seem to raise.
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, self._package.KafkaException):
                cause = cause.__cause__ or cause.__context__
            failure = KafkaFailure("FAIL", repr(error)) if cause is None else self._failure(cause)
            # What became of the transaction is not known.
            self._tell(done, KafkaFailure(failure.code, str(failure), fenced=failure.fenced, unknown=True), {}, ())

    def _drop(self) -> None:
        if self._producer is not None:
            with contextlib.suppress(self._package.KafkaException):
                self._producer.purge()
            # What is open stays so: the next owner's fence aborts it.
            self._producer = None

    def _tell(self, call: Callable[..., None], *arguments: Any) -> None:
        def told() -> None:
            if not self._closed:
                call(*arguments)

        self._post(told)

    def _begin(self, done: Done) -> None:
        self._drop()
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
            self._tell(done, failure)
            return
        self._tell(done, None)

    def _init(self) -> None:
        """Take the id; a cluster that is slow gets more time, since a new producer would begin from nothing."""
        for attempt in range(1, _BEGIN_ATTEMPTS + 1):
            try:
                self._producer.init_transactions(_CALL_SECONDS)
            except self._package.KafkaException as error:
                if self._closed or attempt == _BEGIN_ATTEMPTS or not error.args[0].retriable():
                    raise
            else:
                return

    def _write(self, records: Sequence[OutgoingRecord], done: Written) -> None:
        if self._producer is None:
            self._tell(done, KafkaFailure("STATE", "no transaction was begun", unknown=True), {}, ())
            return
        offsets = [-1] * len(records)
        errors: dict[str, Any] = {}
        producer = self._producer
        self._settings.give_password(producer)

        def delivered(place: int, topic: str, error: Any, message: Any) -> None:
            # Nothing of the package's is called here: a fatal error may be on its way up.
            if error is None:
                offsets[place] = message.offset()
            else:
                errors.setdefault(topic, error)

        try:
            producer.begin_transaction()
            for place, each in enumerate(records):
                producer.produce(
                    each.topic,
                    value=each.value,
                    key=each.key,
                    partition=-1 if each.partition is None else each.partition,
                    headers=writable(each.headers) or None,
                    on_delivery=lambda error, message, place=place, topic=each.topic: delivered(
                        place, topic, error, message
                    ),
                )
            left = producer.flush(_CALL_SECONDS)
        except BufferError:
            self._abort(KafkaFailure("QUEUE_FULL", "too many records wait"), {}, done)
            return
        except self._package.KafkaException as error:
            self._abort(self._failure(error), {}, done)
            return
        refused = {name: failure_of(error, self._settings.hide(error.str())) for name, error in errors.items()}
        if left or refused or -1 in offsets:
            slow = {each.topic for place, each in enumerate(records) if offsets[place] < 0}
            for name in slow - refused.keys():
                refused[name] = KafkaFailure("TIMED_OUT", f"topic {name} has not acknowledged its messages")
            # A record that the purge of an abort took says nothing of its topic.
            plain = {name: each for name, each in refused.items() if not each.code.startswith("PURGE")}
            self._abort(next(iter((plain or refused).values())), plain, done)
            return
        self._commit(offsets, done)

    def _commit(self, offsets: Sequence[int], done: Written) -> None:
        for attempt in range(1, _COMMIT_ATTEMPTS + 1):
            try:
                self._producer.commit_transaction(_CALL_SECONDS)
            except self._package.KafkaException as error:
                failure = self._failure(error)
                [reason] = error.args
                if failure.fenced:
                    self._tell(done, failure, {}, ())
                elif reason.txn_requires_abort():
                    self._abort(failure, {}, done)
                elif reason.retriable() and attempt < _COMMIT_ATTEMPTS:
                    continue
                else:
                    self._tell(done, KafkaFailure(failure.code, str(failure), unknown=True), {}, ())
                return
            self._tell(done, None, {}, offsets)
            return

    def _abort(self, failure: KafkaFailure, refused: dict[str, KafkaFailure], done: Written) -> None:
        """Abort; where that fails the transaction ends by the next `begin`."""
        if not failure.fenced:
            try:
                self._producer.abort_transaction(_CALL_SECONDS)
            except self._package.KafkaException as error:
                found = self._failure(error)
                failure = found if found.fenced else KafkaFailure(found.code, str(found), unknown=True)
                refused = {}
        self._tell(done, failure, refused, ())

    def _failure(self, error: Any) -> KafkaFailure:
        found = failure_of(error)
        if found.code in _FENCED:
            return KafkaFailure(found.code, f"another node writes as {self._name}", fenced=True)
        return KafkaFailure(found.code, self._settings.hide(str(found)))
