"""What is pending in the delay levels, for people and tools."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from functools import partial
from heapq import merge

from broker.errors import StoreError
from broker.format.numbers import whole_number
from broker.format.properties import find_property
from broker.format.record import split, store_timestamp
from broker.format.wait_properties import REAL_QUEUE_NAME, REAL_TOPIC_NAME
from broker.scheduled.delay.delays import Delays
from broker.scheduled.delay.level_queue import DelayLevel, LevelMessage
from broker.scheduled.delay.puts import DelayedPuts
from broker.views import DelayedMessage, DelayLevelView

_CHUNK_UNITS = 64
_NEVER_MS = 1 << 62
_CHUNK_RECORDS = 32
SCAN_MAX = 2_000
"""Records read for one page; it is cut there, and says so."""


Places = dict[int, int]
"""By level: the first offset that was not looked at."""


def level_statuses(delays: Delays) -> list[DelayLevelView]:
    """Tell of every level, before the first delayed message too; the damaged and gone have no store time."""
    if not delays.levels:
        waits = enumerate(delays.store.waiting(DelayedPuts).levels.delays_ms, 1)
        return [DelayLevelView(level=level, delay_ms=delay_ms) for level, delay_ms in waits]
    return [_status(delays, level) for level in delays.levels.values()]


def _status(delays: Delays, level: DelayLevel) -> DelayLevelView:
    head = level.head()
    first = next(level.waiting(level.position, 4), None)
    oldest = None
    if first is not None:
        with suppress(StoreError):
            oldest = store_timestamp(delays.store.read(first.physical, first.size))
    late = 0 if head is None else max(0, delays.clock.wall_ms() - head.due_ms)
    due = None if head is None else head.due_ms
    return DelayLevelView(
        level=level.level,
        delay_ms=level.delay_ms,
        pending=level.pending,
        refused=len(level.refused),
        oldest_ms=oldest,
        next_due_ms=due,
        late_ms=late,
    )


def pending_messages(
    delays: Delays, *, level: int | None = None, topic: str | None = None, begin: Places | None = None, count_max: int
) -> Generator[None, None, tuple[list[DelayedMessage], Places | None]]:
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
    found: list[DelayedMessage] = []
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


def due_counts(delays: Delays, ends_ms: Sequence[int], *, level: int | None = None) -> Generator[None, None, list[int]]:
    """Count pending messages by due time, in steps of bounded work; after the clock was set back, about.

    Args:
        delays: The delivery.
        ends_ms: Ends of the ranges, ascending, ms since the epoch; the last range has no end.
        level: Only of this level.
    """
    counts = [0] * (len(ends_ms) + 1)
    for each in [one for one in delays.levels.values() if level in (None, one.level)]:
        begin, end = each.position, each.queue.max_offset
        for place, end_ms in enumerate(ends_ms):
            # Messages of a level are due in the order of their offsets.
            until = bisect_left(range(end), end_ms, lo=begin, key=partial(_due_from, each))
            counts[place] += each.pending_in(begin, until)
            begin = until
            yield
        counts[-1] += each.pending_in(begin, end)
        yield
    return counts


def _due_from(level: DelayLevel, offset: int) -> int:
    """Return when the first pending message from an offset on is due."""
    return next((each.due_ms for each in level.waiting(offset, 1)), _NEVER_MS)


def _by_due(level: DelayLevel, begin: int) -> Iterator[tuple[int, int, LevelMessage]]:
    for waiting in level.waiting(max(level.position, begin), _CHUNK_UNITS):
        yield waiting.due_ms, level.level, waiting


def _message(delays: Delays, level: DelayLevel, waiting: LevelMessage) -> DelayedMessage | None:
    try:
        record = delays.store.read(waiting.physical, waiting.size)
        block = split(record)[1]
    except StoreError:
        return None
    refused = level.refused.get(waiting.offset)
    return DelayedMessage(
        level=level.level,
        offset=waiting.offset,
        topic=_text(block, REAL_TOPIC_NAME),
        queue=whole_number(find_property(block, REAL_QUEUE_NAME)),
        id=_text(block, b"UNIQ_KEY"),
        key=_text(block, b"KEYS"),
        stored_ms=store_timestamp(record),
        due_ms=waiting.due_ms,
        refused_because=None if refused is None else refused.reason,
        tries=0 if refused is None else refused.tries,
    )


def _text(block: bytes, name: bytes) -> str:
    return (find_property(block, name) or b"").decode("utf-8", "replace")
