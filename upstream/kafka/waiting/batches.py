"""What an owner writes next: decided requests, messages that are due, and records that are not needed any more.

Pure: made from the cache, a wall clock and nothing else. A batch has each identity once at most, so that its parts do
not depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.log.put import is_foreign
from broker.scheduled.recurring.occurrence import Occurrence, parse_id
from broker.transaction.outcomes import End
from broker.transaction.settings import CheckSettings
from upstream.kafka.link import OutgoingRecord
from upstream.kafka.waiting import records
from upstream.kafka.waiting.cache import PartitionCache
from upstream.kafka.waiting.records import (
    EndedMessage,
    HalfChecks,
    HalfDecision,
    Identity,
    KeyState,
    WaitingHalf,
    WaitingRecord,
    WaitingRequest,
)
from upstream.kafka.waiting.rows import CachedRecord

BATCH_MESSAGES = 500
BATCH_BYTES = 1 << 20
MISSED_MAX = 100_000
"""Missed occurrences of a loop beyond these are skipped, the oldest first (`broker.scheduled.recurring.loops`)."""
_UNFOLDED_MAX = 64
_GIVE_UP_MS = 1000
_FORGET_MS = 1000
DEAD_LETTER_ENDING = ".WAITING.DLQ"
_ID_NAME = "UNIQ_KEY"
_ALWAYS = 1 << 62


class DeliveredRow(NamedTuple):
    """A message that a batch delivers and ends; `at` is the place of its end among the batch's records."""

    at: int
    row: CachedRecord
    value: bytes


class RecordChange(NamedTuple):
    """What a record of a batch does to the cache; `at` is its place among the batch's records."""

    at: int
    key: bytes
    value: bytes | None


@dataclass(slots=True)
class Batch:
    """One transaction.

    Attributes:
        records: All of it, in order.
        changes: Those in the waiting topic, but for `ended`.
        ended: Those that end what is delivered.
        ended_ms: When.
        identities: Those that it, or another one under way, is about.
        targets: Topics that get messages.
        fired: Waiting messages that it delivers.
        delivered: Deliveries, of loops several each.
        decided: Outcomes of requests.
        skipped: Occurrences that are left out.
        latest_ms: How long the first one is overdue.
        only: The target that it is about alone; "": any.
        to_dead_letters: It gives that one's message up.
        checked: Checks whose count it writes, by identity.
        discarded: Halves that it discards.
        unchecked: Identities whose checks have ended.
        size: Bytes of its messages.
    """

    records: list[OutgoingRecord] = field(default_factory=list)
    changes: list[RecordChange] = field(default_factory=list)
    ended: list[DeliveredRow] = field(default_factory=list)
    ended_ms: int = 0
    identities: set[bytes] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    fired: int = 0
    delivered: int = 0
    decided: list[str] = field(default_factory=list)
    skipped: int = 0
    latest_ms: int = 0
    only: str = ""
    to_dead_letters: bool = False
    checked: dict[bytes, HalfChecks] = field(default_factory=dict)
    discarded: int = 0
    unchecked: set[bytes] = field(default_factory=set)
    size: int = 0


class Batches:
    """Makes the batches of one partition.

    Args:
        cache: Of the partition.
        topic, answers_topic, partition: Where changes and answers are written.
        remember_ms: How long an ended message is remembered.
        checks: When halves are discarded.
        new_id: Makes a message id, for a loop's further occurrences.
    """

    def __init__(
        self,
        cache: PartitionCache,
        *,
        topic: str,
        answers_topic: str,
        partition: int,
        remember_ms: int,
        checks: Callable[[], CheckSettings],
        new_id: Callable[[], bytes],
    ) -> None:
        self._cache = cache
        self._topic = topic
        self._answers_topic = answers_topic
        self._partition = partition
        self._remember_ms = remember_ms
        self._checks = checks
        self._new_id = new_id
        self._gave_up_ms = self._forgot_ms = 0

    def next(
        self,
        now_ms: int,
        without: Collection[str],
        checked: Mapping[bytes, HalfChecks],
        busy: Collection[bytes] = (),
    ) -> Batch:
        """Return what is to be done now, but for what is due to some targets.

        Args:
            now_ms: Wall clock.
            without: These targets.
            checked: Checks that were handed out and not written yet, by identity.
            busy: Identities that a transaction under way is about: they wait for its end (D65).
        """
        batch = Batch(identities=set(busy))
        self._decide(batch, now_ms, without)
        self._fire(batch, now_ms, self._cache.due(now_ms, BATCH_MESSAGES, without=without))
        self._count_checks(batch, checked)
        if abs(now_ms - self._gave_up_ms) >= _GIVE_UP_MS:
            self._give_up(batch, now_ms)
        self._forget(batch, now_ms)
        return batch

    def alone(self, now_ms: int, target: str, limit: int, busy: Collection[bytes]) -> Batch:
        """Return what is due to one target."""
        batch = Batch(only=target, identities=set(busy))
        self._fire(batch, now_ms, self._cache.due(now_ms, limit, only=target))
        return batch

    def dead_letter(self, now_ms: int, target: str, reason: str, busy: Collection[bytes]) -> Batch:
        """Return what dead-letters the first message that is due to a target, which refuses it."""
        batch = Batch(only=target, to_dead_letters=True)
        for row in self._cache.due(now_ms, 1, only=target):
            if row.identity in busy:
                break
            batch.identities.add(row.identity)
            message = records.decode(row.value)
            assert isinstance(message, WaitingRecord), "a row that waits has a message"
            headers = [*message.headers, ("__PYDDMQ_REASON", reason.encode())]
            batch.records.append(OutgoingRecord(target + DEAD_LETTER_ENDING, None, message.key, message.body, headers))
            self._end(batch, row, EndedMessage(records.REFUSED, now_ms, row.group))
        return batch

    # Parts

    def _decide(self, batch: Batch, now_ms: int, without: Collection[str]) -> None:
        for row in self._cache.of(KeyState.REQUEST, _ALWAYS, BATCH_MESSAGES):
            if batch.size >= BATCH_BYTES:
                return
            if row.identity in batch.identities:
                continue
            request = records.decode(row.value)
            assert isinstance(request, WaitingRequest | HalfDecision), "a request's row has one"
            found = self._cache.find(row.identity)
            if isinstance(request, HalfDecision):
                outcome = self._decide_half(batch, found, request, now_ms, without)
            else:
                outcome = self._cancel_or_move(batch, found, request, now_ms)
            batch.identities.add(row.identity)
            batch.decided.append(outcome)
            self._change(batch, row.key, None)
            answer = records.encode_answer(request.request, outcome)
            batch.records.append(OutgoingRecord(self._answers_topic, None, row.identity, answer))

    def _cancel_or_move(self, batch: Batch, found: CachedRecord | None, request: WaitingRequest, now_ms: int) -> str:
        # A half is cancelled by its producer's decision alone.
        if found is None or found.state in (KeyState.HALF, KeyState.DISCARDED):
            return records.UNKNOWN_ID
        message = records.decode(found.value)
        if isinstance(message, EndedMessage):
            cancelled = message.outcome == records.CANCELLED and not request.due_ms
            return records.CANCELLED if cancelled else records.TOO_LATE
        assert isinstance(message, WaitingRecord), "a row that waits has a message"
        if request.due_ms:
            self._rewrite(batch, found, message._replace(due_ms=request.due_ms))
            return records.MOVED
        self._end(batch, found, EndedMessage(records.CANCELLED, now_ms, found.group))
        return records.CANCELLED

    # Transactions

    def _decide_half(
        self, batch: Batch, found: CachedRecord | None, asked: HalfDecision, now_ms: int, without: Collection[str]
    ) -> str:
        """Carry a decision out, and return what its producer is answered (`broker.transaction.outcomes.End`)."""
        if found is None or not found.group or is_foreign(found.principal, asked.principal or None):
            return End.UNKNOWN_HANDLE
        if asked.group and asked.group != found.group:
            return End.WRONG_GROUP
        if asked.state == "resume" and found.state != KeyState.DISCARDED:
            return End.REFUSED
        message = records.decode(found.value)
        if isinstance(message, EndedMessage) or found.state == KeyState.WAITING:
            # What was delivered, cancelled or refused since was committed before.
            rolled_back = isinstance(message, EndedMessage) and message.outcome == records.ROLLED_BACK
            same = asked.state == "unknown" or (asked.state == "rollback") == rolled_back
            return End.ALREADY_SAME if same else End.ALREADY_OTHER
        assert isinstance(message, WaitingRecord), "a half has a message"
        half = _half_of(message)
        if found.state == KeyState.DISCARDED and asked.group:
            return End.DISCARDED
        if asked.state == "unknown":
            return End.OK
        if asked.state == "resume":
            due_ms = now_ms + self._checks().interval_ms
            self._rewrite(batch, found, message._replace(half=half._replace(state="undecided"), due_ms=due_ms))
        elif asked.group and not asked.from_check and -1 < half.immunity_ms < now_ms - message.at_ms:
            return End.TOO_LATE
        elif asked.state == "rollback":
            self._end(batch, found, EndedMessage(records.ROLLED_BACK, now_ms, found.group))
        else:
            self._commit(batch, found, message, now_ms, without)
        self._forget_checks(batch, found.identity)
        return End.OK

    def _commit(
        self, batch: Batch, found: CachedRecord, message: WaitingRecord, now_ms: int, without: Collection[str]
    ) -> None:
        """Deliver a half, or have it wait: for its delay, or for a target that takes nothing now."""
        half = _half_of(message)
        due_ms = max(now_ms, now_ms + half.delay_ms if half.delay_ms else half.deliver_at_ms)
        full = batch.size and batch.size + len(found.value) > BATCH_BYTES
        if due_ms > now_ms or full or found.topic in without:
            self._rewrite(batch, found, message._replace(half=half._replace(state="committed"), due_ms=due_ms))
            return
        batch.targets.add(found.topic)
        batch.size += len(found.value)
        self._deliver(batch, found.topic, message)
        self._end(batch, found, EndedMessage(records.COMMITTED, now_ms, found.group))

    def _count_checks(self, batch: Batch, checked: Mapping[bytes, HalfChecks]) -> None:
        for identity, checks in checked.items():
            found = self._cache.find(identity)
            if found is not None and found.state == KeyState.HALF and identity not in batch.identities:
                self._change(batch, _checks_key(identity), records.encode(checks))
                batch.checked[identity] = checks

    def _give_up(self, batch: Batch, now_ms: int) -> None:
        """Discard halves that were checked often enough, or are too old; an operator decides these."""
        self._gave_up_ms = now_ms
        settings = self._checks()
        before_ms = now_ms - round(settings.age_seconds_max * 1000)
        for row in self._cache.given_up(now_ms, settings.checks_max, before_ms, BATCH_MESSAGES):
            taken = row.identity in batch.identities or row.identity in batch.checked
            # The first one always: some are larger than that.
            if taken or (batch.discarded and batch.size + len(row.value) > BATCH_BYTES):
                continue
            message = records.decode(row.value)
            assert isinstance(message, WaitingRecord), "a half has a message"
            half = _half_of(message)
            batch.identities.add(row.identity)
            batch.discarded += 1
            self._rewrite(batch, row, message._replace(half=half._replace(state="discarded"), due_ms=now_ms))
            self._forget_checks(batch, row.identity)

    def _rewrite(self, batch: Batch, row: CachedRecord, message: WaitingRecord) -> None:
        value = records.encode(message._replace(owned=True))
        batch.size += len(value)
        self._change(batch, row.key, value)

    def _forget_checks(self, batch: Batch, identity: bytes) -> None:
        key = _checks_key(identity)
        batch.unchecked.add(identity)
        if self._cache.has(key):
            self._change(batch, key, None)

    # Deliveries

    def _fire(self, batch: Batch, now_ms: int, rows: list[CachedRecord]) -> None:
        batch.ended_ms = now_ms
        delivered = records.encode(EndedMessage(records.DELIVERED, now_ms))
        for row in rows:
            identity = row.identity
            if identity in batch.identities:
                continue
            if batch.fired and batch.size + len(row.value) > BATCH_BYTES:
                return
            message = records.decode(row.value)
            assert isinstance(message, WaitingRecord), "a row that waits has a message"
            batch.fired += 1
            batch.identities.add(identity)
            batch.targets.add(row.topic)
            batch.latest_ms = max(batch.latest_ms, now_ms - row.at)
            batch.size += len(row.value)
            occurrence = parse_id(message.loop) if message.loop else None
            if occurrence is None or not occurrence.is_loop or not occurrence.gap:
                self._deliver(batch, row.topic, message)
                value = delivered
                if row.group:
                    value = records.encode(EndedMessage(records.DELIVERED, now_ms, row.group))
                batch.ended.append(DeliveredRow(len(batch.records), row, value))
                batch.records.append(OutgoingRecord(self._topic, self._partition, row.key, value))
            else:
                self._unfold(batch, row, message, occurrence, now_ms)

    def _unfold(
        self, batch: Batch, row: CachedRecord, message: WaitingRecord, occurrence: Occurrence, now_ms: int
    ) -> None:
        """Deliver the pending occurrence of a loop, and those missed since, and have the next one wait."""
        missed = max(1, occurrence.missed(now_ms // 1000))
        skipped = max(0, missed - MISSED_MAX)
        each: Occurrence | None = occurrence.later(skipped) if skipped else occurrence
        batch.skipped += skipped
        room = max(1, min(_UNFOLDED_MAX, (BATCH_BYTES - batch.size) // max(1, len(row.value)) + 1))
        made = 0
        while each is not None and made < min(missed - skipped, room):
            headers = message.headers
            if made or each.made:
                headers = [pair for pair in headers if pair[0] != _ID_NAME] + [(_ID_NAME, self._new_id())]
            self._deliver(batch, row.topic, message._replace(key=each.id.encode(), headers=headers))
            batch.size += len(row.value)
            each = each.next()
            made += 1
        if each is None:
            self._end(batch, row, EndedMessage(records.DELIVERED, now_ms))
            return
        waiting = message._replace(due_ms=each.at_s * 1000, loop=each.id, owned=True)
        self._change(batch, row.key, records.encode(waiting))

    def _forget(self, batch: Batch, now_ms: int) -> None:
        """Delete repeats, and what ended or was discarded long ago."""
        long_ago = now_ms - self._remember_ms
        rows = self._cache.of(KeyState.REPEAT, _ALWAYS, BATCH_MESSAGES)
        rows += self._cache.of(KeyState.DISCARDED, long_ago, BATCH_MESSAGES)
        if abs(now_ms - self._forgot_ms) >= _FORGET_MS:
            ended = self._cache.of(KeyState.ENDED, long_ago, BATCH_MESSAGES)
            if len(ended) < BATCH_MESSAGES:
                self._forgot_ms = now_ms
            rows += ended
        for row in rows:
            if row.identity not in batch.identities:
                self._change(batch, row.key, None)

    def _deliver(self, batch: Batch, topic: str, message: WaitingRecord) -> None:
        batch.delivered += 1
        batch.records.append(OutgoingRecord(topic, message.partition, message.key, message.body, message.headers))

    def _end(self, batch: Batch, row: CachedRecord, ended: EndedMessage) -> None:
        self._change(batch, row.key, records.encode(ended))

    def _change(self, batch: Batch, key: bytes, value: bytes | None) -> None:
        batch.changes.append(RecordChange(len(batch.records), key, value))
        batch.records.append(OutgoingRecord(self._topic, self._partition, key, value))


def _half_of(message: WaitingRecord) -> WaitingHalf:
    assert message.half is not None, "a row with a producer group is a half's"
    return message.half


def _checks_key(identity: bytes) -> bytes:
    """Return the key of the record that counts a half's checks: the identity with the nonce "checks"."""
    return b'%b,"checks"]' % identity[:-1]


def identity_of(row: CachedRecord) -> Identity:
    """Return whose a row is."""
    return records.parse_key(row.key)[0]
