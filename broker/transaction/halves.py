"""The halves of one store: where they are, what is known of each, how many of which topic and group are undecided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.format.record import prepared_offset
from broker.queues.consume_queue import FILLER_SIZE, ConsumeQueue
from broker.queues.topics import Topic
from broker.runtime.bundle import Runtime
from broker.scheduled.delay.level_queue import Ranges
from broker.store import Store
from broker.transaction import metrics as counted
from broker.transaction.ages import Ages
from broker.transaction.checks import CheckSchedule
from broker.transaction.half import Half, half_of
from broker.transaction.names import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, State
from broker.transaction.states import HalfState, HalfStates


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
        self.checks.forget(offset)
        self.ages.older.pop(offset, None)
        if half is not None:
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
