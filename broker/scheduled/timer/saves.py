"""Saves how far the timers are: timer log, wheel and the two checkpoints, in this order, in steps.

What is saved is how all of it was in the first step: the slots of the wheel name no unit that the timer log was not
synced with, and the checkpoints go no further than both, whatever is entered and delivered between two steps.
"""

from __future__ import annotations

from broker.opening.checkpointer import LOG_BYTES_MAX
from broker.runtime.file_writes import Saver, Saving, can_wait
from broker.runtime.repeated import Repeated
from broker.runtime.seams import Disk, Scheduler
from broker.scheduled.timer.log import TimersDamaged
from broker.scheduled.timer.parts import TimerParts
from broker.scheduled.timer.state import TimerCheck

SAVE_SECONDS = 5.0


class TimerSaves:
    """Saves the timers of one store every few seconds, from `begin` until `end`.

    Attributes:
        saved: What was saved last; None before.
    """

    def __init__(self, parts: TimerParts, *, disk: Disk, scheduler: Scheduler) -> None:
        self.saved: TimerCheck | None = None
        self._saved_end = 0
        self._parts = parts
        self._saver = Saver(disk, parts.store.savings, self._saving)
        repeated = Repeated(scheduler, SAVE_SECONDS, self._saver.begin)
        self.begin, self.end = repeated.begin, repeated.end

    def now(self, *, clean: bool) -> None:
        """Save at once; `clean`: nothing follows."""
        self._saver.now(self._saving(clean=clean))

    def once(self) -> Saving:
        """A saving of how far it is when that begins; for somebody who waits for it."""
        return self._saving()

    def settle(self) -> None:
        """End what is under way; before timer log and wheel are made anew."""
        self._parts.store.savings.finish()

    def _saving(self, *, clean: bool = False) -> Saving:
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
            changed = check != self.saved or table.log.has_marks or end - self._saved_end >= LOG_BYTES_MAX
            if not clean and not changed:
                return
            slots, pending = table.wheel.take(), dict(table.pending)
            asides, floor = parts.due.asides(), parts.entering.floor
            table.log.write_marks()
            yield from table.log.syncing()
            table.wheel.write_taken(slots)
            yield from table.wheel.syncing()
            yield from parts.state.saving(
                check,
                decided_from=decided_from,
                aside=asides,
                pending=pending,
                floor=floor,
                clean=clean,
            )
            self.saved, self._saved_end = check, end
        except TimersDamaged as error:
            # The next opening finds it, too.
            parts.note_damage(error)
        except OSError as error:
            if not can_wait(error):
                store.fail("writing how far the timers are", error)
