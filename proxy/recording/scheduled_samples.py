"""Samples of what waits in a node by its own time: timers, delay levels, halves, and those of Kafka topics.

What has nothing pending is left out, but for the round after its last one, so that its end is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from broker.errors import StoreError
from broker.format.record import store_timestamp
from broker.runtime.seams import Clock
from broker.scheduled.delay.delays import Delays
from broker.scheduled.delay.level_queue import DelayLevel
from broker.scheduled.timer.timers import Timers
from broker.transaction.transactions import Transactions
from lag.samples import ScheduledSample
from upstream.kafka.waiting.cluster import KafkaWaiting
from upstream.kafka.waiting.records import PartitionStatus

TIMER, DELAY, HALF = "timer", "delay", "half"

OnKafka = Mapping[str, KafkaWaiting]
"""What waits on Kafka, by cluster."""


class ScheduledSampler:
    """Samples what waits in one node, round by round.

    Args:
        delays, timers, transactions: What waits in its store.
        on_kafka: What waits on Kafka, by cluster.
        clock: Says what is overdue.
    """

    def __init__(
        self,
        delays: Delays,
        timers: Timers,
        transactions: Transactions,
        on_kafka: OnKafka,
        clock: Clock,
    ) -> None:
        self._delays, self._timers, self._transactions = delays, timers, transactions
        self._on_kafka = on_kafka
        self._clock = clock
        self._pending: set[tuple[str, str, int]] = set()
        """What had something pending in the round before: kind, topic and level."""
        self._oldest: dict[int, tuple[int, int | None]] = {}
        """By level: commit-log offset of its oldest message, and when that was stored."""

    def round(self) -> Iterator[Callable[[], ScheduledSample | None]]:
        """Yield the parts of one round: each reads one sample, None where nothing waits."""
        yield lambda: self._unless_idle(timer_sample(self._timers, self._clock.wall_ms()))
        for level in list(self._delays.levels.values()):
            yield lambda level=level: self._unless_idle(self._delay_sample(level))  # type: ignore[misc]
        yield lambda: self._unless_idle(half_sample(self._transactions, self._clock.wall_ms()))
        for cluster, waiting in list(self._on_kafka.items()):
            place, statuses = f"{cluster}:{waiting.settings.topic}", waiting.owned()
            for sample in kafka_samples(place, statuses, self._clock.wall_ms()):
                yield lambda sample=sample: self._unless_idle(sample)  # type: ignore[misc]

    def _unless_idle(self, sample: ScheduledSample) -> ScheduledSample | None:
        key = (sample.kind, sample.topic, sample.level)
        was_pending = key in self._pending
        if sample.pending:
            self._pending.add(key)
        else:
            self._pending.discard(key)
        return sample if sample.pending or was_pending else None

    def _delay_sample(self, level: DelayLevel) -> ScheduledSample:
        now_ms = self._clock.wall_ms()
        first = next(level.waiting(level.position, 4), None)
        due_ms = None if first is None or first.due_ms > now_ms else first.due_ms
        return ScheduledSample(
            time_ms=now_ms,
            kind=DELAY,
            level=level.level,
            pending=level.pending,
            overdue=0 if due_ms is None else overdue_of(level, now_ms),
            oldest_due_ms=due_ms,
            oldest_ms=None if first is None else self._stored_ms(level, first.physical, first.size),
        )

    def _stored_ms(self, level: DelayLevel, physical: int, size: int) -> int | None:
        known = self._oldest.get(level.level)
        if known is not None and known[0] == physical:
            return known[1]
        stored = None
        with suppress(StoreError):
            stored = store_timestamp(self._delays.store.read(physical, size))
        self._oldest[level.level] = (physical, stored)
        return stored


def overdue_of(level: DelayLevel, now_ms: int) -> int:
    """Return how many messages of a level are due and not completed: a bisection, since they are due in their order."""
    low, high = level.position, level.queue.max_offset
    while low < high:
        middle = (low + high) // 2
        found = next(level.waiting(middle, 1), None)
        if found is None or found.due_ms > now_ms:
            high = middle
        else:
            low = found.offset + 1
    return max(0, level.pending - (level.queue.max_offset - low))


def timer_sample(timers: Timers, now_ms: int) -> ScheduledSample:
    """Sample all timers together."""
    table = timers.table
    # A slot ends a whole slot after its beginning; those before it are read as they come up.
    unread = table.unread(now_ms - table.wheel.precision_ms) if table.next_ms else 0
    refused = [each.timer.unit.due_ms for each in list(timers.due.refused.values())]
    dues = [table.next_ms] if unread else []
    dues += [each for each in (*refused, table.coming.next_due) if each is not None and each <= now_ms]
    overdue = table.coming.due_by(now_ms) + unread + len(refused)
    return ScheduledSample(
        time_ms=now_ms,
        kind=TIMER,
        pending=max(timers.pending, overdue),
        overdue=overdue,
        oldest_due_ms=min(dues, default=None),
    )


def half_sample(transactions: Transactions, now_ms: int) -> ScheduledSample:
    """Sample all undecided halves together."""
    oldest_ms = transactions.oldest_ms()
    halves = transactions.halves
    # What damage took is dropped by its line when that comes to it.
    overdue = min(halves.states.undecided, sum(len(line) for line in halves.checks.lines.values()))
    due_ms = None if oldest_ms is None or not overdue else oldest_ms + transactions.settings.timeout_ms
    return ScheduledSample(
        time_ms=now_ms,
        kind=HALF,
        pending=halves.states.undecided,
        overdue=overdue,
        # The oldest one's first check; of one that asks for another time an estimate.
        oldest_due_ms=None if due_ms is None else min(due_ms, now_ms),
        oldest_ms=oldest_ms,
    )


def kafka_samples(place: str, statuses: Sequence[PartitionStatus], now_ms: int) -> list[ScheduledSample]:
    """Sample what waits in the partitions of a waiting topic that this node owns, timers and delays together.

    Args:
        place: Cluster and topic.
        statuses: Of the partitions.
        now_ms: Wall clock.
    """
    overdue, undecided = sum(each.overdue for each in statuses), sum(each.undecided for each in statuses)
    late_ms = max((each.late_ms for each in statuses), default=0)
    undecided_ms = max((each.undecided_ms for each in statuses), default=0)
    return [
        ScheduledSample(
            time_ms=now_ms,
            kind=TIMER,
            topic=place,
            pending=sum(each.pending - each.discarded for each in statuses) - undecided,
            overdue=overdue,
            oldest_due_ms=now_ms - late_ms if overdue else None,
        ),
        ScheduledSample(
            time_ms=now_ms,
            kind=HALF,
            topic=place,
            pending=undecided,
            oldest_ms=now_ms - undecided_ms if undecided else None,
        ),
    ]
