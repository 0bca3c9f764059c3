"""Fillers: units of queue offsets that hold nothing, because their record was lost.

In memory a filler is `FILLER`. In a queue's file it repeats the place and size of the next unit of its queue that has a
record (at the queue's end: of the one before), with tags code 0 (`consume_queue.repeated`). RocketMQ takes such a file
as it is: places never fall, the highest one is that of a record, a tag filter passes the filler over, and without one
the neighbour's message comes twice in a row at worst. `FILLER` itself was in the files of stores of format 1. It had
RocketMQ skip the rest of the log file that it was reading, and take 2 GiB for the end of the log; it is rewritten when
such a store is opened (`rewrite`).

Nothing but the log is needed to know a filler again: the record that it leads to says another queue offset.
"""

from __future__ import annotations

from broker.format.record import RecordSummary
from broker.queues.consume_queue import FILLER, FILLER_SIZE, UNIT, ConsumeQueue, Unit, repeated

_CHUNK_UNITS = 4096


def is_repeat(unit: Unit, entry: RecordSummary, queue: ConsumeQueue, offset: int) -> bool:
    """Whether a unit is a filler: it repeats that of a record of its queue right beside it.

    Args:
        unit: The unit.
        entry: The valid record that it leads to.
        queue: The unit's queue.
        offset: The unit's queue offset.
    """
    physical, size, code = unit
    if code or entry.size != size or (entry.topic, entry.queue_id) != (queue.topic.encode(), queue.queue_id):
        return False
    if entry.queue_offset == offset:
        return False
    # In a row of fillers each has the next one beside it; a unit that was changed has its record somewhere else.
    beside = queue.neighbour(offset + 1 if entry.queue_offset > offset else offset - 1)
    return beside is not None and (beside[:2] == (physical, size) or beside == FILLER)


def rewrite(queue: ConsumeQueue, *, log_minimum: int, segment_bytes: int) -> int:
    """Give the old fillers in a queue's files their present form; durable after the queue's `sync`.

    Those before a queue's first unit stay, as RocketMQ writes them itself, unless a record of the very first log file
    follows: only records of that file are hidden by them.

    Args:
        queue: A recovered queue; what its files hold below `max_offset` is believed.
        log_minimum: Commit-log offset of the first byte that is kept.
        segment_bytes: Size of a log file.

    Returns:
        How many there were.

    Raises:
        OSError: A file cannot be read or changed.
    """
    start, end = queue.min_offset, queue.end_of_files
    after: Unit | None = None
    count = 0
    while end > start:
        at = max(start, end - _CHUNK_UNITS)
        found, after = _rewrite_chunk(queue, at, end, after)
        count, end = count + found, at
    first = queue.file_start(start)
    if after is not None and first < start and not log_minimum and after[0] < segment_bytes:
        old = queue.units_in_files(first, start)
        units = [repeated(after) if unit == FILLER else UNIT.pack(*unit) for unit in old]
        if FILLER in old:
            queue.overwrite(first, b"".join(units))
        count += old.count(FILLER)
    return count


def _rewrite_chunk(queue: ConsumeQueue, at: int, end: int, after: Unit | None) -> tuple[int, Unit | None]:
    """Rewrite [at, end), behind which `after` is the first unit with a record; return how many, and that of `at`."""
    units = queue.units_in_files(at, end)
    places = [place for place, unit in enumerate(units) if unit == FILLER]
    for place in reversed(range(len(units))):
        if units[place] == FILLER:
            beside = after if after is not None else _before(queue, at + place)
            units[place] = FILLER if beside is None else (beside[0], beside[1], 0)
        elif units[place][1]:
            after = units[place]
    if places:
        queue.overwrite(at, b"".join(UNIT.pack(*unit) for unit in units))
    return len(places), after


def _before(queue: ConsumeQueue, offset: int) -> Unit | None:
    """Return the last unit below an offset that has a record; None when there is none."""
    while offset > queue.min_offset:
        at = max(queue.min_offset, offset - _CHUNK_UNITS)
        for unit in reversed(queue.units_in_files(at, offset)):
            if unit[1] not in (0, FILLER_SIZE):
                return unit
        offset = at
    return None
