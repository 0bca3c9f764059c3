"""The timers of one store below their steps: what is pending and where, the ways in and out, stages, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial

import structlog

from broker.errors import StoreError
from broker.format.java import tags_code
from broker.format.properties import find_property
from broker.format.record import prepared_offset, split
from broker.format.wait_properties import REAL_TOPIC_NAME
from broker.log.durability import Awaited, AwaitedSteps
from broker.log.shared_walk import Reading, alone
from broker.queues.consume_queue import ConsumeQueue
from broker.runtime.bundle import Runtime
from broker.runtime.steps import StepsEnd, step
from broker.scheduled.recurring.loops import Loops
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.due import DueTimers
from broker.scheduled.timer.enqueuing import Entering
from broker.scheduled.timer.names import due_of
from broker.scheduled.timer.pending.log import TimerLog, TimersDamaged, Unit
from broker.scheduled.timer.pending.state import TimerStateFiles
from broker.scheduled.timer.pending.table import TimerTable
from broker.scheduled.timer.pending.wheel import TimerWheel
from broker.scheduled.timer.puts import TimedPuts
from broker.scheduled.timer.stages import Stages, TimerPipelineStage
from broker.store import Store

AHEAD_MS = 2000
"""How long before its time a slot is read."""
COMING_MAX = 500_000
"""Timers of slots that were read; further slots wait."""
MENDING_LOOK_SECONDS = 0.05
"""How often a cancel looks whether timer log and wheel are whole."""

log = structlog.get_logger()


class TimerParts:
    """What opening, cancels, file writes and steps of one store's timers work on.

    Attributes:
        store: The store.
        clock: Wall clock for due times.
        metrics: Counts.
        table: What is pending, and where.
        entering: The way into the wheel.
        due: The way out, and what was refused.
        stages: Pauses and times of the stages.
        state: The checkpoints.
        is_fresh: The timer topic was just made; timer log and wheel have still to be.
        reading: The slot that is being read; None between slots.
        mending: The steps in which timer log and wheel are being made again; None while they are whole.

    Timer log and wheel are made again while nothing is under way, and nothing begins meanwhile: deliveries, cancels and
    copies of retention wait for each other by `DueTimers.under_way` and `is_mending`. So what was read of the old ones
    is forgotten as a whole (`TimerTable.make_anew`, `DueTimers.begin_anew`), and nothing comes back from it later.
    """

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        *,
        delivered: Callable[[], None],
        follower: Loops | None,
        rebuild: Callable[[TimerParts], Reading[None]],
    ) -> None:
        """Make the parts; no file is touched.

        Args:
            store: An open store.
            runtime: Where its files are, wall clock for due times, counts, log lines.
            delivered: Called when deliveries are durable.
            follower: As of `DueTimers`.
            rebuild: Makes timer log and wheel again: `broker.scheduled.timer.opening`.
        """
        options = store.waiting(TimedPuts).options
        disk, clock = runtime.disk, runtime.clock
        wheel = TimerWheel(store.root, disk=disk, slots=options.slots, precision_ms=options.precision_ms)
        timer_log = TimerLog(store.root, disk=disk, file_bytes=options.log_file_bytes)
        self.store = store
        self.clock = clock
        self.metrics = runtime.metrics
        self.stages = Stages(clock, runtime.metrics)
        self.table = TimerTable(timer_log, wheel, options, self._due_of)
        self.due = DueTimers(
            store,
            self.table,
            runtime,
            delivered=delivered,
            appending=partial(self.stages.timed, TimerPipelineStage.DEQUEUE_PUT_MESSAGE),
            follower=follower,
        )
        self.entering = Entering(store, self.table, self.due.superseded, runtime)
        self.state = TimerStateFiles(store.root, disk=disk, clock=clock, metrics=runtime.metrics)
        self.is_fresh = False
        self.reading: Generator[None, None, int] | None = None
        self.mending: Generator[None, None, None] | None = None
        self._names: dict[int, str] = {}
        self._rebuild = rebuild
        self._scheduler = runtime.scheduler

    @property
    def queue(self) -> ConsumeQueue:
        """Queue of the timer topic, which is there."""
        assert self.entering.queue is not None
        return self.entering.queue

    @property
    def is_mending(self) -> bool:
        """Whether timer log and wheel are being made again, or have still to be made."""
        return self.mending is not None or self.is_fresh

    @property
    def is_rebuilding(self) -> bool:
        """Whether all records are being entered again: until then delivered timers look as if they were pending."""
        return self.mending is not None

    def damaged(self, error: TimersDamaged) -> None:
        """Have timer log and wheel made again, since a look at them found damage."""
        self.note_damage(error)
        # What is under way is of the timer log and the wheel that there are.
        self.store.file_writes.finish()
        self.reading = None
        self.begin_mending()
        self.due.wake()

    def begin_mending(self) -> None:
        """Have timer log and wheel made again by `mend`, from the beginning."""
        self.mending = alone(self.store, self._rebuild(self))

    def mend(self) -> None:
        """Make one step of that; nothing while something is under way.

        Raises:
            TimersDamaged, OSError: It begins again.
        """
        if self.mending is None or self.due.under_way:
            return
        try:
            if isinstance(step(self.mending), StepsEnd):
                self.mending = None
        except (TimersDamaged, OSError):
            # A generator that raised has ended, and what it made is half of it.
            self.begin_mending()
            raise

    def until_whole(self) -> AwaitedSteps[None]:
        """Wait while nothing says which timers are pending (`is_rebuilding`).

        Raises:
            StoreFailed: The store has failed meanwhile.
            StoreError: It was closed.
            OSError: They cannot be made.
        """
        while self.is_rebuilding:
            if self.store.failed is not None:
                raise self.store.failed
            if self.store.closed:
                raise StoreError("the store is closed; open it and query again")
            awaited = Awaited.of(self._mend_now)
            self._scheduler.call_later(MENDING_LOOK_SECONDS, awaited.report, None)
            yield from awaited.steps()

    def _mend_now(self) -> None:
        self.store.flush()
        while self.mending is not None and self.store.failed is None:
            if self.due.under_way:
                raise StoreError("timers are being rebuilt, and one is in progress; try again")
            self.mend()

    @property
    def pending(self) -> int:
        """Timers that are not delivered, as far as they are in the wheel."""
        return sum(self.table.pending.values())

    def make_files(self) -> None:
        """Make timer log and wheel, empty. Raises OSError."""
        self.table.make_anew(self.clock.wall_ms())
        self.is_fresh = False

    def in_slot(self, slot_ms: int) -> int:
        """How many timers a slot has."""
        slot = None if self.entering.queue is None or self.is_fresh else self.table.wheel.get(slot_ms)
        return 0 if slot is None else max(0, slot.timers)

    def is_slot_due(self, now_ms: int) -> bool:
        """Whether the next slot is to be read by now, and there is room for its timers."""
        return self.table.next_ms <= now_ms + AHEAD_MS and self.table.coming.count < COMING_MAX

    # One timer

    def is_pending(self, physical: int, offset: int) -> bool:
        """Whether the record of the timer topic at a commit-log and queue offset is neither completed nor under way.

        Damage that this meets has timers made again: what is said then means nothing (`is_rebuilding`).
        """
        if physical in self.due.superseded:
            return False
        if physical in self.due.refused:
            return True
        if offset >= self.entering.offset:
            return not self.entering.is_decided(physical)
        try:
            position = self.table.log.find(physical)
            if position is None:
                return False
            unit = self.table.log.unit(position)
            self.table.check_slot(unit, position, come_ms=self.clock.wall_ms() + AHEAD_MS)
        except TimersDamaged as error:
            self.damaged(error)
            return True
        return self.table.is_pending(unit, position)

    def take_out(self, physical: int) -> None:
        """Settle a pending timer whose record was just replaced."""
        refused = self.due.refused.pop(physical, None)
        if refused is not None:
            self.table.forget(refused.timer.unit)
        elif self.table.log.find(physical) is None:
            # Until the record that replaces it is entered.
            self.due.superseded.add(physical)
        else:
            self.table.replace(physical)

    def replaced(self, physical: int, error: StoreError | None) -> None:
        """Take a timer out that was held since the record that replaces it was appended; never raises.

        Args:
            physical: Commit-log offset of its record.
            error: Why that record is not durable: the timer continues.
        """
        # First what came due meanwhile is pending again: what is not pending is not taken out.
        self.due.let_go(physical)
        try:
            if error is None:
                self.take_out(physical)
        except (TimersDamaged, OSError):
            # The next step finds that the timer log is damaged, or cannot be read; it is not delivered meanwhile.
            self.due.superseded.add(physical)

    # Records

    def _due_of(self, unit: Unit) -> int:
        """Due time of a timer of RocketMQ's, whose unit does not say it; the end of its slot when it cannot be read."""
        precision = self.table.wheel.precision_ms
        entry = self.store.record_at(unit.physical) if unit.physical < self.store.end else None
        found = None if entry is None else due_of(entry.properties, precision)
        return unit.slot_ms + precision if found is None else found

    def topic_hash(self, record: memoryview) -> int:
        """Java's hash of the real topic of a record."""
        return tags_code(find_property(split(record)[1], REAL_TOPIC_NAME) or b"")

    def topic_name(self, topic_hash: int) -> str:
        """Name of the topic with a hash; the hash itself when there is none any more."""
        name = self._names.get(topic_hash)
        if name is None:
            self._names = {tags_code(topic.name_bytes): topic.name for topic in self.store.topics.values()}
            name = self._names.get(topic_hash, str(topic_hash))
        return name

    def replaced_by(self, physical: int, size: int) -> int:
        """Commit-log offset of the record that one takes the place of, -1 for none."""
        offset = prepared_offset(self.store.read(physical, size))
        return max(offset, 0) if offset else -1

    # How it is

    def measure(self) -> None:
        """Bring the gauges up to date."""
        for topic_hash, count in self.table.pending.items():
            self.metrics.counter(counted.PENDING, self.topic_name(topic_hash)).value = count
        self.metrics.counter(counted.REFUSED_NOW).value = len(self.due.refused)
        self.metrics.counter(counted.LAG).value = self.entering.lag
        self.stages.depth(TimerPipelineStage.ENQUEUE_GET, self.entering.lag - self.entering.depth)
        self.stages.depth(TimerPipelineStage.ENQUEUE_PUT, self.entering.depth)
        if self.entering.queue is not None and not self.is_mending:
            # Slots are read as they come up, unless something holds that.
            held = not self.stages.runs(TimerPipelineStage.DEQUEUE_GET) or self.table.coming.count >= COMING_MAX
            self.stages.depth(
                TimerPipelineStage.DEQUEUE_GET, self.table.unread(self.clock.wall_ms() + AHEAD_MS) if held else 0
            )
        self.stages.depth(TimerPipelineStage.DEQUEUE_GET_MESSAGE, self.table.coming.count + self.table.rolls.count)
        self.stages.depth(TimerPipelineStage.DEQUEUE_PUT_MESSAGE, self.due.delivery.in_flight)

    def note_damage(self, error: TimersDamaged) -> None:
        """Count and say that timer log or wheel cannot be believed."""
        self.metrics.counter(counted.DAMAGED).add()
        log.error("timers_damaged", why=str(error), what="they are rebuilt from the commit log")
