"""What an owner writes next: decided requests, messages that are due, and records that are not needed any more.

Pure: made from the cache, a wall clock and nothing else. A batch has each identity once at most, so that its parts do
not depend on each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.scheduled.recurring.occurrence import Occurrence, parse_id
from upstream.kafka.link import OutgoingRecord
from upstream.kafka.waiting import records
from upstream.kafka.waiting.cache import CachedRecord, PartitionCache
from upstream.kafka.waiting.records import EndedMessage, Identity, KeyState, WaitingRecord, WaitingRequest

BATCH_MESSAGES = 500
BATCH_BYTES = 1 << 20
MISSED_MAX = 100_000
"""Missed occurrences of a loop beyond these are skipped, the oldest first (`broker.scheduled.recurring.loops`)."""
_UNFOLDED_MAX = 64
DEAD_LETTER_ENDING = ".WAITING.DLQ"
_ID_NAME = "UNIQ_KEY"
_ALWAYS = 1 << 62


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
        changes: Those in the waiting topic.
        identities: Those that it is about.
        targets: Topics that get messages.
        fired: Waiting messages that it delivers.
        delivered: Deliveries, of loops several each.
        decided: Outcomes of requests.
        skipped: Occurrences that are left out.
        latest_ms: How long the first one is overdue.
        only: The target that it is about alone; "": any.
        to_dead_letters: It gives that one's message up.
    """

    records: list[OutgoingRecord] = field(default_factory=list)
    changes: list[RecordChange] = field(default_factory=list)
    identities: set[bytes] = field(default_factory=set)
    targets: set[str] = field(default_factory=set)
    fired: int = 0
    delivered: int = 0
    decided: list[str] = field(default_factory=list)
    skipped: int = 0
    latest_ms: int = 0
    only: str = ""
    to_dead_letters: bool = False
    size: int = 0


class Batches:
    """Makes the batches of one partition.

    Args:
        cache: Of the partition.
        topic, answers_topic, partition: Where changes and answers are written.
        remember_ms: How long an ended message is remembered.
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
        new_id: Callable[[], bytes],
    ) -> None:
        self._cache = cache
        self._topic = topic
        self._answers_topic = answers_topic
        self._partition = partition
        self._remember_ms = remember_ms
        self._new_id = new_id

    def next(self, now_ms: int, without: Collection[str]) -> Batch:
        """Return what is to be done now, but for what is due to some targets."""
        batch = Batch()
        self._decide(batch, now_ms)
        self._fire(batch, now_ms, self._cache.due(now_ms, BATCH_MESSAGES, without=without))
        self._forget(batch, now_ms)
        return batch

    def alone(self, now_ms: int, target: str, limit: int) -> Batch:
        """Return what is due to one target."""
        batch = Batch(only=target)
        self._fire(batch, now_ms, self._cache.due(now_ms, limit, only=target))
        return batch

    def dead_letter(self, now_ms: int, target: str, reason: str) -> Batch:
        """Return what gives up the first message that is due to a target, which refuses it."""
        batch = Batch(only=target, to_dead_letters=True)
        for row in self._cache.due(now_ms, 1, only=target):
            message = records.decode(row.value)
            assert isinstance(message, WaitingRecord), "a row that waits has a message"
            headers = [*message.headers, ("__PYDDMQ_REASON", reason.encode())]
            batch.records.append(OutgoingRecord(target + DEAD_LETTER_ENDING, None, message.key, message.body, headers))
            self._end(batch, row, EndedMessage(records.REFUSED, now_ms))
        return batch

    # Parts

    def _decide(self, batch: Batch, now_ms: int) -> None:
        for row in self._cache.of(KeyState.REQUEST, _ALWAYS, BATCH_MESSAGES):
            if row.identity in batch.identities:
                continue
            request = records.decode(row.value)
            assert isinstance(request, WaitingRequest), "a request's row has one"
            found = self._cache.find(row.identity)
            outcome = records.UNKNOWN_ID
            if found is not None and found.state == KeyState.ENDED:
                ended = records.decode(found.value)
                was = ended.outcome if isinstance(ended, EndedMessage) else ""
                outcome = was if was == records.CANCELLED and not request.due_ms else records.TOO_LATE
            elif found is not None and request.due_ms:
                message = records.decode(found.value)
                assert isinstance(message, WaitingRecord), "a row that waits has a message"
                outcome = records.MOVED
                moved = message._replace(due_ms=request.due_ms, owned=True)
                self._change(batch, found.key, records.encode(moved))
            elif found is not None:
                outcome = records.CANCELLED
                self._end(batch, found, EndedMessage(outcome, now_ms))
            batch.identities.add(row.identity)
            batch.decided.append(outcome)
            self._change(batch, row.key, None)
            answer = records.encode_answer(request.request, outcome)
            batch.records.append(OutgoingRecord(self._answers_topic, None, row.identity, answer))

    def _fire(self, batch: Batch, now_ms: int, rows: list[CachedRecord]) -> None:
        for row in rows:
            if row.identity in batch.identities:
                continue
            if batch.fired and batch.size + len(row.value) > BATCH_BYTES:
                return
            message = records.decode(row.value)
            assert isinstance(message, WaitingRecord), "a row that waits has a message"
            batch.fired += 1
            batch.identities.add(row.identity)
            batch.targets.add(row.topic)
            batch.latest_ms = max(batch.latest_ms, now_ms - row.at)
            batch.size += len(row.value)
            occurrence = parse_id(message.loop) if message.loop else None
            if occurrence is None or not occurrence.is_loop:
                self._deliver(batch, row.topic, message)
                self._end(batch, row, EndedMessage(records.DELIVERED, now_ms))
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
        """Delete repeats, and what ended long ago."""
        for state, before in ((KeyState.REPEAT, _ALWAYS), (KeyState.ENDED, now_ms - self._remember_ms)):
            for row in self._cache.of(state, before, BATCH_MESSAGES):
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


def identity_of(row: CachedRecord) -> Identity:
    """Return whose a row is."""
    return records.parse_key(row.key)[0]
