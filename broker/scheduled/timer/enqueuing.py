"""From the timer topic's queue into the wheel: the first two stages."""

from __future__ import annotations

import re
import struct
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable

from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.format.java import tags_code
from broker.format.properties import find_property
from broker.format.record import Located, strip_own
from broker.format.wait_properties import REAL_TOPIC_NAME
from broker.queues.consume_queue import FILLER_SIZE, ConsumeQueue
from broker.runtime.bundle import Runtime
from broker.runtime.step_size import StepSize
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.names import CANCEL_NAME, due_of, slot_of
from broker.scheduled.timer.pending.table import PendingTimerRecord, TimerTable
from broker.store import Store

# From records of the timer topic to what is entered in the wheel: the first stage.


_FACTS = re.compile(
    rb"TIMER_DELIVER_MS\x01(\d{1,18})\x02TIMER_OUT_MS\x01(\d{1,18})\x02REAL_TOPIC\x01([^\x01\x02]+)\x02"
)
"""As this broker writes them."""
_UNUSUAL = re.compile(rb"TIMER_DEL(?:AY|_U)")
"""A cancel (TIMER_DEL_UNIQKEY), or a delay whose receipt is not known (TIMER_DELAY_*)."""
_PREPARED = struct.Struct(">qi").unpack_from

Lost = Callable[[int, int, StoreError], None]
"""Told of a record that cannot be entered: its queue offset, its commit-log offset, why."""


def read_entries(
    store: Store,
    queue: ConsumeQueue,
    offset: int,
    *,
    count_max: int,
    precision_ms: int,
    lost: Lost,
) -> tuple[list[tuple[int, PendingTimerRecord]], int]:
    """Read records of the timer topic.

    Args:
        store: The store.
        queue: The topic's queue.
        offset: Where to begin.
        count_max: How many at most.
        precision_ms: Width of a slot.
        lost: Told of records that cannot be read or have no real topic.

    Returns:
        (queue offset, entry) in their order, and the offset to continue at.

    Raises:
        OSError: The queue cannot be read.
    """
    units = queue.read(offset, count_max)
    entries: list[tuple[int, PendingTimerRecord]] = []
    places = [(physical, size) for physical, size, _ in units if size != FILLER_SIZE]
    offsets = [offset + place for place, unit in enumerate(units) if unit[1] != FILLER_SIZE]
    located: list[Located | None]
    try:
        located = list(store.locate(places))
    except (DamagedRecord, RecordGone):
        located = [_located(store, place, at, lost) for place, at in zip(places, offsets, strict=True)]
    for found, (physical, size), at in zip(located, places, offsets, strict=True):
        if found is None:
            continue
        entry = entry_of(found, physical, size, precision_ms)
        if entry is None:
            lost(at, physical, StoreError("it has no real topic, or no time"))
        else:
            entries.append((at, entry))
    return entries, offset + len(units)


def _located(store: Store, place: tuple[int, int], offset: int, lost: Lost) -> Located | None:
    try:
        store.read(*place)
        [found] = store.locate([place])
    except (DamagedRecord, RecordGone) as error:
        lost(offset, place[0], error)
        return None
    return found


def entry_of(found: Located, physical: int, size: int, precision_ms: int) -> PendingTimerRecord | None:
    """Return what a record says, None when it has no real topic or no time."""
    view, body_at, _, block_at, end = found
    block = view[block_at:end].tobytes()
    prepared, _ = _PREPARED(view, body_at - 12)
    replaces = -1 if not prepared else max(prepared, 0)
    facts = _FACTS.search(block)
    if facts is not None and _UNUSUAL.search(block) is None:
        due, out = int(facts[1]), int(facts[2])
        if out == slot_of(due, precision_ms):
            return PendingTimerRecord(physical, size, out, due, tags_code(facts[3]), replaces)
    block = strip_own(block)
    topic = find_property(block, REAL_TOPIC_NAME)
    found_due = due_of(block, precision_ms)
    if topic is None or found_due is None:
        return None
    cancel = find_property(block, CANCEL_NAME) is not None
    return PendingTimerRecord(
        physical, size, slot_of(found_due, precision_ms), found_due, tags_code(topic), replaces, cancel
    )


STEP_RECORDS = 256
"""Records read, or entered, in one step, fewer while others have something to do (`broker.runtime.step_size`)."""
WAITING_MAX = 1024
"""Records read that are not entered yet."""


class Entering:
    """Enters the records of one store's timer topic.

    Attributes:
        queue: The topic's queue; None while there is no topic.
        offset: Queue offset of the next record to enter: everything below is in the wheel, or needs nothing.
        floor: RocketMQ delivered what is in the queue below this offset and belongs to a slot before this moment.
        step_size: How many a step takes.
        superseded: Commit-log offsets to take out once the record that replaces them is entered.
        decided_from: Commit-log offset from which on records are decided that are not entered yet; None: none is.
    """

    def __init__(self, store: Store, table: TimerTable, superseded: set[int], runtime: Runtime) -> None:
        self.queue: ConsumeQueue | None = None
        self.offset = 0
        self.floor = (0, 0)
        self.superseded = superseded
        self.step_size = StepSize(runtime, STEP_RECORDS)
        self._store = store
        self._table = table
        self._clock = runtime.clock
        self._lost = runtime.metrics.counter(counted.LOST)
        self._entered = runtime.metrics.counter(counted.ENQUEUED)
        self._limited_log = runtime.limited_log
        self._read_to = 0
        self._waiting: deque[tuple[int, PendingTimerRecord]] = deque()
        self._decided: array[int] = array("q")
        self.decided_from: int | None = None

    def begin_at(self, queue: ConsumeQueue, offset: int) -> None:
        """Go on at a queue offset, as far as the queue has it."""
        self.queue = queue
        self.offset = self._read_to = max(queue.min_offset, min(offset, queue.max_offset))
        self._waiting.clear()

    def leave_out(self, decided: array[int], start: int) -> None:
        """Do not enter these records, given by their commit-log offsets: they were delivered or replaced.

        Args:
            decided: All that the commit log decides from `start` on, and that have no unit.
            start: A commit-log offset.
        """
        self._decided = array("q", sorted(decided) if self.lag else ())
        self.decided_from = start if self._decided else None

    @property
    def depth(self) -> int:
        """Records read and not entered."""
        return len(self._waiting)

    @property
    def lag(self) -> int:
        """Records not entered, read or not."""
        return 0 if self.queue is None else max(0, self.queue.max_offset - self.offset)

    def read(self, count_max: int = STEP_RECORDS) -> int:
        """Read a bounded number of records; return how many. Raises OSError."""
        queue = self.queue
        if queue is None or self._read_to >= queue.max_offset or len(self._waiting) >= WAITING_MAX:
            return 0
        self._read_to = max(self._read_to, queue.min_offset)
        entries, following = read_entries(
            self._store,
            queue,
            self._read_to,
            count_max=count_max,
            precision_ms=self._table.wheel.precision_ms,
            lost=self._lose,
        )
        count = following - self._read_to
        self._read_to = following
        self._waiting.extend(entries)
        if not self._waiting:
            self.offset = following
        return count

    def _lose(self, offset: int, physical: int, error: StoreError) -> None:
        self._lost.add()
        self._limited_log.note("timed_message_lost", offset=offset, physical=physical, why=str(error))

    @property
    def wants_open_slot(self) -> bool:
        """Whether the next record belongs to a slot that was read, and all of those are completed."""
        return bool(self._waiting) and not self._table.is_open and self._waiting[0][1].slot_ms < self._table.next_ms

    def enter(self, count_max: int = STEP_RECORDS) -> int:
        """Enter a bounded number of records that were read; return how many.

        Raises:
            TimersDamaged: Log and wheel do not fit together.
            OSError: The timer log cannot be written; nothing was entered.
        """
        batch = [self._waiting[place] for place in range(min(count_max, len(self._waiting)))]
        if not batch:
            return 0
        if not self._table.is_open:
            # A late one needs a slot that was read; the table opens the next one first.
            late = next((place for place, (_, entry) in enumerate(batch) if entry.slot_ms < self._table.next_ms), None)
            batch = batch[:late]
        # RocketMQ continues behind the last unit's record: the last one has a unit even if it needs none (D30).
        last_done = bool(batch) and self._is_done(*batch[-1])
        wanted = [entry for at, entry in batch[:-1] if not self._is_done(at, entry)]
        wanted += [entry for _, entry in batch[-1:]]
        done = self._table.enter(wanted, self._clock.wall_ms())
        taken = len(batch)
        if done < len(wanted):
            taken = next(place for place, (_, entry) in enumerate(batch) if entry is wanted[done])
        elif last_done:
            self._table.replace(wanted[-1].physical)
            done -= 1
        for _ in range(taken):
            _, entry = self._waiting.popleft()
            # Its unit is marked now; where a damaged one keeps it from being found, this has to be remembered.
            if entry.replaces in self.superseded and self._table.log.find(entry.replaces) is not None:
                self.superseded.discard(entry.replaces)
        self.offset = self._waiting[0][0] if self._waiting else self._read_to
        self._entered.add(done)
        if self._decided and not self._waiting and self.queue is not None and self.offset >= self.queue.max_offset:
            self._decided = array("q")
            self.decided_from = None
        return taken

    def _is_done(self, offset: int, entry: PendingTimerRecord) -> bool:
        if offset < self.floor[0] and entry.slot_ms < self.floor[1]:
            return True
        return self.is_decided(entry.physical)

    def is_decided(self, physical: int) -> bool:
        """Whether the record at a commit-log offset, not entered yet, is known to have been replaced."""
        place = bisect_left(self._decided, physical)
        return place < len(self._decided) and self._decided[place] == physical
