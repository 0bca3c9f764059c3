"""Where a subscription's messages come from: a small protocol, and its version over the embedded broker.

`EmbeddedSource` merges the queues of a topic in commit-log order (D14): it looks up a chunk of units per queue and
gives out, sorted, those up to the horizon, the lowest position up to which every queue is known. A queue that is
read to its end does not hold the horizon back: what arrives there later lies behind everything visible now.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from broker.errors import BodyUnusable, DamagedRecord, RecordGone
from broker.format.body import body_limit, split_body
from broker.format.java import tags_code
from broker.format.locating import message_keys
from broker.format.properties import is_system_property, parse_properties
from broker.format.record import Located, born_timestamp, locate, split
from broker.queues.consume_queue import FILLER, FILLER_SIZE
from pyddmq.actions import BodyUnprocessable, Message, MessageUnreadable
from upstream.delivery import job_loops
from upstream.delivery.counters import SubscriptionCounters
from upstream.history import History
from upstream.job import Generation, Lane, OrderKey, Unit, UpstreamJob
from upstream.progress.replay import finish_gone
from upstream.retry.retry_topic import made_of

if TYPE_CHECKING:
    from upstream.delivery.group_parts import Runtime

CHUNK_UNITS = 256
"""Units looked up at once per queue: 8 KiB of tuples, and rarely more than one look-up per pump."""

PRESSURE_NAME = b"isPressureTraffic\x01"
"""R14, constant 1.2 of the protocol: the property of stress-test messages."""
_KEYS_FIRST = b"KEYS\x01"
_KEYS_LATER = b"\x02KEYS\x01"
_TAGS_FIRST = b"TAGS\x01"
_TAGS_LATER = b"\x02TAGS\x01"
_END = b"\x02"
_physical = itemgetter(0)
_NO_HORIZON = 1 << 63


class Source(Protocol):
    """What a subscription asks of its upstream. Called from the loop's thread only."""

    def read(self, count: int) -> list[UpstreamJob]:
        """Make the next jobs, at most `count`, in the order that the source promises; registered in their lanes.

        Messages that nobody may get (filtered, unreadable) are finished and counted, and not among them; so fewer
        than `count`, even none, may come although there is more: see `caught_up`.
        """
        ...

    @property
    def caught_up(self) -> bool:
        """Whether `read` has nothing to give until something arrives or an offset finishes."""
        ...

    def arrived(self) -> None:
        """Tell that something may be there to read: messages arrived, or a limit moved."""
        ...

    def body(self, job: UpstreamJob) -> memoryview:
        """Read a job's body alone.

        Raises:
            MessageUnreadable: It is damaged or gone.
            BodyUnprocessable: It cannot be unpacked.
        """
        ...

    def load(self, job: UpstreamJob) -> Message:
        """Read a job's message.

        Raises:
            MessageUnreadable: It is damaged or gone.
            BodyUnprocessable: It cannot be unpacked.
        """
        ...


class EmbeddedSource:
    """All queues of one topic of the embedded broker, for one generation of a subscription."""

    def __init__(
        self,
        subscription: Generation,
        lanes: Sequence[Lane],
        *,
        runtime: Runtime,
        counters: SubscriptionCounters,
        keeps_record: bool,
    ) -> None:
        """Stand at the lanes' positions.

        Args:
            subscription: Owner of the jobs that are made; its configuration says which messages it wants, and their
                order key.
            lanes: All queues; more may be added by `add_lane`.
            runtime: Where records are read, and what cannot be is told.
            counters: Series of the subscription.
            keeps_record: Actions read the body at once, before the order gate: leave the record with the job.
        """
        config, store = subscription.config, runtime.store
        self._subscription = subscription
        self._lanes = list(lanes)
        self._store = store
        self._clock = runtime.clock
        self._read = store.read
        self._body_bytes_max = body_limit(store.options.message_bytes_max)
        self._counters = counters
        self._notices = runtime.notices
        # A queue that its lag limit stops also stops those behind it in commit-log order (D14).
        self._strict_order = config.order_key is not None
        self._message_keys = config.order_key == "KEY"
        self._queue_keys = config.order_key == "QID"
        tags = config.wanted_tags
        self._tags = None if tags is None else frozenset(tag.encode() for tag in tags)
        self._codes = None if self._tags is None else frozenset(tags_code(tag) for tag in self._tags)
        self._pressure_traffic = config.pressure_traffic
        self._keeps_record = keeps_record
        self._inspects = self._message_keys or self._tags is not None or not config.pressure_traffic
        self._has_retries = any(lane.retries for lane in lanes)
        self.lag_max: int | None = None
        self._merged: list[Unit] = []
        self._at = 0
        self._dirty = True

    def add_lane(self, lane: Lane) -> None:
        """Read another queue too: the topic got more of them."""
        self._lanes.append(lane)
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
        for lane in self._lanes:
            pending = lane.pending
            if lane.next < lane.queue.max_offset:
                while not pending and lane.next < lane.queue.max_offset:
                    pending = self._look_up(lane)
                if lane.next < lane.queue.max_offset and pending:
                    horizon = min(horizon, pending[-1][0])
            if pending:
                active.append(lane)
        if len(active) == 1 and self.lag_max is None:
            # The horizon is this lane's own: all that is looked up may be given out.
            [lane] = active
            self._merged, lane.pending = lane.pending, []
            self._at = 0
            self._started(lane, self._merged)
            self._dirty = lane.next < lane.queue.max_offset
            return True
        allowed = {}
        if self.lag_max is not None:
            for lane in active:
                room = max(0, lane.tracker.watermark + self.lag_max - lane.pending[0][3])
                # What failed is not held back by what others of the group have not finished.
                if room < len(lane.pending) and not lane.retries:
                    allowed[lane] = room
                    if self._strict_order:
                        horizon = min(horizon, lane.pending[room][0] - 1)
        merged: list[Unit] = []
        rest = False
        for lane in active:
            pending = lane.pending
            cut = len(pending) if pending[-1][0] <= horizon else bisect_right(pending, horizon, key=_physical)
            cut = min(cut, allowed.get(lane, cut))
            if cut:
                merged += pending[:cut]
                del pending[:cut]
                self._started(lane, merged)
            rest = rest or lane.next < lane.queue.max_offset or bool(pending)
        if len(active) > 1:
            # Runs that are sorted already: this is a merge in C.
            merged.sort()
        self._merged = merged
        self._at = 0
        # Where nothing is left over, what `arrived` tells of is next.
        self._dirty = rest and bool(merged)
        return bool(merged)

    @staticmethod
    def _started(lane: Lane, given: Sequence[Unit]) -> None:
        """Note that units of a lane are given out, the last of `given` being the last of them."""
        tracker = lane.tracker
        tracker.started = max(tracker.started, given[-1][3] + 1)

    def _look_up(self, lane: Lane) -> list[Unit]:
        """Fetch the next units of one queue, passing over what is finished or no longer kept."""
        tracker, queue = lane.tracker, lane.queue
        start = lane.next
        if start < queue.min_offset:
            # Retention took messages that this group had not finished: that is loss, and it is said (promise 6).
            lost = finish_gone(tracker, queue, start)
            if lost:
                self._counters.skipped("expired").add(lost)
                self._notices.note(
                    "messages_expired_unread", self._subscription.group, lost, topic=lane.topic, offset=start
                )
            start = queue.min_offset
        first, count = start, CHUNK_UNITS
        if tracker.ahead:
            lane.check_until = tracker.high
            start = tracker.next_unfinished(start)
        else:
            lane.check_until = tracker.watermark
            start = max(start, tracker.watermark)
        if lane.apart:
            lane.check_until = max(lane.check_until, max(lane.apart) + 1)
            held = min([offset for offset in lane.apart if first <= offset], default=start)
            if held < start:
                # A finished one whose key waits, among others that need not be read.
                start, count = held, 1
        units = queue.read(start, count) if start < queue.max_offset else []
        pending = job_loops.placed(units, start, lane)
        if FILLER in units:
            # The offset exists and its record is lost in a damaged part of the log.
            for offset, unit in enumerate(units, start):
                if unit == FILLER and not tracker.is_finished(offset):
                    self._unreadable(lane, offset, "damaged")
            pending = [unit for unit in pending if unit[1] != FILLER_SIZE]
        lane.pending = pending
        lane.next = start + len(units)
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
        """Drop the units whose tags code says that nobody wants the message."""
        codes = self._codes
        wanted: list[Unit] = []
        for unit in units:
            if codes is None or unit[2] in codes:
                wanted.append(unit)
            elif unit[3] in unit[4].adopted or unit[3] in unit[4].apart:
                # A client has it, or had it: it is this group's, whatever tags are wanted now.
                wanted.append(unit)
            elif not unit[4].tracker.is_finished(unit[3]):
                self._skip(unit[4], unit[3], "tag_filter")
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
        """Make jobs of messages that everybody may get, with their keys."""
        subscription = self._subscription
        made = job_loops.make(subscription, units, keys)
        if made is not None:
            return made
        jobs: list[UpstreamJob] = []
        for (physical, size, _, offset, lane), key in zip(units, keys, strict=True):
            if offset < lane.check_until and lane.is_over(offset):
                continue
            job = UpstreamJob(subscription, lane, offset, physical, size, key)
            lane.live[offset] = job
            if lane.tracker.failures or lane.apart:
                self._recall(job)
            jobs.append(job)
        return jobs

    def _make_each(self, found: Iterable[tuple[Unit, Located]]) -> list[UpstreamJob]:
        """Make jobs of located messages, looking at the properties of each."""
        subscription, filters, keyed = self._subscription, self._tags is not None, self._message_keys
        jobs: list[UpstreamJob] = []
        key: OrderKey | None = None
        for (physical, size, _, offset, lane), (view, _, _, block_at, end) in found:
            if offset < lane.check_until and lane.is_over(offset):
                continue
            block = view[block_at:end].tobytes()
            if (filters or PRESSURE_NAME in block) and self._unwanted(lane, offset, block):
                continue
            if keyed:
                # `_value`, inline: this runs for every message.
                if block[:5] == _KEYS_FIRST:
                    key = block[5 : block.find(_END, 5)] or None
                else:
                    begin = block.find(_KEYS_LATER) + 6
                    key = (block[begin : block.find(_END, begin)] or None) if begin > 5 else None
            elif self._queue_keys:
                key = lane.qid
            job = UpstreamJob(subscription, lane, offset, physical, size, key)
            lane.live[offset] = job
            if self._keeps_record:
                job.record = view[end - size : end]
            if lane.tracker.failures or lane.apart:
                self._recall(job)
            jobs.append(job)
        return jobs

    def _located_singly(self, units: Sequence[Unit]) -> Iterator[tuple[Unit, Located]]:
        for unit in units:
            physical, size, _, offset, lane = unit
            if offset < lane.check_until and lane.is_over(offset):
                continue
            try:
                located = locate(self._read(physical, size))
            except DamagedRecord:
                self._unreadable(lane, offset, "damaged")
            except RecordGone:
                self._unreadable(lane, offset, "gone")
            else:
                yield unit, located

    def _unwanted(self, lane: Lane, offset: int, properties: bytes) -> bool:
        """Skip a message that the tag's text (codes may collide) or the pressure flag rules out; whether it was."""
        if offset in lane.adopted or offset in lane.apart:
            return False
        if self._tags is not None and _value(properties, _TAGS_FIRST, _TAGS_LATER) not in self._tags:
            self._skip(lane, offset, "tag_filter")
            return True
        if not self._pressure_traffic and is_pressure(properties):
            self._skip(lane, offset, "pressure_traffic")
            return True
        return False

    def _skip(self, lane: Lane, offset: int, reason: str) -> None:
        lane.apart.discard(offset)
        if lane.tracker.finish(offset):
            self._counters.skipped(reason).add()
        if lane.adopted or lane.unanswered:
            lane.forget(offset)

    def _unreadable(self, lane: Lane, offset: int, reason: str) -> None:
        self._skip(lane, offset, reason)
        self._notices.note(
            "message_unreadable", self._subscription.group, topic=lane.topic, qid=lane.qid, offset=offset, reason=reason
        )

    def _recall(self, job: UpstreamJob) -> None:
        """Give a job the failures that it had before a restart or an earlier generation.

        One that an earlier generation left unsettled counts as one in trouble, so that it is looked at in its turn.
        """
        failure = job.lane.tracker.failures.get(job.offset)
        if failure is None and job.offset not in job.lane.apart:
            return
        history = job.history = History(self._clock.monotonic(), earlier=True)
        if failure is not None:
            history.fails = failure.fails
            history.errors = failure.errors
            history.timeouts = failure.timeouts
            history.due_wall_ms = failure.due_wall_ms

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
        except DamagedRecord as error:
            raise MessageUnreadable("damaged") from error
        except RecordGone as error:
            raise MessageUnreadable("gone") from error

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
        return Message(key, tag, bytes(body), user, born_timestamp(record))


def _value(properties: bytes, first: bytes, later: bytes) -> bytes | None:
    """Value of one property in a block; None when it is absent or empty."""
    if properties.startswith(first):
        begin = len(first)
    else:
        begin = properties.find(later)
        if begin < 0:
            return None
        begin += len(later)
    return properties[begin : properties.find(_END, begin)] or None


def is_pressure(properties: bytes) -> bool:
    """Whether the property isPressureTraffic is `true`, ignoring case (R14)."""
    value = _value(properties, PRESSURE_NAME, _END + PRESSURE_NAME)
    return value is not None and value.lower() == b"true"
