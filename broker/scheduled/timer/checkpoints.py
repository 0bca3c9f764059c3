"""Saves how far the timers are: timer log, wheel and the two checkpoints, in this order, in steps.

What is saved is how all of it was in the first step: the slots of the wheel name no unit that the timer log was not
synced with, and the checkpoints go no further than both, whatever is entered and delivered between two steps.
"""

from __future__ import annotations

from broker.opening.checkpointer import LOG_BYTES_MAX
from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import FileWrite, StateWriter, can_wait
from broker.runtime.later import Repeated
from broker.scheduled.timer.parts import TimerParts
from broker.scheduled.timer.pending.log import TimersDamaged
from broker.scheduled.timer.pending.state import TimerCheck

SAVE_SECONDS = 5.0


class TimerCheckpoints:
    """Saves the timers of one store every few seconds, from `begin` until `end`.

    Attributes:
        saved: What was saved last; None before.
    """

    def __init__(self, parts: TimerParts, runtime: Runtime) -> None:
        self.saved: TimerCheck | None = None
        self._saved_end = self._saved_generation = 0
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
            check = TimerCheck(table.read_ms, table.log.position(table.log.count), parts.entering.offset)
            generation = table.log.generation
            is_saved = check == self.saved and generation == self._saved_generation
            changed = not is_saved or table.log.marked or end - self._saved_end >= LOG_BYTES_MAX
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
            self.saved, self._saved_end, self._saved_generation = check, end, generation
        except TimersDamaged as error:
            # The next opening finds it, too.
            parts.note_damage(error)
        except OSError as error:
            if not can_wait(error):
                store.writes.fail("writing how far the timers are", error)
