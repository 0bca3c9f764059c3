"""Finding out what is pending: from the checkpoint, timer log and wheel on, or from the commit log alone (D27).

With the files as some stop left them:

1. Units behind the checkpoint are compared with their records; the first that does not fit, and all behind it, go. No
   slot may lead anywhere else after a stop that was not clean.
2. Records that replace others, from where the checkpoint says, complete their timers.
3. The rest of the timer topic's queue is entered.

Otherwise log and wheel begin again, empty, and all of the queue is entered, less what the whole commit log says was
replaced. What was due meanwhile is in the slot of the present moment then.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Generator

import structlog

from broker.errors import DamagedRecord, RecordGone
from broker.log.decisions import DecisionRecord
from broker.log.shared_walk import Reading, decided
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.log_units import count_waiting
from broker.scheduled.timer.names import TIMER_NAME, due_of, slot_of
from broker.scheduled.timer.parts import AHEAD_MS, TimerParts
from broker.scheduled.timer.pending.log import MAGIC_DELETE, UNIT_BYTES, TimersDamaged
from broker.scheduled.timer.pending.state import Saved
from broker.scheduled.timer.pending.table import CHUNK_UNITS
from broker.scheduled.timer.pending.wheel import Slot

_PHYSICAL = struct.Struct(">28xq16x")
"""Of a unit: the commit-log offset of its record."""
assert _PHYSICAL.size == UNIT_BYTES
_WHEEL_CHANGED_MAX = 65_536
_TAKEN_UNITS = 512
"""Units taken over in one step."""
log = structlog.get_logger()


def find_pending(parts: TimerParts) -> Reading[None]:
    """Fill the table of a store that has just been opened, in steps of bounded work.

    Raises:
        OSError: A file cannot be read or written.
    """
    saved = parts.state.load(parts.store.end)
    parts.entering.floor = saved.floor
    refused = {physical: (size, due_ms) for physical, size, due_ms in saved.refused}
    try:
        usable = yield from _from_files(parts, saved, refused)
    except TimersDamaged as error:
        parts.note_damage(error)
        usable = False
    if not usable:
        # What was refused is entered with all others.
        yield from rebuild(parts)
        return
    for physical, (size, due_ms) in refused.items():
        try:
            topic_hash = parts.topic_hash(parts.store.read(physical, size))
        except (DamagedRecord, RecordGone):
            parts.metrics.counter(counted.LOST).add()
        else:
            parts.due.restore(physical, size, due_ms, topic_hash)
            if saved.pending is None or not parts.store.recovery.clean:
                parts.table.pending[topic_hash] = parts.table.pending.get(topic_hash, 0) + 1


def _from_files(parts: TimerParts, saved: Saved, refused: dict[int, tuple[int, int]]) -> Reading[bool]:
    """Go on with the files; False: they cannot be used, and everything is to be made again.

    What is found in a slot, or was decided since, is taken out of `refused`. Raises TimersDamaged, OSError.
    """
    table, check, queue = parts.table, saved.check, parts.queue
    found, wheel_found = table.log.open(), table.wheel.open()
    if check is None:
        return False
    count = table.log.number(check.log_end)
    if not wheel_found or (found and count < table.log.first) or (count and count > table.log.in_files()):
        raise TimersDamaged("timer log or wheel do not match the checkpoint")
    if saved.floor == (check.offset, check.read_ms):
        # RocketMQ's own, that is, with its timerPrecisionMs: slots of another width would not be found.
        precision = table.wheel.precision_near(check.read_ms)
        if precision != table.wheel.precision_ms:
            log.warning("timers_of_other_precision", theirs_ms=precision, ours_ms=table.wheel.precision_ms)
            return False
    table.begin_at(check.read_ms)
    table.log.count = count
    parts.entering.begin_at(queue, check.offset)
    if saved.pending is None or not parts.store.recovery.clean:
        yield from _count(parts)
    else:
        table.pending = dict(saved.pending)
    in_place = yield from _take_over_units(parts)
    if not in_place:
        return False
    if not parts.store.recovery.clean and table.wheel.leads_out(table.read_ms, table.log.position(table.log.count)):
        raise TimersDamaged("the timer wheel refers to units that the timer log does not have")
    # A refused timer is found in its slot, too, where that is read again for others that are not completed.
    for number, physical in enumerate(list(refused), start=1):
        if table.has_pending(physical):
            del refused[physical]
        if number % CHUNK_UNITS == 0:
            yield None
    yield from _apply_decisions(parts, saved.decided_from, refused)
    yield from _open_slot(parts)
    yield from _enter(parts)
    return True


def _open_slot(parts: TimerParts) -> Generator[None, None, None]:
    """Read the first slot at once if its time is to come: the wall clock was ahead when slots were read.

    What was sent since it was corrected is in that slot, however soon it is due (rule 3 of the table).
    """
    table = parts.table
    if table.next_ms > parts.clock.wall_ms() + AHEAD_MS and table.wheel.get(table.next_ms) is not None:
        log.warning("timers_clock_back", ahead_ms=table.next_ms - parts.clock.wall_ms())
        yield from table.read_slot(parts.store.end)


def rebuild(parts: TimerParts) -> Reading[None]:
    """Make timer log and wheel again from the commit log, in steps of bounded work.

    Raises:
        OSError: A file cannot be read or written.
    """
    queue = parts.queue
    if queue.max_offset > queue.min_offset:
        parts.metrics.counter(counted.REBUILT).add()
        log.warning("timers_rebuilding", records=queue.max_offset - queue.min_offset)
    parts.state.begin_anew(parts.entering.floor)
    parts.due.begin_anew()
    parts.table.make_anew(parts.clock.wall_ms())
    parts.entering.begin_at(queue, queue.min_offset)
    yield from _apply_decisions(parts, 0, {})
    yield from _enter(parts)


def _take_over_units(parts: TimerParts) -> Generator[None, None, bool]:
    """Go on behind the checkpoint with the units that are there, as far as they are what their records say.

    Returns whether each is in a slot that is read before it is due. It is not where the wall clock was ahead behind the
    checkpoint: then the first slot is another one for this process than it was for the one before.

    Units and slots are written once more: what is read here may be in the page cache alone, and after a failed sync of
    an earlier process a mere sync would write nothing.
    """
    table, entering, store = parts.table, parts.entering, parts.store
    precision = table.wheel.precision_ms
    # RocketMQ notes the log's end, then the queue's offset, then flushes: records below that may have units behind it.
    offset = _behind_last_unit(parts)
    written, end = table.log.count, table.log.in_files()
    read_by_ms = max(table.read_ms, parts.clock.wall_ms() + AHEAD_MS)
    while table.log.count < end:
        position = table.log.position(table.log.count)
        try:
            unit = table.log.unit(position)
        except TimersDamaged:
            break
        entry = store.record_at(unit.physical) if unit.physical < store.end else None
        if (
            entry is None
            or entry.topic != TIMER_NAME
            or entry.queue_offset < offset
            or unit.size not in (0, entry.size)
            # A slot that was read already has no timers any more.
            or unit.slot_ms < table.read_ms
            or unit.slot_ms % precision
            or (unit.due_ms or due_of(entry.properties, precision)) != due_of(entry.properties, precision)
        ):
            break
        slot = table.wheel.get(unit.slot_ms)
        # The wheel may be newer than the checkpoint.
        known = unit.previous if slot is not None and slot.last >= position else -1 if slot is None else slot.last
        # Chains lead backwards: a unit that names itself or a later one would be a circle.
        if unit.previous != known or known >= position:
            break
        due_ms = due_of(entry.properties, precision)
        if unit.slot_ms > read_by_ms and due_ms is not None and slot_of(due_ms, precision) < unit.slot_ms:
            return False
        offset = entry.queue_offset + 1
        if not unit.size:
            table.log.unmark(position, entry.size)
        table.log.count += 1
        # RocketMQ counts a cancel as one timer less of its slot.
        count = -1 if unit.magic & MAGIC_DELETE else 1
        if slot is None:
            table.wheel.put(unit.slot_ms, Slot(position, position, count))
        else:
            table.wheel.put(
                unit.slot_ms, slot if slot.last >= position else Slot(slot.first, position, slot.timers + count)
            )
        if count > 0:
            table.pending[unit.topic_hash] = table.pending.get(unit.topic_hash, 0) + 1
        replaces = parts.replaced_by(unit.physical, entry.size)
        if replaces >= 0:
            table.replace(replaces, anew=True)
        if table.log.count - written == _TAKEN_UNITS:
            table.log.write_anew(written, table.log.count)
            written = table.log.count
            yield
    table.log.write_anew(written, table.log.count)
    assert written <= table.log.count, "units are taken over in their order"
    table.log.cut(table.log.count)
    entering.begin_at(parts.queue, max(entering.offset, offset))
    yield
    return True


def _behind_last_unit(parts: TimerParts) -> int:
    """Queue offset behind the record of the last unit that the checkpoint covers, at most the checkpoint's."""
    log, offset = parts.table.log, parts.entering.offset
    if log.count <= log.first:
        return 0
    physical = log.unit(log.position(log.count - 1)).physical
    entry = parts.store.record_at(physical) if physical < parts.store.end else None
    return offset if entry is None or entry.topic != TIMER_NAME else min(offset, entry.queue_offset + 1)


def _count(parts: TimerParts) -> Generator[None, None, None]:
    """Count what is pending, by topic, and look whether units are in the order of their records.

    Raises:
        TimersDamaged: They are not: then what was decided would not find its units.
    """
    table = parts.table
    pending: dict[int, int] = {}
    before = -1
    for start, end in table.log.runs(table.log.first, table.log.count, CHUNK_UNITS * 16):
        units = table.log.bytes_of(start, end)
        for (physical,) in _PHYSICAL.iter_unpack(units):
            if physical <= before:
                raise TimersDamaged(f"a unit of the timer log names the record at {physical}, behind one at {before}")
            before = physical
        count_waiting(units, table.read_ms, pending)
        yield
    table.pending = pending


def _apply_decisions(parts: TimerParts, start: int, refused: dict[int, tuple[int, int]]) -> Reading[None]:
    """Settle what the log from an offset on says was replaced."""
    table = parts.table
    unknown: array[int] = array("q")

    def complete(decision: DecisionRecord) -> None:
        if refused.pop(decision.replaced, None) is not None:
            return
        position = table.log.find(decision.replaced)
        if position is None:
            unknown.append(decision.replaced)
        else:
            table.replace_at(position, anew=True)

    if table.log.count or parts.entering.lag or refused:
        yield from decided(start, complete)
    parts.entering.leave_out(unknown, start)


def _enter(parts: TimerParts) -> Generator[None, None, None]:
    """Enter what is in the queue, as far as the wheel has room."""
    table, entering = parts.table, parts.entering
    while entering.lag:
        read, entered = entering.read(), entering.enter()
        if not read and not entered:
            return
        if table.wheel.changed > _WHEEL_CHANGED_MAX:
            table.log.sync()
            table.wheel.write()
        yield
