"""What is pending in the timers, for people and tools: all of it together, and timer by timer by due time.

Nothing of a pending timer is in memory. Those due first are found by their slots (`walk`); where that
reads much and finds little, as for one of many topics, the timer log is read from end to end, in steps of
some milliseconds, some seconds per ten million units. What is found first is kept for the pages that follow
(`KeptScan`). Records that were just stored and are not in the wheel yet are not listed.

What is in a slot is due after the slot's time; only a slot whose own time has come took what was late. So once
enough timers are found that are due no later than the time of a slot to come, that slot and all behind it have none
that is due before them. Those that are to be rolled stand in nearer slots than their own, and are met on the way.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Generator
from heapq import heappop, heappush, heappushpop

from broker.errors import StoreError
from broker.format.java import tags_code
from broker.format.numbers import whole_number
from broker.format.properties import find_property
from broker.format.record import split, store_timestamp
from broker.format.wait_properties import REAL_QUEUE_NAME, REAL_TOPIC_NAME
from broker.scheduled.recurring.occurrence import parse_id, user_key
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.due import RefusedTimer
from broker.scheduled.timer.names import ROLLS_NAME
from broker.scheduled.timer.parts import AHEAD_MS
from broker.scheduled.timer.pending.log import MAGIC_DELETE, TimersDamaged, Unit
from broker.scheduled.timer.pending.table import CHUNK_UNITS, SKIP_SLOTS, TimerTable
from broker.scheduled.timer.stages import TimerPipelineStage
from broker.scheduled.timer.timers import Timers
from broker.views import LoopView, TimerStage, TimerStatus, TimerView, TopicTimers

UNITS_MAX = 65_536
"""Units read by slots; reading the whole timer log costs half as much per unit."""
SLOTS_PER_STEP = 64
"""Slots with few units looked at in one step."""

Take = Callable[[int, int, int], None]
"""Is handed due time (ms), commit-log offset and size of the record of a pending timer."""


def walk(
    table: TimerTable, take: Take, *, come_ms: int, last_ms: Callable[[], int], topic_hash: int | None
) -> Generator[None, None, bool]:
    """Hand out pending timers slot by slot, in steps of bounded work.

    Args:
        table: The timers.
        take: Gets them, those of a slot in any order.
        come_ms: Slots up to this time may have been read.
        last_ms: Timers that are due later are not wanted any more.
        topic_hash: Only timers of topics with this hash.

    Returns:
        Whether all that are wanted were handed out; else UNITS_MAX units were read, or log and wheel do not fit.

    Raises:
        OSError: The timer log cannot be read.
    """
    units_left, precision = UNITS_MAX, table.wheel.precision_ms
    slot_ms, looked_at = table.read_ms, 0
    end_ms = slot_ms + table.wheel.round_ms
    while slot_ms < end_ms and (slot_ms <= come_ms or slot_ms < last_ms()):
        following = table.wheel.next_used(slot_ms, min(end_ms, slot_ms + SKIP_SLOTS * precision))
        slot = table.wheel.get(following) if following < end_ms else None
        if slot is None:
            slot_ms = following
            yield
            continue
        if following > come_ms and following >= last_ms():
            return True
        position = slot.last
        while position >= 0:
            try:
                found, position = table.log.chain(position, following, above=-1, count_max=CHUNK_UNITS)
            except TimersDamaged:
                return False
            for at, unit in found:
                if not unit.size or unit.magic & MAGIC_DELETE or topic_hash not in (None, unit.topic_hash):
                    continue
                if table.is_pending(unit, at):
                    take(unit.due_ms or table.resolve(unit), unit.physical, unit.size)
            units_left -= len(found)
            if units_left < 0:
                return False
            looked_at += 1
            if len(found) == CHUNK_UNITS or looked_at % SLOTS_PER_STEP == 0:
                yield
        slot_ms = following + precision
    return True


_CHUNK_UNITS = 2_048
_CHUNK_RECORDS = 32
_CHUNK_SORTED = 512
_PAGES_KEPT = 16
_KEPT_MAX = 16_000
"""Timers that one reading of the timer log finds at most: it serves so many pages, or timers."""
_BEGIN = (-1, -1)
ALL_MS = 1 << 62


def timer_status(timers: Timers) -> TimerStatus:
    """Tell of all timers together."""
    timers.parts.measure()
    table, metrics, now_ms = timers.table, timers.metrics, timers.clock.wall_ms()
    topics = [(timers.parts.topic_name(each), count) for each, count in table.pending.items() if count > 0]
    due_ms = table.coming.next_due
    return TimerStatus(
        now_ms=now_ms,
        pending_total=timers.pending,
        entering=timers.entering.lag,
        refused=len(timers.due.refused),
        next_due_ms=due_ms,
        late_ms=0 if due_ms is None else max(0, now_ms - due_ms),
        topics=[
            TopicTimers(topic=name, pending=count)
            for name, count in sorted(topics, key=lambda each: (-each[1], each[0]))
        ],
        stages=[
            TimerStage(
                stage=stage.value,
                depth=metrics.value(counted.STAGE_DEPTH, stage.value),
                ms=metrics.value(counted.STAGE_US, stage.value) / 1000,
                count=metrics.value(counted.STAGE_COUNT, stage.value),
                paused=not timers.stages.runs(stage),
            )
            for stage in TimerPipelineStage
        ],
    )


class KeptScan:
    """What a reading of the timer log found first, for the pages that follow: 24 bytes per timer, a bounded number.

    Attributes:
        asked: Topic and due times that it was made for; None when there is nothing.
        start: (due ms, commit-log offset) behind which it begins.
        is_whole: Nothing comes behind its last one.
        generation: Of the timer log when it was made.
    """

    def __init__(self) -> None:
        self.asked: tuple[str | None, int, int] | None = None
        self.start = _BEGIN
        self.is_whole = False
        self.generation = 0
        self._columns = (array("q"), array("q"), array("q"))

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, place: int) -> tuple[int, int, int]:
        dues, physicals, sizes = self._columns
        return dues[place], physicals[place], sizes[place]

    def put(self, place: int, due_ms: int, physical: int, size: int) -> None:
        """Set one of those that `begin` made room for."""
        for column, value in zip(self._columns, (due_ms, physical, size), strict=True):
            column[place] = value

    def begin(self, count: int) -> None:
        """Forget what is there, and make room."""
        self.asked = None
        self._columns = (array("q", bytes(8 * count)), array("q", bytes(8 * count)), array("q", bytes(8 * count)))

    def behind(self, after: tuple[int, int]) -> int:
        """Place of the first one behind (due ms, commit-log offset)."""
        return bisect_right(range(len(self)), after, key=lambda place: self[place][:2])

    def serves(self, asked: tuple[str | None, int, int], after: tuple[int, int], generation: int) -> bool:
        """Whether a page behind `after` can be taken from it; not once the timer log was made again."""
        if self.asked != asked or after == _BEGIN or after < self.start or generation != self.generation:
            return False
        return self.is_whole or self.behind(after) < len(self)


class TimerListing:
    """A page of pending timers, those due first at the front; `steps` finds them.

    The page may be shorter than `limit`, or empty, though there are more: see `after`.

    Args:
        timers: Whose.
        topic: Only for this topic.
        begin_ms: Due then or later, ms since the epoch.
        end_ms: Due before then.
        after: (due ms, commit-log offset) of the last one of the page before.
        limit: How many at most.
        kept: What the page before read ahead; this page leaves what is behind it there. Timers that were sent meanwhile
            are not in it.

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
        kept: KeptScan | None = None,
    ) -> None:
        self.found: list[TimerView] = []
        self.after: tuple[int, int] | None = None
        self._timers = timers
        self._topic = topic
        self._hash = None if topic is None else tags_code(topic.encode())
        self._begin_ms = begin_ms
        self._end_ms = end_ms
        self._from = after or _BEGIN
        self._limit = limit
        self._kept = KeptScan() if kept is None else kept
        self._heap: list[tuple[int, int, int]] = []
        """(-due ms, -commit-log offset, size) of those due first, the last of them at the front."""
        self._count_max = min(_KEPT_MAX, _PAGES_KEPT * limit) + 1
        self._refused: dict[int, RefusedTimer] = {}

    def steps(self) -> Generator[None, None, None]:
        """Search, yielding after each bounded piece of work.

        Raises:
            TimersDamaged: The timer log is damaged; it is made again when the timers meet that.
            OSError: A file cannot be read.
        """
        if self._timers.entering.queue is None or not self._limit:
            return
        asked, kept = (self._topic, self._begin_ms, self._end_ms), self._kept
        if not kept.serves(asked, self._from, self._timers.table.log.generation):
            generation = self._timers.table.log.generation
            yield from self._scan()
            yield from self._keep()
            kept.asked, kept.start, kept.generation = asked, self._from, generation
        yield from self._page()

    def _page(self) -> Generator[None, None, None]:
        """Take the page from what is kept; one that is pending no more is left out."""
        kept = self._kept
        place = kept.behind(self._from)
        while place < len(kept) and len(self.found) < self._limit:
            due_ms, physical, size = kept[place]
            place += 1
            if self._is_pending(physical):
                timer = self._timer(due_ms, physical, size)
                if timer is not None and self._topic in (None, timer.topic):
                    self.found.append(timer)
            if place % _CHUNK_RECORDS == 0:
                yield
        if place < len(kept) or not kept.is_whole:
            self.after = kept[place - 1][:2]
        else:
            kept.begin(0)

    def _is_pending(self, physical: int) -> bool:
        timers, table = self._timers, self._timers.table
        if physical in timers.due.refused:
            return True
        position = table.log.find(physical)
        return position is not None and table.is_pending(table.log.unit(position), position)

    def _scan(self) -> Generator[None, None, None]:
        table = self._timers.table
        if table.log.count - table.log.first > UNITS_MAX:
            self._begin_scan()
            come_ms = max(table.next_ms, self._timers.clock.wall_ms() + AHEAD_MS)
            found_all = yield from walk(
                table, self._take_due, come_ms=come_ms, last_ms=lambda: self._last_ms, topic_hash=self._hash
            )
            if found_all:
                return
        self._begin_scan()
        yield from self._whole_log(table)

    def _begin_scan(self) -> None:
        self._heap.clear()
        self._refused = dict(self._timers.due.refused)
        for physical, refused in self._refused.items():
            self._take(refused.timer.unit.due_ms, physical, refused.timer.unit.size)

    def _take_due(self, due_ms: int, physical: int, size: int) -> None:
        if physical not in self._refused:
            self._take(due_ms, physical, size)

    def _whole_log(self, table: TimerTable) -> Generator[None, None, None]:
        generation = table.log.generation
        log, wanted, first_ms = table.log, self._hash, max(self._begin_ms, self._from[0])
        for start, stop in log.runs(log.first, log.count, _CHUNK_UNITS):
            if start < log.first or stop > log.count or log.generation != generation:
                # It was cut, or made again, meanwhile.
                return
            read_ms, next_ms, last_ms = table.read_ms, table.next_ms, self._last_ms
            for number, raw in enumerate(log.raw(start, stop), start):
                _, previous, magic, write_ms, delay_ms, physical, size, topic_hash, due_ms = raw
                # Most are outside of the page, which two comparisons show. (RocketMQ writes no due time: 0.)
                if due_ms and not first_ms <= due_ms <= last_ms:
                    continue
                slot_ms = write_ms + delay_ms
                if not size or magic & MAGIC_DELETE or slot_ms < read_ms or physical in self._refused:
                    continue
                if wanted is not None and wanted != topic_hash:
                    continue
                position = log.position(number)
                if position in log.marked:
                    continue
                unit = Unit(previous, magic, slot_ms, physical, size, topic_hash, due_ms)
                if slot_ms < next_ms and not table.is_pending(unit, position):
                    continue
                self._take(due_ms or table.resolve(unit), physical, size)
            yield

    @property
    def _last_ms(self) -> int:
        """Later ones are not among those due first."""
        return -self._heap[0][0] if len(self._heap) == self._count_max else self._end_ms - 1

    def _take(self, due_ms: int, physical: int, size: int) -> None:
        if not (self._begin_ms <= due_ms < self._end_ms and (due_ms, physical) > self._from):
            return
        if len(self._heap) < self._count_max:
            heappush(self._heap, (-due_ms, -physical, size))
        else:
            heappushpop(self._heap, (-due_ms, -physical, size))

    def _keep(self) -> Generator[None, None, None]:
        """Keep what was found, in order; the one too many says that there are more."""
        heap, kept = self._heap, self._kept
        is_whole = len(heap) < self._count_max
        if not is_whole:
            heappop(heap)
        kept.begin(len(heap))
        kept.is_whole = is_whole
        while heap:
            due_ms, physical, size = heappop(heap)
            kept.put(len(heap), -due_ms, -physical, size)
            if len(heap) % _CHUNK_SORTED == 0:
                yield

    def _timer(self, due_ms: int, physical: int, size: int) -> TimerView | None:
        try:
            record = self._timers.store.read(physical, size)
            block = split(record)[1]
        except StoreError:
            return None
        refused = self._timers.due.refused.get(physical)
        keys = _text(block, b"KEYS")
        delay_id, loop = delay_ids(keys)
        return TimerView(
            topic=_text(block, REAL_TOPIC_NAME),
            queue=whole_number(find_property(block, REAL_QUEUE_NAME)),
            id=_text(block, b"UNIQ_KEY"),
            key=user_key(keys),
            delay_id=delay_id,
            physical=physical,
            stored_ms=store_timestamp(record),
            due_ms=due_ms,
            rolls=whole_number(find_property(block, ROLLS_NAME)) or 0,
            refused_because=None if refused is None else refused.reason,
            tries=0 if refused is None else refused.tries,
            loop=loop,
        )


def delay_ids(keys: str) -> tuple[str | None, LoopView | None]:
    """Return DDMQ's id of what waits, which its keys begin with, and what that says of a loop (docs/loops.md)."""
    word = keys.partition(" ")[0]
    occurrence = parse_id(word)
    if occurrence is None or not occurrence.is_loop:
        return None if occurrence is None else word, None
    return word, LoopView(
        id=occurrence.first.id,
        made=occurrence.made,
        left=occurrence.left,
        interval=occurrence.interval,
        expire_ms=occurrence.expire_s * 1000,
    )


def _text(block: bytes, name: bytes) -> str:
    return (find_property(block, name) or b"").decode("utf-8", "replace")
