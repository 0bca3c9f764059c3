"""What becomes of delayed messages in a log file that retention is about to delete.

The file waits for those that are not due yet, at most for the longest delay: RocketMQ's form has no place for the rest
of a delay, so that putting them again would change when they are due. Those that are due and refused are put again at
the log's tail, as messages of level 1.
"""

from __future__ import annotations

from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.log.durability import AwaitedSteps, all_durable
from broker.retention import ExpiringSegment, Relocation
from broker.runtime.metrics import Metrics
from broker.scheduled.delay import metrics as counted
from broker.scheduled.delay.delays import Delays
from broker.scheduled.delay.level_queue import DelayLevel, LevelMessage
from broker.scheduled.delay.levels import SCHEDULE_TOPIC
from broker.scheduled.delay.puts import put_again


class DelayHold:
    """The `broker.retention.RetentionHold` of delayed messages; enter it in `store.retention.holds`."""

    def __init__(self, delays: Delays, metrics: Metrics) -> None:
        self._delays = delays
        self._metrics = metrics

    def needs(self, expiring: ExpiringSegment) -> bool:
        """Whether the file has a message that is not delivered."""
        return any(level.position < minimum for level, minimum in self._behind(expiring))

    def relocate(self, expiring: ExpiringSegment, count_max: int) -> AwaitedSteps[Relocation]:
        """Put refused messages again; BLOCKED while one is not due."""
        store = self._delays.store
        if any(self._is_under_way(level, minimum) for level, minimum in self._behind(expiring)):
            # Refused ones may be on their way, and cancelled ones: that ends first.
            retries = self._delays.due.retries
            yield from all_durable(store.writes)
            if retries != self._delays.due.retries:
                return Relocation.MORE
        left, waits = count_max, False
        for level, minimum in self._behind(expiring):
            for message in level.waiting(level.position):
                if message.offset >= minimum:
                    break
                if message.offset not in level.refused or message.offset in level.held:
                    waits = True
                    break
                if not left:
                    break
                left -= 1
                if not self._put_again(level, message):
                    return Relocation.BLOCKED
        if left < count_max:
            yield from all_durable(store.writes)
        if waits:
            return Relocation.BLOCKED
        return Relocation.DONE if left else Relocation.MORE

    def _is_under_way(self, level: DelayLevel, minimum: int) -> bool:
        if self._delays.due.delivery.in_flight and any(offset < minimum for offset in level.refused):
            return True
        return any(offset < minimum for offset in level.held)

    def dropped(self, expiring: ExpiringSegment) -> None:
        """Begin the levels at what is kept."""
        for level, minimum in self._behind(expiring):
            level.begin_at(minimum)

    def _behind(self, expiring: ExpiringSegment) -> list[tuple[DelayLevel, int]]:
        """Levels that lose units, and the first offset that each keeps."""
        return [
            (level, minimum)
            for level in self._delays.levels.values()
            if (minimum := expiring.minimums.get((SCHEDULE_TOPIC, level.level - 1), 0))
        ]

    def _put_again(self, level: DelayLevel, message: LevelMessage) -> bool:
        store = self._delays.store
        try:
            put, born_ms, born_host = put_again(store.read(message.physical, message.size), store)
        except (DamagedRecord, RecordGone):
            level.complete(message.offset)
            self._metrics.counter(counted.LOST).add()
            return True

        def done(error: StoreError | None) -> None:
            level.held.discard(message.offset)
            if error is None:
                level.complete(message.offset)
                self._metrics.counter(counted.PUT_BACK).add()

        try:
            store.append([put], born_ms=born_ms, born_host=born_host, done=done)
        except StoreError:
            return False
        # Neither delivered nor cancelled until then.
        level.held.add(message.offset)
        return True
