"""One partition of the waiting topic in the hands of its owner (states: the package's docstring)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from broker.runtime.bundle import Runtime
from broker.runtime.later import Later
from broker.transaction.settings import CheckSettings
from upstream.kafka.lease import Lease
from upstream.kafka.link import (
    Assignment,
    Checkpoint,
    Done,
    Ends,
    KafkaFailure,
    KafkaPartition,
    KafkaRecord,
    KafkaTransactions,
    LogBounds,
    LogLoaded,
)
from upstream.kafka.waiting import counters
from upstream.kafka.waiting.batches import BATCH_MESSAGES, Batch, Batches
from upstream.kafka.waiting.cache import PartitionCache
from upstream.kafka.waiting.lanes import TransactionLane, TransactionLanes, TransactionTurns
from upstream.kafka.waiting.loading import LOAD_RECORDS
from upstream.kafka.waiting.records import Damaged, HalfChecks, NewerRecord, PartitionStatus
from upstream.kafka.waiting.rows import CachedRecord
from upstream.kafka.waiting.targets import SuspectTargets

OwnerState = Literal["fencing", "reading", "serving", "closed"]
_AGAIN_SECONDS = 1.0
_AT_ONCE_SECONDS = 0.05
_CALL_SECONDS = 0.05
_FAR = 1 << 62
_WAKE_SECONDS_MAX = 1.0
"""The wall clock may be set: so long at most is it trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerWays:
    """What an owner reaches its partition by.

    Attributes:
        cluster: Its name, for counts and log lines.
        node: Whose it is.
        transactions: Makes those of a numbered transactional id of the partition (`upstream.kafka.waiting.lanes`).
        lanes: Numbers of the former owner's ids.
        lease: Of the node's membership: nothing is committed after it.
        confirm: Has the group know the numbers of the ids; success says that the partition is still this node's.
        ends: Asks for the bounds of the partition.
        read_from: Has the partition read from an offset on.
        unusable: Called once when the cache cannot be used.
        turns: Of the node, shared by its owners.
        checks: When halves are checked.
        fetching: Producer groups of which a fetch of checks waits, as it is now.
        due: Called with one of which a check is due.
        suspected: Called with a topic that ended a batch, and why, for the other owners of the node.
        load: Fills a file from the partition's log (`upstream.kafka.link.KafkaClient.load`).
    """

    cluster: str
    node: str
    transactions: Callable[[int], KafkaTransactions]
    lanes: str
    lease: Lease
    confirm: Callable[[PartitionOwner, Done], None]
    ends: Callable[[Ends], None]
    read_from: Callable[[int], None]
    unusable: Callable[[Exception], None]
    turns: TransactionTurns
    checks: Callable[[], CheckSettings]
    fetching: Collection[str]
    due: Callable[[str], None]
    suspected: Callable[[str, str], None]
    load: Callable[[str, Checkpoint, LogLoaded], Callable[[], object]]


class PartitionOwner:
    """One owned partition.

    Attributes:
        place: Which.
        state: As the package's docstring has it.
        cache: What waits.
        lanes: The transactional ids.
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
        self.lanes = TransactionLanes(ways.transactions, ways.lanes, runtime.scheduler, self._lanes_changed)
        self._writing: dict[TransactionLane, Batch] = {}
        self._targets = SuspectTargets(ways.cluster, runtime)
        self._turn = Later(runtime.scheduler, lambda: self._guarded(self._take_turn))
        self._again = Later(runtime.scheduler, self._fence)
        self._give_up = Later(runtime.scheduler, self._give_up_lanes)
        self._term = 0
        self._read_until: int | None = None
        self._has_turn = False
        self._ended: Callable[[], None] | None = None
        self._checked: dict[bytes, HalfChecks] = {}
        self._fetched_at: dict[str, float] = {}
        """When producer groups last fetched checks of halves here."""
        self._called_at = 0.0
        self._trouble = ""
        self._stop_load: Callable[[], object] | None = None
        self._began = self._clock.monotonic()
        self.takeover_ms = 0

    def begin(self, assignment: Assignment, checkpoint: Checkpoint) -> None:
        """Take the partition over."""
        self._guarded(lambda: self._resume(checkpoint))
        if self.state == "closed":
            return
        if self._stop_load is None:
            self._ways.read_from(self.cache.position)
        self._fence()

    def _resume(self, checkpoint: Checkpoint) -> None:
        if not self.cache.resume(checkpoint):
            self._metrics.counter(counters.REBUILT, self._ways.cluster).add()
            if self.cache.load_path and checkpoint.log and checkpoint.high - checkpoint.low >= LOAD_RECORDS:
                self._stop_load = self._ways.load(self.cache.load_path, checkpoint, partial(self._loaded, checkpoint))

    def _loaded(self, checkpoint: Checkpoint, failure: KafkaFailure | None, damaged: Sequence[int]) -> None:
        """Go on from where the file ends; without one the log is read here."""
        self._stop_load = None
        for offset in damaged:
            self._note_damaged(offset, "not a record of this topic")
        if failure is None:
            # Of an end that has grown since.
            self._guarded(lambda: self.cache.adopt(checkpoint._replace(high=_FAR)))
        else:
            self._note(f"it reads its log slowly: {failure}")
        if self.state != "closed":
            self._ways.read_from(self.cache.position)
            self._check_end()

    def _end_load(self) -> None:
        if self._stop_load is not None:
            self._stop_load()
            self._stop_load = None

    def end(self, done: Callable[[], None]) -> None:
        """Give the partition up once what is being written has ended."""
        if self._is_writing_all and self.state == "serving":
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
        self._give_up.cancel()
        self._ways.turns.forget(self.wake)
        self._give_turn()
        self._end_load()
        self.lanes.close()
        self.cache.close()
        if self._ended is not None:
            done, self._ended = self._ended, None
            done()

    # Takeover

    def _fence_again(self, seconds: float) -> None:
        """Take the partition over again, after what is being written."""
        self.state = "fencing"
        self._turn.cancel()
        self._ways.turns.forget(self.wake)
        if not self._writing:
            self._again.after(seconds)

    def _fence(self) -> None:
        """Be the only one who writes; what the former owner has open is aborted.

        Not all of its ids can be had where a target hangs. After its lease it commits no further transaction; one that
        is open then has its records in this partition, which are read once it has ended.
        """
        self._term += 1
        self._give_up.after(self._ways.lease.seconds)
        self._checked.clear()
        self._fetched_at.clear()
        self.state = "fencing"
        self._began = self._clock.monotonic()
        self._read_until = None
        self._turn.cancel()
        self.lanes.take()

    def _lanes_changed(self) -> None:
        """Go on with the ids that were taken."""
        if self.state == "fencing":
            if trouble := self.lanes.trouble:
                self._note(f"the partition cannot be taken over: {trouble}")
            self._confirm()
        elif self.state != "closed":
            if self.lanes.has_new:
                self._confirm()
            self.wake()

    def _give_up_lanes(self) -> None:
        """Go on without the ids that cannot be had: the former owner's lease is over."""
        if self.state == "fencing" and not self._writing:
            self.lanes.give_up_taking()
            self._confirm()

    def _confirm(self) -> None:
        """Have the group know the ids before they are used."""
        if self.lanes.is_taken:
            self._ways.confirm(self, partial(self._confirmed, self._term, self.lanes.text))

    def _confirmed(self, term: int, text: str, failure: KafkaFailure | None) -> None:
        # After another fence, only a later commit says that no other node has the partition.
        if self.state == "closed" or failure is not None or term != self._term or text != self.lanes.text:
            return
        self.lanes.begin_new()
        if self.state == "fencing" and self.lanes.is_taken:
            self._give_up.cancel()
            self.state = "reading"
            self._ask_ends()

    def look(self) -> None:
        """See whether the log has become shorter; called every second. An answer may have been lost."""
        if self.state == "fencing" or self.lanes.has_new:
            self._confirm()
        if self.state == "serving" or (self.state == "reading" and self._read_until is None):
            self._ask_ends()

    def _ask_ends(self) -> None:
        # What is read meanwhile may lie above the answer.
        read = self.cache.position
        self._ways.ends(lambda found, _: self._bounds(found[0], read) if found else None)

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
        self._metrics.counter(counters.REBUILT, self._ways.cluster).add()
        self._end_load()
        self._guarded(lambda: self.cache.clear(bounds.low))
        if self.state == "closed":
            return
        self._ways.read_from(bounds.low)
        if self.state == "reading":
            self._read_until = bounds.high
            self._check_end()
        else:
            self.lanes.doubt()
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
        self.cache.read(records, lambda record, error: self._note_damaged(record.offset, str(error)))
        if records:
            self.cache.save(records[-1].offset + 1, self._clock.wall_ms())

    def _note_damaged(self, offset: int, text: str) -> None:
        cluster, partition = self._ways.cluster, self.place.partition
        self._limited_log.note("kafka_waiting_record_damaged", cluster, partition=partition, offset=offset, error=text)

    def at_end(self, offset: int) -> None:
        """Note that all before an offset was reported."""
        if self.state == "closed" or offset <= self.cache.position:
            return
        self.cache.reached(offset)
        self._check_end()

    def _guarded(self, work: Callable[[], object]) -> None:
        """Do what reads or changes the cache; without a cache the partition is released."""
        try:
            work()
        except NewerRecord as error:
            self._stop(f"it has records of a newer version of pyddmq ({error}); update this node")
        except (sqlite3.Error, OSError, Damaged) as error:
            self._stop(f"its cache cannot be used: {error}")
            self.cache.failed(error)
            self._ways.unusable(error)

    def _stop(self, why: str) -> None:
        """Serve it no more."""
        self._note(why)
        self.state = "closed"
        self._give_turn()

    # Serving

    def wake(self) -> None:
        """See what is to be done."""
        if self.state == "serving":
            self._turn.after(0)

    def suspect(self, topic: str, text: str) -> None:
        """Have a topic in no batch with others, since it ended one of another partition's."""
        self._targets.suspect(topic, text, elsewhere=True)

    def _take_turn(self) -> None:
        if self.state != "serving" or not self._ways.lease.holds:
            return
        now_ms, now = self._clock.wall_ms(), self._clock.monotonic()
        self._call_producers(now_ms, now)
        self._try_suspects(now_ms)
        lane, idle = self.lanes.main(), False
        if lane is not None and self._take_the_turn():
            batch = self._batches.next(now_ms, self._targets.names, self._checked, self._busy())
            if batch.records:
                self._write(lane, batch)
            else:
                idle = True
                self._give_turn()
        self._turn.after(self._pause(now_ms, now, idle=idle))

    def _busy(self) -> set[bytes]:
        """Identities that transactions under way are about."""
        return {each for batch in self._writing.values() for each in batch.identities}

    def _try_suspects(self, now_ms: int) -> None:
        """Write what is due to targets under suspicion, each alone."""
        for name, target in self._targets.to_try():
            if not self.cache.due(now_ms, 1, only=name):
                self._targets.has_nothing(name)
            elif any(name in batch.targets for batch in self._writing.values()):
                continue
            elif (lane := self.lanes.spare()) is not None:
                if target.reason:
                    batch = self._batches.dead_letter(now_ms, name, target.reason, self._busy())
                else:
                    limit = 1 if target.single else BATCH_MESSAGES
                    batch = self._batches.alone(now_ms, name, limit, self._busy())
                if batch.records:
                    self._targets.trying(batch)
                    self._write(lane, batch)

    def _write(self, lane: TransactionLane, batch: Batch) -> None:
        lane.state = "writing"
        self._writing[lane] = batch
        alone = batch.records[0].topic if batch.only else ""
        lane.write(batch.records, partial(self._written, lane, batch), alone)

    def _take_the_turn(self) -> bool:
        self._has_turn = self._has_turn or self._ways.turns.take(self.wake)
        return self._has_turn

    def _give_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._ways.turns.give()

    def _pause(self, now_ms: int, now: float, *, idle: bool) -> float:
        """Return the seconds until something may be due; the end of a transaction wakes the owner too."""
        seconds = _WAKE_SECONDS_MAX
        if idle:
            due = self.cache.next_due(self._targets.names, now_ms + round(seconds * 1000))
            seconds = seconds if due is None else max(0.0, (due - now_ms) / 1000)
        if (check := self.cache.next_check(now_ms)) is not None:
            seconds = min(seconds, max(_CALL_SECONDS, (check - now_ms) / 1000))
        if (again_at := self._targets.next_at()) is not None:
            seconds = min(seconds, max(_CALL_SECONDS, again_at - now))
        return min(seconds, _WAKE_SECONDS_MAX)

    def _written(
        self,
        lane: TransactionLane,
        batch: Batch,
        failure: KafkaFailure | None,
        refused: Mapping[str, KafkaFailure],
        offsets: Sequence[int],
    ) -> None:
        del self._writing[lane]
        if lane.state == "writing":
            lane.state = "free"
        if not batch.only:
            self._give_turn()
        if self.state != "serving":
            if failure is not None and (failure.unknown or failure.fenced or failure.lost):
                lane.doubt()
            self._ended_late()
        elif failure is None:
            self._guarded(lambda: self._committed(batch, offsets))
        elif failure.fenced:
            # By the next owner, which the group is about to report; or by a former one that was late.
            self._note(f"another node has taken the partition over: {failure}")
            self.lanes.doubt()
            self._fence_again(_AGAIN_SECONDS)
        elif failure.unknown:
            # Committed or not: the log knows.
            self._metrics.counter(counters.ABORTED, self._ways.cluster).add()
            self._note(f"the outcome of a transaction is unknown: {failure}")
            lane.doubt()
            self._fence_again(_AT_ONCE_SECONDS)
        else:
            self._metrics.counter(counters.ABORTED, self._ways.cluster).add()
            self._aborted(batch, failure, refused)
            if failure.lost:
                lane.lose()
                if batch.only:
                    self._targets.took(batch, lane)
        if self.state == "serving":
            again = failure is None or bool(batch.targets & refused.keys())
            self._turn.after(0 if again or batch.only else _AGAIN_SECONDS)

    def _ended_late(self) -> None:
        """Go on to what waited for the end of transactions."""
        if self.state == "closed" and not self._is_writing_all:
            self.close()
        elif self.state == "fencing" and not self._writing:
            self._again.after(0)

    @property
    def _is_writing_all(self) -> bool:
        """Whether a batch of healthy targets is under way."""
        return any(not each.only for each in self._writing.values())

    def _committed(self, batch: Batch, offsets: Sequence[int]) -> None:
        for change in batch.changes:
            self.cache.change(change.key, change.value, offsets[change.at])
        self.cache.end([(each.row, each.value, offsets[each.at]) for each in batch.ended], batch.ended_ms)
        self.cache.save(self.cache.position, self._clock.wall_ms())
        for identity in batch.unchecked:
            self._checked.pop(identity, None)
        for identity, checks in batch.checked.items():
            if self._checked.get(identity) == checks:
                del self._checked[identity]
        cluster = self._ways.cluster
        self._metrics.counter(counters.DISCARDED, cluster).add(batch.discarded)
        self._metrics.counter(counters.DELIVERED, cluster).add(batch.delivered)
        for outcome in batch.decided:
            self._metrics.counter(counters.REQUESTS, cluster, outcome).add()
        if batch.skipped:
            self._metrics.counter(counters.SKIPPED, cluster).add(batch.skipped)
            self._limited_log.note("loop_occurrences_skipped", cluster, count=batch.skipped)
        if not self._trouble.startswith("its log"):
            self._trouble = ""
        if batch.only:
            more = bool(self.cache.due(self._clock.wall_ms(), 1, only=batch.only))
            self._targets.committed(batch, more=more)

    def _aborted(self, batch: Batch, failure: KafkaFailure, refused: Mapping[str, KafkaFailure]) -> None:
        """Have the topics that ended a batch be tried alone, here and by the node's other owners."""
        for name in self._targets.aborted(batch, failure, refused):
            self._ways.suspected(name, str(refused[name]))
        if not batch.only and not batch.targets & refused.keys():
            self._note(f"a transaction was aborted: {failure}")

    def _note(self, text: str) -> None:
        self._trouble = text
        self._limited_log.note("kafka_waiting_trouble", self._ways.cluster, partition=self.place.partition, text=text)

    # Checks of halves

    def _call_producers(self, now_ms: int, now: float) -> None:
        """Wake the fetches of producer groups of which a check is due."""
        if now - self._called_at < _CALL_SECONDS:
            return
        self._called_at = now
        for group in self._ways.fetching:
            if self.cache.has_due_check(now_ms, group, self._checked):
                self._ways.due(group)

    def fetch_checks(self, group: str, count_max: int, principal: str) -> list[tuple[CachedRecord, int]]:
        """Return halves of a producer group whose check is due, each with the number of this check (D66).

        No other client gets them within the interval; the next batch writes their count.

        Args:
            group: The producer group.
            count_max: At most so many.
            principal: Whose halves; "": all.
        """
        if self.state != "serving":
            return []
        now_ms, settings = self._clock.wall_ms(), self._ways.checks()
        next_ms = now_ms + settings.interval_ms
        found: list[tuple[CachedRecord, int]] = []
        while len(found) < count_max:
            # After the last check the half is discarded once the time to answer it has passed.
            row = self.cache.due_check(now_ms, group, principal, checks_max=settings.checks_max, but=self._checked)
            if row is None:
                break
            times = row.checks + 1
            self._checked[row.identity] = HalfChecks(times, next_ms)
            found.append((row, times))
        if found:
            self._fetched_at[group] = self._clock.monotonic()
            self.wake()
        return found

    def give_back(self, identity: bytes, times: int) -> None:
        """Take a check back that no producer got: it does not count, and is due again."""
        if self.state == "serving":
            self._checked[identity] = HalfChecks(times - 1, self._clock.wall_ms())
            self.wake()

    # For operators

    def _unanswered(self, now_ms: int) -> list[str]:
        """Say that checks are due and no producer fetches them, or too few (D66)."""
        interval_ms = self._ways.checks().interval_ms
        row = self.cache.overdue_check(now_ms - interval_ms) if self.state == "serving" else None
        if row is None:
            return []
        why = f"no producer of the group fetches checks from node {self._ways.node}"
        if self._clock.monotonic() - self._fetched_at.get(row.group, float("-inf")) <= interval_ms / 1000:
            why = "its producers fetch fewer checks than come due; roll back what none of them can decide"
        return [f"checks of producer group {row.group} have been due for {(now_ms - row.at) // 1000} s; {why}"]

    def status(self) -> PartitionStatus:
        """Return what is to be known of it."""
        now_ms = self._clock.wall_ms()
        due: int | None = None
        well: int | None = None
        oldest: int | None = None
        overdue = 0
        unanswered: list[str] = []

        def ask() -> None:
            nonlocal due, well, oldest, overdue, unanswered
            due, well = self.cache.next_due(), self.cache.next_due(self._targets.names, now_ms)
            overdue = self.cache.overdue(now_ms) if due is not None and due <= now_ms else 0
            oldest = self.cache.oldest_half()
            unanswered = self._unanswered(now_ms)

        if self.state != "closed":
            self._guarded(ask)
        troubles = [*([self._trouble] if self._trouble else []), *unanswered, *self._targets.troubles()]
        return PartitionStatus(
            partition=self.place.partition,
            node=self._ways.node,
            state=self.state,
            wall_ms=now_ms,
            pending=self.cache.counts.total(),
            late_ms=max(0, now_ms - due) if due is not None else 0,
            behind_ms=max(0, now_ms - well) if well is not None else 0,
            takeover_ms=self.takeover_ms,
            counts=[(topic, owner, count) for (topic, owner), count in self.cache.counts.most_common(1000) if count],
            troubles=troubles,
            overdue=overdue,
            undecided=self.cache.undecided.total(),
            discarded=self.cache.discarded,
            halves=tuple([each for each in self.cache.undecided.most_common(1000) if all(each)]),
            undecided_ms=max(0, now_ms - oldest) if oldest is not None else 0,
        )
