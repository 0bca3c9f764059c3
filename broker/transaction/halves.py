"""The halves of one store: where they are, what is known of each, how many of which topic and group are undecided.

`GroupCheckQueue` has which undecided halves a producer is to be asked about, and when. Moments are monotonic seconds;
no I/O.

A half that was never checked costs nothing here but its place in `arrivals` until its time comes; then it is in its
group's line, 8 bytes. Halves that were checked, or asked for another time, have an entry of their own
(`ScheduledCheck`).
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.format.record import prepared_offset
from broker.queues.consume_queue import FILLER_SIZE, ConsumeQueue
from broker.queues.topics import Topic
from broker.runtime.bundle import Runtime
from broker.scheduled.delay.level_queue import Ranges
from broker.store import Store
from broker.transaction import metrics as counted
from broker.transaction.ages import Ages
from broker.transaction.half import Half, half_of
from broker.transaction.names import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, State
from broker.transaction.states import HalfState, HalfStates

REMARKS_MAX = 10_000
REMARK_CHARS_MAX = 200
_COMPACT = 1024
_LOOKED_AT = 4
"""Places of a line that are looked at for each half in it that is decided."""


class GroupCheckQueue:
    """Halves of one producer group whose check is due, in the order in which they became so.

    Those that are decided meanwhile go as others are: with each of them some places are looked at, so that the line is
    as long as what is undecided in it, about, also where no producer of the group fetches checks.
    """

    __slots__ = ("_decided", "_head", "_kept", "_looked", "_offsets")

    def __init__(self) -> None:
        self._offsets = array("q")
        # Looked at and undecided are the places from `_head` to `_kept`; not looked at those from `_looked` on.
        self._head = self._kept = self._looked = 0
        self._decided = 0

    def __len__(self) -> int:
        """How many are undecided."""
        return max(0, len(self._offsets) - self._looked + self._kept - self._head - self._decided)

    def __iter__(self) -> Iterator[int]:
        yield from self._offsets[self._head : self._kept]
        yield from self._offsets[self._looked :]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in it, decided or not."""
        return self._head == self._kept and self._looked == len(self._offsets)

    def add(self, offset: int) -> None:
        """Put a half at the end."""
        self._offsets.append(offset)

    def take(self, is_undecided: Callable[[int], bool]) -> int | None:
        """Return the first that is undecided and remove it; None when there is none."""
        while True:
            if self._head == self._kept:
                self._head = self._kept = self._looked
            if self._head == len(self._offsets):
                return None
            offset = self._offsets[self._head]
            self._head += 1
            self._kept, self._looked = max(self._kept, self._head), max(self._looked, self._head)
            if self._head >= _COMPACT and self._head * 2 >= len(self._offsets):
                del self._offsets[: self._head]
                self._kept, self._looked, self._head = self._kept - self._head, self._looked - self._head, 0
            if is_undecided(offset):
                return offset
            self._decided = max(0, self._decided - 1)

    def decided(self, is_undecided: Callable[[int], bool]) -> None:
        """Note that one of them was decided."""
        self._decided += 1
        offsets = self._offsets
        for _ in range(_LOOKED_AT):
            if self._looked == len(offsets):
                del offsets[self._kept :]
                self._kept = self._looked = self._head
                return
            offset = offsets[self._looked]
            self._looked += 1
            if is_undecided(offset):
                offsets[self._kept] = offset
                self._kept += 1
            else:
                self._decided = max(0, self._decided - 1)


@dataclass(slots=True)
class ScheduledCheck:
    """A half that was checked, or whose time is its own.

    Attributes:
        group: Its producer group.
        times: Checks that were fetched.
        due: When it comes into line; meaningless while it is there.
        out: A producer has a check of it, until `due`.
        arrival: When it arrived, where `due` is that and the timeout of the settings.
        is_lined: It has a place in line.
    """

    group: str
    times: int = 0
    due: float = 0.0
    out: bool = False
    arrival: float | None = None
    is_lined: bool = False


class CheckSchedule:
    """Lines of due halves, and those whose time comes later.

    Attributes:
        lines: By producer group.
        asked: By offset.
        cursor: The first half that has not come into line or got an entry yet.
        remarks: By offset, the last words of a producer that could not decide a half, whether it was checked or not.
        leases: By transaction id, until when a producer has a check of a half that was put again meanwhile.
    """

    def __init__(self, cursor: int = 0) -> None:
        self.lines: dict[str, GroupCheckQueue] = {}
        self.asked: dict[int, ScheduledCheck] = {}
        self.cursor = cursor
        self.remarks: dict[int, str] = {}
        self.leases: dict[str, float] = {}
        self._later: list[tuple[float, int]] = []
        self._arrivals: deque[tuple[int, float]] = deque()

    # Arrivals

    def arrived(self, first: int, now: float) -> None:
        """Note that halves from an offset on arrived at a moment."""
        self._arrivals.append((first, now))

    def arrival(self) -> float | None:
        """When the half at the cursor arrived; None when this process does not know."""
        arrivals = self._arrivals
        while len(arrivals) > 1 and arrivals[1][0] <= self.cursor:
            arrivals.popleft()
        return arrivals[0][1] if arrivals and arrivals[0][0] <= self.cursor else None

    # Lines

    def ready(self, group: str, offset: int) -> None:
        """Put a half into its group's line, unless it has a place there."""
        asked = self.asked.get(offset)
        if asked is not None:
            if asked.is_lined:
                return
            asked.is_lined = True
        self.lines.setdefault(group, GroupCheckQueue()).add(offset)

    def is_lined(self, offset: int) -> bool:
        """Whether an undecided half has a place in line."""
        asked = self.asked.get(offset)
        return offset < self.cursor if asked is None else asked.is_lined

    def postpone(self, offset: int, group: str, due: float, *, times: int = 0) -> ScheduledCheck:
        """Have a half come into line at a moment; its count stays, or begins with `times`."""
        asked = self.asked.get(offset)
        if asked is None:
            asked = self.asked[offset] = ScheduledCheck(group, times)
        asked.due, asked.arrival = due, None
        heapq.heappush(self._later, (due, offset))
        return asked

    def next_due(self) -> float | None:
        """When the next postponed half is due."""
        later = self._later
        while later and not self._valid(*later[0]):
            heapq.heappop(later)
        return later[0][0] if later else None

    def pop_due(self, now: float) -> int | None:
        """Return a postponed half that is due, and forget its moment."""
        due = self.next_due()
        if due is None or due > now:
            return None
        offset = heapq.heappop(self._later)[1]
        asked = self.asked[offset]
        asked.due, asked.out, asked.arrival = 0.0, False, None
        return offset

    def dues(self, offsets: Iterator[int], timeout: float, now: float) -> Iterator[float]:
        """Yield when each of these undecided halves, by their order, is due for its next check, monotonic seconds.

        Args:
            offsets: Theirs.
            timeout: Seconds from arrival to the first check; one that a half has itself is known once its time is near.
            now: What is due already, or arrived before this opening, is due now.
        """
        arrivals, place = list(self._arrivals), 0
        for offset in offsets:
            asked = self.asked.get(offset)
            if asked is not None or offset < self.cursor:
                yield now if asked is None else asked.due or now
                continue
            while place + 1 < len(arrivals) and arrivals[place + 1][0] <= offset:
                place += 1
            is_known = place < len(arrivals) and arrivals[place][0] <= offset
            yield arrivals[place][1] + timeout if is_known else now

    def set_timeout(self, seconds: float, now: float) -> None:
        """Have the postponed halves that wait for the timeout of the settings wait for another one."""
        for offset, asked in self.asked.items():
            if (arrival := asked.arrival) is not None:
                self.postpone(offset, asked.group, max(arrival + seconds, now)).arrival = arrival

    def _valid(self, due: float, offset: int) -> bool:
        asked = self.asked.get(offset)
        return asked is not None and asked.due == due

    def forget(self, offset: int) -> None:
        """A half is decided: no more checks are handed out for it. Its line drops it when it comes to it."""
        self.asked.pop(offset, None)
        self.remarks.pop(offset, None)

    # Remarks

    def remark(self, offset: int, text: str) -> None:
        """Keep the words of a producer; of more than REMARKS_MAX halves those of the longest ago go."""
        if not text:
            return
        self.remarks.pop(offset, None)
        if len(self.remarks) >= REMARKS_MAX:
            del self.remarks[next(iter(self.remarks))]
        self.remarks[offset] = text[:REMARK_CHARS_MAX]

    # On disk

    def counts(self) -> Iterator[tuple[int, int]]:
        """Yield offset and checks of every half that has an entry now, for a checkpoint."""
        return ((offset, asked.times) for offset, asked in list(self.asked.items()))


class Halves:
    """What is known of the halves; changed by decisions, checks and moves.

    Attributes:
        states: Two bits each.
        checks: Who is to be asked about which.
        ages: How old they are in uptime.
        pending: Undecided ones by topic and producer group, as far as `seen`.
        owned: Undecided ones by the principal whose they are ("": without one), likewise.
        moved: By transaction id, where an undecided half is that was put again.
        moving: Those whose copy is on its way to the disk, by offset; the callback of that.
        deciding: Those whose decision is, by offset: which one; further callbacks of that.
        discarding: Those whose discard is staged, by offset.
        resumed: Offsets in the discard queue that lie there no more.
        seen: The first half whose record was not looked at yet.
        opened_at: Monotonic seconds of the opening.
    """

    def __init__(self, store: Store, runtime: Runtime) -> None:
        self.store = store
        clock = self.clock = runtime.clock
        self.metrics = runtime.metrics
        self.limited_log = runtime.limited_log
        self.states = HalfStates()
        self.checks = CheckSchedule()
        self.ages = Ages()
        self.pending: Counter[tuple[str, str]] = Counter()
        self.owned: Counter[str] = Counter()
        self.moved: dict[str, int] = {}
        self.moving: dict[int, list[Callable[[], object]]] = {}
        self.deciding: dict[int, tuple[State, list[Callable[[StoreError | None], None]]]] = {}
        self.discarding: set[int] = set()
        self.resumed = Ranges()
        self.seen = 0
        self.opened_at = clock.monotonic()

    # Topics

    def queue(self) -> ConsumeQueue | None:
        """Return the half queue; None before the first half."""
        return self._queue_of(HALF_TOPIC)

    def op_queue(self) -> ConsumeQueue | None:
        """Return the op queue; None before the first half."""
        return self._queue_of(OP_TOPIC)

    def discard_queue(self) -> ConsumeQueue | None:
        """Return the queue of discarded halves; None before the first."""
        return self._queue_of(DISCARD_TOPIC)

    def _queue_of(self, name: str) -> ConsumeQueue | None:
        topic = self.store.topics.get(name)
        return None if topic is None or not topic.queues else topic.queues[0]

    def topic(self, name: str) -> Topic:
        """Return a topic of transactions, made if need be.

        Raises:
            DiskFull, StoreFailed: It cannot be made.
        """
        topic = self.store.topics.get(name)
        return self.store.create_topic(name, 1, system=True) if topic is None else topic

    # Records

    def read(self, offset: int) -> Half:
        """Return the half at an offset of the half queue.

        Raises:
            DamagedRecord, RecordGone: Its record is.
        """
        return self.read_from(self.queue(), offset)

    def read_from(self, queue: ConsumeQueue | None, offset: int) -> Half:
        """Return the half at an offset of the half or the discard queue. Raises as `read`."""
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            raise RecordGone(-1)
        [(physical, size, _)] = queue.read(offset, 1)
        if size == FILLER_SIZE:
            raise DamagedRecord(-1, "it was lost in a damaged part of the log")
        return half_of(self.store.read(physical, size))

    def read_or_lose(self, offset: int) -> Half | None:
        """Return an undecided half; one that cannot be read is lost: counted, logged, and it blocks no other."""
        try:
            return self.read(offset)
        except (DamagedRecord, RecordGone) as error:
            self.lose(offset, str(error))
            return None

    def lose(self, offset: int, why: str) -> None:
        """Give up a half whose record is damaged or gone."""
        if self.resolve(offset, HalfState.ELSEWHERE, None):
            self.metrics.counter(counted.LOST).add()
            self.limited_log.note("half_message_lost", offset=offset, why=why)

    # What becomes of them

    def is_busy(self, offset: int) -> bool:
        """Whether a half is being decided, moved or discarded right now."""
        return offset in self.deciding or offset in self.moving or offset in self.discarding

    def resolve(self, offset: int, known: HalfState, half: Half | None) -> bool:
        """Note what became of an undecided half; False when it is none."""
        if not self.states.resolve(offset, known):
            return False
        asked = self.checks.asked.get(offset)
        group = asked.group if asked is not None else None if half is None else half.group
        line = None if group is None or not self.checks.is_lined(offset) else self.checks.lines.get(group)
        self.checks.forget(offset)
        if line is not None:
            line.decided(self.states.is_undecided)
        self.ages.older.pop(offset, None)
        if half is not None:
            if known is not HalfState.ELSEWHERE:
                self.checks.leases.pop(half.transaction_id, None)
            if self.moved.get(half.transaction_id) == offset:
                del self.moved[half.transaction_id]
            if offset < self.seen:
                self.pending[half.topic, half.group] -= 1
                if self.pending[half.topic, half.group] <= 0:
                    del self.pending[half.topic, half.group]
                self.owned[half.owner] -= 1
                if self.owned[half.owner] <= 0:
                    del self.owned[half.owner]
        return True

    # What comes

    def look(self, count_max: int) -> bool:
        """Look at the records of halves that were not looked at; return whether that was all."""
        states = self.states
        end = min(states.end, self.seen + count_max)
        self.seen = max(self.seen, min(states.position, end))
        while self.seen < end:
            offset = self.seen
            self.seen += 1
            if not states.is_undecided(offset):
                continue
            half = self.read_or_lose(offset)
            if half is None:
                continue
            self.pending[half.topic, half.group] += 1
            self.owned[half.owner] += 1
            if half.age_ms or prepared_offset(half.record):
                self.moved[half.transaction_id] = offset
                self.ages.put_again(offset, half.age_ms / 1000, self.running())
        return self.seen >= states.end

    def running(self) -> float:
        """Seconds since the opening."""
        return self.clock.monotonic() - self.opened_at
