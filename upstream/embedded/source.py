"""A subscription's messages, read from the broker in the process.

`EmbeddedSource` merges the queues of a topic in commit-log order (D14): it looks up a chunk of units per queue and
gives out, sorted, those up to the horizon, the lowest position up to which every queue is known. A queue that is
read to its end does not hold the horizon back: what arrives there later is after everything visible now.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter

from broker.errors import BodyUnusable, DamagedRecord, RecordGone
from broker.format.body import BodyPacked, body_limit, locate_body, locate_unpacked, split_body
from broker.format.java import tags_code
from broker.format.locating import message_keys
from broker.format.properties import find_property, is_system_property, parse_properties
from broker.format.record import Located, born_timestamp, locate, split, store_timestamp
from broker.log.stored_time import usual_stored_ms
from broker.queues.consume_queue import FILLER, FILLER_SIZE, ConsumeQueue
from broker.runtime.bundle import Runtime
from broker.store import Store
from pyddmq.actions import BodyUnprocessable, Message, MessageUnreadable
from upstream.embedded.retries import made_of, why_unreadable
from upstream.history import JobHistory
from upstream.job import Generation, GroupQueue, OrderKey, Unit, UpstreamJob
from upstream.progress.replay import finish_gone
from upstream.source import SourceCounts
from upstream.waiting import job_loops

CHUNK_UNITS = 256
"""Units looked up at once per queue: 8 KiB of tuples, and rarely more than one look-up per pump."""

PRESSURE_NAME = b"isPressureTraffic\x01"
"""R14, constant 1.2 of the protocol: the property of stress-test messages."""
_physical = itemgetter(0)
_NO_HORIZON = 1 << 63


class EmbeddedSource:
    """All queues of one topic of the embedded broker, for one generation of a subscription."""

    def __init__(
        self,
        subscription: Generation,
        group_queues: Sequence[GroupQueue],
        *,
        store: Store,
        runtime: Runtime,
        counters: SourceCounts,
        keeps_bodies: bool,
    ) -> None:
        """Stand at the group queues' positions.

        Args:
            subscription: Owner of the jobs that are made; its configuration says which messages it wants, and their
                order key.
            group_queues: All queues; more may be added by `add_group_queue`.
            store: Where records are read.
            runtime: Its clock dates failures; its log gets what cannot be read.
            counters: Series of the subscription.
            keeps_bodies: Actions read the body at once, before the order gate: leave the record with the job.
        """
        config = subscription.config
        self._subscription = subscription
        self._group_queues = list(group_queues)
        self._store = store
        self._log, self._arrivals = store.index.log, store.arrivals
        self._clock = runtime.clock
        self._read = store.read
        self._body_bytes_max = body_limit(store.options.message_bytes_max)
        self._counters = counters
        self._limited_log = runtime.limited_log
        # A queue that its lag limit stops also stops those behind it in commit-log order (D14).
        self._strict_order = config.order_key is not None
        self._message_keys = config.order_key == "KEY"
        self._queue_keys = config.order_key == "QID"
        tags = config.wanted_tags
        self._tags = None if tags is None else frozenset(tag.encode() for tag in tags)
        self._codes = None if self._tags is None else frozenset(tags_code(tag) for tag in self._tags)
        self._pressure_traffic = config.pressure_traffic
        self._keeps_bodies = keeps_bodies
        self._inspects = self._message_keys or self._tags is not None or not config.pressure_traffic
        self._has_retries = any(group_queue.retries for group_queue in group_queues)
        self.lag_max: int | None = None
        self._merged: list[Unit] = []
        self._at = 0
        self._dirty = True

    def add_group_queue(self, group_queue: GroupQueue) -> None:
        """Read another queue too: the topic got more of them."""
        self._group_queues.append(group_queue)
        self._dirty = True

    def arrived(self) -> None:
        """Look at the queues again at the next `read`."""
        self._dirty = True

    @property
    def caught_up(self) -> bool:
        """Nothing is looked up and unread, and nothing arrived since the queues were last looked at."""
        return not self._dirty and self._at == len(self._merged)

    def read(self, count: int) -> list[UpstreamJob]:
        """Make the next jobs in commit-log order; see `Source.read`."""
        at = self._at
        if at == len(self._merged):
            if not self._dirty or not self._fill():
                return []
            at = 0
        merged = self._merged
        end = at + count
        units = merged if not at and end >= len(merged) else merged[at:end]
        self._at = at + len(units)
        return self._make(units)

    def _fill(self) -> bool:
        """Look up units and merge those up to the horizon; whether there are any."""
        horizon = _NO_HORIZON
        active = []
        for group_queue in self._group_queues:
            pending = group_queue.pending
            if group_queue.next < group_queue.queue.max_offset:
                while not pending and group_queue.next < group_queue.queue.max_offset:
                    pending = self._look_up(group_queue)
                if group_queue.next < group_queue.queue.max_offset and pending:
                    horizon = min(horizon, pending[-1][0])
            if pending:
                active.append(group_queue)
        if len(active) == 1 and self.lag_max is None:
            # The horizon is this group queue's own: all that is looked up may be given out.
            [group_queue] = active
            self._merged, group_queue.pending = group_queue.pending, []
            self._at = 0
            self._started(group_queue, self._merged)
            self._dirty = group_queue.next < group_queue.queue.max_offset
            return True
        allowed = {}
        if self.lag_max is not None:
            for group_queue in active:
                room = max(0, group_queue.tracker.watermark + self.lag_max - group_queue.pending[0][3])
                # What failed is not held back by what others of the group have not finished.
                if room < len(group_queue.pending) and not group_queue.retries:
                    allowed[group_queue] = room
                    if self._strict_order:
                        horizon = min(horizon, group_queue.pending[room][0] - 1)
        merged: list[Unit] = []
        rest = False
        for group_queue in active:
            pending = group_queue.pending
            cut = len(pending) if pending[-1][0] <= horizon else bisect_right(pending, horizon, key=_physical)
            cut = min(cut, allowed.get(group_queue, cut))
            if cut:
                merged += pending[:cut]
                del pending[:cut]
                self._started(group_queue, merged)
            rest = rest or group_queue.next < group_queue.queue.max_offset or bool(pending)
        if len(active) > 1:
            # Runs that are sorted already: this is a merge in C.
            merged.sort()
        self._merged = merged
        self._at = 0
        # Where nothing is left over, what `arrived` announced is next.
        self._dirty = rest and bool(merged)
        return bool(merged)

    @staticmethod
    def _started(group_queue: GroupQueue, given: Sequence[Unit]) -> None:
        """Note that units of a group queue are given out, the last of `given` being the last of them."""
        tracker = group_queue.tracker
        tracker.started = max(tracker.started, given[-1][3] + 1)

    def _look_up(self, group_queue: GroupQueue) -> list[Unit]:
        """Fetch the next units of one queue, passing over what is finished or no longer kept."""
        tracker, queue = group_queue.tracker, group_queue.queue
        assert isinstance(queue, ConsumeQueue), "a queue of this broker"
        start = group_queue.next
        if start < queue.min_offset:
            # Retention took messages that this group had not finished: that is loss, and it is said (promise 6).
            lost = finish_gone(tracker, queue, start)
            if lost:
                self._counters.skipped("expired").add(lost)
                self._limited_log.note(
                    "messages_expired_unread", self._subscription.group, lost, topic=group_queue.topic, offset=start
                )
            start = queue.min_offset
        first, count = start, CHUNK_UNITS
        if tracker.ahead:
            group_queue.check_until = tracker.high
            start = tracker.next_unfinished(start)
        else:
            group_queue.check_until = tracker.watermark
            start = max(start, tracker.watermark)
        if group_queue.apart:
            group_queue.check_until = max(group_queue.check_until, max(group_queue.apart) + 1)
            held = min([offset for offset in group_queue.apart if first <= offset], default=start)
            if held < start:
                # A finished one whose key waits, among others that need not be read.
                start, count = held, 1
        units = queue.read(start, count) if start < queue.max_offset else []
        pending = [
            (physical, size, code, offset, group_queue) for offset, (physical, size, code) in enumerate(units, start)
        ]
        if FILLER in units:
            # The offset exists and its record is lost in a damaged part of the log.
            for offset, unit in enumerate(units, start):
                if unit == FILLER and not tracker.is_finished(offset):
                    self._unreadable(group_queue, offset, "damaged")
            pending = [unit for unit in pending if unit[1] != FILLER_SIZE]
        group_queue.pending = pending
        group_queue.next = start + len(units)
        return pending

    def _make(self, units: Sequence[Unit]) -> list[UpstreamJob]:
        if self._has_retries and any(unit[4].retries for unit in units):
            return self._make_retries([unit for unit in units if unit[4].retries]) + self._make(
                [unit for unit in units if not unit[4].retries]
            )
        if self._codes is not None:
            units = self._with_wanted_code(units)
        if self._inspects:
            return self._make_inspected(units)
        return self._make_keyed(units, [unit[4].qid if self._queue_keys else None for unit in units])

    def _make_retries(self, units: Sequence[Unit]) -> list[UpstreamJob]:
        """Make jobs of what came back from the retry topic."""
        jobs = []
        for made in made_of(self._subscription, units, store=self._store, clock=self._clock):
            if isinstance(made, UpstreamJob):
                self._recall(made)
                jobs.append(made)
            else:
                self._unreadable(made[4], made[3], "damaged")
        return jobs

    def _with_wanted_code(self, units: Sequence[Unit]) -> list[Unit]:
        """Drop the units whose tags code says that the group does not want the message."""
        codes = self._codes
        wanted: list[Unit] = []
        for unit in units:
            if codes is None or unit[2] in codes:
                wanted.append(unit)
            elif unit[3] in unit[4].adopted or unit[3] in unit[4].apart:
                # A client has it, or had it: it is this group's, whatever tags are wanted now.
                wanted.append(unit)
            elif not unit[4].tracker.is_finished(unit[3]):
                self._refuse(unit, "tag_filter")
        return wanted

    def _make_inspected(self, units: Sequence[Unit]) -> list[UpstreamJob]:
        """Make jobs of messages whose properties say whether they are wanted, or what their key is.

        Those that cannot be read are finished and counted, and left out.
        """
        try:
            located = self._store.locate(units)
        except (DamagedRecord, RecordGone):
            return self._make_each(self._located_singly(units))
        if self._message_keys and self._tags is None:
            keys = message_keys(located, PRESSURE_NAME)
            if keys is not None:
                return self._make_keyed(units, keys)
        return self._make_each(zip(units, located, strict=True))

    def _make_keyed(self, units: Sequence[Unit], keys: Sequence[OrderKey | None]) -> list[UpstreamJob]:
        """Make jobs of messages that all clients may get, with their keys."""
        subscription = self._subscription
        made = job_loops.make(UpstreamJob, subscription, units, keys)
        if made is not None:
            return made
        jobs: list[UpstreamJob] = []
        for (physical, size, _, offset, group_queue), key in zip(units, keys, strict=True):
            if offset < group_queue.check_until and group_queue.is_over(offset):
                continue
            job = UpstreamJob(subscription, group_queue, offset, physical, size, key)
            group_queue.live[offset] = job
            if group_queue.tracker.failures or group_queue.apart:
                self._recall(job)
            jobs.append(job)
        return jobs

    def _make_each(self, found: Iterable[tuple[Unit, Located]]) -> list[UpstreamJob]:
        """Make jobs of located messages, looking at the properties of each."""
        subscription, filters, keyed = self._subscription, self._tags is not None, self._message_keys
        jobs: list[UpstreamJob] = []
        key: OrderKey | None = None
        for unit, (view, _, _, block_at, end) in found:
            physical, size, _, offset, group_queue = unit
            if offset < group_queue.check_until and group_queue.is_over(offset):
                continue
            block = view[block_at:end].tobytes()
            if (filters or PRESSURE_NAME in block) and self._unwanted(unit, block):
                continue
            if keyed:
                key = find_property(block, b"KEYS")
            elif self._queue_keys:
                key = group_queue.qid
            job = UpstreamJob(subscription, group_queue, offset, physical, size, key)
            group_queue.live[offset] = job
            if self._keeps_bodies:
                job.record = view[end - size : end]
            if group_queue.tracker.failures or group_queue.apart:
                self._recall(job)
            jobs.append(job)
        return jobs

    def _located_singly(self, units: Sequence[Unit]) -> Iterator[tuple[Unit, Located]]:
        for unit in units:
            physical, size, _, offset, group_queue = unit
            if offset < group_queue.check_until and group_queue.is_over(offset):
                continue
            try:
                located = locate(self._read(physical, size))
            except (DamagedRecord, RecordGone) as error:
                self._unreadable(group_queue, offset, why_unreadable(error))
            else:
                yield unit, located

    def _unwanted(self, unit: Unit, properties: bytes) -> bool:
        """Skip a message that the tag's text (codes may collide) or the pressure flag rules out; whether it was."""
        offset, group_queue = unit[3], unit[4]
        if offset in group_queue.adopted or offset in group_queue.apart:
            return False
        if self._tags is not None and find_property(properties, b"TAGS") not in self._tags:
            self._refuse(unit, "tag_filter")
            return True
        if not self._pressure_traffic and is_pressure(properties):
            self._refuse(unit, "pressure_traffic")
            return True
        return False

    def _refuse(self, unit: Unit, reason: str) -> None:
        """Skip a message that this group does not want, and have that recorded."""
        if self._skip(unit[4], unit[3], reason):
            self._subscription.refused(unit)

    def _skip(self, group_queue: GroupQueue, offset: int, reason: str) -> bool:
        """Finish a message that is not delivered; returns whether it was not finished before."""
        group_queue.apart.discard(offset)
        is_new = group_queue.tracker.finish(offset)
        if is_new:
            self._counters.skipped(reason).add()
        if group_queue.adopted or group_queue.unanswered:
            group_queue.forget(offset)
        return is_new

    def _unreadable(self, group_queue: GroupQueue, offset: int, reason: str) -> None:
        self._skip(group_queue, offset, reason)
        self._limited_log.note(
            "message_unreadable",
            self._subscription.group,
            topic=group_queue.topic,
            qid=group_queue.qid,
            offset=offset,
            reason=reason,
        )

    def _recall(self, job: UpstreamJob) -> None:
        """Give a job the failures that it had before a restart or an earlier generation.

        One that an earlier generation left open counts as one in trouble, so that it is looked at in its turn.
        """
        failure = job.group_queue.tracker.failures.get(job.offset)
        if failure is None and job.offset not in job.group_queue.apart:
            return
        history = job.history = JobHistory(self._clock.monotonic(), earlier=True)
        if failure is not None:
            history.fails = failure.fails
            history.errors = failure.errors
            history.timeouts = failure.timeouts
            history.stopped = failure.stopped
            history.due_wall_ms = failure.due_wall_ms

    @property
    def bodies_come_later(self) -> bool:
        """They lie in the log."""
        return False

    def fetch(self, jobs: Sequence[UpstreamJob], there: Callable[[list[UpstreamJob]], None]) -> list[UpstreamJob]:
        """Return all; see `Source.fetch`."""
        return list(jobs)

    def close(self) -> None:
        """Nothing is under way; see `Source.close`."""

    def slices(self, jobs: Sequence[UpstreamJob]) -> list[tuple[int, Located]] | None:
        """Cut bodies and properties of a batch out of the log; see `Source.slices`."""
        places, offsets = job_loops.places(jobs)
        try:
            located = self._store.locate(places, locate_unpacked)
        except (DamagedRecord, RecordGone, BodyPacked):
            return None
        return list(zip(offsets, located, strict=True))

    def located(self, job: UpstreamJob) -> Located:
        """Find body and properties, the body unpacked; see `Source.located`."""
        try:
            return locate_body(self._read(job.physical, job.size), self._body_bytes_max)
        except (DamagedRecord, RecordGone) as error:
            raise MessageUnreadable(why_unreadable(error)) from error
        except BodyUnusable as error:
            raise BodyUnprocessable(error.reason, str(error)) from error

    def stored_ms(self, job: UpstreamJob) -> int | None:
        """Read a message's store timestamp from the log; see `Source.stored_ms`."""
        try:
            record = job.record
            if record is None:
                if not self._arrivals.ends:
                    # There is a look for each batch that is handed out: here without further calls.
                    stamp_ms = usual_stored_ms(self._log, job.physical, job.size)
                    if stamp_ms is not None:
                        return stamp_ms
                return self._store.stored_ms(job.physical, job.size)
            return self._store.arrivals.stored_ms(job.physical, store_timestamp(record))
        except (DamagedRecord, RecordGone):
            return None

    def message_id(self, job: UpstreamJob) -> str | None:
        """Read a message's UNIQ_KEY; see `Source.message_id`."""
        try:
            unique_key = find_property(split(self._read(job.physical, job.size))[1], b"UNIQ_KEY")
        except (DamagedRecord, RecordGone):
            return None
        return None if unique_key is None else unique_key.decode("utf-8", "replace")

    def body(self, job: UpstreamJob) -> memoryview:
        """Read a body from the log; see `Source.body`."""
        return self._parts(job)[1]

    def _parts(self, job: UpstreamJob) -> tuple[memoryview, memoryview, bytes]:
        """Record, body and property block."""
        try:
            record = job.record
            if record is None:
                record = job.record = self._read(job.physical, job.size)
            return record, *split(record, self._split_unusual)
        except (DamagedRecord, RecordGone) as error:
            raise MessageUnreadable(why_unreadable(error)) from error

    def _split_unusual(self, record: memoryview) -> tuple[memoryview, bytes]:
        try:
            return split_body(record, self._body_bytes_max)
        except BodyUnusable as error:
            raise BodyUnprocessable(error.reason, str(error)) from error

    def load(self, job: UpstreamJob) -> Message:
        """Read a message from the log; see `Source.load`."""
        record, body, block = self._parts(job)
        properties = parse_properties(block)
        key, tag = properties.get("KEYS"), properties.get("TAGS")
        user = {name: value for name, value in properties.items() if not is_system_property(name.encode())}
        return Message(key, tag, bytes(body), user, born_timestamp(record), store_timestamp(record))


def is_pressure(properties: bytes) -> bool:
    """Whether the property isPressureTraffic is `true`, ignoring case (R14)."""
    return (find_property(properties, PRESSURE_NAME[:-1]) or b"").lower() == b"true"
