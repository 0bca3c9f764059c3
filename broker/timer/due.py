"""Timers that are due: read, released, appended; refused ones set aside. The last two stages.

What is delivered takes the place of its record in the timer topic (D27), and so do rolls, which go to the timer topic
again. A refused timer is aside: it holds up nobody, and is tried again every RETRY_SECONDS. With ASIDE_MAX aside,
further ones are put again at the log's tail, due DEFER_MS later, so that memory and checkpoint stay small.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from broker.decisions import prepared_offset_of
from broker.delivery import Delivery, Due
from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.metrics import Metrics
from broker.notices import Notices
from broker.properties import find_property
from broker.put import Put
from broker.record import SYS_BORN_HOST_V6, SYS_STORE_HOST_V6, prepared_offset, split, topic_of
from broker.release import REAL_TOPIC_NAME, Released, moved, release, without
from broker.seams import Clock
from broker.store import Store
from broker.timer import metrics as counted
from broker.timer.coming import Coming
from broker.timer.log import MAGIC_DELETE, MAGIC_ROLL, MAGIC_TIMER, TimersDamaged, Unit
from broker.timer.names import CANCEL_NAME, DELIVER_NAME, OUT_NAME, ROLLS_NAME, TIMER_NAME, TIMER_NAMES, due_of, slot_of
from broker.timer.table import TimerTable

STEP_BYTES = 1 << 20
"""Records of one step; one record at least."""
RETRY_SECONDS = 10.0
RETRIES_PER_STEP = 64
ASIDE_MAX = 1000
DEFER_MS = 600_000
MARK = b"__PYDDMQ_LOOP"


class Followed(Protocol):
    """What takes the place of a timer that something follows: all of it in one atomic append."""

    @property
    def puts(self) -> Sequence[Put]:
        """The delivery, maybe several, and what waits next."""
        ...


class Follower(Protocol):
    """Knows timers that something follows: `broker.loop.loops`."""

    def unfold(self, released: Released) -> Followed | None:
        """Return what takes a timer's place; None when it is an ordinary one."""
        ...

    def done(self, physical: int) -> None:
        """That is stored in the place of the record at a commit-log offset."""
        ...

    def cancelled(self, properties: bytes) -> None:
        """A waiting record with these properties was cancelled, and nothing follows it."""
        ...


class Taken(NamedTuple):
    """A timer that is being delivered: where its unit is, -1 for one that was aside when the store was opened."""

    position: int
    unit: Unit


@dataclass(slots=True)
class Aside:
    """A timer whose delivery was refused: what it is, why, since when (wall ms), how often it was tried."""

    timer: Taken
    reason: str
    since_ms: int
    tries: int = 1


class DueTimers:
    """Delivers the timers of one store that are due.

    Attributes:
        aside: Refused timers, by the commit-log offset of their record.
        superseded: Records that were replaced or cancelled by one that is not in the wheel yet.
        aside_max: With so many aside, further ones are put again.
        delivery: Appends.
        follower: Asked for timers whose properties hold `MARK`.
        on_done: Called when deliveries are durable.
    """

    def __init__(self, store: Store, table: TimerTable, *, clock: Clock, metrics: Metrics, notices: Notices) -> None:
        self.aside: dict[int, Aside] = {}
        self.superseded: set[int] = set()
        self.aside_max = ASIDE_MAX
        self.follower: Follower | None = None
        self.on_done: Callable[[], None] = lambda: None
        self.delivery: Delivery[Taken] = Delivery(store, self)
        self.retry_at = 0.0
        self._store = store
        self._table = table
        self._clock = clock
        self._metrics = metrics
        self._notices = notices
        self._cancelled: dict[int, set[bytes]] = {}
        self._late_max = metrics.counter(counted.LATE_MAX)

    # Taking

    def deliver_due(self, now_ms: int, count_max: int) -> tuple[int, bool]:
        """Take and append timers that are due, then rolls.

        Returns:
            How many were taken, and whether the store takes more.

        Raises:
            TimersDamaged: A unit and its record do not fit together.
        """
        table = self._table
        taken = self._take(table.coming, now_ms, count_max)
        # Rolls have days of time: they take what room is left, but never none.
        rolls = self._take(table.rolls, now_ms, max(count_max - len(taken), count_max // 8))
        return len(taken) + len(rolls), self.delivery.deliver(taken) and self.delivery.deliver(rolls)

    def _take(self, coming: Coming, now_ms: int, count_max: int) -> list[Taken]:
        keys = coming.take(now_ms, count_max)
        taken: list[Taken] = []
        bytes_left = STEP_BYTES
        for place, (_, position) in enumerate(keys):
            unit = self._table.log.unit(position)
            if taken and unit.size > bytes_left:
                coming.give_back(keys[place:])
                break
            bytes_left -= unit.size
            taken.append(Taken(position, unit))
        return taken

    def retry(self) -> bool:
        """Try a bounded number of the refused again, those tried least first; False when the store takes nothing."""
        if not self.aside:
            return True
        self.retry_at = self._clock.monotonic() + RETRY_SECONDS
        refused = sorted(self.aside.values(), key=lambda each: each.tries)[:RETRIES_PER_STEP]
        return self.delivery.deliver([each.timer for each in refused])

    # What a delivery asks

    def release(self, message: Taken) -> Due | None:
        """Make what to append for a timer; None when it was cancelled.

        Raises:
            MessageRefused: Its topic does not take it.
            DamagedRecord, RecordGone: Its record cannot be read.
            TimersDamaged: Its unit says something else than the record.
        """
        unit = message.unit
        if not unit.size or self._table.log.is_marked(message.position):
            self._table.settle(unit, marked=True)
            return None
        if unit.physical in self.superseded:
            self._settle(message)
            return None
        record = self._read(unit)
        body, block = split(record)
        usual = self._usual(unit, record, body, block)
        if usual is not None:
            return usual
        if topic_of(record) != TIMER_NAME or due_of(block, self._table.wheel.precision_ms) != unit.due_ms:
            raise TimersDamaged(f"a unit of the timer log names the record at {unit.physical}, which says other things")
        if unit.magic & MAGIC_ROLL:
            if unit.magic & MAGIC_DELETE and prepared_offset(record):
                # Its target is settled already.
                self._settle(message)
                return None
            return self._rolled(record, body, block)
        if unit.slot_ms in self._table.cancels and self._is_cancelled(unit, block):
            self.count_cancel(block)
            self._settle(message)
            return None
        released = release(record, self._store.topics, TIMER_NAMES)
        if self.follower is not None and MARK in block:
            followed = self.follower.unfold(released)
            if followed is not None:
                return Due(tuple(followed.puts), released.born_ms, released.born_host)
        return Due((released.put,), released.born_ms, released.born_host)

    def _usual(self, unit: Unit, record: memoryview, body: memoryview, block: bytes) -> Due | None:
        """What `release` makes of nearly every timer, at a third of the cost; None when it is not one of those."""
        facts = _FACTS.search(block)
        if facts is None or unit.magic != MAGIC_TIMER or int(facts[1]) != unit.due_ms or record[39] & _UNUSUAL:
            return None
        rest = block[: facts.start()] + block[facts.end() :]
        topic = self._store.topics.get(facts[2].decode("utf-8", "replace"))
        queue_id = int(facts[3])
        if topic is None or topic.system or queue_id >= len(topic.queues) or _OTHERS.search(rest) is not None:
            return None
        if unit.slot_ms in self._table.cancels:
            return None
        flag, sys_flag, born_ms, born_host, reconsumed = _unpack_header(record)
        tags = find_property(rest, b"TAGS") or b""
        key = find_property(rest, b"UNIQ_KEY") or b""
        origin = prepared_offset_of(unit.physical)
        return Due(
            (Put(topic, queue_id, body, rest, tags, key, origin, reconsumed, sys_flag, flag),), born_ms, born_host
        )

    def _read(self, unit: Unit) -> memoryview:
        try:
            return self._store.read(unit.physical, unit.size)
        except DamagedRecord:
            # Is it the record that is damaged, or the unit that names it?
            queue = self._store.topics[TIMER_NAME.decode()].queues[0]
            offset = queue.first_at(unit.physical)
            known = queue.read(offset, 1) if offset < queue.max_offset else []
            if not known or known[0][:2] != (unit.physical, unit.size):
                raise TimersDamaged(f"a unit of the timer log names no record at {unit.physical}") from None
            raise

    def _rolled(self, record: memoryview, body: memoryview, block: bytes) -> Due:
        rolls = find_property(block, ROLLS_NAME) or b"0"
        count = int(rolls) if rolls.isdigit() else 0
        topic = self._store.topics[TIMER_NAME.decode()]
        rolled = moved(record, body, without(block, (ROLLS_NAME,)) + _ROLLS % (count + 1), topic, 0)
        return Due((rolled.put,), rolled.born_ms, rolled.born_host)

    def _is_cancelled(self, unit: Unit, block: bytes) -> bool:
        """Whether a cancel of RocketMQ's in the same slot names this timer (reference 5.6)."""
        keys = self._cancelled.get(unit.slot_ms)
        if keys is None:
            self._cancelled = {slot: each for slot, each in self._cancelled.items() if slot in self._table.cancels}
            keys = self._cancelled[unit.slot_ms] = set()
        positions = self._table.cancels[unit.slot_ms]
        while positions:
            cancel = self._table.log.unit(positions.pop())
            try:
                record = self._store.read(cancel.physical, cancel.size)
                if not prepared_offset(record):
                    keys.add(find_property(split(record)[1], CANCEL_NAME) or b"")
            except DamagedRecord:
                self._metrics.counter(counted.LOST).add()
            except RecordGone:
                # One of ours, whose target is settled: RocketMQ keeps its own for longer than they wait.
                pass
        key = find_property(block, b"UNIQ_KEY") or b"\x01"
        return key in keys or (find_property(block, REAL_TOPIC_NAME) or b"") + b"+" + key in keys

    def refuse(self, message: Taken, reason: str) -> None:
        """Set a timer aside, or put it again for later where too many are."""
        unit = message.unit
        self._metrics.counter(counted.REFUSED).add()
        self._notices.note("timed_message_refused", physical=unit.physical, due_ms=unit.due_ms, reason=reason)
        known = self.aside.get(unit.physical)
        if known is not None:
            known.reason, known.tries = reason, known.tries + 1
            return
        if len(self.aside) >= self.aside_max and self._defer(message):
            return
        if not self.aside:
            self.retry_at = self._clock.monotonic() + RETRY_SECONDS
        self.aside[unit.physical] = Aside(message, reason, self._clock.wall_ms())
        self._table.settle(unit, marked=True)

    def _defer(self, message: Taken) -> bool:
        """Put a timer again, due later; False when that cannot be done now."""
        record = self._store.read(message.unit.physical, message.unit.size)
        body, block = split(record)
        due_ms = self._clock.wall_ms() + DEFER_MS
        slot_ms = slot_of(due_ms, self._table.wheel.precision_ms)
        own = _MOMENT % (due_ms, slot_ms)
        topic = self._store.topics[TIMER_NAME.decode()]
        put, born_ms, born_host = moved(record, body, without(block, _MOMENT_NAMES) + own, topic, 0)
        try:
            self._store.append(
                [put], born_ms=born_ms, born_host=born_host, done=lambda error: self._deferred(message, error)
            )
        except StoreError:
            return False
        return True

    def _deferred(self, message: Taken, error: StoreError | None) -> None:
        if error is None:
            self._metrics.counter(counted.DEFERRED).add()
            self._settle(message)

    def lose(self, message: Taken, error: StoreError) -> None:
        """Give a timer up whose record is damaged or gone."""
        self._metrics.counter(counted.LOST).add()
        self._notices.note("timed_message_lost", physical=message.unit.physical, why=str(error))
        self._settle(message)

    def wait(self, messages: Sequence[Taken], error: StoreError) -> None:
        """Take back what the store has no room for."""
        self._metrics.counter(counted.WAITS).add()
        self._notices.note("timers_wait", error=str(error))
        back = [each for each in messages if each.unit.physical not in self.aside]
        rolls = [(each.unit.slot_ms, each.position) for each in back if each.unit.magic & MAGIC_ROLL]
        self._table.rolls.give_back(rolls)
        timers = [(each.unit.due_ms, each.position) for each in back if not each.unit.magic & MAGIC_ROLL]
        self._table.coming.give_back(timers)

    def done(self, messages: Sequence[Taken], error: StoreError | None) -> None:
        """Settle what is stored."""
        if error is not None:
            return
        now = self._clock.wall_ms()
        rolled = sum(1 for each in messages if each.unit.magic & MAGIC_ROLL)
        self._metrics.counter(counted.ROLLED).add(rolled)
        self._metrics.counter(counted.DELIVERED).add(len(messages) - rolled)
        for each in messages:
            if not each.unit.magic & MAGIC_ROLL and each.unit.physical not in self.aside:
                self._late_max.value = max(self._late_max.value, now - each.unit.due_ms)
            if self.follower is not None:
                self.follower.done(each.unit.physical)
            self._settle(each)
        self.on_done()

    def _settle(self, message: Taken) -> None:
        if self.aside.pop(message.unit.physical, None) is not None:
            self._table.forget(message.unit)
        else:
            self._table.settle(message.unit)

    def count_cancel(self, properties: bytes) -> None:
        """Count a cancel of a waiting record with these properties, as what follows it does."""
        self._metrics.counter(counted.CANCELLED).add()
        if self.follower is not None and MARK in properties:
            self.follower.cancelled(properties)

    # What was aside

    def asides(self) -> list[list[int]]:
        """Commit-log offset, size and due time of what is aside, for the checkpoint."""
        units = [each.timer.unit for each in self.aside.values()]
        return [[unit.physical, unit.size, unit.due_ms] for unit in units]

    def restore(self, physical: int, size: int, due_ms: int, topic_hash: int) -> None:
        """Take a timer over that was aside when the store was closed."""
        unit = Unit(-1, MAGIC_TIMER, -1, physical, size, topic_hash, due_ms)
        self.aside[physical] = Aside(Taken(-1, unit), "it was refused before the start", self._clock.wall_ms(), 0)


_FACTS = re.compile(
    rb"(?<![^\x02])TIMER_DELIVER_MS\x01(\d{1,18})\x02TIMER_OUT_MS\x01\d{1,18}\x02"
    rb"REAL_TOPIC\x01([^\x01\x02]+)\x02REAL_QID\x01(\d{1,4})\x02"
)
"""As this broker writes them."""
_OTHERS = re.compile(rb"TIMER_|REAL_|__PYDDMQ_LOOP")
_UNUSUAL = SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6
_unpack_header = struct.Struct(">16xi16xiq8s16xi").unpack_from
"""The producer's flag, sysFlag, born time and host, reconsume times, where both hosts are IPv4."""
_ROLLS = b"TIMER_ROLL_TIMES\x01%d\x02"
_MOMENT = b"TIMER_DELIVER_MS\x01%d\x02TIMER_OUT_MS\x01%d\x02"
_MOMENT_NAMES = (DELIVER_NAME, OUT_NAME, b"TIMER_DELAY_MS", b"TIMER_DELAY_SEC")
