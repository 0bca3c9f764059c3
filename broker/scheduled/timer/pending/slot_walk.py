"""The pending timers that are due first, by the slots of the wheel: a page of a listing need not read the timer log.

What is in a slot is due after the slot's time; only a slot whose own time has come took what was late. So once
enough timers are found that are due no later than the time of a slot to come, that slot and all behind it have none
that is due before them. Those that are to be rolled stand in nearer slots than their own, and are met on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from broker.scheduled.timer.pending.log import MAGIC_DELETE, TimersDamaged
from broker.scheduled.timer.pending.table import CHUNK_UNITS, SKIP_SLOTS, TimerTable

UNITS_MAX = 65_536
"""Units read by slots; reading the whole timer log costs half as much per unit."""
SLOTS_PER_STEP = 64
"""Slots with few units looked at in one step."""

Take = Callable[[int, int, int], None]
"""Is handed due time (ms), commit-log offset and size of the record of a pending timer."""


def walk(
    table: TimerTable, take: Take, *, come_ms: int, last_ms: Callable[[], int], topic_hash: int | None
) -> Generator[None, None, bool]:
    """Hand out pending timers slot by slot, in steps of bounded work.

    Args:
        table: The timers.
        take: Gets them, those of a slot in any order.
        come_ms: Slots up to this time may have been read.
        last_ms: Timers that are due later are not wanted any more.
        topic_hash: Only timers of topics with this hash.

    Returns:
        Whether all that are wanted were handed out; else UNITS_MAX units were read, or log and wheel do not fit.

    Raises:
        OSError: The timer log cannot be read.
    """
    units_left, precision = UNITS_MAX, table.wheel.precision_ms
    slot_ms, looked_at = table.read_ms, 0
    end_ms = slot_ms + table.wheel.round_ms
    while slot_ms < end_ms and (slot_ms <= come_ms or slot_ms < last_ms()):
        following = table.wheel.next_used(slot_ms, min(end_ms, slot_ms + SKIP_SLOTS * precision))
        slot = table.wheel.get(following) if following < end_ms else None
        if slot is None:
            slot_ms = following
            yield
            continue
        if following > come_ms and following >= last_ms():
            return True
        position = slot.last
        while position >= 0:
            try:
                found, position = table.log.chain(position, following, above=-1, count_max=CHUNK_UNITS)
            except TimersDamaged:
                return False
            for at, unit in found:
                if not unit.size or unit.magic & MAGIC_DELETE or topic_hash not in (None, unit.topic_hash):
                    continue
                if table.is_pending(unit, at):
                    take(unit.due_ms or table.resolve(unit), unit.physical, unit.size)
            units_left -= len(found)
            if units_left < 0:
                return False
            looked_at += 1
            if len(found) == CHUNK_UNITS or looked_at % SLOTS_PER_STEP == 0:
                yield
        slot_ms = following + precision
    return True
