"""The messages of one generation of a subscription, from the partitions that this member has.

Bodies: what Kafka sends is kept with its job while there is room (`bytes_max` for the source), since it would have to
be read again otherwise. Where there is none the bodies of jobs that no client works on yet go, the latest first, and
come again in the order of their offsets when the job's turn comes (`fetch`, D57). So a key that waits for hours holds
its jobs, and no bodies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from broker.runtime.metrics import Counter
from broker.runtime.seams import Clock
from pyddmq.actions import Message, MessageUnreadable
from upstream.budget import Budget
from upstream.history import JobHistory
from upstream.job import Generation, GroupQueue, OrderKey, Slices, UpstreamJob
from upstream.kafka.headers import decode, message_id, property_block, unnamable
from upstream.kafka.link import Gap, KafkaPartition, KafkaRecord, PartitionReader
from upstream.kafka.positions.stream import PartitionStream, size_of
from upstream.kafka.topics import KafkaQueue, own
from upstream.progress.replay import finish_gone
from upstream.progress.tracker import OffsetTracker
from upstream.source import SourceCounts
from upstream.state import JobState

_SWEEP_BYTES = 8 << 20
_GAP_SMALL = 4_096
_GAP_MAX = 1 << 24
"""Offsets without a record that are passed over while something below them is unfinished: they cost a byte each until
that is finished. A larger gap is passed over once it is, which costs nothing."""
_PRESSURE = "isPressureTraffic"
_FREE_OF_BODIES = (JobState.WAITING, JobState.READY)
"""States from which a job continues by way of `fetch`."""

_ENDS_AT_ONCE = (JobState.READ, JobState.WAITING, JobState.READY, JobState.RETRYING, JobState.STOPPED)
"""States without a holder, in which a body may be missing."""

Held = dict[int, KafkaRecord]


class KafkaSource:
    """`upstream.source.Source` over one member's partitions.

    Attributes:
        closed: It reads nothing more.
        bytes_max: Of bodies that are kept; see `keep_up_to`.
    """

    bodies_come_later = True

    def __init__(
        self,
        subscription: Generation,
        group_queues: Sequence[GroupQueue],
        *,
        stream_of: Callable[[KafkaQueue], PartitionStream],
        reader: PartitionReader,
        may_hand_out: Callable[[], bool],
        clock: Clock,
        counters: SourceCounts,
        expired: Callable[[OffsetTracker, int], None],
        after_bounds: Callable[[KafkaQueue, Callable[[], None]], None],
        bytes_max: int,
        budget: Budget,
        left_out: Counter | None = None,
    ) -> None:
        """Stand at the group queues' positions.

        Args:
            subscription: Owner of the jobs.
            group_queues: All queues; more may be added later.
            stream_of: Finds what arrived of a queue.
            reader: Reads bodies again.
            may_hand_out: Whether the partitions are this member's for certain (D54).
            clock: Dates failures.
            counters: Series of the subscription.
            expired: Counts messages that retention took.
            after_bounds: Calls back once it is known where the log of a queue begins.
            bytes_max: Of bodies that are kept.
            budget: The node's account of memory.
            left_out: Counts headers that no property can be named after.
        """
        config = subscription.config
        self._subscription = subscription
        self._stream_of = stream_of
        self._reader = reader
        self._may_hand_out = may_hand_out
        self._clock = clock
        self._counters = counters
        self._expired = expired
        self._after_bounds = after_bounds
        self.bytes_max = bytes_max
        self._left_out = left_out
        self._by_key = config.order_key == "KEY"
        self._by_queue = config.order_key == "QID"
        self._tags = config.wanted_tags
        self._pressure_traffic = config.pressure_traffic
        self.lag_max: int | None = None
        self._group_queues = deque(group_queues)
        self._held: dict[GroupQueue, Held] = {each: {} for each in group_queues}
        self._gaps: dict[GroupQueue, int] = {}
        """Queues that wait before a large gap, with its end."""
        self._held_bytes = 0
        self._sweep_at = min(_SWEEP_BYTES, bytes_max)
        self._budget = budget
        budget.settlers.append(self._forget_ended)
        self._dirty = True
        self.closed = False
        self._held_up: list[tuple[list[UpstreamJob], Callable[[list[UpstreamJob]], None]]] = []

    @property
    def held_bytes(self) -> int:
        """Bytes of bodies that are kept, as last counted."""
        return self._held_bytes

    def keep_up_to(self, bytes_max: int) -> None:
        """Change how many bytes of bodies are kept."""
        self.bytes_max = bytes_max
        self._sweep_at = min(self._sweep_at, bytes_max)

    def _hold(self, size: int) -> None:
        self._held_bytes += size
        self._budget.used += size

    @property
    def caught_up(self) -> bool:
        """Nothing arrived since all streams were read to their ends, or to a gap that is not passed over yet."""
        return not self._dirty and not any(self._may_pass(*each) for each in self._gaps.items())

    def arrived(self) -> None:
        """Look again."""
        self._dirty = True

    def add_group_queue(self, group_queue: GroupQueue) -> None:
        """Read it too."""
        self._group_queues.append(group_queue)
        self._held[group_queue] = {}
        self._dirty = True

    def close(self) -> None:
        """Forget what is held and what is asked for."""
        if self.closed:
            return
        self.closed = True
        self._held.clear()
        self._hold(-self._held_bytes)
        self._budget.settlers.remove(self._forget_ended)

    # Reading

    def read(self, count: int) -> list[UpstreamJob]:
        """Make jobs of what arrived, some of each queue; another queue goes first each time."""
        jobs: list[UpstreamJob] = []
        self._dirty = False
        self._group_queues.rotate()
        for group_queue in self._group_queues:
            self._read_queue(group_queue, count - len(jobs), jobs)
        self._sweep_if_due()
        return jobs

    def _read_queue(self, group_queue: GroupQueue, count: int, jobs: list[UpstreamJob]) -> None:
        queue = own(group_queue.queue)
        stream = self._stream_of(queue)
        self._gaps.pop(group_queue, None)
        if group_queue.next < queue.min_offset:
            lost = finish_gone(group_queue.tracker, queue, group_queue.next)
            if lost:
                self._counters.skipped("expired").add(lost)
                self._expired(group_queue.tracker, lost)
            group_queue.next = queue.min_offset
        if stream.position != group_queue.next:
            stream.seek(group_queue.next)
        limit = None if self.lag_max is None else group_queue.tracker.watermark + self.lag_max
        while (record := stream.next()) is not None:
            offset = record.offset
            if limit is not None and offset >= limit:
                return
            if not count:
                self._dirty = True
                return
            if not self._may_pass(group_queue, offset):
                self._gaps[group_queue] = offset
                return
            self._pass_void(group_queue, offset)
            stream.take()
            group_queue.next = offset + 1
            if not self._is_passed_over(group_queue, record):
                jobs.append(self._make(group_queue, record))
                count -= 1
        if self._may_pass(group_queue, stream.reached):
            self._pass_void(group_queue, stream.pass_void())
        else:
            self._gaps[group_queue] = stream.reached

    @staticmethod
    def _may_pass(group_queue: GroupQueue, offset: int) -> bool:
        """Whether offsets up to this one, which hold nothing to read, may be finished now."""
        watermark = group_queue.tracker.watermark
        is_small = offset - group_queue.next <= _GAP_SMALL
        return is_small or watermark >= group_queue.next or offset - watermark <= _GAP_MAX

    @staticmethod
    def _pass_void(group_queue: GroupQueue, offset: int) -> None:
        """Finish offsets that hold nothing to read (compacted, aborted, a transaction's marker): no job waits there."""
        if offset > group_queue.next:
            group_queue.tracker.finish_range(group_queue.next, offset)
            group_queue.next = offset

    def _is_passed_over(self, group_queue: GroupQueue, record: KafkaRecord) -> bool:
        if group_queue.is_over(record.offset):
            return True
        if self._tags is None and self._pressure_traffic:
            return False
        reason = ""
        _, tag, properties = decode(record)
        if self._tags is not None and tag not in self._tags:
            reason = "tag_filter"
        elif not self._pressure_traffic and properties.get(_PRESSURE, "").lower() == "true":
            reason = "pressure_traffic"
        if not reason:
            return False
        if group_queue.tracker.finish(record.offset):
            self._counters.skipped(reason).add()
            self._subscription.refused((0, size_of(record), 0, record.offset, group_queue))
        return True

    def _make(self, group_queue: GroupQueue, record: KafkaRecord) -> UpstreamJob:
        offset = record.offset
        key: OrderKey | None = None
        if self._by_key:
            key = record.key or None
        elif self._by_queue:
            key = group_queue.qid
        size = size_of(record)
        if record.headers and self._left_out is not None and (count := unnamable(record.headers)):
            self._left_out.add(count)
        # No identity is needed (`KafkaQueue.identity`), so the place holds what else is asked for without the body.
        job = UpstreamJob(self._subscription, group_queue, offset, record.timestamp_ms, size, key)
        group_queue.live[offset] = job
        tracker = group_queue.tracker
        tracker.started = max(tracker.started, offset + 1)
        self._held[group_queue][offset] = record
        self._hold(size)
        failure = tracker.failures.get(offset)
        if failure is not None or offset in group_queue.apart:
            history = job.history = JobHistory(self._clock.monotonic(), earlier=True)
            if failure is not None:
                history.fails, history.errors, history.timeouts = failure[:3]
                history.due_wall_ms = failure.due_wall_ms
                history.stopped = failure.stopped
        return job

    def _sweep_if_due(self) -> None:
        if self._held_bytes > self._sweep_at:
            self._sweep()

    def _forget_ended(self) -> None:
        """Forget the bodies of ended jobs."""
        for group_queue, held in self._held.items():
            live = group_queue.live
            for offset in [each for each in held if each not in live]:
                self._hold(-size_of(held.pop(offset)))

    def _sweep(self) -> None:
        """Forget what has ended, and where the rest is too much the bodies of jobs whose turn is not yet."""
        self._forget_ended()
        if self._held_bytes > self.bytes_max:
            self._drop(self.bytes_max // 2)
        self._sweep_at = max(min(_SWEEP_BYTES, self.bytes_max), self._held_bytes + self.bytes_max // 8)

    def _drop(self, wanted: int) -> None:
        waiting = [
            (offset, group_queue)
            for group_queue, held in self._held.items()
            for offset in held
            if group_queue.live[offset].state in _FREE_OF_BODIES
        ]
        waiting.sort(key=lambda each: each[0] - each[1].tracker.watermark)
        while waiting and self._held_bytes > wanted:
            offset, group_queue = waiting.pop()
            self._hold(-size_of(self._held[group_queue].pop(offset)))

    # Bodies

    def fetch(self, jobs: Sequence[UpstreamJob], there: Callable[[list[UpstreamJob]], None]) -> list[UpstreamJob]:
        """Read again what was dropped. Nothing is begun while others may have the partition."""
        if not self._may_hand_out():
            self._held_up.append((list(jobs), there))
            return []
        now: list[UpstreamJob] = []
        later: dict[GroupQueue, list[UpstreamJob]] = {}
        for job in jobs:
            if job.group_queue.withheld:
                # It ends with its queue, which others get.
                continue
            if job.offset in self._held[job.group_queue]:
                now.append(job)
            else:
                later.setdefault(job.group_queue, []).append(job)
        for group_queue, asked in later.items():
            self._fetch(group_queue, sorted(asked, key=lambda job: job.offset), there)
        return now

    def go_on(self) -> None:
        """Begin what had to wait while others might have had the partitions."""
        held_up, self._held_up = self._held_up, []
        for jobs, there in held_up:
            if not self.closed and (now := self.fetch([job for job in jobs if self.is_live(job)], there)):
                there(now)

    @staticmethod
    def is_live(job: UpstreamJob) -> bool:
        """Whether a job is not over."""
        return job.group_queue.live.get(job.offset) is job

    def _fetch(
        self, group_queue: GroupQueue, jobs: list[UpstreamJob], there: Callable[[list[UpstreamJob]], None]
    ) -> None:
        queue = own(group_queue.queue)

        def come(records: Sequence[KafkaRecord], gaps: Sequence[Gap]) -> None:
            if self.closed:
                return
            # A backlog that drains reads nothing new, and what has ended since would stay.
            self._sweep_if_due()
            self._keep(group_queue, records)
            if not records and not gaps:
                self._after_bounds(queue, again)
            elif gaps:
                self._after_bounds(queue, partial(ended, gaps))
            else:
                go_on()

        def again() -> None:
            self._held_up.append((jobs, there))
            self.go_on()

        def ended(gaps: Sequence[Gap]) -> None:
            if not self.closed and not group_queue.withheld:
                self._end_missing(group_queue, jobs, gaps)
                go_on()

        def go_on() -> None:
            self._budget.add(0)
            there(jobs)

        self._reader.fetch(KafkaPartition(*queue.place), [job.offset for job in jobs], come)

    def _keep(self, group_queue: GroupQueue, records: Iterable[KafkaRecord]) -> None:
        held = self._held[group_queue]
        for record in records:
            if record.offset in group_queue.live and record.offset not in held:
                held[record.offset] = record
                self._hold(size_of(record))

    def _end_missing(self, group_queue: GroupQueue, asked: Sequence[UpstreamJob], gaps: Sequence[Gap]) -> None:
        """End the jobs whose records do not exist any more: those whose turn it is, and all in the same gaps."""
        queue, held, tracker = own(group_queue.queue), self._held[group_queue], group_queue.tracker
        turn = {job.offset for job in asked}
        missing = [
            job
            for job in list(group_queue.live.values())
            if job.offset not in held and any(start <= job.offset < end for start, end in gaps)
        ]
        lost = 0
        for job in missing:
            why = EXPIRED if job.offset < queue.min_offset else COMPACTED
            if job.offset in turn:
                # It has a permit: what runs it finds no record.
                self._keep(group_queue, [KafkaRecord(*queue.place, job.offset, -1, None, None, _MISSING[why])])
            elif job.state in _ENDS_AT_ONCE:
                tracker.finish(job.offset)
                job.subscription.expire(job)
                self._counters.skipped(why).add()
            else:
                continue
            lost += why == EXPIRED
        if lost:
            self._expired(tracker, lost)

    def record(self, job: UpstreamJob) -> KafkaRecord:
        """Return the record of a job whose body is in memory.

        Raises:
            MessageUnreadable: It was compacted away, or taken by retention, before its body was read again.
        """
        record = self._held[job.group_queue][job.offset]
        for why, headers in _MISSING.items():
            if record.headers is headers:
                raise MessageUnreadable(why)
        return record

    def reads(self, job: UpstreamJob) -> bool:
        """Whether a job is of one of its queues."""
        return job.group_queue in self._held

    def has(self, job: UpstreamJob) -> bool:
        """Whether a job's body is in memory."""
        return job.offset in self._held.get(job.group_queue, ())

    def body(self, job: UpstreamJob) -> memoryview:
        """Return a record's value; of a null one nothing."""
        return memoryview(self.record(job).value or b"")

    def load(self, job: UpstreamJob) -> Message:
        """Return key, tag, body and properties."""
        record = self.record(job)
        key, tag, properties = decode(record)
        if record.value is None:
            properties = {**properties, "BODY;null": "null"}
        stamp = max(0, record.timestamp_ms)
        return Message(key or None, tag or None, record.value or b"", properties, stamp, stamp)

    def stored_ms(self, job: UpstreamJob) -> int | None:
        """Kept without the body."""
        return None if job.physical < 0 else job.physical

    def message_id(self, job: UpstreamJob) -> str | None:
        """Return the id that a producer of ours gave it."""
        if not self.has(job):
            return None
        try:
            return message_id(self.record(job)) or None
        except MessageUnreadable:
            return None

    def slices(self, jobs: Sequence[UpstreamJob]) -> list[tuple[int, Slices]] | None:
        """Of those whose records are there."""
        try:
            return [(job.offset, slices_of(self.record(job))) for job in jobs]
        except MessageUnreadable:
            return None

    def located(self, job: UpstreamJob) -> Slices:
        """Of one whose record is there."""
        return slices_of(self.record(job))


EXPIRED = "expired"
COMPACTED = "compacted"
_MISSING: dict[str, tuple[tuple[str, bytes | None], ...]] = {EXPIRED: (("", b""),), COMPACTED: (("", None),)}
"""Headers of the placeholder of a record that does not exist any more, by the reason."""


_NULL_BODY = b"BODY;null\x01null\x02"
"""Tells a tombstone from an empty body."""


def slices_of(record: KafkaRecord) -> Slices:
    """Return a record as a reply takes it."""
    body = record.value or b""
    block = property_block(record)
    if record.value is None:
        block += _NULL_BODY
    size = len(body)
    return memoryview(body + block), 0, size, size, size + len(block)
