"""Many units of the timer log at once: read, sorted by kind, counted on their way out; counted where they wait.

What is done for every timer has an accelerator (`broker.runtime.accelerators`): it runs compiled where that is built.
"""

from __future__ import annotations

import struct
from itertools import groupby

from broker.runtime.accelerators import accelerated
from broker.scheduled.timer.pending.log import (
    MAGIC_DELETE,
    MAGIC_ROLL,
    MAGIC_TIMER,
    UNIT_BYTES,
    Taken,
    TimerLog,
)

_WHAT_WAITS = struct.Struct(">12xiqi8xii8x")
"""Of a unit: magic, write time, delay to its slot, size, topic's hash."""
assert _WHAT_WAITS.size == UNIT_BYTES

Runs = list[tuple[int, int]]
"""Values that follow each other, and how often each comes there; one may come again later."""
Completed = tuple[int | None, int, Runs, Runs]
"""What delivered timers say together: the earliest due time of those that are no rolls, None when all are; how many are
rolls; the times of their slots; the hashes of their topics, without cancels."""


def _read_none(  # noqa: PLR0917 - what compiled functions take by name costs more
    positions: list[int], at: int, view: memoryview, base: int, last_at: int, marked: set[int], found: list[Taken]
) -> int:
    """Read units of one file; without the accelerator none: `TimerLog.unit` reads each.

    Args:
        positions: Where; those from `at` on are looked at.
        at: The first of them.
        view: The mapped file.
        base: Position of its first byte.
        last_at: Where its last unit begins in it.
        marked: Positions of units that need nothing: their size is 0.
        found: Gets what is read.

    Returns:
        Index of the first position that is not in this file, or has no valid unit.
    """
    return at


def _fitting(taken: list[Taken], bytes_max: int) -> int:
    """Return how many timers, from the first on, have records of so many bytes together; one at least."""
    left = bytes_max
    for place, (_, unit) in enumerate(taken):
        left -= unit.size
        if left < 0:
            return max(1, place)
    return len(taken)


def _usual(
    taken: list[Taken], superseded: set[int], cancels: dict[int, list[int]], marked: set[int]
) -> tuple[list[tuple[int, int]], list[int], list[int]]:
    """Tell ordinary timers that are pending from rolls, from what was replaced, and from what may be cancelled.

    Args:
        taken: Timers.
        superseded: Commit-log offsets of records that were replaced.
        cancels: Positions of cancels by the time of their slot.
        marked: Positions of units that need nothing.

    Returns:
        Commit-log offset and size of the records of the usual ones; their due times; the places of the others.
    """
    places, dues, others = [], [], []
    for place, (position, (_, magic, slot_ms, physical, size, _, due_ms)) in enumerate(taken):
        # What was replaced has no size.
        if not size or magic != MAGIC_TIMER or physical in superseded or slot_ms in cancels or position in marked:
            others.append(place)
        else:
            places.append((physical, size))
            dues.append(due_ms)
    return places, dues, others


def _completed(taken: list[Taken]) -> Completed:
    """Return what timers say together that were delivered."""
    dues = [unit.due_ms for _, unit in taken if not unit.magic & MAGIC_ROLL]
    slots = _runs([unit.slot_ms for _, unit in taken])
    topics = _runs([unit.topic_hash for _, unit in taken if not unit.magic & MAGIC_DELETE])
    return min(dues, default=None), len(taken) - len(dues), slots, topics


def _runs(values: list[int]) -> Runs:
    return [(value, len(list(run))) for value, run in groupby(values)]


def _waiting(units: memoryview, read_ms: int, found: dict[int, int]) -> None:
    """Count timers and rolls that wait in slots from a time on.

    Args:
        units: Whole units, as they stand.
        read_ms: Time of the first slot that counts.
        found: Gets how many more there are, by the hash of their topic.
    """
    for magic, write_ms, delay_ms, size, topic_hash in _WHAT_WAITS.iter_unpack(units):
        if size and write_ms + delay_ms >= read_ms and not magic & MAGIC_DELETE:
            found[topic_hash] = found.get(topic_hash, 0) + 1


read_units = accelerated("broker.scheduled.timer.log_units_accelerator", "read", _read_none)
fitting = accelerated("broker.scheduled.timer.log_units_accelerator", "fitting", _fitting)
usual = accelerated("broker.scheduled.timer.log_units_accelerator", "usual", _usual)
completed = accelerated("broker.scheduled.timer.log_units_accelerator", "completed", _completed)
count_waiting = accelerated("broker.scheduled.timer.log_units_accelerator", "waiting", _waiting)


def take(log: TimerLog, positions: list[int]) -> list[Taken]:
    """Return the units at positions.

    Raises:
        TimersDamaged: There is none at one of them.
        OSError: A file cannot be mapped.
    """
    found: list[Taken] = []
    at, count, file_bytes = 0, len(positions), log.file_bytes
    while at < count:
        number = positions[at] // file_bytes
        begin, at = at, read_units(positions, at, log.view(number), number * file_bytes, log.last_at, log.marked, found)
        if at == begin:
            found.append(Taken(positions[at], log.unit(positions[at])))
            at += 1
    return found
