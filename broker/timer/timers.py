"""Timers of one store: from the timer topic into the wheel, and out of it at the very millisecond.

Guarantees:

- Never early by the wall clock (D35), in the order of due times, and of those due together in the order of sending.
- A message that is refused holds up nobody: it is set aside, counted, said, and tried again.
- Delivered once: the delivered record names the record that it replaces, and is the decision (D27). What is pending is
  known from the commit log alone; timer log, wheel and checkpoints save reading it.
- A pending timer takes 52 bytes on disk and none in memory until its slot comes up, 2 s before it is due; 8 then.

RocketMQ's five stages (`broker.timer.stages`) are pieces of bounded work in one step. The next step comes once the
deliveries of the one before are durable, and the loop does everything else in between.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

import structlog

from broker.awaited import AwaitedSteps, run_now
from broker.cancelling import CancelOutcome
from broker.consume_queue import ConsumeQueue
from broker.errors import NO_SPACE
from broker.java import tags_code
from broker.metrics import Metrics
from broker.notices import Notices
from broker.properties import find_property
from broker.record import prepared_offset, split
from broker.release import REAL_TOPIC_NAME
from broker.seams import Clock, Disk, Handle, Scheduler
from broker.shared_walk import Reading, alone
from broker.store import Store
from broker.timer import metrics as counted
from broker.timer.cancel import Rescheduled, cancelling, rescheduling
from broker.timer.due import DueTimers
from broker.timer.entering import Entering
from broker.timer.log import TimerLog, TimersDamaged, Unit
from broker.timer.names import TIMER_TOPIC, due_of
from broker.timer.opening import find_pending, rebuild
from broker.timer.saves import TimerSaves
from broker.timer.stages import Stage, Stages
from broker.timer.state import TimerState
from broker.timer.table import TimerTable
from broker.timer.wheel import TimerWheel

AHEAD_MS = 2000
"""How long before its time a slot is read."""
COMING_MAX = 500_000
"""Timers of slots that were read; further slots wait."""
LOOK_SECONDS = 1.0
"""How soon a wall clock that was set forward is noticed while something is pending."""
DISK_FULL_SECONDS = 1.0

log = structlog.get_logger()


class Timers:
    """Delivers the timed messages of one store.

    Attributes:
        table: What is pending, and where.
        entering: The way into the wheel.
        due: The way out, and what was refused.
        stages: Pauses and times of the stages.
        state: The checkpoints.
        saves: Saves all of it every few seconds.
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
        options = store.options.timers
        wheel = TimerWheel(store.root, disk=disk, slots=options.slots, precision_ms=options.precision_ms)
        timer_log = TimerLog(store.root, disk=disk, file_bytes=options.log_file_bytes)
        self.store = store
        self.clock = clock
        self.metrics = metrics
        self.table = TimerTable(timer_log, wheel, options, self._due_of)
        self.due = DueTimers(store, self.table, clock=clock, metrics=metrics, notices=notices)
        self.due.on_done = self._delivered
        self.entering = Entering(store, self.table, self.due.superseded, clock=clock, metrics=metrics, notices=notices)
        self.stages = Stages(clock, metrics)
        self.due.delivery.appending = partial(self.stages.timed, Stage.DEQUEUE_PUT_MESSAGE)
        self.state = TimerState(store.root, disk=disk, clock=clock, metrics=metrics)
        self._scheduler = scheduler
        self._notices = notices
        self._timer: Handle | None = None
        self._timer_at = 0.0
        self.saves = TimerSaves(self, disk=disk, scheduler=scheduler)
        self._running = False
        self._reading: Generator[None, None, int] | None = None
        self._mending: Generator[None, None, None] | None = None
        self._fresh = False
        self._stuck = False
        self._names: dict[int, str] = {}

    # Opening and closing

    @classmethod
    def opening(
        cls, store: Store, *, disk: Disk, clock: Clock, scheduler: Scheduler, metrics: Metrics, notices: Notices
    ) -> Generator[None, None, Timers]:
        """Find out what is pending, in steps of bounded work; returns the delivery, which `start` sets going.

        Raises:
            OSError: A file cannot be read or written.
        """
        reading = cls.reading(store, disk=disk, clock=clock, scheduler=scheduler, metrics=metrics, notices=notices)
        return alone(store, reading)

    @classmethod
    def reading(
        cls, store: Store, *, disk: Disk, clock: Clock, scheduler: Scheduler, metrics: Metrics, notices: Notices
    ) -> Reading[Timers]:
        """`opening`, for `broker.shared_walk.together`."""
        timers = cls(store, disk=disk, clock=clock, scheduler=scheduler, metrics=metrics, notices=notices)
        store.timed.on_topic = timers._attach
        store.timed.in_slot = timers.in_slot
        if TIMER_TOPIC in store.topics:
            timers._attach()
            timers._fresh = False
            yield from find_pending(timers)
        return timers

    def _attach(self) -> None:
        """Take over the timer topic, which has just been made; its files are made by the first step."""
        topic = self.store.topics[TIMER_TOPIC]
        if self.entering.queue is not None:
            return
        self.entering.begin_at(topic.queues[0], topic.queues[0].min_offset)
        topic.listeners.append(self._arrived)
        self._fresh = True
        if self._running:
            self.saves.begin()

    @property
    def queue(self) -> ConsumeQueue:
        """Queue of the timer topic, which is there."""
        assert self.entering.queue is not None
        return self.entering.queue

    def begin_now(self) -> None:
        """Begin to read slots at the present moment."""
        self.table.begin_at(self.clock.wall_ms())

    def start(self) -> None:
        """Deliver what is due, and go on."""
        self._running = True
        self._arm(0.0)
        if self.entering.queue is not None:
            self.saves.begin()

    def stop(self) -> None:
        """Deliver nothing any more."""
        self._running = False
        self.saves.end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Stop, and save how far it is, so that RocketMQ could go on (D30); call it before the store is closed."""
        self.stop()
        self.store.flush()
        self.save(clean=True)
        self.table.log.close()
        self.table.wheel.close()

    def save(self, *, clean: bool = False) -> None:
        """Write how far it is; a full disk postpones that, another failure stops the store's write side.

        Args:
            clean: Nothing follows.
        """
        self.saves.now(clean=clean)

    def measure(self) -> None:
        """Bring the gauges up to date."""
        for topic_hash, count in self.table.pending.items():
            self.metrics.counter(counted.PENDING, self.topic_name(topic_hash)).value = count
        self.metrics.counter(counted.ASIDE).value = len(self.due.aside)
        self.metrics.counter(counted.LAG).value = self.entering.lag
        self.stages.depth(Stage.ENQUEUE_GET, self.entering.lag - self.entering.depth)
        self.stages.depth(Stage.ENQUEUE_PUT, self.entering.depth)
        if self.entering.queue is not None and not self.is_mending:
            # Slots are read as they come up, unless something holds that.
            held = not self.stages.runs(Stage.DEQUEUE_GET) or self.table.coming.count >= COMING_MAX
            self.stages.depth(Stage.DEQUEUE_GET, self.table.unread(self.clock.wall_ms() + AHEAD_MS) if held else 0)
        self.stages.depth(Stage.DEQUEUE_GET_MESSAGE, self.table.coming.count + self.table.rolls.count)
        self.stages.depth(Stage.DEQUEUE_PUT_MESSAGE, self.due.delivery.in_flight)

    def topic_name(self, topic_hash: int) -> str:
        """Name of the topic with a hash; the hash itself when there is none any more."""
        name = self._names.get(topic_hash)
        if name is None:
            self._names = {tags_code(topic.name_bytes): topic.name for topic in self.store.topics.values()}
            name = self._names.get(topic_hash, str(topic_hash))
        return name

    @property
    def pending(self) -> int:
        """Timers that are not delivered, as far as they are in the wheel."""
        return sum(self.table.pending.values())

    def in_slot(self, slot_ms: int) -> int:
        """How many timers a slot has."""
        slot = None if self.entering.queue is None or self._fresh else self.table.wheel.get(slot_ms)
        return 0 if slot is None else max(0, slot.timers)

    def pause(self, stage: Stage) -> None:
        """Have a stage rest until `resume`, or a restart."""
        self.stages.pause(stage)

    def resume(self, stage: Stage) -> None:
        """Have a stage go on."""
        self.stages.resume(stage)
        self._arm(0.0)

    # One timer

    def cancel(self, topic: str, unique_key: str) -> CancelOutcome:
        """Cancel the timer of a topic that has an id (UNIQ_KEY); durable when this returns. `cancelling` is in steps.

        Raises:
            DiskFull, StoreFailed: It cannot be stored; the timer stays.
            OSError: The store cannot be read.
        """
        return run_now(self.cancelling(topic, unique_key))

    def cancelling(self, topic: str, unique_key: str) -> AwaitedSteps[CancelOutcome]:
        """`cancel` in steps of bounded work; returns the outcome."""
        return cancelling(self, topic, unique_key)

    def reschedule(self, topic: str, unique_key: str, due_ms: int) -> Rescheduled:
        """Give a timer another moment, and with it another id; durable when this returns. `rescheduling` is in steps.

        Raises:
            MessageRefused: The moment is too far away, or the message would be refused as a new one; the timer stays.
            DiskFull, StoreFailed, OSError: As `cancel`.
        """
        return run_now(self.rescheduling(topic, unique_key, due_ms))

    def rescheduling(self, topic: str, unique_key: str, due_ms: int) -> AwaitedSteps[Rescheduled]:
        """`reschedule` in steps of bounded work; returns the outcome."""
        return rescheduling(self, topic, unique_key, due_ms)

    def is_pending(self, physical: int, offset: int) -> bool:
        """Whether the record of the timer topic at a commit-log and queue offset is neither settled nor under way."""
        if physical in self.due.superseded:
            return False
        if physical in self.due.aside:
            return True
        if offset >= self.entering.offset:
            return not self.entering.is_decided(physical)
        position = self.table.log.find(physical)
        return position is not None and self.table.is_pending(self.table.log.unit(position), position)

    def take_out(self, physical: int) -> None:
        """Settle a pending timer whose record was just replaced."""
        aside = self.due.aside.pop(physical, None)
        if aside is not None:
            self.table.forget(aside.timer.unit)
        elif self.table.log.find(physical) is None:
            # Until the record that replaces it is entered.
            self.due.superseded.add(physical)
        else:
            self.table.replace(physical)

    @property
    def is_mending(self) -> bool:
        """Whether timer log and wheel are being made anew, or have still to be made."""
        return self._mending is not None or self._fresh

    def drop_before(self, physical: int) -> None:
        """Delete timer-log files that only name records below a commit-log offset; a failed one stops the store."""
        try:
            self.table.log.drop_before(physical)
        except OSError as error:
            self.store.fail("deleting a file of the timer log", error)

    # When

    def _arrived(self) -> None:
        self._arm(0.0)

    def _delivered(self) -> None:
        """Go on when as much was under way as may be; else the next step is set to its time already."""
        if self._timer is None or self.due.aside:
            self._arm()

    def _arm(self, seconds: float | None = None) -> None:
        """Have the next step run when something is due, not while too many are under way."""
        if not self._running or self.entering.queue is None or self.due.is_full(alone=self.is_mending):
            return
        if seconds is None:
            seconds = self._seconds_left()
            if seconds is None:
                return
        at = self.clock.monotonic() + seconds
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._scheduler.call_later(seconds, self._step)

    def _seconds_left(self) -> float | None:
        """Time to the next step; None when nothing is pending."""
        if self._mending is not None or self._fresh:
            return 0.0
        runs, table = self.stages.runs, self.table
        entering = (runs(Stage.ENQUEUE_GET) or self.entering.depth) and runs(Stage.ENQUEUE_PUT)
        if (self.entering.lag and entering and not self._stuck) or (self._reading and runs(Stage.DEQUEUE_GET)):
            return 0.0
        if not (self.pending or self.entering.lag or table.coming.count or table.rolls.count):
            return None
        now_us = self.clock.wall_us()
        waits = [LOOK_SECONDS]
        if self._slot_due(now_us // 1000) and runs(Stage.DEQUEUE_GET):
            return 0.0
        if runs(Stage.DEQUEUE_GET_MESSAGE) and runs(Stage.DEQUEUE_PUT_MESSAGE):
            by_us = now_us + self.store.landed.ahead_us
            dues = [each.next_due for each in (table.coming, table.rolls)]
            waits += [(due * 1000 - by_us) / 1e6 for due in dues if due is not None]
            if self.due.aside and not self.due.delivery.in_flight:
                waits.append(self.due.retry_at - self.clock.monotonic())
        return max(0.0, min(waits))

    def _slot_due(self, now_ms: int) -> bool:
        return self.table.next_ms <= now_ms + AHEAD_MS and self.table.coming.count < COMING_MAX

    # Steps

    def _step(self) -> None:
        self._timer = None
        store = self.store
        if not self._running or store.failed is not None or store.closed:
            return
        taken = True
        try:
            if self._mending is not None:
                self._mend()
            elif self._fresh:
                self._make_files()
            else:
                self._enqueue()
                self._read_slots()
                taken = self._deliver()
        except TimersDamaged as error:
            self.note_damage(error)
            self.saves.settle()
            self._reading = None
            self.due.aside.clear()
            self.due.superseded.clear()
            self._mending = alone(store, rebuild(self))
        except OSError as error:
            if error.errno not in NO_SPACE:
                store.fail("writing the timers", error)
                return
            self.metrics.counter(counted.WAITS).add()
            self._notices.note("timers_wait", error=str(error))
            taken = False
        if store.pending and store.on_pending is None:
            store.flush()
        self._arm(None if taken else DISK_FULL_SECONDS)

    def _make_files(self) -> None:
        self.table.log.reset()
        self.table.wheel.reset()
        self.begin_now()
        self._fresh = False

    def _mend(self) -> None:
        """Go on making everything anew."""
        assert self._mending is not None
        try:
            next(self._mending)
        except StopIteration:
            self._mending = None

    def _enqueue(self) -> None:
        entering, stages = self.entering, self.stages
        self._stuck = False
        if not entering.lag:
            return
        read = entered = 0
        count = entering.pace.begin()
        if stages.runs(Stage.ENQUEUE_GET):
            with stages.timed(Stage.ENQUEUE_GET):
                read = entering.read(count)
            stages.passed(Stage.ENQUEUE_GET, read)
        if stages.runs(Stage.ENQUEUE_PUT):
            with stages.timed(Stage.ENQUEUE_PUT):
                entered = entering.enter(count)
            stages.passed(Stage.ENQUEUE_PUT, entered)
        entering.pace.end(max(read, entered))
        # The wheel has no room until slots are settled. (What needs a slot to be opened gets it in this step.)
        opens = entering.wants_open_slot and stages.runs(Stage.DEQUEUE_GET)
        self._stuck = not read and not entered and not opens

    def _read_slots(self) -> None:
        """Read the slots whose time comes, as far as one step goes."""
        now, opens = self.clock.wall_ms(), self.entering.wants_open_slot
        if self._reading is None and not opens and not self._slot_due(now):
            return
        if not self.stages.runs(Stage.DEQUEUE_GET):
            return
        with self.stages.timed(Stage.DEQUEUE_GET):
            table = self.table
            if self._reading is None:
                if self._slot_due(now):
                    table.skip_empty(now + AHEAD_MS, self.store.end)
                if not opens and (not self._slot_due(now) or table.wheel.get(table.next_ms) is None):
                    return
                self._reading = table.read_slot(self.store.end, hold=opens)
            try:
                next(self._reading)
            except StopIteration as end:
                self._reading = None
                self.stages.passed(Stage.DEQUEUE_GET, end.value)

    def _deliver(self) -> bool:
        """Deliver what is due; False when the store takes nothing now."""
        stages = self.stages
        if not (stages.runs(Stage.DEQUEUE_GET_MESSAGE) and stages.runs(Stage.DEQUEUE_PUT_MESSAGE)):
            return True
        under_way = self.due.delivery.in_flight
        with stages.timed(Stage.DEQUEUE_GET_MESSAGE):
            count, taken = self.due.deliver_due(self.clock.wall_us())
        stages.passed(Stage.DEQUEUE_GET_MESSAGE, count)
        stages.passed(Stage.DEQUEUE_PUT_MESSAGE, self.due.delivery.in_flight - under_way)
        if taken and not under_way and self.due.aside and self.clock.monotonic() >= self.due.retry_at:
            taken = self.due.retry()
        return taken

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

    def replaced_by(self, physical: int, size: int) -> int:
        """Commit-log offset of the record that one takes the place of, -1 for none."""
        offset = prepared_offset(self.store.read(physical, size))
        return max(offset, 0) if offset else -1

    def note_damage(self, error: TimersDamaged) -> None:
        """Count and say that timer log or wheel cannot be believed."""
        self.metrics.counter(counted.DAMAGED).add()
        log.error("timers_damaged", why=str(error), what="they are made anew from the commit log")
