"""What becomes of pending timers in a log file that retention is about to delete: put again at the tail (D29).

The copy is RocketMQ's form of a roll without its count: the same properties and body. It names the record that it
replaces, so that a timer is pending once whatever stops in between.
"""

from __future__ import annotations

from contextlib import suppress

from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.log.durability import AwaitedSteps, all_durable, saved
from broker.retention import ExpiringSegment, Relocation
from broker.runtime.metrics import Metrics
from broker.scheduled.release import moved
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.names import TIMER_TOPIC
from broker.scheduled.timer.parts import AHEAD_MS
from broker.scheduled.timer.pending.log import MAGIC_DELETE, Taken, TimersDamaged
from broker.scheduled.timer.timers import Timers

_LOOKED_MAX = 8192
"""Units looked at in one step; most were delivered."""


class TimerHold:
    """The `broker.retention.RetentionHold` of timers; enter it in `store.retention.holds`."""

    def __init__(self, timers: Timers, metrics: Metrics) -> None:
        self._timers = timers
        self._put_back = metrics.counter(counted.PUT_BACK)
        self._moved = False

    def needs(self, expiring: ExpiringSegment) -> bool:
        """Whether the file may have a timer that is not delivered, or what says of one that it was."""
        has_pending = (self._timers.pending > 0 or self._is_mending()) and (TIMER_TOPIC, 0) in expiring.minimums
        return has_pending or (self._timers.entering.queue is not None and not self._is_covered(expiring))

    def relocate(self, expiring: ExpiringSegment, count_max: int) -> AwaitedSteps[Relocation]:
        """Put pending timers again, a bounded number of them."""
        minimum = expiring.minimums.get((TIMER_TOPIC, 0))
        if minimum is not None:
            outcome = yield from self._relocate(expiring, minimum, count_max)
            if outcome is not Relocation.DONE:
                return outcome
        if self._moved or not self._is_covered(expiring):
            # A start that knew nothing of this would miss the records that go now, and what says that timers were
            # delivered: it would wait for these again.
            self._moved = False
            yield from saved(self._timers.store.writes, self._timers.checkpoints.writing())
        return Relocation.DONE

    def _is_covered(self, expiring: ExpiringSegment) -> bool:
        return self._timers.checkpoints.saved_end >= expiring.end

    def _relocate(self, expiring: ExpiringSegment, minimum: int, count_max: int) -> AwaitedSteps[Relocation]:
        table, due = self._timers.table, self._timers.due
        if self._timers.entering.offset < minimum or self._is_mending():
            # They are not in the wheel yet: the next steps enter them.
            return Relocation.BLOCKED
        generation = table.log.generation
        refused = [physical for physical in due.refused if physical < expiring.end]
        if any(physical < expiring.end for physical in due.held) or (refused and due.delivery.in_flight):
            # Refused ones may be on their way, and cancelled ones: that ends first.
            retry_at = due.retry_at
            yield from all_durable(self._timers.store.writes)
            if retry_at != due.retry_at or any(physical < expiring.end for physical in due.held):
                return Relocation.MORE
            if self._is_mending() or generation != table.log.generation:
                return Relocation.BLOCKED
        timers = [each.timer for each in due.refused.values() if each.timer.unit.physical < expiring.end][:count_max]
        number = max(table.log.relocated, table.log.first)
        try:
            found, number, state = self._pending(number, expiring.end, count_max - len(timers))
            if state is Relocation.BLOCKED:
                return state
            timers += found
            for timer in timers:
                if not self._put_again(timer):
                    return Relocation.BLOCKED
        except TimersDamaged as error:
            # What a damaged unit says would lose its timer, and maybe those behind it.
            self._timers.parts.damaged(error)
            return Relocation.BLOCKED
        if timers:
            yield from all_durable(self._timers.store.writes)
            if self._is_mending() or generation != table.log.generation:
                return Relocation.BLOCKED
        table.log.relocated = number
        self._moved = self._moved or bool(timers)
        if state is Relocation.MORE or len(timers) == count_max:
            return Relocation.MORE
        return Relocation.DONE

    def _pending(self, start: int, end: int, count_max: int) -> tuple[list[Taken], int, Relocation]:
        """Find pending timers whose records are before a commit-log offset, in a bounded number of units.

        Returns:
            What was found; the number of the unit to continue at; whether that is all, or one may be the one whose
            delivery is under way (BLOCKED).

        Raises:
            TimersDamaged: A unit says what its record does not, or its neighbours do not.
            OSError: The timer log cannot be read.
        """
        table, due = self._timers.table, self._timers.due
        log, found, before = table.log, list[Taken](), -1
        come_ms = self._timers.clock.wall_ms() + AHEAD_MS
        for number in range(start, log.count):
            if len(found) == count_max or number == start + _LOOKED_MAX:
                return found, number, Relocation.MORE
            position = log.position(number)
            unit = log.unit(position)
            following = log.following(position)
            if unit.physical <= before or (following is not None and following <= unit.physical):
                raise TimersDamaged(f"the unit of the timer log at {position} names a record out of order")
            before = unit.physical
            if unit.physical >= end:
                due.check_named(unit)
                return found, number, Relocation.DONE
            table.check_slot(unit, position, come_ms=come_ms)
            if table.is_pending(unit, position) and unit.physical not in due.superseded:
                found.append(Taken(position, unit))
            elif unit.size and unit.slot_ms >= table.read_ms and not unit.magic & MAGIC_DELETE:
                if due.delivery.in_flight:
                    return found, number, Relocation.BLOCKED
                with suppress(DamagedRecord, RecordGone):
                    due.record_of(Taken(position, unit))
                if unit.physical not in due.superseded and unit.physical not in due.refused:
                    # Delivered, in a slot that is still open: what says so may go with the next log file.
                    log.marked.add(position)
                    self._moved = True
        return found, log.count, Relocation.DONE

    def _is_mending(self) -> bool:
        return self._timers.parts.is_mending

    def dropped(self, expiring: ExpiringSegment) -> None:
        """Forget the timer-log files whose records are gone."""
        self._timers.drop_before(expiring.end)

    def _put_again(self, timer: Taken) -> bool:
        store, physical = self._timers.store, timer.unit.physical
        try:
            record, body, block = self._timers.due.record_of(timer)
        except (DamagedRecord, RecordGone):
            # It is lost when it is due, and counted then.
            return True
        put, born_ms, born_host = moved(record, body, block, store.topics[TIMER_TOPIC], 0)

        def done(error: StoreError | None) -> None:
            self._timers.parts.replaced(physical, error)
            if error is None:
                self._put_back.add()

        try:
            store.append([put], born_ms=born_ms, born_host=born_host, done=done)
        except StoreError:
            return False
        # Neither delivered nor cancelled until then.
        self._timers.due.hold(physical)
        return True
