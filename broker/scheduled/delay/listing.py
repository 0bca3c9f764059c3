"""What is pending in the delay levels, for people and tools."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from heapq import merge
from typing import NamedTuple

from broker.errors import StoreError
from broker.format.properties import find_property
from broker.format.record import split, store_timestamp
from broker.scheduled.delay.delays import Delays
from broker.scheduled.delay.level_queue import DelayLevel, Waiting
from broker.scheduled.delay.puts import DelayedPuts
from broker.scheduled.release import REAL_QUEUE_NAME, REAL_TOPIC_NAME

_CHUNK_UNITS = 64
_CHUNK_RECORDS = 32
SCAN_MAX = 2_000
"""Records read for one page; it is cut there, and says so."""


Places = dict[int, int]
"""By level: the first offset that was not looked at."""


class LevelStatus(NamedTuple):
    """One level; moments are ms since the epoch and None where nothing is pending.

    Attributes:
        level: Its number.
        delay_ms: Its delay.
        pending: Messages that are not delivered.
        aside: Those of them whose delivery was refused.
        oldest_ms: When the first of them was stored.
        next_due_ms: When the next one is due that was not refused.
        late_ms: How long that has been due; 0 while it is not.
    """

    level: int
    delay_ms: int
    pending: int
    aside: int
    oldest_ms: int | None
    next_due_ms: int | None
    late_ms: int


class PendingMessage(NamedTuple):
    """One message that is not delivered; `reason` and `tries` of one that was refused, else None and 0."""

    level: int
    offset: int
    physical: int
    topic: str
    queue_id: int | None
    message_id: str
    key: str
    stored_ms: int
    due_ms: int
    reason: str | None
    tries: int


def level_statuses(delays: Delays) -> list[LevelStatus]:
    """Tell of every level, before the first delayed message too; the damaged and gone have no store time."""
    if not delays.levels:
        waits = enumerate(delays.store.waiting(DelayedPuts).levels.delays_ms, 1)
        return [LevelStatus(level, delay_ms, 0, 0, None, None, 0) for level, delay_ms in waits]
    return [_status(delays, level) for level in delays.levels.values()]


def _status(delays: Delays, level: DelayLevel) -> LevelStatus:
    head = level.head()
    first = next(level.waiting(level.position, 4), None)
    oldest = None
    if first is not None:
        with suppress(StoreError):
            oldest = store_timestamp(delays.store.read(first.physical, first.size))
    late = 0 if head is None else max(0, delays.clock.wall_ms() - head.due_ms)
    due = None if head is None else head.due_ms
    return LevelStatus(level.level, level.delay_ms, level.pending, len(level.aside), oldest, due, late)


def pending_messages(
    delays: Delays, *, level: int | None = None, topic: str | None = None, begin: Places | None = None, count_max: int
) -> Generator[None, None, tuple[list[PendingMessage], Places | None]]:
    """List pending messages, those due first at the front, in steps of bounded work.

    Args:
        delays: The delivery.
        level: Only of this level.
        topic: Only for this topic.
        begin: Where the page before says that this one begins.
        count_max: How many at most.

    Returns:
        The messages, and where the next page begins when SCAN_MAX or `count_max` cut the list, else None.
    """
    places = {**(begin or {})}
    levels = [each for each in delays.levels.values() if level in (None, each.level)]
    queues = [_by_due(each, places.get(each.level, 0)) for each in levels]
    found: list[PendingMessage] = []
    for read, (_, number, waiting) in enumerate(merge(*queues), 1):
        if read > SCAN_MAX:
            return found, places
        message = _message(delays, delays.levels[number], waiting)
        if message is not None and topic in (None, message.topic):
            if len(found) == count_max:
                return found, places
            found.append(message)
        places[number] = waiting.offset + 1
        if read % _CHUNK_RECORDS == 0:
            yield
    return found, None


def _by_due(level: DelayLevel, begin: int) -> Iterator[tuple[int, int, Waiting]]:
    for waiting in level.waiting(max(level.position, begin), _CHUNK_UNITS):
        yield waiting.due_ms, level.level, waiting


def _message(delays: Delays, level: DelayLevel, waiting: Waiting) -> PendingMessage | None:
    try:
        record = delays.store.read(waiting.physical, waiting.size)
        block = split(record)[1]
    except StoreError:
        return None
    queue = find_property(block, REAL_QUEUE_NAME) or b""
    aside = level.aside.get(waiting.offset)
    return PendingMessage(
        level=level.level,
        offset=waiting.offset,
        physical=waiting.physical,
        topic=_text(block, REAL_TOPIC_NAME),
        queue_id=int(queue) if queue.isdigit() else None,
        message_id=_text(block, b"UNIQ_KEY"),
        key=_text(block, b"KEYS"),
        stored_ms=store_timestamp(record),
        due_ms=waiting.due_ms,
        reason=None if aside is None else aside.reason,
        tries=0 if aside is None else aside.tries,
    )


def _text(block: bytes, name: bytes) -> str:
    return (find_property(block, name) or b"").decode("utf-8", "replace")
