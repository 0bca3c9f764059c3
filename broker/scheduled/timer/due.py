"""Timers that are due: read, released, appended; refused ones kept apart. The last two stages.

What is delivered takes the place of its record in the timer topic (D27), and so do rolls, which go to the timer topic
again. A refused timer is kept apart: it blocks no other, and is tried again every RETRY_SECONDS. With REFUSED_MAX
refused, further ones are put again at the log's tail, due DEFER_MS later, so that memory and checkpoint stay small.

A timer is delivered once, whatever stops between, because its delivery names the record that it replaces: the log
decides, and a start finds there what was delivered, not in the wheel. What the log does not say yet is kept here:
`superseded`, records that a cancel or a move has replaced that is not in the wheel; `held`, those that a cancel under
way is about to replace, with what of them came due meanwhile; and what was appended and is not durable (`delivery`).
`release` asks all of them first, then whether unit and record say the same, then whether a cancel of RocketMQ's names
the timer.

Most timers are ones that this broker wrote and nothing follows: `release_plain` makes these together, and leaves the
others to `release`, one by one and in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.format.numbers import whole_number
from broker.format.properties import find_property
from broker.format.record import prepared_offset, split, topic_of
from broker.format.wait_properties import REAL_TOPIC_NAME
from broker.runtime.bundle import Runtime
from broker.runtime.step_size import STEPS_MAX, StepSize
from broker.scheduled.delivery import Due, ScheduledDelivery
from broker.scheduled.recurring.loops import Loops
from broker.scheduled.release import moved, release, without
from broker.scheduled.release_plain import Facts, Plain, PlainRelease
from broker.scheduled.timer import log_units
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.names import (
    CANCEL_NAME,
    DELIVER_NAME,
    OUT_NAME,
    ROLLS_NAME,
    TIMER_NAME,
    TIMER_NAMES,
    due_of,
    slot_of,
)
from broker.scheduled.timer.pending.due_timers import Coming
from broker.scheduled.timer.pending.log import MAGIC_DELETE, MAGIC_ROLL, MAGIC_TIMER, Taken, TimersDamaged, Unit
from broker.scheduled.timer.pending.table import TimerTable, key_of
from broker.store import Store

STEP_MESSAGES = 512
STEP_BYTES = 1 << 20
"""Timers of one step, fewer while others have something to do (`step_size`), and bytes of their records."""
TOGETHER_LEAST = 64
"""Puts that a step always has for timers that something follows: `broker.scheduled.recurring`."""
RETRY_SECONDS = 10.0
RETRIES_PER_STEP = 64
REFUSED_MAX = 1000
DEFER_MS = 600_000
MARK = b"__PYDDMQ_LOOP"


@dataclass(slots=True)
class RefusedTimer:
    """A timer whose delivery was refused: what it is, why, since when (wall ms), how often it was tried."""

    timer: Taken
    reason: str
    since_ms: int
    tries: int = 1


class DueTimers:
    """Delivers the timers of one store that are due.

    Attributes:
        refused: Refused timers, by the commit-log offset of their record.
        superseded: Records that were replaced or cancelled by one that is not in the wheel yet.
        held: Records that a cancel under way takes the place of, by commit-log offset: not delivered meanwhile. With
            what of them came due.
        refused_max: With so many refused, further ones are put again.
        delivery: Appends.
        step_size: How many a step takes.

    Args:
        store: The store.
        table: What is pending there.
        runtime: Wall clock for due times, counts, log lines.
        delivered: Called when deliveries are durable.
        appending: Entered around each append.
        follower: Asked for timers whose properties hold `MARK`.
    """

    def __init__(
        self,
        store: Store,
        table: TimerTable,
        runtime: Runtime,
        *,
        delivered: Callable[[], None],
        appending: Callable[[], AbstractContextManager[None]],
        follower: Loops | None = None,
    ) -> None:
        self.refused: dict[int, RefusedTimer] = {}
        self.superseded: set[int] = set()
        self.held: dict[int, list[Taken]] = {}
        self.refused_max = REFUSED_MAX
        self._follower = follower
        self.step_size = StepSize(runtime, STEP_MESSAGES)
        self.delivery: ScheduledDelivery[Taken] = ScheduledDelivery(store, self, appending=appending)
        self.retry_at = 0.0
        self._delivered = delivered
        self._store = store
        self._table = table
        self._clock = runtime.clock
        metrics = self._metrics = runtime.metrics
        self._limited_log = runtime.limited_log
        self._plain = PlainRelease(store, room=TIMER_NAME, facts=_FACTS, names=(b"TIMER_", b"REAL_", MARK))
        self._cancelled: dict[int, set[bytes]] = {}
        self._followed: set[int] = set()
        self._deferring = 0
        self._late_max = metrics.counter(counted.LATE_MAX)
        self._rolled_count = metrics.counter(counted.ROLLED)
        self._delivered_count = metrics.counter(counted.DELIVERED)

    # Taking

    @property
    def is_full(self) -> bool:
        """Whether a step has to wait until what is on its way is durable."""
        return self.delivery.steps >= STEPS_MAX

    @property
    def under_way(self) -> int:
        """Timers whose delivery, cancel or copy is not durable: they end with positions in the timer log that is."""
        return self.landing + len(self.held)

    @property
    def landing(self) -> int:
        """Timers that are on their way into the log again: delivered, rolled, or put again for later."""
        return self.delivery.in_flight + self._deferring

    def wake(self) -> None:
        """Have the next step made when something is to be done."""
        self._delivered()

    def begin_anew(self) -> None:
        """Forget what was read of timer log and wheel, which are rebuilt; nothing may be in flight."""
        assert not self.under_way, "it would end with positions of the old timer log"
        self.refused.clear()
        self.superseded.clear()
        self._cancelled.clear()
        self._followed.clear()

    def deliver_due(self, now_us: int) -> tuple[int, bool]:
        """Take and append timers that are due, then rolls, as many as one step has.

        Where the store shows at its moment what is appended before, those that are due by then as well.

        Args:
            now_us: Wall clock.

        Returns:
            How many were taken, and whether the store takes more.

        Raises:
            TimersDamaged: A unit and its record do not fit together.
        """
        table, commit = self._table, self._store.commit
        count_max, before = self.step_size.begin(), self.delivery.appended
        now_ms, by_ms = now_us // 1000, (now_us + commit.ahead_us) // 1000
        # Each moment of those that are early is a run of its own.
        count, goes_on, due_ms = 0, True, now_ms
        while True:
            taken = self._take(table.coming, due_ms, count_max - count)
            count += len(taken)
            goes_on = not taken or self._deliver(taken, count_max)
            next_ms = table.coming.next_due
            if not goes_on or count >= count_max or next_ms is None or not due_ms < next_ms <= by_ms:
                break
            due_ms = next_ms
            commit.wait_for(due_ms)
        # Rolls have days of time: they take what room is left, but never none.
        if goes_on:
            rolls = self._take(table.rolls, by_ms, max(count_max - count, count_max // 8))
            count += len(rolls)
            goes_on = not rolls or self._deliver(rolls, count_max)
        self.step_size.end(max(count, self.delivery.appended - before))
        return count, goes_on

    def _deliver(self, messages: list[Taken], count_max: int) -> bool:
        # A loop's missed occurrences come in bunches: one of them at least, however small a step is.
        return self.delivery.deliver(messages, together_max=max(count_max, TOGETHER_LEAST))

    def _take(self, coming: Coming, now_ms: int, count_max: int) -> list[Taken]:
        positions = coming.take(now_ms, count_max)
        if not positions:
            return []
        taken = log_units.take(self._table.log, positions)
        count = log_units.fitting(taken, STEP_BYTES)
        if count < len(taken):
            coming.give_back([(key_of(unit), position) for position, unit in taken[count:]])
            del taken[count:]
        return taken

    def retry(self) -> bool:
        """Try a bounded number of the refused again, those tried least first; False when the store takes nothing."""
        if not self.refused:
            return True
        self.retry_at = self._clock.monotonic() + RETRY_SECONDS
        refused = sorted(self.refused.values(), key=lambda each: each.tries)[:RETRIES_PER_STEP]
        return self._deliver([each.timer for each in refused], STEP_MESSAGES)

    # What a delivery asks

    def release_plain(self, messages: list[Taken]) -> Plain:
        """Make what to append for timers as this broker writes them: no rolls, loops or cancels."""
        table = self._table
        unwanted = self.superseded | self.held.keys() if self.held else self.superseded
        places, dues, others = log_units.usual(messages, unwanted, table.cancels, table.log.marked)
        plain = self._plain.release(places, dues)
        if not others:
            return plain
        unusual = set(others)
        known = [place for place in range(len(messages)) if place not in unusual]
        return plain._replace(others=sorted([*others, *[known[each] for each in plain.others]]))

    def release(self, message: Taken) -> Due | None:
        """Make what to append for a timer; None when it was cancelled.

        Raises:
            MessageRefused: Its topic does not take it.
            DamagedRecord, RecordGone: Its record cannot be read.
            TimersDamaged: Its unit says something else than the record.
        """
        unit = message.unit
        held = self.held.get(unit.physical)
        if held is not None:
            if unit.physical not in self.refused:
                held.append(message)
            return None
        if not unit.size or message.position in self._table.log.marked:
            self._table.complete(unit, marked=True)
            return None
        if unit.physical in self.superseded:
            self._complete(message)
            return None
        try:
            record, body, block = self.record_of(message)
        except RecordGone:
            if unit.magic & MAGIC_DELETE:
                # A cancel went with its log file before it was to be rolled: what it names went before it.
                self._complete(message)
                return None
            raise
        if unit.magic & MAGIC_ROLL:
            if unit.magic & MAGIC_DELETE and prepared_offset(record):
                # Its target is completed already.
                self._complete(message)
                return None
            return self._rolled(record, body, block)
        if unit.slot_ms in self._table.cancels and self._is_cancelled(unit, block):
            self.count_cancel(block)
            self._complete(message)
            return None
        released = release(record, self._store.topics, TIMER_NAMES)
        if self._follower is not None and MARK in block:
            followed = self._follower.unfold(released)
            if followed is not None:
                self._followed.add(unit.physical)
                return Due(tuple(followed.puts), released.born_ms, released.born_host)
        return Due((released.put,), released.born_ms, released.born_host)

    def record_of(self, message: Taken) -> tuple[memoryview, memoryview, bytes]:
        """Return the record of a timer, its body and its properties.

        Raises:
            DamagedRecord, RecordGone: It cannot be read.
            TimersDamaged: The unit says something else than the record.
        """
        unit = message.unit
        try:
            record = self._store.read(unit.physical, unit.size)
        except DamagedRecord:
            # Is it the record that is damaged, or the unit that names it?
            self.check_named(unit)
            raise
        except RecordGone:
            self._check_gone(message)
            raise
        body, block = split(record)
        due_ms = due_of(block, self._table.wheel.precision_ms)
        if topic_of(record) != TIMER_NAME or due_ms != (unit.due_ms or due_ms):
            raise TimersDamaged(f"a unit of the timer log names the record at {unit.physical}, which says other things")
        return record, body, block

    def _check_gone(self, message: Taken) -> None:
        """Look whether the record of a timer may be gone: those of the units behind it come first in what is kept.

        (RocketMQ deletes log files whatever waits in them.) Raises TimersDamaged.
        """
        if message.position < 0:
            return
        queue = self._store.topics[TIMER_NAME.decode()].queues[0]
        following = self._table.log.following(message.position)
        behind = queue.max_offset if following is None else queue.first_at(following)
        if behind > queue.min_offset:
            raise TimersDamaged(f"a unit of the timer log names no record at {message.unit.physical}")

    def check_named(self, unit: Unit) -> None:
        """Look whether a unit names a record of the timer topic that is kept, as the topic's queue knows it.

        Raises:
            TimersDamaged: It names none.
        """
        queue = self._store.topics[TIMER_NAME.decode()].queues[0]
        known = queue.record_at(unit.physical)
        if known is None or known[:2] != (unit.physical, unit.size or known[1]):
            raise TimersDamaged(f"a unit of the timer log names no record at {unit.physical}")

    def _rolled(self, record: memoryview, body: memoryview, block: bytes) -> Due:
        count = whole_number(find_property(block, ROLLS_NAME)) or 0
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
                # One of ours, whose target is completed: RocketMQ keeps its own for longer than they wait.
                pass
        key = find_property(block, b"UNIQ_KEY") or b"\x01"
        return key in keys or (find_property(block, REAL_TOPIC_NAME) or b"") + b"+" + key in keys

    def refuse(self, message: Taken, reason: str) -> None:
        """Keep a refused timer apart, or put it again for later where too many are."""
        unit = message.unit
        self._metrics.counter(counted.REFUSED).add()
        self._limited_log.note("timed_message_refused", physical=unit.physical, due_ms=unit.due_ms, reason=reason)
        known = self.refused.get(unit.physical)
        if known is not None:
            known.reason, known.tries = reason, known.tries + 1
            return
        if len(self.refused) >= self.refused_max and self._defer(message):
            return
        if not self.refused:
            self.retry_at = self._clock.monotonic() + RETRY_SECONDS
        self.refused[unit.physical] = RefusedTimer(message, reason, self._clock.wall_ms())
        self._table.complete(unit, marked=True)

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
        self._deferring += 1
        return True

    def _deferred(self, message: Taken, error: StoreError | None) -> None:
        self._deferring -= 1
        if error is None:
            self._metrics.counter(counted.DEFERRED).add()
            self._complete(message)
            self._delivered()

    def lose(self, message: Taken, error: StoreError) -> None:
        """Give a timer up whose record is damaged or gone."""
        self._metrics.counter(counted.LOST).add()
        self._limited_log.note("timed_message_lost", physical=message.unit.physical, why=str(error))
        self._complete(message)

    def wait(self, messages: Sequence[Taken], error: StoreError) -> None:
        """Take back what the store has no room for."""
        self._metrics.counter(counted.WAITS).add()
        self._limited_log.note("timers_wait", error=str(error))
        self.give_back(messages)

    def give_back(self, messages: Sequence[Taken]) -> None:
        """Take back what is not delivered in this step."""
        back = [each for each in messages if each.unit.physical not in self.refused]
        rolls = [(each.unit.slot_ms, each.position) for each in back if each.unit.magic & MAGIC_ROLL]
        self._table.rolls.give_back(rolls)
        timers = [(each.unit.due_ms, each.position) for each in back if not each.unit.magic & MAGIC_ROLL]
        self._table.coming.give_back(timers)

    def done(self, messages: list[Taken], error: StoreError | None) -> None:
        """Settle what is stored."""
        if error is not None:
            return
        news, again = messages, []
        if self.refused:
            news = [each for each in messages if each.unit.physical not in self.refused]
            again = [each for each in messages if each.unit.physical in self.refused]
        first_due_ms, rolls, slots, topics = log_units.completed(news)
        rolls += sum([bool(unit.magic & MAGIC_ROLL) for _, unit in again])
        self._rolled_count.value += rolls
        self._delivered_count.value += len(messages) - rolls
        if first_due_ms is not None:
            self._late_max.value = max(self._late_max.value, self._clock.wall_ms() - first_due_ms)
        if self._followed and self._follower is not None:
            for physical in self._followed.intersection([unit.physical for _, unit in messages]):
                self._follower.done(physical)
                self._followed.discard(physical)
        self._table.complete_all(slots, topics)
        for each in again:
            self._complete(each)
        self._delivered()

    def _complete(self, message: Taken) -> None:
        if self.refused.pop(message.unit.physical, None) is not None:
            self._table.forget(message.unit)
        else:
            self._table.complete(message.unit)

    def count_cancel(self, properties: bytes) -> None:
        """Count a cancel of a waiting record with these properties, as what follows it does."""
        self._metrics.counter(counted.CANCELLED).add()
        if self._follower is not None and MARK in properties:
            self._follower.cancelled(properties)

    # Cancels under way

    def hold(self, physical: int) -> None:
        """Do not deliver a pending timer until `let_go`."""
        self.held[physical] = []

    def let_go(self, physical: int) -> None:
        """Go on with it: deliver it, or find that it was taken out."""
        self.give_back(self.held.pop(physical))
        self._delivered()

    # What was refused

    def refused_units(self) -> list[list[int]]:
        """Commit-log offset, size and due time of what is refused, for the checkpoint."""
        units = [each.timer.unit for each in self.refused.values()]
        return [[unit.physical, unit.size, unit.due_ms] for unit in units]

    def restore(self, physical: int, size: int, due_ms: int, topic_hash: int) -> None:
        """Take a timer over that was refused when the store was closed."""
        unit = Unit(-1, MAGIC_TIMER, -1, physical, size, topic_hash, due_ms)
        self.refused[physical] = RefusedTimer(
            Taken(-1, unit), "it was refused before the start", self._clock.wall_ms(), 0
        )


_FACTS = Facts((b"TIMER_DELIVER_MS\x01", 18), (b"TIMER_OUT_MS\x01", 18), (b"REAL_TOPIC\x01", 0), (b"REAL_QID\x01", 4))
"""As `broker.scheduled.timer.puts` writes them."""
_ROLLS = b"TIMER_ROLL_TIMES\x01%d\x02"
_MOMENT = b"TIMER_DELIVER_MS\x01%d\x02TIMER_OUT_MS\x01%d\x02"
_MOMENT_NAMES = (DELIVER_NAME, OUT_NAME, b"TIMER_DELAY_MS", b"TIMER_DELAY_SEC")
