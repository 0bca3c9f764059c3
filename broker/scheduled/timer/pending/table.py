"""Which timers are pending, and where: timer log, wheel, and what was read of it. No I/O but that of these two.

A timer is a unit of 52 bytes in the timer log, and nothing in memory until its slot comes up. A slot of the wheel names
the last unit of its chain, each unit the one before. A heap of due times would be the obvious way; ten million timers
would then take a gigabyte, and each start would read all of them before the first is due.

Two moments, both times of slots, cut time in three::

                read_ms               next_ms
    ---------------+---------------------+----------------------> slots
       completed     | read: in `coming`,  | in the wheel alone
                   | `rolls`, under way  |

1. No timer that needs anything has a slot before `read_ms`, but for refused ones, which the checkpoint names one by
   one. A checkpoint that says `read_ms` says just that.
2. A slot is read once, whole: `_left` has how many of its timers are not completed. `read_ms` is the first slot that
   has some, or that is held open; with none it is `next_ms`. It never falls, whatever the clock does.
3. A unit's slot never changes. A timer that is late for its own is entered in the slot of `read_ms`, the first that is
   still looked at; with no such slot the entering stage has the next one read and held (`Entering.wants_open_slot`).
4. A place of the wheel belongs to one slot at a time: nothing is entered a round or more after `read_ms`, where it
   would write over a chain that is still needed. It waits in its queue.
5. Log, then wheel: a slot that names a unit which the disk lost would be damage, a unit without its slot is found by
   comparing what follows the checkpoint with the records (`opening`). A failed write enters nothing.
6. Positions rise in the order of sending. So timers of one millisecond are taken in that order, and a record's unit is
   found by bisection.

A timer that is due more than `roll_slots` from now is entered nearer and *rolled*: its record is put again when that
slot comes up. That is RocketMQ's way, whose unit holds slot less write time in 32 bits of ms, 24 days.

Where several processes follow each other, what is pending is what the log does not say was replaced. `_decided_from`
has for each slot the log's end when it was read: none of its timers was delivered before, so a start from `read_ms` on
reads the log from there only.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

from broker.scheduled.timer.names import TimerOptions
from broker.scheduled.timer.pending.due_timers import Coming
from broker.scheduled.timer.pending.log import (
    MAGIC_DELETE,
    MAGIC_ROLL,
    MAGIC_TIMER,
    UNIT,
    UNIT_BYTES,
    TimerLog,
    TimersDamaged,
    Unit,
)
from broker.scheduled.timer.pending.wheel import Slot, TimerWheel

CHUNK_UNITS = 64
"""Units read in one step: about a tenth of a millisecond, since others are due while a slot is read ahead."""
SKIP_SLOTS = 16_384
"""Empty slots passed over in one step."""
UNREAD_SLOTS = 4_096
"""Slots looked at to count timers that wait to be read: some milliseconds."""


class PendingTimerRecord(NamedTuple):
    """A record of the timer topic to enter.

    Attributes:
        physical: Its commit-log offset.
        size: Its size.
        slot_ms: Slot of its due time.
        due_ms: Due time.
        topic_hash: Java's hash of its real topic.
        replaces: Commit-log offset of the record that it takes the place of, -1 for none.
        cancel: It cancels another one, and is never delivered.
    """

    physical: int
    size: int
    slot_ms: int
    due_ms: int
    topic_hash: int
    replaces: int = -1
    cancel: bool = False


def key_of(unit: Unit) -> int:
    """When to take a timer whose slot was read: when it is due, a roll when its slot is."""
    return unit.slot_ms if unit.magic & MAGIC_ROLL else unit.due_ms


class TimerTable:
    """The timers of one store.

    Attributes:
        log: The timer log.
        wheel: The wheel.
        read_ms: Slots before it are completed.
        next_ms: The slot to read next.
        coming: Timers of slots that were read, not taken yet.
        rolls: Likewise those that are to be rolled.
        pending: Timers that need something, by hash of their topic.
        cancels: Positions of delete units, by slot that was read.
        damage: A timer was completed of a slot that has none left: a unit was damaged after its slot was read.
        roll_slots: As in `TimerOptions`.

    Args:
        log: The timer log.
        wheel: The wheel.
        options: The window of rolls.
        resolve: Due time of a unit that does not say it, by its record.
    """

    def __init__(self, log: TimerLog, wheel: TimerWheel, options: TimerOptions, resolve: Callable[[Unit], int]) -> None:
        self.log = log
        self.wheel = wheel
        self.read_ms = self.next_ms = 0
        self.coming = Coming()
        self.rolls = Coming()
        self.pending: dict[int, int] = {}
        self.cancels: dict[int, list[int]] = {}
        self.damage: TimersDamaged | None = None
        self.roll_slots = options.roll_slots
        self.resolve = resolve
        self._held: int | None = None
        self._left: dict[int, int] = {}
        self._decided_from: dict[int, int] = {}

    # Entering

    def room_for(self, slot_ms: int) -> bool:
        """Whether a slot has a place of its own in the wheel: it has not while slots of an earlier round are left."""
        return slot_ms - self.read_ms < self.wheel.round_ms

    def slot_for(self, slot_ms: int, now_ms: int) -> tuple[int, int]:
        """Return the slot to enter a timer in, and its magic (TimerMessageStore.doEnqueue)."""
        precision = self.wheel.precision_ms
        write_ms = max(now_ms // precision * precision, self.read_ms)
        far = slot_ms - write_ms
        window = self.roll_slots * precision
        # Within the window it goes to its own slot. Beyond, it waits there and is entered again when that slot is read;
        # a little beyond it waits half a window, so that the second wait is not a short one.
        if far < window:
            return max(slot_ms, self.read_ms), MAGIC_TIMER
        if far < window + self.roll_slots // 3 * precision:
            return write_ms + self.roll_slots // 2 * precision, MAGIC_TIMER | MAGIC_ROLL
        return write_ms + window, MAGIC_TIMER | MAGIC_ROLL

    def enter(self, entries: Sequence[PendingTimerRecord], now_ms: int) -> int:
        """Write units for records, in their order; return for how many, fewer when the wheel has no room.

        Raises:
            TimersDamaged: What is there does not fit together.
            OSError: The log cannot be written; nothing was entered.
        """
        log, wheel = self.log, self.wheel
        precision = wheel.precision_ms
        units = bytearray()
        slots: dict[int, Slot] = {}
        placed: list[tuple[PendingTimerRecord, int, int, int]] = []
        number = log.count
        for entry in entries:
            slot_ms, magic = self.slot_for(entry.slot_ms, now_ms)
            if not self.room_for(slot_ms):
                break
            if entry.cancel:
                magic |= MAGIC_DELETE
            assert self.read_ms <= slot_ms < self.read_ms + wheel.round_ms, "its slot is still in use, and has a place"
            write_ms = min(now_ms // precision * precision, slot_ms)
            position = log.position(number + len(placed))
            slot = slots.get(slot_ms) or wheel.get(slot_ms)
            count = -1 if entry.cancel else 1
            if slot is None:
                slots[slot_ms] = Slot(position, position, count)
                previous = -1
            else:
                slots[slot_ms] = Slot(slot.first, position, slot.timers + count)
                previous = slot.last
            # The write time may not be more than 24 days before the slot: the difference is an i32.
            write_ms = max(write_ms, slot_ms - (self.roll_slots + 1) * precision)
            units += UNIT.pack(
                UNIT_BYTES,
                previous,
                magic,
                write_ms,
                slot_ms - write_ms,
                entry.physical,
                entry.size,
                entry.topic_hash,
                entry.due_ms,
            )
            placed.append((entry, slot_ms, magic, position))
        # Units first: a slot must never name a unit that is not there.
        log.append(units)
        for slot_ms, slot in slots.items():
            wheel.put(slot_ms, slot)
        for entry, slot_ms, magic, position in placed:
            if entry.replaces >= 0:
                self.replace(entry.replaces)
            if not entry.cancel:
                self.pending[entry.topic_hash] = self.pending.get(entry.topic_hash, 0) + 1
            elif not magic & MAGIC_ROLL:
                if self.read_ms <= slot_ms < self.next_ms:
                    self.cancels.setdefault(slot_ms, []).append(position)
                continue
            if slot_ms < self.next_ms:
                self._left[slot_ms] = self._left.get(slot_ms, 0) + 1
                if magic & MAGIC_ROLL:
                    self.rolls.push(slot_ms, position)
                else:
                    self.coming.push(entry.due_ms, position)
        assert log.count == number + len(placed), "every placed unit was appended, and nothing else"
        self._held = None
        self._advance()
        return len(placed)

    def replace(self, physical: int, *, anew: bool = False) -> bool:
        """Settle the timer whose record another one replaced; False when it needs nothing any more, or has no unit.

        Args:
            physical: Commit-log offset of the record that was replaced.
            again: Mark its unit even if it is: an earlier process did that, and the disk may not have it.

        Raises:
            TimersDamaged, OSError: As `TimerLog.find`.
        """
        position = self.log.find(physical)
        return position is not None and self.replace_at(position, anew=anew)

    def replace_at(self, position: int, *, anew: bool = False) -> bool:
        """`replace` by the position of the unit. Raises as `TimerLog.unit`."""
        unit = self.log.unit(position)
        if not self.is_pending(unit, position):
            if anew and not unit.size:
                self.log.marked.add(position)
            return False
        self.log.marked.add(position)
        self._count(unit, -1)
        return True

    def is_pending(self, unit: Unit, position: int) -> bool:
        """Whether a timer is neither completed nor under way."""
        if not unit.size or unit.magic & MAGIC_DELETE or unit.slot_ms < self.read_ms:
            return False
        if unit.slot_ms >= self.next_ms:
            return True
        return (key_of(unit), position) in (self.rolls if unit.magic & MAGIC_ROLL else self.coming)

    def has_pending(self, physical: int) -> bool:
        """Whether the timer of a record is pending, in a slot. Raises as `TimerLog.find`."""
        position = self.log.find(physical)
        return position is not None and self.is_pending(self.log.unit(position), position)

    # Reading slots

    def slot_units(self, slot_ms: int, above: int = -1) -> Iterator[list[tuple[int, Unit]]]:
        """Yield the units of a slot that is in the wheel, in bounded pieces, the last enqueued first.

        Args:
            slot_ms: Its time.
            above: Only those behind this position.

        Raises:
            TimersDamaged: A unit is not one of this slot.
            OSError: The timer log cannot be read.
        """
        slot = self.wheel.get(slot_ms)
        position = -1 if slot is None else slot.last
        while position > above:
            found, position = self.log.chain(position, slot_ms, above=above, count_max=CHUNK_UNITS)
            if not all(unit.due_ms for _, unit in found):
                found = [(at, unit if unit.due_ms else self._give_due(unit, at)) for at, unit in found]
            if found:
                yield found

    def _give_due(self, unit: Unit, position: int) -> Unit:
        """RocketMQ says no due time in its units: its record does."""
        due = self.resolve(unit)
        self.log.set_due(position, due)
        return unit._replace(due_ms=due)

    def read_slot(self, log_end: int, *, hold: bool = False) -> Generator[None, None, int]:
        """Read the next slot, in bounded steps; return how many timers it has.

        Args:
            log_end: End of the visible commit log: no timer of this slot was delivered before that.
            hold: Keep it open for late ones, whatever it has, until the next `enter`.

        Raises:
            TimersDamaged, OSError: As `slot_units`; the slot is not read then.
        """
        slot_ms = self.next_ms
        timers: dict[int, array[int]] = {}
        rolls: dict[int, array[int]] = {}
        cancels: list[int] = []
        last = -1
        while (slot := self.wheel.get(slot_ms)) is not None and slot.last != last:
            # What is enqueued meanwhile is found by another look.
            above, last = last, slot.last
            newer: tuple[dict[int, array[int]], dict[int, array[int]], list[int]] = ({}, {}, [])
            for units in self.slot_units(slot_ms, above):
                self._sort(units, *newer)
                if len(units) == CHUNK_UNITS:
                    yield
            for before, found in ((timers, newer[0]), (rolls, newer[1])):
                for key, positions in found.items():
                    positions.extend(before.get(key, ()))
                before.update(found)
            cancels = newer[2] + cancels
        self.next_ms = slot_ms + self.wheel.precision_ms
        count = sum(map(len, timers.values())) + sum(map(len, rolls.values()))
        if cancels:
            self.cancels.setdefault(slot_ms, []).extend(cancels)
        self.coming.load(timers)
        self.rolls.load(rolls)
        if count:
            self._left[slot_ms] = count
        self._decided_from[slot_ms] = log_end
        self._held = slot_ms if hold else None
        self._advance()
        return count

    def _sort(
        self,
        units: Sequence[tuple[int, Unit]],
        timers: dict[int, array[int]],
        rolls: dict[int, array[int]],
        cancels: list[int],
    ) -> None:
        """Sort units by when they are to be taken; what needs nothing is left out. A later mark is seen when taken.

        Raises:
            TimersDamaged: One is due after its slot: it would wait there.
        """
        precision = self.wheel.precision_ms
        for position, unit in units:
            _, magic, slot_ms, _, size, _, key = unit
            if magic & MAGIC_ROLL:
                into, key = rolls, slot_ms
            elif magic & MAGIC_DELETE:
                cancels.append(position)
                continue
            else:
                if key > slot_ms + precision:
                    self.check_slot(unit, position, come_ms=slot_ms)
                into = timers
            if size:
                positions = into.get(key)
                if positions is None:
                    positions = into[key] = array("q")
                positions.append(position)

    def check_slot(self, unit: Unit, position: int, *, come_ms: int) -> None:
        """Look whether a unit is in a slot that it can be in.

        A timer that is due after its slot would wait there; only slots up to now took what was late for its own.

        Args:
            unit: The unit.
            position: Where it is.
            come_ms: Slots up to this time may have been read.

        Raises:
            TimersDamaged: It is not.
        """
        slot_ms, due_ms, precision = unit.slot_ms, unit.due_ms, self.wheel.precision_ms
        is_timer = due_ms and not unit.magic & (MAGIC_ROLL | MAGIC_DELETE)
        is_late = is_timer and due_ms <= slot_ms
        if (
            slot_ms % precision
            or (is_timer and due_ms > slot_ms + precision)
            or (is_late and slot_ms > max(self.next_ms, come_ms))
        ):
            raise TimersDamaged(
                f"the unit of the timer log at {position} is due at {due_ms}, and its slot is {slot_ms}"
            )

    def complete(self, unit: Unit, *, marked: bool = False) -> None:
        """Note that a timer that was taken needs nothing any more; a marked one is not pending already."""
        left = self._left.get(unit.slot_ms, 0) - 1
        if left > 0:
            self._left[unit.slot_ms] = left
        else:
            self._end_slot(unit.slot_ms, left)
            self._advance()
        if not marked:
            self.forget(unit)

    def complete_all(self, slots: Sequence[tuple[int, int]], topics: Sequence[tuple[int, int]]) -> None:
        """`complete` for many timers that were taken and are still counted as pending.

        Args:
            slots: Times of their slots, and how many are of each.
            topics: Likewise hashes of their topics; delete units have none.
        """
        advance = False
        for slot_ms, count in slots:
            left = self._left.get(slot_ms, 0) - count
            if left > 0:
                self._left[slot_ms] = left
            else:
                self._end_slot(slot_ms, left)
                advance = True
        if advance:
            self._advance()
        for topic_hash, count in topics:
            self.pending[topic_hash] = self.pending.get(topic_hash, 0) - count

    def _end_slot(self, slot_ms: int, left: int) -> None:
        self._left.pop(slot_ms, None)
        if left < 0:
            # Then another slot never becomes empty, nor does what is entered in it one round later.
            self.damage = TimersDamaged(f"more timers were completed of the slot {slot_ms} than it has")

    def forget(self, unit: Unit) -> None:
        """Count a timer as pending no more."""
        if not unit.magic & MAGIC_DELETE:
            self._count(unit, -1)

    def _count(self, unit: Unit, change: int) -> None:
        self.pending[unit.topic_hash] = self.pending.get(unit.topic_hash, 0) + change

    def _advance(self) -> None:
        first = min(self._left, default=self.next_ms)
        first = first if self._held is None else min(first, self._held)
        assert self.read_ms <= first <= self.next_ms, "what is completed stays completed"
        self.read_ms = first
        earlier = [each for each in self._decided_from if each < first]
        if earlier:
            # A slot that was passed over takes late ones, too: none was delivered before an earlier slot was read.
            self._decided_from.setdefault(first, self._decided_from[max(earlier)])
        for slot_ms in earlier:
            del self._decided_from[slot_ms]
        for slot_ms in [each for each in self.cancels if each < first]:
            del self.cancels[slot_ms]

    @property
    def is_open(self) -> bool:
        """Whether there is an slot with unfinished timers that was read, which takes what is late."""
        return self.read_ms < self.next_ms

    def decided_from(self, log_end: int) -> int:
        """Commit-log offset behind which timers of slots from `read_ms` on may have been delivered."""
        return self._decided_from.get(self.read_ms, log_end) if self.is_open else log_end

    def begin_at(self, read_ms: int) -> None:
        """Begin to read at a slot; everything before it is completed."""
        self.read_ms = self.next_ms = read_ms // self.wheel.precision_ms * self.wheel.precision_ms
        self._held = self.damage = None
        self._left.clear()
        self._decided_from.clear()
        self.cancels.clear()
        self.coming.clear()
        self.rolls.clear()

    def make_anew(self, read_ms: int) -> None:
        """Empty timer log and wheel, forget what was read of them, and begin at a slot. Raises OSError."""
        self.log.reset()
        self.wheel.reset()
        self.pending.clear()
        self.begin_at(read_ms)

    def drop_before(self, physical: int, *, saved: int) -> int:
        """Delete timer-log files that only name records below a commit-log offset; return how many.

        Those behind a position (`saved`) stay: a checkpoint says that they are there.

        Files with units of slots that are being read, or whose timers are not all completed, stay: `coming` and
        `rolls` have positions in them, also of timers that retention put again.

        Raises:
            OSError: One cannot be deleted.
        """
        if self.log.first == self.log.count:
            return 0
        slots = [self.wheel.get(slot_ms) for slot_ms in {*self._left, *self.cancels, self.next_ms}]
        keep = min([saved, *(slot.first for slot in slots if slot is not None)])
        return self.log.drop_before(physical, keep=keep)

    def unread(self, end_ms: int) -> int:
        """How many timers stand in slots that are not read, up to and with that of a moment; of so many slots."""
        precision = self.wheel.precision_ms
        slots = range(self.next_ms, min(end_ms + 1, self.next_ms + UNREAD_SLOTS * precision), precision)
        return sum(slot.timers for slot in map(self.wheel.get, slots) if slot is not None and slot.timers > 0)

    def skip_empty(self, end_ms: int, log_end: int) -> None:
        """Pass over the empty slots that come next, a bounded number of them, up to and with that of a moment."""
        precision = self.wheel.precision_ms
        last = (end_ms // precision + 1) * precision
        if 2 * self.wheel.slots > SKIP_SLOTS:
            last = min(last, self.next_ms + SKIP_SLOTS * precision)
        used = self.wheel.next_used(self.next_ms, last)
        assert used <= last, "no slot behind the moment asked for is passed over"
        if used > self.next_ms:
            self._decided_from[used - precision] = log_end
            self.next_ms = used
            self._advance()

    # Handing over

    def relink(self) -> None:
        """Leave in the slots that were read only what is pending (D30), and forget that they were read.

        Raises:
            TimersDamaged, OSError: As `slot_units`; or a unit says no more when it was to be taken.
        """
        waiting = {*self.coming, *self.rolls}
        for slot_ms in range(self.read_ms, self.next_ms, self.wheel.precision_ms):
            if self.wheel.get(slot_ms) is None:
                continue
            units = [each for piece in self.slot_units(slot_ms) for each in piece]
            left = [(position, unit) for position, unit in reversed(units) if self._stays(unit, position, waiting)]
            if len(left) == len(units):
                continue
            kept = {position for position, _ in left}
            for position, _ in units:
                if position not in kept:
                    self.log.marked.add(position)
            previous = count = 0
            for place, (position, unit) in enumerate(left):
                self.log.relink(position, previous if place else -1)
                previous = position
                count += -1 if unit.magic & MAGIC_DELETE else 1
            if left:
                self.wheel.put(slot_ms, Slot(left[0][0], previous, count))
            else:
                self.wheel.empty(slot_ms)

    def _stays(self, unit: Unit, position: int, waiting: set[int]) -> bool:
        if unit.magic & MAGIC_DELETE or self.is_pending(unit, position):
            return True
        if unit.size and position in waiting:
            raise TimersDamaged(f"the unit of the timer log at {position} was due at another time when it was read")
        return False
