"""What is in the log because a message failed: records that send back, and dead letters, read again (D16, D27)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from broker.errors import DamagedRecord, RecordGone
from broker.format.properties import find_property
from broker.format.record import prepared_offset, reconsume_times, split, topic_of
from broker.format.wait_properties import REAL_TOPIC_NAME
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, retry_topic
from broker.retry.dead_letter import is_dead_letter_topic
from broker.retry.puts import RETRY_TOPIC_NAME, is_retry_topic, read_counts
from broker.runtime.seams import Clock
from broker.scheduled.delay.levels import SCHEDULE_NAME
from broker.scheduled.timer.names import TIMER_NAME, TIMER_TOPIC
from broker.store import Store
from upstream.history import JobHistory
from upstream.job import Generation, Unit, UpstreamJob
from upstream.progress.progress import DeadLetterOrigin

_SCAN_UNITS = 1024
_WAITING_ROOMS = (TIMER_NAME, SCHEDULE_NAME)


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
        physical, size, _, offset, group_queue = unit
        if group_queue.is_over(offset):
            continue
        try:
            record = store.read(physical, size)
            block = split(record)[1]
        except (DamagedRecord, RecordGone):
            yield unit
            continue
        if find_property(block, RETRY_TOPIC_NAME) != wanted:
            continue
        job = UpstreamJob(subscription, group_queue, offset, physical, size, None)
        counts = read_counts(block, reconsume_times(record))
        history = job.history = JobHistory(clock.monotonic(), earlier=True)
        history.fails, history.errors, history.timeouts = counts
        group_queue.live[offset] = job
        yield job


def why_unreadable(error: DamagedRecord | RecordGone) -> str:
    """Say what a record is that cannot be read, as counters and log lines name it."""
    return "gone" if isinstance(error, RecordGone) else "damaged"


def retry_queues(store: Store, group: str) -> list[ConsumeQueue]:
    """Queues in which retry records stand: the timers' for all groups, and those that had nothing to wait for."""
    own = store.topics.get(retry_topic(group))
    timers = store.topics.get(TIMER_TOPIC)
    return [] if own is None else [*(timers.queues if timers is not None else ()), *own.queues]


def origins(
    store: Store, queue: ConsumeQueue, start: int, read: Callable[[Store, memoryview], DeadLetterOrigin | None]
) -> Iterator[DeadLetterOrigin]:
    """What the records of one queue replace from `start` on; unreadable ones are left out."""
    offset = max(start, queue.min_offset)
    while offset < queue.max_offset:
        units = queue.read(offset, _SCAN_UNITS)
        for physical, size, _ in units:
            try:
                origin = read(store, store.read(physical, size))
            except (DamagedRecord, RecordGone):
                continue
            if origin is not None:
                yield origin
        offset += len(units)


def read_replaced(store: Store, record: memoryview) -> DeadLetterOrigin | None:
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
    return DeadLetterOrigin(
        topic.removeprefix(RETRY_PREFIX), origin, entry.queue_id, entry.queue_offset, max(replaced, 0)
    )


def read_origin(store: Store, record: memoryview) -> DeadLetterOrigin | None:
    """Which message a dead letter finishes; None for one of RocketMQ's, or where that message is no longer kept.

    Nothing that a producer could write is believed: the group is that of the topic, and the message is the record that
    this one replaces (D27).

    Raises:
        DamagedRecord: The bytes are no record.
    """
    replaced = prepared_offset(record)
    name = topic_of(record).decode("utf-8", "replace")
    if not replaced or not is_dead_letter_topic(name):
        return None
    entry = store.record_at(max(replaced, 0))
    if entry is None:
        return None
    origin = entry.topic.decode("utf-8", "replace")
    return DeadLetterOrigin(
        name.removeprefix(DEAD_LETTER_PREFIX), origin, entry.queue_id, entry.queue_offset, max(replaced, 0)
    )
