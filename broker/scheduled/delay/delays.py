"""Delivery of delayed messages: from the schedule topic to their own, when they are due.

Guarantees:

- Never early, by the wall clock; see `broker.scheduled.delay.level_queue` for a clock that is set back (D35).
- In the order of due times within a level. A message that is refused does not block others: it is kept apart, counted,
  said, and tried again every RETRY_SECONDS. With REFUSED_MAX of a level refused, that level waits.
- Delivered once: the delivered record names the record that it replaces, and is the decision (D27). A start reads what
  was decided behind the last checkpoint, or in the whole log when there is none.
- What waits costs nothing but one look a second at the wall clock, which may have been set forward. Without anything
  pending there is not even that.

A burst is delivered in steps of STEP_MESSAGES and STEP_BYTES, and the loop does everything else between two of them. Up
to STEPS_MAX of them (`broker.runtime.step_size`) are made before the first is durable.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Unpack

import structlog

from broker.errors import StoreUnreadable
from broker.log.decisions import DecisionRecord
from broker.log.durability import AwaitedSteps
from broker.log.shared_walk import Reading, alone, decided
from broker.opening.checkpointer import LOG_BYTES_MAX
from broker.runtime.bundle import Runtime, runtime_of
from broker.runtime.file_writes import FileWrite, StateWriter, can_wait
from broker.runtime.later import Earliest, Repeated
from broker.runtime.sealed_file import NOT_PARSED, SealedFile
from broker.runtime.state_file import StateFile, data_version, next_version
from broker.runtime.steps import run_now
from broker.runtime.store_metrics import FILES_DAMAGED
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.delay.cancel import cancelling
from broker.scheduled.delay.due import DueDelays
from broker.scheduled.delay.level_queue import DelayLevel
from broker.scheduled.delay.levels import SCHEDULE_NAME, SCHEDULE_TOPIC
from broker.scheduled.delay.puts import DelayedPuts
from broker.store import Store
from broker.store_seams import StoreSeams

# How far each delay level is, on disk: `config/delayOffset.json` in RocketMQ's shape, and a checkpoint of our own.
#
# The log decides (D27); both files only save walking it. `delayOffset.json` has the lowest offset of each level that
# is not completed: it is never ahead, so what RocketMQ finds in it is all still to be delivered, or delivered by us
# above a message that was refused. `pyddmq/delays.json` has that and the ranges completed above it, with the
# commit-log offset up to which this holds. When both are missing the whole log is walked.
#
# Positions are only ever taken forward: if RocketMQ moved the file, it delivered what is below; if a user put an
# older one there, the log still says what was delivered.


class DelayState:
    """The two files of one store."""

    def __init__(self, root: str, runtime: Runtime) -> None:
        self._root = root
        self._metrics = runtime.metrics
        self._clock = runtime.clock
        self._offsets = StateFile(runtime.disk, root, "delayOffset.json")
        self._checkpoint = SealedFile(runtime.disk, f"{root}/pyddmq/delays.json")
        self._version: dict[str, Any] = {"counter": 0, "stateVersion": 0, "timestamp": 0}
        self._saved: Any = None
        self._log_end = 0

    def load(self) -> tuple[dict[int, int], dict[str, Any] | None]:
        """Return RocketMQ's positions by level, and the checkpoint if it can be believed. Damage is counted and said.

        Raises:
            OSError: A file cannot be read.
        """
        positions: dict[int, int] = {}
        try:
            content = self._offsets.load()
            if isinstance(content, dict):
                self._version = {**self._version, **data_version(content.get("dataVersion"))}
                positions = {int(level): int(offset) for level, offset in (content.get("offsetTable") or {}).items()}
        except (StoreUnreadable, AttributeError, TypeError, ValueError):
            self._damaged("config/delayOffset.json")
        for path in self._offsets.damaged:
            self._damaged(path.removeprefix(f"{self._root}/"))
        checkpoint: dict[str, Any] | None = None
        try:
            found = self._checkpoint.load()
            if found is not None:
                levels = {level: _ranges(saved) for level, saved in found["levels"].items()}
                checkpoint = {"log_end": int(found["log_end"]), "levels": levels}
        except (StoreUnreadable, AttributeError, *NOT_PARSED):
            self._damaged("pyddmq/delays.json")
        return positions, checkpoint

    def _damaged(self, file: str) -> None:
        self._metrics.counter(FILES_DAMAGED, file).add()
        log.error("delay_file_damaged", file=file, what="the log says what was delivered")

    def writing(self, levels: Mapping[int, DelayLevel], log_end: int) -> FileWrite:
        """Write both files, durably, when a level has moved since the last time, or the log grown much; in steps.

        Args:
            levels: By number.
            log_end: Commit-log offset below which every decision is in `levels`, and which is durable.

        Raises:
            OSError: One cannot be written.
        """
        state = {str(each.level): [each.position, *each.completed.ranges] for each in levels.values()}
        if state == self._saved and log_end - self._log_end < LOG_BYTES_MAX:
            return
        version = next_version(self._version, self._clock.wall_ms())
        table = {str(each.level): each.position for each in levels.values()}
        yield from self._offsets.writing({"dataVersion": version, "offsetTable": table})
        yield from self._checkpoint.writing({"log_end": log_end, "levels": state})
        self._version, self._saved, self._log_end = version, state, log_end


def _ranges(saved: Any) -> list[Any]:
    """Return what the checkpoint says of a level; a right sum does not say who wrote it. Raises as `NOT_PARSED`."""
    position, *ranges = saved
    return [int(position), *([int(start), int(end)] for start, end in ranges)]


def restore(level: DelayLevel, saved: list[Any]) -> None:
    """Give a level what the checkpoint says of it."""
    position, *ranges = saved
    for start, end in ranges:
        if start < level.queue.max_offset:
            level.completed.add(start, min(end, level.queue.max_offset))
    level.begin_at(position)


LOOK_SECONDS = 1.0
"""How soon a wall clock that was set forward is noticed while something is pending."""
DISK_FULL_SECONDS = 1.0
SAVE_SECONDS = 5.0
_OPEN_UNITS = 8192

log = structlog.get_logger()


class Delays:
    """Delivers the delayed messages of one store.

    Attributes:
        levels: By number; empty until the first delayed message.
        due: The delivery of due messages, and the refused ones.
    """

    def __init__(self, store: Store, runtime: Runtime) -> None:
        """Set up; `opening` does the work.

        Args:
            store: An open store. Without an event loop that flushes it, each step flushes.
            runtime: Its disk has the files, its wall clock the due times, and its scheduler runs the steps.
        """
        self.due = DueDelays(store, runtime, delivered=self._arm)
        self.levels = self.due.levels
        self.store = store
        self.clock = runtime.clock
        self._state = DelayState(store.root, runtime)
        self._next = Earliest(runtime.clock, runtime.scheduler, self._step)
        self._state_writer = StateWriter(runtime.disk, store.file_writes, self._writing)
        self._saves = Repeated(runtime.scheduler, SAVE_SECONDS, self._state_writer.begin)
        self._running = False

    # Opening and closing

    @classmethod
    def opening(cls, store: Store, **seams: Unpack[StoreSeams]) -> Generator[None, None, Delays]:
        """Find out what is pending, in steps of bounded work; returns the delivery, which `start` sets going.

        Raises:
            OSError: A file cannot be read.
        """
        return alone(store, cls.reading_of(store, runtime_of(**seams)))

    @classmethod
    def reading(cls, store: Store, **seams: Unpack[StoreSeams]) -> Reading[Delays]:
        """`opening`, for `broker.log.shared_walk.together`."""
        return cls.reading_of(store, runtime_of(**seams))

    @classmethod
    def reading_of(cls, store: Store, runtime: Runtime) -> Reading[Delays]:
        """`reading`, of a program that has a bundle of all this."""
        delays = cls(store, runtime)
        positions, checkpoint = delays._state.load()
        delays._attach()
        store.waiting(DelayedPuts).connect(on_topic=delays._attach)
        whole_log = None
        start = 0
        if checkpoint is None:
            whole_log = "the checkpoint of the delays is missing"
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
            level.look_again()
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
            delay_ms = self.store.waiting(DelayedPuts).levels.ms(number)
            self.levels[number] = DelayLevel(number, delay_ms, queue, self.clock)
        if self._running:
            self._saves.begin()

    def _decided(self, decision: DecisionRecord) -> None:
        entry = self.store.record_at(decision.replaced)
        if entry is not None and entry.topic == SCHEDULE_NAME and entry.queue_id + 1 in self.levels:
            self.levels[entry.queue_id + 1].complete(entry.queue_offset)

    def start(self) -> None:
        """Deliver due messages, and continue."""
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
        self._state_writer.now()

    def _writing(self) -> FileWrite:
        store = self.store
        self.due.measure()
        if not self.levels or store.failed is not None or store.closed:
            return
        try:
            # Under `async` what was delivered is not on the disk yet, and the file must not be ahead of the log.
            store.make_durable()
            yield from self._state.writing(self.levels, store.end)
        except OSError as error:
            if not can_wait(error):
                store.writes.fail("writing how far the delays are", error)

    # One message

    def cancel(self, topic: str, unique_key: str) -> CancelEffect:
        """Cancel the message of a topic that has an id (UNIQ_KEY); durable when this returns. `cancelling` is in steps.

        Raises:
            DiskFull, StoreFailed: It cannot be stored; the message stays.
            OSError: The store cannot be read.
        """
        return run_now(self.cancelling(topic, unique_key))

    def cancelling(self, topic: str, unique_key: str) -> AwaitedSteps[CancelEffect]:
        """`cancel` in steps of bounded work; returns the outcome."""
        return cancelling(self.due, topic, unique_key)

    # When

    def _arrived(self) -> None:
        for level in self.levels.values():
            level.look()
        self._arm()

    def _arm(self, seconds: float | None = None) -> None:
        """Have the next step run when something is due, not while too many are under way."""
        if not self._running or self.due.is_full:
            return
        if seconds is None:
            left = self.due.seconds_left()
            if left is None:
                return
            seconds = max(0.0, min(left, LOOK_SECONDS))
        self._next.within(seconds)

    def _step(self) -> None:
        store = self.store
        if not self._running or store.failed is not None or store.closed:
            return
        try:
            taken = self.due.deliver_due()
        except OSError as error:
            # What was taken is delivered by the next start; nothing else would come of it.
            store.writes.fail("delivering delayed messages", error)
            return
        if self.due.delivery.in_flight and not store.is_driven:
            store.flush()
        self._arm(None if taken else DISK_FULL_SECONDS)
