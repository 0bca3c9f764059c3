"""The retry topic of one group: what failed leaves its queue until its next attempt (D37, `retryTopic`).

The durable record is the commit point (D27): it names the record that it replaces, and only when the store reports it
is that one finished. It waits in a timer, to the millisecond, and then stands in `%RETRY%<group>`, which every unkeyed
subscription of the group reads beside its own topic: each takes what was sent to that topic. After a restart the
records that the ack journal does not know yet finish what they replace.

What the store refuses, as on a full disk, is retried in place. Where the disk fails after the append nobody can tell
whether the record is there: the message stays as it is until a restart, when the log says it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.errors import DamagedRecord, DiskFull, MessageRefused, RecordGone, StoreError
from broker.format.properties import find_property
from broker.format.record import prepared_offset, reconsume_times, split, topic_of
from broker.queues.topics import RETRY_PREFIX, retry_topic
from broker.retry.metrics import REFUSED, SENT_BACK
from broker.retry.puts import RETRY_TOPIC_NAME, Counts, is_retry_topic, read_counts, send_back_for
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import Notices
from broker.runtime.seams import Clock
from broker.scheduled.delay.levels import SCHEDULE_NAME
from broker.scheduled.release import REAL_TOPIC_NAME
from broker.scheduled.timer.names import TIMER_NAME, TIMER_TOPIC
from broker.store import Store
from upstream.history import History
from upstream.job import Generation, Unit, UpstreamJob
from upstream.progress.progress import Begin, Origin, Progress

if TYPE_CHECKING:
    from broker.queues.consume_queue import ConsumeQueue

Settled = Callable[[UpstreamJob, bool], None]
"""Told that the retry record of a job is durable, or that the disk failed and nobody can tell before a restart."""

_SCAN_UNITS = 1024
_WAITING_ROOMS = (TIMER_NAME, SCHEDULE_NAME)


class RetryTopic:
    """Sends the failed messages of one group back.

    Attributes:
        unsettled: Jobs whose record is not durable yet.
        recovered: Whether `recover_retries` was run for the group.
    """

    def __init__(self, group: str, *, store: Store, progress: Progress, metrics: Metrics, notices: Notices) -> None:
        self._group = group
        self._store = store
        self._progress = progress
        self._metrics = metrics
        self._notices = notices
        self.unsettled = 0
        self.recovered = False

    def send(self, job: UpstreamJob, wait_ms: int, settled: Settled) -> bool:
        """Append a job's message to the retry topic.

        Args:
            job: The job, its failure counted.
            wait_ms: Until its next attempt.
            settled: Called once, when the record is durable or the disk has failed.

        Returns:
            Whether the store took the append; otherwise `settled` is not called, and nothing was written.
        """
        history = job.history
        assert history is not None, "only what failed is sent back"
        counts = Counts(history.fails, history.errors, history.timeouts)
        try:
            record = self._store.read(job.physical, job.size)
            put, born_ms, host = send_back_for(self._store, self._group, record, counts=counts, wait_ms=wait_ms)
            # The position is known when `append` returns, which is before `done` runs.
            position: list[int] = []
            done = partial(self._done, job, settled, put.topic.name, position)
            position.append(self._store.append([put], born_ms=born_ms, born_host=host, done=done)[0].offset)
            job.lane.tracker.undecided[job.offset] = True
        except (StoreError, DamagedRecord, RecordGone) as error:
            self._refused(job, error)
            return False
        self.unsettled += 1
        return True

    def _done(
        self, job: UpstreamJob, settled: Settled, topic: str, position: list[int], error: StoreError | None
    ) -> None:
        if error is None:
            self.unsettled -= 1
            job.lane.tracker.undecided.pop(job.offset, None)
            job.lane.tracker.finish(job.offset)
            self._progress.dead_letters_settled(topic, 0, position[0] + 1)
            self._metrics.counter(SENT_BACK, self._group).add()
        settled(job, error is None)

    def _refused(self, job: UpstreamJob, error: StoreError) -> None:
        reason = (
            "full"
            if isinstance(error, DiskFull)
            else "refused"
            if isinstance(error, MessageRefused)
            else "unreadable"
            if isinstance(error, DamagedRecord | RecordGone)
            else "failed"
        )
        self._metrics.counter(REFUSED, self._group, reason).add()
        self._notices.note(
            "retry_in_place", self._group, topic=job.topic, qid=job.qid, offset=job.offset, error=str(error)
        )

    def stop(self) -> None:
        """Remember how far the records are settled, so that the next start need not read them."""
        if self.recovered and not self.unsettled:
            for queue in _queues(self._store, self._group):
                self._progress.dead_letters_settled(queue.topic, queue.queue_id, queue.max_offset)


def made_of(
    subscription: Generation, units: Sequence[Unit], *, store: Store, clock: Clock
) -> Iterator[UpstreamJob | Unit]:
    """Make jobs of those units of the retry topic whose messages were sent to a subscription's topic.

    Others are left alone: another subscription has them, or they stay pending until one does. Tags and pressure
    traffic were looked at when the message came first.

    Yields:
        The jobs, and units whose record cannot be read.
    """
    wanted = subscription.config.topic.encode()
    for unit in units:
        physical, size, _, offset, lane = unit
        if lane.is_over(offset):
            continue
        try:
            record = store.read(physical, size)
            block = split(record)[1]
        except (DamagedRecord, RecordGone):
            yield unit
            continue
        if find_property(block, RETRY_TOPIC_NAME) != wanted:
            continue
        job = UpstreamJob(subscription, lane, offset, physical, size, None)
        counts = read_counts(block, reconsume_times(record))
        history = job.history = History(clock.monotonic(), earlier=True)
        history.fails, history.errors, history.timeouts = counts
        lane.live[offset] = job
        yield job


def recover_retries(group: str, *, store: Store, progress: Progress, begin: Begin) -> int:
    """Finish the messages whose retry records exist although the ack journal does not know it (D27, D37).

    To be called after a restart, before the group reads anything. `begin`: as for `Progress.mark_dead_lettered_from`.

    Returns:
        How many there were.
    """
    found = 0
    for queue in _queues(store, group):
        if queue.topic == TIMER_TOPIC:
            if progress.timers_read:
                # Its records are those of all groups, and what this process appended it has settled.
                continue
            progress.timers_read = True
        start = progress.scan_position(queue.topic, queue.queue_id)
        if start < queue.max_offset:
            origins = _replaced(store, queue, start)
            found += progress.mark_sent_back_from(queue.topic, queue.queue_id, queue.max_offset, origins, begin=begin)
    return found


def _queues(store: Store, group: str) -> list[ConsumeQueue]:
    """Queues in which retry records stand: the timers' for all groups, and those that had nothing to wait for."""
    own = store.topics.get(retry_topic(group))
    timers = store.topics.get(TIMER_TOPIC)
    return [] if own is None else [*(timers.queues if timers is not None else ()), *own.queues]


def _replaced(store: Store, queue: ConsumeQueue, start: int) -> Iterator[Origin]:
    """What the retry records of one queue replace from `start` on; unreadable ones are left out."""
    offset = max(start, queue.min_offset)
    while offset < queue.max_offset:
        units = queue.read(offset, _SCAN_UNITS)
        for physical, size, _ in units:
            try:
                origin = read_replaced(store, store.read(physical, size))
            except (DamagedRecord, RecordGone):
                continue
            if origin is not None:
                yield origin
        offset += len(units)


def read_replaced(store: Store, record: memoryview) -> Origin | None:
    """Tell which message a retry record finishes; None for every other record, and where a timer only moved one on.

    Raises:
        DamagedRecord: The bytes are no record.
    """
    replaced = prepared_offset(record)
    if not replaced:
        return None
    name = topic_of(record)
    if name in _WAITING_ROOMS:
        name = find_property(split(record)[1], REAL_TOPIC_NAME) or b""
    topic = name.decode("utf-8", "replace")
    if not is_retry_topic(topic):
        return None
    entry = store.record_at(max(replaced, 0))
    if entry is None or entry.topic in _WAITING_ROOMS:
        return None
    origin = entry.topic.decode("utf-8", "replace")
    return Origin(topic.removeprefix(RETRY_PREFIX), origin, entry.queue_id, entry.queue_offset, max(replaced, 0))
