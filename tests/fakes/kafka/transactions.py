"""Transactions of a Kafka in memory: what a transactional id may write, and who is fenced.

As the real coordinator: `begin` raises the epoch of the id and aborts what the former holder has open; a write or an
end of an older epoch is refused as fenced; a transaction that is open for too long is aborted by the cluster, which
fences its writer.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.fakes.kafka.cluster import SimKafka
from tests.fakes.kafka.link import Answer, SimLink
from upstream.kafka.lease import Lease
from upstream.kafka.link import Done, KafkaFailure, KafkaPartition, OutgoingRecord, Written

TIMEOUT_SECONDS = 10.0
_AGAIN_SECONDS = 0.2
_ATTEMPTS = 25
_BESIDE_SECONDS, _ALONE_SECONDS, _PROBE_SECONDS = 0.1, 5.0, 1.0
_STUCK_SECONDS = 0.05


class SimCoordinator:
    """What the cluster knows of transactional ids.

    Attributes:
        fencing: Off, an older epoch may write: what a test has to notice.
        hanging: Topics that acknowledge nothing, and take no end of a transaction: its id cannot be had until they do.
        answering: Those of them whose leaders answer questions.
        ends_late: Topics that acknowledge, and take no end of a transaction.
    """

    def __init__(self, cluster: SimKafka) -> None:
        self._cluster = cluster
        self._epochs: dict[str, int] = {}
        self._open: dict[tuple[str, int], str] = {}
        self._count = 0
        self._ending: dict[str, set[str]] = {}
        self.fencing = True
        self.hanging: set[str] = set()
        self.answering: set[str] = set()
        self.ends_late: set[str] = set()
        self._written: dict[str, set[str]] = {}

    @property
    def stuck(self) -> list[str]:
        """Ids whose last transaction has not ended everywhere."""
        return [name for name in self._ending if self.is_stuck(name)]

    def is_stuck(self, name: str) -> bool:
        """Whether the last transaction of an id has not ended everywhere."""
        return bool(self._ending.get(name, set()) & (self.hanging | self.ends_late))

    def begin(self, name: str) -> int | None:
        """Give the id to one that asks; None: its last transaction has not ended everywhere."""
        if self.fencing:
            self._abort(name, self._epochs.get(name, 0))
        if self.is_stuck(name):
            return None
        self._ending.pop(name, None)
        self._epochs[name] = self._epochs.get(name, 0) + 1
        return self._epochs[name]

    def check(self, name: str, epoch: int) -> KafkaFailure | None:
        """Say whether an epoch is an older one."""
        if self.fencing and epoch != self._epochs.get(name):
            return KafkaFailure("FENCED", f"{name} is another's", fenced=True)
        return None

    def write(
        self, name: str, epoch: int, records: Sequence[OutgoingRecord]
    ) -> tuple[KafkaFailure | None, dict[str, KafkaFailure], list[int]]:
        """Append records in a transaction of the id, which stays open."""
        if (failure := self.check(name, epoch)) is not None:
            return failure, {}, []
        refused: dict[str, KafkaFailure] = {}
        for each in records:
            if each.topic in self._cluster.missing or each.topic not in self._cluster.topics:
                refused[each.topic] = KafkaFailure("UNKNOWN_TOPIC_OR_PART", f"there is no topic {each.topic}")
            elif len(each.value or b"") > self._cluster.limits.get(each.topic, 1 << 40):
                refused[each.topic] = KafkaFailure("MSG_SIZE_TOO_LARGE", f"{each.topic} takes no such record")
            elif each.topic in self._cluster.refusals:
                refused[each.topic] = self._cluster.refusals[each.topic]
        if refused:
            return KafkaFailure("ABORTED", "a topic refuses its record"), refused, []
        if len(records) > 1 and sum(len(each.value or b"") for each in records) > self._cluster.transaction_bytes_max:
            return KafkaFailure("ABORTED", "its time is over"), {}, []
        self._count += 1
        transaction = self._open[name, epoch] = f"{name}#{self._count}"
        self._written[name] = {each.topic for each in records}
        offsets = []
        for each in records:
            count = len(self._cluster.partitions(each.topic))
            number = each.partition if each.partition is not None else sum(each.key or b"") % count
            place = KafkaPartition(each.topic, number % count)
            if each.topic in self.hanging:
                self._ending.setdefault(name, set()).add(each.topic)
                offsets.append(-1)
                continue
            offsets.append(self._cluster.append(place, each.key, each.value, each.headers, transaction=transaction))
        self._cluster.after(TIMEOUT_SECONDS, self._expire, name, epoch, transaction)
        return None, {}, offsets

    def end(self, name: str, epoch: int) -> KafkaFailure | None:
        """Commit what is open; once more is harmless."""
        if (failure := self.check(name, epoch)) is not None:
            return failure
        transaction = self._open.pop((name, epoch), None)
        if transaction is not None:
            self._cluster.end(transaction, commit=True)
            self._ending.setdefault(name, set()).update(self._written.pop(name) & self.ends_late)
        return None

    def _abort(self, name: str, epoch: int) -> None:
        transaction = self._open.pop((name, epoch), None)
        if transaction is not None:
            self._cluster.end(transaction, commit=False)

    def _expire(self, name: str, epoch: int, transaction: str) -> None:
        if self._open.get((name, epoch)) == transaction:
            self._abort(name, epoch)
            self._epochs[name] += 1


class SimTransactions:
    """`upstream.kafka.link.KafkaTransactions`."""

    def __init__(
        self, cluster: SimKafka, coordinator: SimCoordinator, link: SimLink, name: str, lease: Lease | None
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._link = link
        self._name = name
        self._lease = lease
        self._epoch = 0
        self._closed = False

    def begin(self, done: Done) -> None:
        """Take the id, some time later."""

        def reported(epoch: int | None) -> None:
            if epoch is None:
                failed(KafkaFailure("CONCURRENT_TRANSACTIONS", f"the last transaction of {self._name} has not ended"))
                return
            self._epoch = epoch
            if not self._closed:
                done(None)

        def failed(failure: KafkaFailure) -> None:
            if not self._closed:
                done(failure)

        self._link.ask(lambda answer: answer(reported, self._coordinator.begin(self._name)), failed)

    def write(self, records: Sequence[OutgoingRecord], done: Written, *, alone: str = "") -> None:
        """Write, then commit, each some time later."""
        assert records, "a transaction has records"
        epoch = self._epoch
        if alone in self._coordinator.hanging - self._coordinator.answering:
            failure = KafkaFailure("TIMED_OUT", f"a leader of {alone} does not answer")
            self._cluster.scheduler.call_later(_PROBE_SECONDS, self._finish, done, failure, {alone: failure}, ())
            return
        if alone in self._coordinator.hanging:
            records = [each for each in records if each.topic == alone]

        until = self._cluster.now() + _ALONE_SECONDS

        def request(answer: Answer) -> None:
            if not self._coordinator.is_stuck(self._name):
                answer(written, *self._coordinator.write(self._name, epoch, records))
            elif self._cluster.now() < until:
                self._cluster.after(_STUCK_SECONDS, request, answer)
            else:
                answer(hangs, {each.topic for each in records})

        def hangs(slow: set[str]) -> None:
            refused = {name: KafkaFailure("TIMED_OUT", f"topic {name} has not acknowledged") for name in slow}
            self._finish(done, KafkaFailure("TIMED_OUT", "not acknowledged", lost=True), refused, ())

        def written(failure: KafkaFailure | None, refused: dict[str, KafkaFailure], offsets: Sequence[int]) -> None:
            if failure is not None:
                self._finish(done, failure, refused, ())
            elif -1 in offsets:
                slow = {each.topic for each, offset in zip(records, offsets, strict=True) if offset < 0}
                seconds = _ALONE_SECONDS if alone else _BESIDE_SECONDS
                self._cluster.scheduler.call_later(seconds, hangs, slow)
            elif self._lease is not None and not self._lease.holds:
                self._finish(done, KafkaFailure("LEASE_EXPIRED", "another may have it", lost=True), {}, ())
            elif not self._closed:
                self._commit(done, epoch, offsets, 1)

        def unanswered(_: KafkaFailure) -> None:
            # The real client aborts, which needs the cluster again; until then nothing is known.
            self._finish(done, KafkaFailure("TIMED_OUT", "no answer to a write", unknown=True), {}, ())

        self._link.ask(request, unanswered)

    def close(self) -> None:
        """Say nothing more."""
        self._closed = True

    def _commit(self, done: Written, epoch: int, offsets: Sequence[int], attempt: int) -> None:
        def reported(failure: KafkaFailure | None) -> None:
            self._finish(done, failure, {}, offsets if failure is None else ())

        def failed(_: KafkaFailure) -> None:
            if attempt >= _ATTEMPTS:
                self._finish(done, KafkaFailure("TIMED_OUT", "no answer to a commit", unknown=True), {}, ())
            elif not self._closed:
                self._cluster.scheduler.call_later(_AGAIN_SECONDS, self._commit, done, epoch, offsets, attempt + 1)

        self._link.ask(lambda answer: answer(reported, self._coordinator.end(self._name, epoch)), failed)

    def _finish(
        self, done: Written, failure: KafkaFailure | None, refused: dict[str, KafkaFailure], offsets: Sequence[int]
    ) -> None:
        if not self._closed:
            done(failure, refused, offsets)
