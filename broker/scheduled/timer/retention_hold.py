"""What becomes of pending timers in a log file that retention is about to delete: put again at the tail (D29).

The copy is RocketMQ's form of a roll without its count: the same properties and body. It names the record that it
replaces, so that a timer is pending once whatever stops in between.
"""

from __future__ import annotations

from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.format.record import split
from broker.log.awaited import AwaitedSteps, all_durable, saved
from broker.retention import ExpiringSegment, Relocation
from broker.runtime.metrics import Metrics
from broker.scheduled.release import moved
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.names import TIMER_TOPIC
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
        """Whether the file may have a timer that is not delivered."""
        return (self._timers.pending > 0 or self._is_mending()) and (TIMER_TOPIC, 0) in expiring.minimums

    def relocate(self, expiring: ExpiringSegment, count_max: int) -> AwaitedSteps[Relocation]:
        """Put pending timers again, a bounded number of them."""
        timers, table, due = self._timers, self._timers.table, self._timers.due
        minimum = expiring.minimums.get((TIMER_TOPIC, 0))
        if minimum is None:
            return Relocation.DONE
        if timers.entering.offset < minimum or self._is_mending():
            # They are not in the wheel yet: the next steps enter them.
            return Relocation.BLOCKED
        generation = table.log.generation
        refused = [physical for physical in due.refused if physical < expiring.end]
        if any(physical < expiring.end for physical in due.held) or (refused and due.delivery.in_flight):
            # Refused ones may be on their way, and cancelled ones: that ends first.
            retry_at = due.retry_at
            yield from all_durable(timers.store)
            if retry_at != due.retry_at or any(physical < expiring.end for physical in due.held):
                return Relocation.MORE
            if self._is_mending() or generation != table.log.generation:
                return Relocation.BLOCKED
        places = [(each.timer.unit.physical, each.timer.unit.size) for each in due.refused.values()]
        places = [place for place in places if place[0] < expiring.end][:count_max]
        number = max(table.log.relocated, table.log.first)
        looked = 0
        while number < table.log.count and len(places) < count_max and looked < _LOOKED_MAX:
            position = table.log.position(number)
            unit = table.log.unit(position)
            if unit.physical >= expiring.end:
                break
            if table.is_pending(unit, position) and unit.physical not in due.superseded:
                places.append((unit.physical, unit.size))
            elif unit.size and unit.slot_ms >= table.read_ms and due.delivery.in_flight:
                # It may be the one whose delivery is under way.
                return Relocation.BLOCKED
            number += 1
            looked += 1
        for physical, size in places:
            if not self._put_again(physical, size):
                return Relocation.BLOCKED
        if places:
            yield from all_durable(timers.store)
            if self._is_mending() or generation != table.log.generation:
                return Relocation.BLOCKED
        table.log.relocated = number
        more = number < table.log.count and table.log.unit(table.log.position(number)).physical < expiring.end
        self._moved = self._moved or bool(places)
        if more or len(places) == count_max:
            return Relocation.MORE
        if self._moved:
            # A start that knew nothing of this would miss the records that go now.
            self._moved = False
            yield from saved(timers.store, timers.checkpoints.writing())
        return Relocation.DONE

    def _is_mending(self) -> bool:
        return self._timers.parts.is_mending

    def dropped(self, expiring: ExpiringSegment) -> None:
        """Forget the timer-log files whose records are gone."""
        self._timers.drop_before(expiring.end)

    def _put_again(self, physical: int, size: int) -> bool:
        store = self._timers.store
        try:
            record = store.read(physical, size)
            body, block = split(record)
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
