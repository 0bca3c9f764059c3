"""Timers of one store: from the timer topic into the wheel, and out of it at the very millisecond.

Guarantees:

- Never early by the wall clock (D35), in the order of due times, and of those due together in the order of sending.
- A message that is refused blocks no other: it is kept apart, counted, said, and tried again.
- Delivered once: the delivered record names the record that it replaces, and is the decision (D27). What is pending is
  known from the commit log alone; timer log, wheel and checkpoints save reading it.
- A pending timer takes 52 bytes on disk and none in memory until its slot comes up, 2 s before it is due; 8 then.

RocketMQ's five stages (`broker.scheduled.timer.stages`) are pieces of bounded work in one step. The next step comes
once the deliveries of the one before are durable, and the loop does everything else in between.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Unpack

from broker.errors import NO_SPACE
from broker.log.durability import AwaitedSteps
from broker.log.shared_walk import Reading, alone
from broker.opening.checkpointer import LOG_BYTES_MAX
from broker.runtime.bundle import Runtime, runtime_of
from broker.runtime.file_writes import FileWrite, StateWriter, can_wait
from broker.runtime.later import Earliest, Repeated
from broker.runtime.steps import StepsEnd, run_now, step
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.recurring.loops import Loops
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.cancel import Rescheduled, cancelling, rescheduling
from broker.scheduled.timer.names import TIMER_TOPIC
from broker.scheduled.timer.opening import find_pending, rebuild
from broker.scheduled.timer.parts import AHEAD_MS, TimerParts
from broker.scheduled.timer.pending.log import TimersDamaged
from broker.scheduled.timer.pending.state import TimerCheck
from broker.scheduled.timer.puts import TimedPuts
from broker.scheduled.timer.stages import TimerPipelineStage
from broker.store import Store
from broker.store_seams import StoreSeams

# Saves how far the timers are: timer log, wheel and the two checkpoints, in this order, in steps.
#
# What is saved is how all of it was in the first step: the slots of the wheel name no unit that the timer log was not
# synced with, and the checkpoints go no further than both, whatever is entered and delivered between two steps.


SAVE_SECONDS = 5.0


class TimerCheckpoints:
    """Saves the timers of one store every few seconds, from `begin` until `end`.

    Attributes:
        saved: What was saved last; None before.
        saved_end: Where the commit log ended then.
    """

    def __init__(self, parts: TimerParts, runtime: Runtime) -> None:
        self.saved: TimerCheck | None = None
        self.saved_end = self._saved_generation = 0
        self._parts = parts
        self._state_writer = StateWriter(runtime.disk, parts.store.file_writes, self.writing)
        repeated = Repeated(runtime.scheduler, SAVE_SECONDS, self._state_writer.begin)
        self.begin, self.end = repeated.begin, repeated.end

    @property
    def covered(self) -> int:
        """Position in the timer log up to which the last checkpoint goes; 0 before there is one of this timer log."""
        is_of_it = self.saved is not None and self._saved_generation == self._parts.table.log.generation
        return self.saved.log_end if self.saved is not None and is_of_it else 0

    def now(self, *, clean: bool) -> None:
        """Save at once; `clean`: nothing follows."""
        self._state_writer.now(self.writing(clean=clean))

    def writing(self, *, clean: bool = False) -> FileWrite:
        """Write how far it is; a full disk postpones that, another failure stops the store's write side."""
        parts = self._parts
        store, table = parts.store, parts.table
        parts.measure()
        if parts.entering.queue is None or parts.is_mending or store.failed is not None or store.closed:
            return
        try:
            # Under `async` what was delivered is not on the disk yet, and the files must not be ahead of the log.
            store.make_durable()
            if clean:
                table.relink()
            # What `relink` left needs no look at the log: all of it is pending.
            end = store.end
            decided_from = end if clean else table.decided_from(end)
            if parts.entering.decided_from is not None:
                # What a rebuild has not entered yet would be delivered again by a start that does not know of this.
                decided_from = min(decided_from, parts.entering.decided_from)
            check = TimerCheck(table.read_ms, table.log.position(table.log.count), parts.entering.offset)
            generation = table.log.generation
            is_saved = check == self.saved and generation == self._saved_generation
            changed = not is_saved or table.log.marked or end - self.saved_end >= LOG_BYTES_MAX
            if not clean and not changed:
                return
            slots, pending = table.wheel.take(), dict(table.pending)
            refused, floor = parts.due.refused_units(), parts.entering.floor
            table.log.write_marks()
            yield from table.log.syncing()
            table.wheel.write_taken(slots)
            yield from table.wheel.syncing()
            yield from parts.state.writing(
                check,
                decided_from=decided_from,
                refused=refused,
                pending=pending,
                floor=floor,
                clean=clean,
            )
            self.saved, self.saved_end, self._saved_generation = check, end, generation
        except TimersDamaged as error:
            # The next opening finds it, too.
            parts.note_damage(error)
        except OSError as error:
            if not can_wait(error):
                store.writes.fail("writing how far the timers are", error)


LOOK_SECONDS = 1.0
"""How soon a wall clock that was set forward is noticed while something is pending."""
DISK_FULL_SECONDS = 1.0


class Timers:
    """Delivers the timed messages of one store.

    Attributes:
        parts: Pending timers, and the state of all stages; `table`, `entering`, `due` and `stages` are of it.
        checkpoints: Writes all of it every few seconds.
    """

    def __init__(self, store: Store, runtime: Runtime, *, follower: Loops | None = None) -> None:
        """Set up; `opening` does the work.

        Args:
            store: An open store. Without an event loop that flushes it, each step flushes.
            runtime: Its disk has the files, its wall clock the due times, and its scheduler runs the steps.
            follower: Knows the loops among the timers; without one a loop is delivered once.
        """
        self.parts = TimerParts(store, runtime, delivered=self._delivered, follower=follower, rebuild=rebuild)
        self.store = store
        self.clock = runtime.clock
        self.metrics = runtime.metrics
        self.table = self.parts.table
        self.entering = self.parts.entering
        self.due = self.parts.due
        self.stages = self.parts.stages
        self.checkpoints = TimerCheckpoints(self.parts, runtime)
        self._limited_log = runtime.limited_log
        self._next = Earliest(runtime.clock, runtime.scheduler, self._step)
        self._running = False
        self._stuck = False

    # Opening and closing

    @classmethod
    def opening(
        cls, store: Store, *, follower: Loops | None = None, **seams: Unpack[StoreSeams]
    ) -> Generator[None, None, Timers]:
        """Find out what is pending, in steps of bounded work; returns the delivery, which `start` sets going.

        Raises:
            OSError: A file cannot be read or written.
        """
        return alone(store, cls.reading(store, follower=follower, **seams))

    @classmethod
    def reading(cls, store: Store, *, follower: Loops | None = None, **seams: Unpack[StoreSeams]) -> Reading[Timers]:
        """`opening`, for `broker.log.shared_walk.together`."""
        return cls.reading_of(store, runtime_of(**seams), follower=follower)

    @classmethod
    def reading_of(cls, store: Store, runtime: Runtime, *, follower: Loops | None = None) -> Reading[Timers]:
        """`reading`, of a program that has a bundle of all this."""
        timers = cls(store, runtime, follower=follower)
        store.waiting(TimedPuts).connect(on_topic=timers._attach, in_slot=timers.parts.in_slot)
        if TIMER_TOPIC in store.topics:
            timers._attach()
            timers.parts.is_fresh = False
            try:
                yield from find_pending(timers.parts)
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                # The steps make timer log and wheel again, once there is room.
                timers.parts.begin_mending()
        return timers

    def _attach(self) -> None:
        """Take over the timer topic, which has just been made; its files are made by the first step."""
        topic = self.store.topics[TIMER_TOPIC]
        if self.entering.queue is not None:
            return
        self.entering.begin_at(topic.queues[0], topic.queues[0].min_offset)
        topic.listeners.append(self._arrived)
        self.parts.is_fresh = True
        if self._running:
            self.checkpoints.begin()

    def start(self) -> None:
        """Deliver due messages, and continue."""
        self._running = True
        self._arm(0.0)
        if self.entering.queue is not None:
            self.checkpoints.begin()

    def stop(self) -> None:
        """Deliver nothing any more."""
        self._running = False
        self.checkpoints.end()
        self._next.end()

    def close(self) -> None:
        """Stop, and save the progress, so that RocketMQ could continue (D30); call it before the store is closed."""
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
        self.checkpoints.now(clean=clean)

    @property
    def pending(self) -> int:
        """Timers that are not delivered, as far as they are in the wheel."""
        return self.parts.pending

    def pause(self, stage: TimerPipelineStage) -> None:
        """Have a stage rest until `resume`, or a restart."""
        self.stages.pause(stage)

    def resume(self, stage: TimerPipelineStage) -> None:
        """Resume a stage."""
        self.stages.resume(stage)
        self._arm(0.0)

    # One timer

    def cancel(self, topic: str, unique_key: str) -> CancelEffect:
        """Cancel the timer of a topic that has an id (UNIQ_KEY); durable when this returns. `cancelling` is in steps.

        Raises:
            DiskFull, StoreFailed: It cannot be stored; the timer stays.
            OSError: The store cannot be read.
        """
        return run_now(self.cancelling(topic, unique_key))

    def cancelling(self, topic: str, unique_key: str) -> AwaitedSteps[CancelEffect]:
        """`cancel` in steps of bounded work; returns the outcome."""
        return cancelling(self.parts, topic, unique_key)

    def reschedule(self, topic: str, unique_key: str, due_ms: int) -> Rescheduled:
        """Give a timer another moment, and with it another id; durable when this returns. `rescheduling` is in steps.

        Raises:
            MessageRefused: The moment is too far away, or the message would be refused as a new one; the timer stays.
            DiskFull, StoreFailed, OSError: As `cancel`.
        """
        return run_now(self.rescheduling(topic, unique_key, due_ms))

    def rescheduling(self, topic: str, unique_key: str, due_ms: int) -> AwaitedSteps[Rescheduled]:
        """`reschedule` in steps of bounded work; returns the outcome."""
        return rescheduling(self.parts, topic, unique_key, due_ms)

    def drop_before(self, physical: int) -> None:
        """Delete timer-log files that only name records below a commit-log offset; a failed one stops the store."""
        try:
            self.table.drop_before(physical, saved=self.checkpoints.covered)
        except OSError as error:
            self.store.writes.fail("deleting a file of the timer log", error)

    # When

    def _arrived(self) -> None:
        self._arm(0.0)

    def _delivered(self) -> None:
        """Go on when as much was under way as may be; else the next step is set to its time already."""
        if not self._next.is_scheduled or self.due.refused:
            self._arm()

    def _arm(self, seconds: float | None = None) -> None:
        """Have the next step run when something is due, not while too many are under way."""
        if not self._running or self.entering.queue is None:
            return
        if self.due.under_way if self.parts.is_mending else self.due.is_full:
            return
        if seconds is None:
            seconds = self._seconds_left()
            if seconds is None:
                return
        self._next.within(seconds)

    def _seconds_left(self) -> float | None:
        """Time to the next step; None when nothing is pending."""
        if self.parts.is_mending or self.table.damage is not None:
            return 0.0
        runs, table = self.stages.runs, self.table
        entering = (runs(TimerPipelineStage.ENQUEUE_GET) or self.entering.depth) and runs(
            TimerPipelineStage.ENQUEUE_PUT
        )
        if (self.entering.lag and entering and not self._stuck) or (
            self.parts.reading and runs(TimerPipelineStage.DEQUEUE_GET)
        ):
            return 0.0
        if not (self.pending or self.entering.lag or table.coming.count or table.rolls.count):
            return None
        now_us = self.clock.wall_us()
        waits = [LOOK_SECONDS]
        if self.parts.is_slot_due(now_us // 1000) and runs(TimerPipelineStage.DEQUEUE_GET):
            return 0.0
        if runs(TimerPipelineStage.DEQUEUE_GET_MESSAGE) and runs(TimerPipelineStage.DEQUEUE_PUT_MESSAGE):
            by_us = now_us + self.store.commit.ahead_us
            dues = [each.next_due for each in (table.coming, table.rolls)]
            waits += [(due * 1000 - by_us) / 1e6 for due in dues if due is not None]
            if self.due.refused and not self.due.delivery.in_flight:
                waits.append(self.due.retry_at - self.clock.monotonic())
        return max(0.0, min(waits))

    # Steps

    def _step(self) -> None:
        store, parts = self.store, self.parts
        if not self._running or store.failed is not None or store.closed:
            return
        taken = True
        try:
            if parts.mending is not None:
                parts.mend()
            elif self.table.damage is not None:
                raise self.table.damage
            elif parts.is_fresh:
                parts.make_files()
            else:
                self._enqueue()
                self._read_slots()
                taken = self._deliver()
        except TimersDamaged as error:
            parts.damaged(error)
        except OSError as error:
            if error.errno not in NO_SPACE:
                store.writes.fail("writing the timers", error)
                return
            self._wait(error)
            taken = False
        if store.pending and not store.is_driven:
            store.flush()
        self._arm(None if taken else DISK_FULL_SECONDS)

    def _wait(self, error: OSError) -> None:
        self.metrics.counter(counted.WAITS).add()
        self._limited_log.note("timers_wait", error=str(error))

    def _enqueue(self) -> None:
        entering, stages = self.entering, self.stages
        self._stuck = False
        if not entering.lag:
            return
        read = entered = 0
        count = entering.step_size.begin()
        if stages.runs(TimerPipelineStage.ENQUEUE_GET):
            with stages.timed(TimerPipelineStage.ENQUEUE_GET):
                read = entering.read(count)
            stages.passed(TimerPipelineStage.ENQUEUE_GET, read)
        if stages.runs(TimerPipelineStage.ENQUEUE_PUT):
            try:
                with stages.timed(TimerPipelineStage.ENQUEUE_PUT):
                    entered = entering.enter(count)
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                # What is due goes into the log, which may have room, and this is tried again with the next look.
                self._wait(error)
                read = 0
            stages.passed(TimerPipelineStage.ENQUEUE_PUT, entered)
        entering.step_size.end(max(read, entered))
        # The wheel has no room until slots are completed. (What needs a slot to be opened gets it in this step.)
        opens = entering.wants_open_slot and stages.runs(TimerPipelineStage.DEQUEUE_GET)
        self._stuck = not read and not entered and not opens

    def _read_slots(self) -> None:
        """Read the slots whose time comes, as far as one step goes."""
        now, opens = self.clock.wall_ms(), self.entering.wants_open_slot
        if self.parts.reading is None and not opens and not self.parts.is_slot_due(now):
            return
        if not self.stages.runs(TimerPipelineStage.DEQUEUE_GET):
            return
        with self.stages.timed(TimerPipelineStage.DEQUEUE_GET):
            table = self.table
            if self.parts.reading is None:
                if self.parts.is_slot_due(now):
                    table.skip_empty(now + AHEAD_MS, self.store.end)
                if not opens and (not self.parts.is_slot_due(now) or table.wheel.get(table.next_ms) is None):
                    return
                self.parts.reading = table.read_slot(self.store.end, hold=opens)
            read = step(self.parts.reading)
            if isinstance(read, StepsEnd):
                self.parts.reading = None
                self.stages.passed(TimerPipelineStage.DEQUEUE_GET, read.result)

    def _deliver(self) -> bool:
        """Deliver what is due; False when the store takes nothing now."""
        stages = self.stages
        if not (
            stages.runs(TimerPipelineStage.DEQUEUE_GET_MESSAGE) and stages.runs(TimerPipelineStage.DEQUEUE_PUT_MESSAGE)
        ):
            return True
        under_way = self.due.delivery.in_flight
        with stages.timed(TimerPipelineStage.DEQUEUE_GET_MESSAGE):
            count, taken = self.due.deliver_due(self.clock.wall_us())
        stages.passed(TimerPipelineStage.DEQUEUE_GET_MESSAGE, count)
        stages.passed(TimerPipelineStage.DEQUEUE_PUT_MESSAGE, self.due.delivery.in_flight - under_way)
        if taken and not under_way and self.due.refused and self.clock.monotonic() >= self.due.retry_at:
            taken = self.due.retry()
        return taken
