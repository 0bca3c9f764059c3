"""Delivery of delayed messages: from the schedule topic to their own, when they are due.

Guarantees:

- Never early, by the wall clock; see `broker.delay.level_queue` for a clock that is set back (D35).
- In the order of due times within a level. A message that is refused holds up nobody: it is set aside, counted, said,
  and tried again every RETRY_SECONDS. With ASIDE_MAX of a level aside, that level waits.
- Delivered once: the delivered record names the record that it replaces, and is the decision (D27). A start reads what
  was decided behind the last checkpoint, or in the whole log when there is none.
- What waits costs nothing but one look a second at the wall clock, which may have been set forward. Without anything
  pending there is not even that.

A burst is delivered in steps of STEP_MESSAGES and STEP_BYTES, and the loop does everything else between two of them. Up
to STEPS_MAX of them (`broker.pace`) are made before the first is durable.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from typing import Unpack

import structlog

from broker.awaited import AwaitedSteps, run_now
from broker.cancelling import CancelOutcome
from broker.decisions import Decision
from broker.delay import metrics as counted
from broker.delay.cancel import cancelling
from broker.delay.level_queue import Aside, DelayLevel, Waiting
from broker.delay.levels import SCHEDULE_NAME, SCHEDULE_TOPIC, WAIT_NAME
from broker.delay.puts import DELAY_NAMES
from broker.delay.state import DelayState, restore
from broker.earliest import Earliest
from broker.errors import DamagedRecord, MessageRefused, RecordGone, StoreError
from broker.metrics import Metrics
from broker.notices import Notices
from broker.pace import STEPS_MAX, Pace
from broker.put import Put
from broker.release import release
from broker.release_plain import Facts, Origin, PlainRelease
from broker.repeated import Repeated
from broker.saving import Saver, Saving, can_wait
from broker.seams import Clock, Disk, Scheduler
from broker.shared_walk import Reading, alone, decided
from broker.store import Store
from broker.store_seams import StoreSeams

STEP_MESSAGES = 256
STEP_BYTES = 1 << 20
"""Messages taken in one step, fewer while others have something to do (`broker.pace`), and their bytes at most."""
LOOK_SECONDS = 1.0
"""How soon a wall clock that was set forward is noticed while something is pending."""
RETRY_SECONDS = 10.0
RETRIES_PER_STEP = 64
DISK_FULL_SECONDS = 1.0
SAVE_SECONDS = 5.0
ASIDE_MAX = 1000
_OPEN_UNITS = 8192
FACTS = Facts((b"DELAY\x01", 4), (b"REAL_TOPIC\x01", 0), (b"REAL_QID\x01", 4), (WAIT_NAME + b"\x01", 18))
"""As `broker.delay.puts` writes them."""

log = structlog.get_logger()


class Delays:
    """Delivers the delayed messages of one store.

    Attributes:
        levels: By number; empty until the first delayed message.
        metrics: Counts.
        pace: How many a step takes.
        in_flight: Messages whose delivery is not durable yet.
        retries: How often refused ones were tried again.
        steps: Steps with such messages.
    """

    def __init__(
        self, store: Store, *, disk: Disk, clock: Clock, scheduler: Scheduler, metrics: Metrics, notices: Notices
    ) -> None:
        """Set up; `opening` does the work.

        Args:
            store: An open store. Where it has no `on_pending`, each step flushes by itself.
            disk: Where its files are.
            clock: Wall clock for due times.
            scheduler: Runs the steps.
            metrics: Counts.
            notices: Says what is refused and lost.
        """
        self.levels: dict[int, DelayLevel] = {}
        self.store = store
        self.clock = clock
        self.metrics = metrics
        self._notices = notices
        self._state = DelayState(store.root, disk=disk, clock=clock, metrics=metrics)
        self._next = Earliest(clock, scheduler, self._step)
        self._saver = Saver(disk, store.savings, self._saving)
        self._saves = Repeated(scheduler, SAVE_SECONDS, self._saver.begin)
        self._retry_at = 0.0
        self.pace = Pace(clock, STEP_MESSAGES)
        self._running = False
        self.in_flight = self.retries = 0
        self.steps = 0
        self._runs: list[None] = []
        """One for each append of the present step that is in flight."""
        self._late_max = metrics.counter(counted.LATE_MAX)
        names = (b"DELAY\x01", b"REAL_", WAIT_NAME)
        self._plain = PlainRelease(store, room=SCHEDULE_NAME, facts=FACTS, names=names)

    # Opening and closing

    @classmethod
    def opening(cls, store: Store, **seams: Unpack[StoreSeams]) -> Generator[None, None, Delays]:
        """Find out what is pending, in steps of bounded work; returns the delivery, which `start` sets going.

        Raises:
            OSError: A file cannot be read.
        """
        return alone(store, cls.reading(store, **seams))

    @classmethod
    def reading(cls, store: Store, **seams: Unpack[StoreSeams]) -> Reading[Delays]:
        """`opening`, for `broker.shared_walk.together`."""
        delays = cls(store, **seams)
        positions, checkpoint = delays._state.load()
        delays._attach()
        store.delayed.on_topic = delays._attach
        whole_log = None
        start = 0
        if checkpoint is None:
            whole_log = "there is no checkpoint of the delays"
        elif checkpoint["log_end"] > store.end:
            whole_log = "the log ends before the checkpoint of the delays"
        else:
            start = checkpoint["log_end"]
        for number, level in delays.levels.items():
            if whole_log is None and checkpoint is not None and str(number) in checkpoint["levels"]:
                restore(level, checkpoint["levels"][str(number)])
            level.begin_at(positions.get(number, 0))
        if any(level.pending for level in delays.levels.values()):
            log.info("delays_reading_log", start=max(start, store.min_offset), end=store.end, whole_log=whole_log)
            yield from decided(start, delays._decided)
        for level in delays.levels.values():
            level.next = level.position
            while not level.look(_OPEN_UNITS):
                yield None
        return delays

    def _attach(self) -> None:
        """Take over the queues of the schedule topic that are not known yet."""
        topic = self.store.topics.get(SCHEDULE_TOPIC)
        if topic is None:
            return
        if not self.levels:
            topic.listeners.append(self._arrived)
        for number in range(len(self.levels) + 1, len(topic.queues) + 1):
            queue = topic.queues[number - 1]
            self.levels[number] = DelayLevel(number, self.store.delayed.levels.ms(number), queue)
        if self._running:
            self._saves.begin()

    def _decided(self, decision: Decision) -> None:
        entry = self.store.record_at(decision.replaced)
        if entry is not None and entry.topic == SCHEDULE_NAME and entry.queue_id + 1 in self.levels:
            self.levels[entry.queue_id + 1].settle(entry.queue_offset)

    def start(self) -> None:
        """Deliver what is due, and go on."""
        self._running = True
        self._arm()
        if self.levels:
            self._saves.begin()

    def stop(self) -> None:
        """Deliver nothing any more."""
        self._running = False
        self._saves.end()
        self._next.end()

    def close(self) -> None:
        """Stop, and save how far the levels are; call it before the store is closed."""
        self.stop()
        self.store.flush()
        self.save()

    def save(self) -> None:
        """Write how far the levels are; a full disk postpones that, another failure stops the store's write side."""
        self._saver.now()

    def _saving(self) -> Saving:
        store = self.store
        self.measure()
        if not self.levels or store.failed is not None or store.closed:
            return
        try:
            # Under `async` what was delivered is not on the disk yet, and the file must not be ahead of the log.
            store.make_durable()
            yield from self._state.saving(self.levels, store.end)
        except OSError as error:
            if not can_wait(error):
                store.fail("writing how far the delays are", error)

    def measure(self) -> None:
        """Bring the gauges up to date."""
        for level in self.levels.values():
            self.metrics.counter(counted.PENDING, str(level.level)).value = level.pending
        self.metrics.counter(counted.ASIDE).value = sum(len(level.aside) for level in self.levels.values())

    # One message

    def cancel(self, topic: str, unique_key: str) -> CancelOutcome:
        """Cancel the message of a topic that has an id (UNIQ_KEY); durable when this returns. `cancelling` is in steps.

        Raises:
            DiskFull, StoreFailed: It cannot be stored; the message stays.
            OSError: The store cannot be read.
        """
        return run_now(self.cancelling(topic, unique_key))

    def cancelling(self, topic: str, unique_key: str) -> AwaitedSteps[CancelOutcome]:
        """`cancel` in steps of bounded work; returns the outcome."""
        return cancelling(self, topic, unique_key)

    def is_waiting(self, number: int, offset: int, retries: int) -> bool:
        """Whether the message at an offset of a level's queue is neither settled nor under way.

        `retries` is as it was before a flush of all that was under way then.
        """
        if self.is_over(number, offset):
            return False
        level = self.levels[number]
        if not level.in_flight or offset >= level.next:
            return True
        return offset in level.aside and retries == self.retries

    def is_over(self, number: int, offset: int) -> bool:
        """Whether the message at an offset of a level's queue is settled."""
        level = self.levels.get(number)
        return level is None or not level.position <= offset < level.queue.max_offset or offset in level.settled

    # When

    def _arrived(self) -> None:
        for level in self.levels.values():
            level.look()
        self._arm()

    def _arm(self, seconds: float | None = None) -> None:
        """Have the next step run when something is due, not while too many are under way."""
        if not self._running or self.steps >= STEPS_MAX:
            return
        if seconds is None:
            seconds = self._seconds_left()
            if seconds is None:
                return
        self._next.within(seconds)

    def _seconds_left(self) -> float | None:
        """Time to the next step; None when nothing is pending."""
        now_us = self.clock.wall_us()
        heads = [level.head() for level in self.levels.values() if len(level.aside) < ASIDE_MAX]
        waits = [(head.due_ms * 1000 - now_us) / 1e6 for head in heads if head is not None]
        if not self.in_flight and any(level.aside for level in self.levels.values()):
            waits.append(self._retry_at - self.clock.monotonic())
        return max(0.0, min(*waits, LOOK_SECONDS)) if waits else None

    # Delivering

    def _step(self) -> None:
        store = self.store
        if not self._running or store.failed is not None or store.closed:
            return
        now = self.clock.wall_ms()
        due: list[tuple[int, DelayLevel]] = []
        for level in self.levels.values():
            level.look()
            level.check_clock(now)
            head = level.head() if len(level.aside) < ASIDE_MAX else None
            if head is not None and head.due_ms <= now:
                due.append((head.due_ms, level))
        taken, alone = True, not self.in_flight
        self._runs = []
        count = self.pace.begin() if due else 0
        delivered = 0
        for _, level in sorted(due, key=lambda each: each[0]):
            if not taken:
                break
            messages = level.take(now, max(1, count // len(due)), max(1, STEP_BYTES // len(due)))
            taken = self._deliver(level, messages)
            delivered += len(messages)
        self.pace.end(delivered)
        if taken and alone and self.clock.monotonic() >= self._retry_at:
            taken = self._retry()
        if self.in_flight and store.on_pending is None:
            store.flush()
        self._arm(None if taken else DISK_FULL_SECONDS)

    def _deliver(self, level: DelayLevel, messages: list[Waiting]) -> bool:
        """Append messages of a level in their order; False when the store takes nothing now."""
        plain = self._plain.release([(message.physical, message.size) for message in messages])
        if not plain.others:
            return not messages or self._append(level, messages, plain.puts, plain.origins)
        run: list[Waiting] = []
        puts: list[Put] = []
        origins: list[Origin] = []
        made, others = zip(plain.puts, plain.origins, strict=True), set(plain.others)
        for place, message in enumerate(messages):
            if place not in others:
                put, origin = next(made)
            else:
                try:
                    put, born_ms, born_host = release(self._record(message), self.store.topics, DELAY_NAMES)
                except (DamagedRecord, RecordGone) as error:
                    self._lose(level, message, error)
                    continue
                except MessageRefused as error:
                    self._set_aside(level, message, str(error))
                    continue
                origin = (born_ms, born_host)
            if origins and len(origins[0][1]) != len(origin[1]):
                # Hosts of one append are equally long.
                if not self._append(level, run, puts, origins):
                    return False
                run, puts, origins = [], [], []
            run.append(message)
            puts.append(put)
            origins.append(origin)
        return not run or self._append(level, run, puts, origins)

    def _record(self, message: Waiting) -> memoryview:
        return self.store.read(message.physical, message.size)

    def _append(self, level: DelayLevel, messages: list[Waiting], puts: list[Put], origins: list[Origin]) -> bool:
        """Append messages; what takes the place of each, and when and where it was made."""
        runs = self._runs
        born_ms, born_host = origins[0]
        try:
            self.store.append(
                puts,
                born_ms=born_ms,
                born_host=born_host,
                done=partial(self._done, level, messages, runs),
                origins=origins if len(messages) > 1 else None,
            )
        except MessageRefused as error:
            if len(messages) == 1:
                self._set_aside(level, messages[0], str(error))
                return True
            each = zip(messages, puts, origins, strict=True)
            return all(self._append(level, [message], [put], [origin]) for message, put, origin in each)
        except StoreError as error:
            if messages[0].offset not in level.aside:
                level.back_to(messages[0].offset)
            self.metrics.counter(counted.WAITS).add()
            self._notices.note("delays_wait", level=level.level, error=str(error))
            return False
        level.in_flight += len(messages)
        self.in_flight += len(messages)
        self.steps += not runs
        runs.append(None)
        return True

    def _done(self, level: DelayLevel, messages: Sequence[Waiting], runs: list[None], error: StoreError | None) -> None:
        level.in_flight -= len(messages)
        self.in_flight -= len(messages)
        runs.pop()
        self.steps -= not runs
        if error is not None:
            return
        late = self.clock.wall_ms() - messages[0].due_ms
        if late > self._late_max.value and messages[0].offset not in level.aside:
            self._late_max.value = late
        level.settle_all(messages)
        self.metrics.counter(counted.DELIVERED, str(level.level)).add(len(messages))
        self._arm()

    def _lose(self, level: DelayLevel, message: Waiting, error: StoreError) -> None:
        self.metrics.counter(counted.LOST).add()
        self._notices.note(
            "delayed_message_lost",
            level=level.level,
            offset=message.offset,
            physical=message.physical,
            why=str(error),
        )
        level.settle(message.offset)

    # Refused

    def _set_aside(self, level: DelayLevel, message: Waiting, reason: str) -> None:
        self.metrics.counter(counted.REFUSED).add()
        self._notices.note(
            "delayed_message_refused",
            level=level.level,
            offset=message.offset,
            physical=message.physical,
            reason=reason,
        )
        known = level.aside.get(message.offset)
        if known is not None:
            known.reason, known.tries = reason, known.tries + 1
            return
        if not any(each.aside for each in self.levels.values()):
            self._retry_at = self.clock.monotonic() + RETRY_SECONDS
        level.aside[message.offset] = Aside(message, reason, self.clock.wall_ms())

    def _retry(self) -> bool:
        """Try a bounded number of the refused again, those tried least first; False when the store takes nothing."""
        refused = [
            (aside.tries, level, aside)
            for level in self.levels.values()
            for offset, aside in level.aside.items()
            if offset not in level.held
        ]
        refused.sort(key=lambda each: each[0])
        self.retries += 1
        self._retry_at = self.clock.monotonic() + RETRY_SECONDS
        return all(self._deliver(level, [aside.message]) for _, level, aside in refused[:RETRIES_PER_STEP])
