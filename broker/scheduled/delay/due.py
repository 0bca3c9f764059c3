"""Messages of the delay levels that are due: read, released, appended; refused ones kept apart.

What is delivered takes the place of its record in the schedule topic (D27). A refused message is kept apart: it holds
up no other, and is tried again every RETRY_SECONDS. With REFUSED_MAX of a level refused, that level waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter

from broker.errors import StoreError
from broker.runtime.bundle import Runtime
from broker.runtime.step_size import STEPS_MAX, StepSize
from broker.scheduled.delay import metrics as counted
from broker.scheduled.delay.level_queue import DelayLevel, LevelMessage, RefusedDelay
from broker.scheduled.delay.levels import SCHEDULE_NAME, WAIT_NAME
from broker.scheduled.delay.puts import DELAY_NAMES
from broker.scheduled.delivery import Due, ScheduledDelivery
from broker.scheduled.release import release
from broker.scheduled.release_plain import Facts, Plain, PlainRelease
from broker.store import Store

STEP_MESSAGES = 256
STEP_BYTES = 1 << 20
"""Messages taken in one step, fewer while others have something to do (`step_size`), and their bytes at most."""
RETRY_SECONDS = 10.0
RETRIES_PER_STEP = 64
REFUSED_MAX = 1000
FACTS = Facts((b"DELAY\x01", 4), (b"REAL_TOPIC\x01", 0), (b"REAL_QID\x01", 4), (WAIT_NAME + b"\x01", 18))
"""As `broker.scheduled.delay.puts` writes them."""

_level = attrgetter("level")


class DueDelays:
    """Delivers the messages of one store's delay levels that are due.

    Attributes:
        levels: By number; empty until the first delayed message.
        store: The store.
        clock: Wall clock for due times.
        metrics: Counts.
        delivery: Appends.
        retries: How often refused ones were tried again.
        step_size: How many a step takes.

    Args:
        store: The store.
        runtime: Wall clock for due times, counts, log lines.
        delivered: Called when deliveries are durable.
    """

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        *,
        delivered: Callable[[], None],
    ) -> None:
        self.levels: dict[int, DelayLevel] = {}
        self.store = store
        self.clock = runtime.clock
        metrics = self.metrics = runtime.metrics
        self.delivery: ScheduledDelivery[LevelMessage] = ScheduledDelivery(store, self)
        self.retries = 0
        self.step_size = StepSize(runtime, STEP_MESSAGES)
        self._limited_log = runtime.limited_log
        self._delivered = delivered
        self._retry_at = 0.0
        self._late_max = metrics.counter(counted.LATE_MAX)
        names = (b"DELAY\x01", b"REAL_", WAIT_NAME)
        self._plain = PlainRelease(store, room=SCHEDULE_NAME, facts=FACTS, names=names)

    def measure(self) -> None:
        """Bring the gauges up to date."""
        for level in self.levels.values():
            self.metrics.counter(counted.PENDING, str(level.level)).value = level.pending
        self.metrics.counter(counted.REFUSED_NOW).value = sum(len(level.refused) for level in self.levels.values())

    # One message

    def is_waiting(self, number: int, offset: int, retries: int) -> bool:
        """Whether the message at an offset of a level's queue is neither completed nor under way.

        `retries` is as it was before a flush of all that was under way then.
        """
        if self.is_over(number, offset):
            return False
        level = self.levels[number]
        if not self.delivery.in_flight or not level.is_tried(offset):
            return True
        return offset in level.refused and retries == self.retries

    def is_over(self, number: int, offset: int) -> bool:
        """Whether the message at an offset of a level's queue is completed."""
        level = self.levels.get(number)
        return level is None or not level.position <= offset < level.queue.max_offset or offset in level.completed

    # When

    @property
    def is_full(self) -> bool:
        """Whether a step has to wait until one that is on its way is durable."""
        return self.delivery.steps >= STEPS_MAX

    def seconds_left(self) -> float | None:
        """Time until something is due, or refused ones are tried again; None when nothing is pending."""
        now_us = self.clock.wall_us()
        heads = [level.head() for level in self.levels.values() if len(level.refused) < REFUSED_MAX]
        waits = [(head.due_ms * 1000 - now_us) / 1e6 for head in heads if head is not None]
        if not self.delivery.in_flight and any(level.refused for level in self.levels.values()):
            waits.append(self._retry_at - self.clock.monotonic())
        return min(waits, default=None)

    # Delivering

    def deliver_due(self) -> bool:
        """Take and append what is due, as much as one step has; False when the store takes nothing now."""
        now_ms, alone = self.clock.wall_ms(), not self.delivery.in_flight
        due = self._due_levels(now_ms)
        count = self.step_size.begin() if due else 0
        messages: list[LevelMessage] = []
        for level in due:
            messages += level.take(now_ms, max(1, count // len(due)), max(1, STEP_BYTES // len(due)))
        taken = not messages or self._deliver(messages)
        self.step_size.end(len(messages))
        if taken and alone and self.clock.monotonic() >= self._retry_at:
            taken = self._retry()
        return taken

    def _due_levels(self, now_ms: int) -> list[DelayLevel]:
        """Return the levels that have something due, whose first was due first at the front."""
        due: list[tuple[int, DelayLevel]] = []
        for level in self.levels.values():
            level.look()
            level.check_clock()
            head = level.head() if len(level.refused) < REFUSED_MAX else None
            if head is not None and head.due_ms <= now_ms:
                due.append((head.due_ms, level))
        return [level for _, level in sorted(due, key=lambda each: each[0])]

    def _deliver(self, messages: list[LevelMessage]) -> bool:
        return self.delivery.deliver(messages, together_max=STEP_MESSAGES)

    def _retry(self) -> bool:
        """Try a bounded number of the refused again, those tried least first; False when the store takes nothing."""
        refused = [
            refused
            for level in self.levels.values()
            for offset, refused in level.refused.items()
            if offset not in level.held
        ]
        refused.sort(key=lambda each: each.tries)
        self.retries += 1
        self._retry_at = self.clock.monotonic() + RETRY_SECONDS
        return not refused or self._deliver([each.message for each in refused[:RETRIES_PER_STEP]])

    # What a delivery asks

    def release_plain(self, messages: list[LevelMessage]) -> Plain:
        """Make what to append for messages as this broker writes them."""
        return self._plain.release([(each.physical, each.size) for each in messages])

    def release(self, message: LevelMessage) -> Due:
        """Make what to append for a message.

        Raises:
            MessageRefused: Its topic does not take it.
            DamagedRecord, RecordGone: Its record cannot be read.
        """
        record = self.store.read(message.physical, message.size)
        put, born_ms, born_host = release(record, self.store.topics, DELAY_NAMES)
        return Due((put,), born_ms, born_host)

    def refuse(self, message: LevelMessage, reason: str) -> None:
        """Keep a refused message apart."""
        self.metrics.counter(counted.REFUSED).add()
        self._limited_log.note(
            "delayed_message_refused",
            level=message.level,
            offset=message.offset,
            physical=message.physical,
            reason=reason,
        )
        level = self.levels[message.level]
        known = level.refused.get(message.offset)
        if known is not None:
            known.reason, known.tries = reason, known.tries + 1
            return
        if not any(each.refused for each in self.levels.values()):
            self._retry_at = self.clock.monotonic() + RETRY_SECONDS
        level.refused[message.offset] = RefusedDelay(message, reason, self.clock.wall_ms())

    def lose(self, message: LevelMessage, error: StoreError) -> None:
        """Give a message up whose record is damaged or gone."""
        self.metrics.counter(counted.LOST).add()
        self._limited_log.note(
            "delayed_message_lost",
            level=message.level,
            offset=message.offset,
            physical=message.physical,
            why=str(error),
        )
        self.levels[message.level].complete(message.offset)

    def wait(self, messages: Sequence[LevelMessage], error: StoreError) -> None:
        """Take back what the store has no room for."""
        self.metrics.counter(counted.WAITS).add()
        self._limited_log.note("delays_wait", level=messages[0].level, error=str(error))
        self.give_back(messages)

    def give_back(self, messages: Sequence[LevelMessage]) -> None:
        """Take back what is not delivered in this step; those of a level follow each other, in its order."""
        for number, group in groupby(messages, _level):
            level, offsets = self.levels[number], [each.offset for each in group]
            if offsets[0] not in level.refused:
                level.give_back(offsets)

    def done(self, messages: list[LevelMessage], error: StoreError | None) -> None:
        """Settle what is stored."""
        if error is not None:
            return
        now_ms = self.clock.wall_ms()
        for number, group in groupby(messages, _level):
            level, stored = self.levels[number], list(group)
            late = now_ms - stored[0].due_ms
            if late > self._late_max.value and stored[0].offset not in level.refused:
                self._late_max.value = late
            level.complete_all(stored)
            self.metrics.counter(counted.DELIVERED, str(number)).add(len(stored))
        self._delivered()
