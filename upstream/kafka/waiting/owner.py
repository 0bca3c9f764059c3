"""One partition of the waiting topic in the hands of its owner (states: the package's docstring)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from broker.log.put import is_foreign
from broker.runtime.bundle import Runtime
from broker.runtime.later import Later
from broker.runtime.metrics import declare
from broker.transaction.settings import CheckSettings
from upstream.kafka.link import Assignment, KafkaFailure, KafkaPartition, KafkaRecord, KafkaTransactions, LogBounds
from upstream.kafka.waiting.batches import BATCH_MESSAGES, Batch, Batches
from upstream.kafka.waiting.cache import CachedRecord, Checkpoint, PartitionCache
from upstream.kafka.waiting.records import Damaged, HalfChecks, NewerRecord, PartitionStatus

DELIVERED = declare("pyddmq_kafka_waiting_delivered_total", "Waiting messages delivered to Kafka topics", ("cluster",))
REQUESTS = declare(
    "pyddmq_kafka_waiting_requests_total", "Cancels and moves decided by this node, by outcome", ("cluster", "outcome")
)
SKIPPED = declare(
    "pyddmq_kafka_waiting_skipped_total", "Missed occurrences of loops that were not delivered", ("cluster",)
)
ABORTED = declare("pyddmq_kafka_waiting_aborted_total", "Transactions of waiting messages not committed", ("cluster",))
REBUILT = declare(
    "pyddmq_kafka_waiting_rebuilt_total", "Times the cache of a partition was filled from its log again", ("cluster",)
)
DEAD = declare(
    "pyddmq_kafka_waiting_dead_total",
    "Waiting messages rejected by their topic, stored in <topic>.WAITING.DLQ",
    ("cluster", "topic"),
)

DISCARDED = declare(
    "pyddmq_kafka_waiting_discarded_total",
    "Half messages discarded after their checks or their age, decided by an operator",
    ("cluster",),
)

OwnerState = Literal["fencing", "reading", "serving", "closed"]
_AGAIN_SECONDS = 1.0
_AT_ONCE_SECONDS = 0.05
_TARGET_SECONDS = (0.25, 1.0, 5.0, 30.0)
"""Pauses of a target that takes nothing."""
TRANSACTIONS_MAX = 2
"""Transactions of a node under way at a time: while one commits, the next is written."""
_CALL_SECONDS = 0.05
_WAKE_SECONDS_MAX = 1.0
"""The wall clock may be set: so long at most is it trusted."""
_TRANSIENT = frozenset({
    "ALL_BROKERS_DOWN", "KAFKA_STORAGE_ERROR", "LEADER_NOT_AVAILABLE", "MSG_TIMED_OUT", "NETWORK_EXCEPTION",
    "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_LEADER_FOR_PARTITION", "PURGE_INFLIGHT",
    "PURGE_QUEUE", "QUEUE_FULL", "REQUEST_TIMED_OUT", "TIMED_OUT", "TRANSPORT",
})  # fmt: skip


@dataclass(slots=True)
class _RefusingTarget:
    """A topic that refused something: it is tried alone.

    Attributes:
        again_at: When, monotonic seconds.
        attempts: In vain, one after the other.
        single: Messages are tried one by one.
        reason: Why its first message is to be given up; "": it is not.
        trouble: What it said.
    """

    again_at: float = 0.0
    attempts: int = 0
    single: bool = False
    reason: str = ""
    trouble: str = ""


class TransactionTurns:
    """Lets a few partitions of a node have a transaction under way at a time (D64).

    The others gather what becomes due meanwhile: a transaction costs Kafka and the node as much for one message as for
    a hundred.
    """

    def __init__(self, limit: int = TRANSACTIONS_MAX) -> None:
        self._free = limit
        self._waiting: dict[PartitionOwner, None] = {}

    def take(self, owner: PartitionOwner) -> bool:
        """Take a turn; False: there is none, and the owner is woken when one is."""
        if not self._free:
            self._waiting[owner] = None
            return False
        self._free -= 1
        return True

    def give(self) -> None:
        """Give a turn back, for the owner that has waited longest."""
        self._free += 1
        if self._waiting:
            owner = next(iter(self._waiting))
            del self._waiting[owner]
            owner.wake()

    def forget(self, owner: PartitionOwner) -> None:
        """An owner waits no more."""
        self._waiting.pop(owner, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerWays:
    """What an owner reaches its partition by.

    Attributes:
        cluster: Its name, for counts and log lines.
        node: Whose it is.
        transactions: Of the partition's transactional id.
        ends: Asks for the bounds of the partition.
        read_from: Has the partition read from an offset on.
        unusable: Called once when the cache cannot be written.
        turns: Of the node, shared by its owners.
        checks: When halves are checked.
        due: Called with producer groups of which a check is due.
    """

    cluster: str
    node: str
    transactions: KafkaTransactions
    ends: Callable[[Callable[[LogBounds], None]], None]
    read_from: Callable[[int], None]
    unusable: Callable[[Exception], None]
    turns: TransactionTurns
    checks: Callable[[], CheckSettings]
    due: Callable[[Collection[str]], None]


class PartitionOwner:
    """One owned partition.

    Attributes:
        place: Which.
        state: As the package's docstring has it.
        cache: What waits.
    """

    def __init__(
        self, place: KafkaPartition, cache: PartitionCache, batches: Batches, *, ways: OwnerWays, runtime: Runtime
    ) -> None:
        self.place = place
        self.cache = cache
        self.state: OwnerState = "fencing"
        self._batches = batches
        self._ways = ways
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._limited_log = runtime.limited_log
        self._turn = Later(runtime.scheduler, self._take_turn)
        self._again = Later(runtime.scheduler, self._fence)
        self._read_until: int | None = None
        self._busy = self._has_turn = False
        self._ended: Callable[[], None] | None = None
        self._targets: dict[str, _RefusingTarget] = {}
        self._others_first = False
        self._checked: dict[bytes, HalfChecks] = {}
        self._called_at = 0.0
        self._trouble = ""
        self._began = self._clock.monotonic()
        self.takeover_ms = 0

    def begin(self, assignment: Assignment, checkpoint: Checkpoint) -> None:
        """Take the partition over."""
        self._guarded(lambda: self._resume(checkpoint))
        if self.state == "closed":
            return
        self._ways.read_from(self.cache.position)
        self._fence()

    def _resume(self, checkpoint: Checkpoint) -> None:
        if not self.cache.resume(checkpoint):
            self._metrics.counter(REBUILT, self._ways.cluster).add()

    def end(self, done: Callable[[], None]) -> None:
        """Give the partition up once what is being written has ended."""
        if self._busy and self.state == "serving":
            self.state = "closed"
            self._turn.cancel()
            self._ended = done
            return
        self.close()
        done()

    def close(self) -> None:
        """It is another's."""
        self.state = "closed"
        self._turn.cancel()
        self._again.cancel()
        self._ways.turns.forget(self)
        self._give_turn()
        self._ways.transactions.close()
        self.cache.close()
        if self._ended is not None:
            done, self._ended = self._ended, None
            done()

    # Takeover

    def _fence_again(self, seconds: float) -> None:
        """Take the partition over again, after what is being written."""
        self.state = "fencing"
        self._turn.cancel()
        if not self._busy:
            self._again.after(seconds)

    def _fence(self) -> None:
        """Be the only one who writes; what the former owner has open is aborted."""
        self._checked.clear()
        self.state = "fencing"
        self._began = self._clock.monotonic()
        self._read_until = None
        self._turn.cancel()
        self._ways.transactions.begin(self._fenced_others)

    def _fenced_others(self, failure: KafkaFailure | None) -> None:
        if self.state != "fencing":
            return
        if failure is not None:
            self._note(f"the partition cannot be taken over: {failure}")
            self._again.after(_AGAIN_SECONDS)
            return
        self.state = "reading"
        self._ask_ends()

    def look(self) -> None:
        """See whether the log has become shorter; called every second. An answer may have been lost."""
        if self.state == "serving" or (self.state == "reading" and self._read_until is None):
            self._ask_ends()

    def _ask_ends(self) -> None:
        # What is read meanwhile may lie above the answer.
        read = self.cache.position
        self._ways.ends(lambda bounds: self._bounds(bounds, read))

    def _bounds(self, bounds: LogBounds, read: int) -> None:
        """Read to the end as it was after the fence. A log that is shorter is another log."""
        if self.state not in ("reading", "serving"):
            return
        if bounds.high < read or bounds.low > self.cache.position:
            self._rebuild(bounds, shorter=bounds.high < read)
        elif self.state == "reading" and self._read_until is None:
            self._read_until = bounds.high
            self._check_end()

    def _rebuild(self, bounds: LogBounds, *, shorter: bool) -> None:
        cluster, partition, position = self._ways.cluster, self.place.partition, self.cache.position
        if shorter:
            self._limited_log.note(
                "kafka_waiting_log_shorter", cluster, partition=partition, position=position, high=bounds.high
            )
            self._trouble = "its log has become shorter; waiting messages may be lost (unclean leader election?)"
        else:
            self._limited_log.note(
                "kafka_waiting_rebuilt", cluster, partition=partition, position=position, low=bounds.low
            )
        self._metrics.counter(REBUILT, self._ways.cluster).add()
        self._guarded(lambda: self.cache.clear(bounds.low))
        if self.state == "closed":
            return
        self._ways.read_from(bounds.low)
        if self.state == "reading":
            self._read_until = bounds.high
            self._check_end()
        else:
            self._fence_again(0)

    def _check_end(self) -> None:
        if self.state != "reading" or self._read_until is None or self.cache.position < self._read_until:
            return
        self.state = "serving"
        self.takeover_ms = round((self._clock.monotonic() - self._began) * 1000)
        if not self._trouble.startswith("its log"):
            self._trouble = ""
        self._turn.after(0)

    # Reading

    def records(self, records: Sequence[KafkaRecord]) -> None:
        """Take records of the log."""
        if self.state != "closed":
            self._guarded(lambda: self._apply(records))
            self._check_end()
            self.wake()

    def _apply(self, records: Sequence[KafkaRecord]) -> None:
        for record in records:
            try:
                self.cache.apply(record)
            except Damaged as error:
                self._limited_log.note(
                    "kafka_waiting_record_damaged",
                    self._ways.cluster,
                    partition=self.place.partition,
                    offset=record.offset,
                    error=str(error),
                )
        if records:
            self.cache.save(records[-1].offset + 1, self._clock.wall_ms())

    def at_end(self, offset: int) -> None:
        """Note that all before an offset was told."""
        if self.state == "closed" or offset <= self.cache.position:
            return
        self._guarded(lambda: self.cache.save(offset, self._clock.wall_ms()))
        self._check_end()

    def _guarded(self, work: Callable[[], object]) -> None:
        """Do what changes the cache; without a cache the partition is given up."""
        try:
            work()
        except NewerRecord as error:
            self._note(f"it has records of a newer version of pyddmq ({error}); update this node")
            self.state = "closed"
        except (sqlite3.Error, OSError) as error:
            self._note(f"its cache cannot be written: {error}")
            self.state = "closed"
            self._ways.unusable(error)

    # Serving

    def wake(self) -> None:
        """See what is to be done."""
        if self.state == "serving" and not self._busy:
            self._turn.after(0)

    def _take_turn(self) -> None:
        if self.state != "serving" or self._busy or not self._take_the_turn():
            return
        now_ms, now = self._clock.wall_ms(), self._clock.monotonic()
        # By turns, so that neither waits for the other to have nothing to do.
        self._others_first = not self._others_first
        batch = self._of_refused(now_ms, now) if self._others_first else self._next(now_ms)
        if not batch.records:
            batch = self._next(now_ms) if self._others_first else self._of_refused(now_ms, now)
        self._call_producers(now_ms, now)
        if batch.records:
            self._busy = True
            self._ways.transactions.write(batch.records, lambda *ended: self._written(batch, *ended))
            return
        self._give_turn()
        self._turn.after(self._pause(now_ms, now))

    def _take_the_turn(self) -> bool:
        self._has_turn = self._has_turn or self._ways.turns.take(self)
        return self._has_turn

    def _give_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._ways.turns.give()

    def _next(self, now_ms: int) -> Batch:
        return self._batches.next(now_ms, self._targets, self._checked)

    def _of_refused(self, now_ms: int, now: float) -> Batch:
        """Return what is to be tried of targets that refused something, each alone."""
        for name, target in list(self._targets.items()):
            if target.again_at <= now:
                if target.reason:
                    batch = self._batches.dead_letter(now_ms, name, target.reason)
                else:
                    batch = self._batches.alone(now_ms, name, 1 if target.single else BATCH_MESSAGES)
                if batch.records:
                    return batch
                del self._targets[name]
        return Batch()

    def _pause(self, now_ms: int, now: float) -> float:
        """Return the seconds until something may be due."""
        due = self.cache.next_due(self._targets)
        seconds = _WAKE_SECONDS_MAX if due is None else max(0.0, (due - now_ms) / 1000)
        if (check := self.cache.next_check(now_ms)) is not None:
            seconds = min(seconds, max(_CALL_SECONDS, (check - now_ms) / 1000))
        for each in self._targets.values():
            seconds = min(seconds, max(0.05, each.again_at - now))
        return min(seconds, _WAKE_SECONDS_MAX)

    def _written(
        self, batch: Batch, failure: KafkaFailure | None, refused: dict[str, KafkaFailure], offsets: Sequence[int]
    ) -> None:
        self._busy = False
        self._give_turn()
        if self.state != "serving":
            if self.state == "fencing":
                self._again.after(0)
            else:
                self.close()
        elif failure is None:
            self._guarded(lambda: self._committed(batch, offsets))
        elif failure.fenced:
            # By the next owner, of which the group is about to tell; or by a former one that was late.
            self._note(f"another node has taken the partition over: {failure}")
            self._fence_again(_AGAIN_SECONDS)
        elif failure.unknown:
            # Committed or not: the log knows.
            self._metrics.counter(ABORTED, self._ways.cluster).add()
            self._note(f"the outcome of a transaction is unknown: {failure}")
            self._fence_again(_AT_ONCE_SECONDS)
        else:
            self._metrics.counter(ABORTED, self._ways.cluster).add()
            self._aborted(batch, failure, refused)
        if self.state == "serving":
            self._turn.after(0 if failure is None or refused else _AGAIN_SECONDS)

    def _committed(self, batch: Batch, offsets: Sequence[int]) -> None:
        for change in batch.changes:
            self.cache.change(change.key, change.value, offsets[change.at])
        self.cache.save(self.cache.position, self._clock.wall_ms())
        for identity in batch.unchecked:
            self._checked.pop(identity, None)
        for identity, checks in batch.checked.items():
            if self._checked.get(identity) == checks:
                del self._checked[identity]
        cluster = self._ways.cluster
        self._metrics.counter(DISCARDED, cluster).add(batch.discarded)
        self._metrics.counter(DELIVERED, cluster).add(batch.delivered)
        for outcome in batch.decided:
            self._metrics.counter(REQUESTS, cluster, outcome).add()
        if batch.skipped:
            self._metrics.counter(SKIPPED, cluster).add(batch.skipped)
            self._limited_log.note("loop_occurrences_skipped", cluster, count=batch.skipped)
        if not self._trouble.startswith("its log"):
            self._trouble = ""
        if batch.only and batch.to_dead_letters:
            self._metrics.counter(DEAD, cluster, batch.only).add()
            self._targets[batch.only].reason = ""
        elif batch.only:
            target = self._targets[batch.only]
            if not target.single or not self.cache.due(self._clock.wall_ms(), 1, only=batch.only):
                del self._targets[batch.only]

    def _aborted(self, batch: Batch, failure: KafkaFailure, refused: dict[str, KafkaFailure]) -> None:
        """Find out which target it was: each is tried alone from now on."""
        named = {each.removesuffix(".WAITING.DLQ") if batch.to_dead_letters else each for each in refused}
        targets = named & batch.targets if not batch.only else {batch.only}
        if not targets:
            self._note(f"a transaction was aborted: {failure}")
            return
        now = self._clock.monotonic()
        for name in targets:
            target = self._targets.setdefault(name, _RefusingTarget())
            why = refused.get(name + ".WAITING.DLQ" if batch.to_dead_letters else name, failure)
            target.trouble = str(why)
            if not batch.only:
                continue
            if not batch.to_dead_letters and why.code not in _TRANSIENT:
                # What is refused alone is given up; of several the one that it is has to be found.
                if batch.fired == 1:
                    target.reason = str(why)
                target.single = True
                continue
            # Next time the topic itself is tried again: it may be mended.
            target.reason = ""
            target.again_at = now + _TARGET_SECONDS[min(target.attempts, len(_TARGET_SECONDS) - 1)]
            target.attempts += 1
            self._limited_log.note("kafka_waiting_target_refuses", self._ways.cluster, topic=name, error=str(why))

    def _note(self, text: str) -> None:
        self._trouble = text
        self._limited_log.note("kafka_waiting_trouble", self._ways.cluster, partition=self.place.partition, text=text)

    # Checks of halves

    def _call_producers(self, now_ms: int, now: float) -> None:
        """Wake the fetches of producer groups of which a check is due."""
        if now - self._called_at < _CALL_SECONDS:
            return
        self._called_at = now
        rows = self.cache.due_checks(now_ms, BATCH_MESSAGES)
        if groups := {row.group for row in rows if row.identity not in self._checked}:
            self._ways.due(groups)

    def fetch_checks(self, group: str, count_max: int, principal: str) -> list[tuple[CachedRecord, int]]:
        """Return halves of a producer group whose check is due, each with the number of this check (D66).

        Nobody else gets them within the interval; their count is written with the next batch.

        Args:
            group: The producer group.
            count_max: At most so many.
            principal: Whose halves; "": everybody's.
        """
        if self.state != "serving":
            return []
        now_ms = self._clock.wall_ms()
        next_ms = now_ms + self._ways.checks().interval_ms
        found: list[tuple[CachedRecord, int]] = []
        for row in self.cache.due_checks(now_ms, BATCH_MESSAGES, group):
            if len(found) == count_max:
                break
            # After the last one the half is discarded once the time to answer it is over.
            if row.checks >= self._ways.checks().checks_max:
                continue
            if row.identity in self._checked or is_foreign(row.principal, principal or None):
                continue
            times = row.checks + 1
            self._checked[row.identity] = HalfChecks(times, next_ms)
            found.append((row, times))
        if found:
            self.wake()
        return found

    def give_back(self, identity: bytes, times: int) -> None:
        """Take a check back that no producer got: it does not count, and is due again."""
        if self.state == "serving":
            self._checked[identity] = HalfChecks(times - 1, self._clock.wall_ms())
            self.wake()

    # For operators

    def _unanswered(self, now_ms: int) -> list[str]:
        """Say that checks are due and no producer fetches them (D66)."""
        if self.state != "serving":
            return []
        found = self.cache.due_checks(now_ms - self._ways.checks().interval_ms, 1)
        return [
            f"checks of producer group {row.group} have been due for {(now_ms - row.at) // 1000} s; no producer of the "
            f"group fetches checks from node {self._ways.node}"
            for row in found
        ]

    def status(self) -> PartitionStatus:
        """Return what is to be known of it."""
        now_ms = self._clock.wall_ms()
        due = self.cache.next_due() if self.state != "closed" else None
        oldest = self.cache.oldest_half() if self.state != "closed" else None
        troubles = [self._trouble] if self._trouble else []
        troubles += self._unanswered(now_ms)
        troubles += [f"topic {name} takes no waiting messages: {each.trouble}" for name, each in self._targets.items()]
        return PartitionStatus(
            partition=self.place.partition,
            node=self._ways.node,
            state=self.state,
            wall_ms=now_ms,
            pending=self.cache.counts.total(),
            late_ms=max(0, now_ms - due) if due is not None else 0,
            takeover_ms=self.takeover_ms,
            counts=[(topic, owner, count) for (topic, owner), count in self.cache.counts.most_common(1000) if count],
            troubles=troubles,
            overdue=self.cache.overdue(now_ms) if due is not None and due <= now_ms else 0,
            undecided=self.cache.undecided,
            undecided_ms=max(0, now_ms - oldest) if oldest is not None else 0,
        )
