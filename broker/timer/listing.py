"""What is pending in the timers, for people and tools: all of it together, and timer by timer by due time.

Nothing of a pending timer is in memory, so a listing reads the timer log from end to end, in steps; some seconds per
ten million units. Records that were just stored and are not in the wheel yet are not listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nsmallest
from typing import NamedTuple

from broker.errors import StoreError
from broker.java import tags_code
from broker.properties import find_property
from broker.record import split, store_timestamp
from broker.release import REAL_QUEUE_NAME, REAL_TOPIC_NAME
from broker.timer import metrics as counted
from broker.timer.due import Aside
from broker.timer.log import MAGIC_DELETE, Unit
from broker.timer.names import ROLLS_NAME
from broker.timer.stages import Stage
from broker.timer.timers import Timers

_CHUNK_UNITS = 8_192
_CHUNK_RECORDS = 256
ALL_MS = 1 << 62


class StageStatus(NamedTuple):
    """One stage: timers that wait before it, microseconds at work and timers that passed since the start."""

    stage: str
    depth: int
    us: int
    passed: int
    paused: bool


class TimerStatus(NamedTuple):
    """All timers of a store.

    Attributes:
        known: Whether a message ever waited for a moment.
        pending: Timers that are not delivered.
        entering: Those behind them that are stored and not in the wheel yet.
        aside: Those whose delivery was refused.
        next_due_ms: When the next one is due that was not refused, if that is within some seconds; ms since the epoch.
        topics: Topic and how many are pending for it, the most first.
        stages: The five stages.
    """

    known: bool
    pending: int
    entering: int
    aside: int
    next_due_ms: int | None
    topics: list[tuple[str, int]]
    stages: list[StageStatus]


class PendingTimer(NamedTuple):
    """One timer that is not delivered; `reason` and `tries` of one that was refused, else None and 0."""

    topic: str
    queue_id: int | None
    unique_key: str
    key: str
    physical: int
    stored_ms: int
    due_ms: int
    rolls: int
    reason: str | None
    tries: int


def timer_status(timers: Timers) -> TimerStatus:
    """Tell of all timers together."""
    timers.measure()
    table, metrics = timers.table, timers.metrics
    topics = [(timers.topic_name(each), count) for each, count in table.pending.items() if count > 0]
    return TimerStatus(
        known=timers.entering.queue is not None,
        pending=timers.pending,
        entering=timers.entering.lag,
        aside=len(timers.due.aside),
        next_due_ms=table.coming.next_due,
        topics=sorted(topics, key=lambda each: (-each[1], each[0])),
        stages=[
            StageStatus(
                stage.value,
                metrics.value(counted.STAGE_DEPTH, stage.value),
                metrics.value(counted.STAGE_US, stage.value),
                metrics.value(counted.STAGE_COUNT, stage.value),
                not timers.stages.runs(stage),
            )
            for stage in Stage
        ],
    )


class TimerListing:
    """A page of pending timers, those due first at the front; `steps` finds them.

    Args:
        timers: Whose.
        topic: Only for this topic.
        begin_ms: Due then or later, ms since the epoch.
        end_ms: Due before then.
        after: (due ms, commit-log offset) of the last one of the page before.
        limit: How many at most.

    Attributes:
        found: The timers.
        after: Where the next page begins; None when there is none.
    """

    def __init__(
        self,
        timers: Timers,
        *,
        topic: str | None = None,
        begin_ms: int = 0,
        end_ms: int = ALL_MS,
        after: tuple[int, int] | None = None,
        limit: int,
    ) -> None:
        self.found: list[PendingTimer] = []
        self.after: tuple[int, int] | None = None
        self._timers = timers
        self._topic = topic
        self._hash = None if topic is None else tags_code(topic.encode())
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        self._from = after or (-1, -1)
        self._limit = limit
        self._units: list[tuple[int, int, int]] = []
        self._asides: dict[int, Aside] = {}

    def steps(self) -> Iterator[None]:
        """Search, yielding after each bounded piece of work.

        Raises:
            TimersDamaged: The timer log is damaged; it is made anew when the timers meet that.
            OSError: A file cannot be read.
        """
        if self._timers.entering.queue is None or not self._limit:
            return
        self._asides = dict(self._timers.due.aside)
        for physical, aside in self._asides.items():
            self._take(aside.timer.unit.due_ms, physical, aside.timer.unit)
        yield from self._read_log()
        self._prune()
        for number, (due_ms, physical, size) in enumerate(self._units[: self._limit], 1):
            timer = self._timer(due_ms, physical, size)
            if timer is not None and self._topic in (None, timer.topic):
                self.found.append(timer)
            if number % _CHUNK_RECORDS == 0:
                yield
        if len(self._units) > self._limit:
            self.after = self._units[self._limit - 1][:2]

    def _read_log(self) -> Iterator[None]:
        table = self._timers.table
        log = table.log
        for start, stop in log.runs(log.first, log.count, _CHUNK_UNITS):
            if start < log.first or stop > log.count:
                # It was cut, or made anew, meanwhile.
                return
            read_ms, next_ms = table.read_ms, table.next_ms
            for number, raw in enumerate(log.raw(start, stop), start):
                _, previous, magic, write_ms, delay_ms, physical, size, topic_hash, due_ms = raw
                slot_ms = write_ms + delay_ms
                if not size or magic & MAGIC_DELETE or slot_ms < read_ms or physical in self._asides:
                    continue
                if self._hash not in (None, topic_hash):
                    continue
                position = log.position(number)
                if log.is_marked(position):
                    continue
                unit = Unit(previous, magic, slot_ms, physical, size, topic_hash, due_ms)
                if slot_ms < next_ms and not table.is_pending(unit, position):
                    continue
                self._take(due_ms or table.resolve(unit), physical, unit)
            if len(self._units) > max(4 * self._limit, 10_000):
                self._prune()
            yield

    def _take(self, due_ms: int, physical: int, unit: Unit) -> None:
        if self._begin_ms <= due_ms < self._end_ms and (due_ms, physical) > self._from:
            self._units.append((due_ms, physical, unit.size))

    def _prune(self) -> None:
        """Keep the first of a page, and one more, which says that there are more."""
        self._units = nsmallest(self._limit + 1, self._units)

    def _timer(self, due_ms: int, physical: int, size: int) -> PendingTimer | None:
        try:
            record = self._timers.store.read(physical, size)
            block = split(record)[1]
        except StoreError:
            return None
        queue, rolls = find_property(block, REAL_QUEUE_NAME) or b"", find_property(block, ROLLS_NAME) or b""
        aside = self._asides.get(physical)
        return PendingTimer(
            topic=_text(block, REAL_TOPIC_NAME),
            queue_id=int(queue) if queue.isdigit() else None,
            unique_key=_text(block, b"UNIQ_KEY"),
            key=_text(block, b"KEYS"),
            physical=physical,
            stored_ms=store_timestamp(record),
            due_ms=due_ms,
            rolls=int(rolls) if rolls.isdigit() else 0,
            reason=None if aside is None else aside.reason,
            tries=0 if aside is None else aside.tries,
        )


def _text(block: bytes, name: bytes) -> str:
    return (find_property(block, name) or b"").decode("utf-8", "replace")
