"""From records of the timer topic to what is entered in the wheel: the first stage."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.format.java import tags_code
from broker.format.properties import find_property
from broker.format.record import Located, strip_own
from broker.format.wait_properties import REAL_TOPIC_NAME
from broker.queues.consume_queue import FILLER_SIZE, ConsumeQueue
from broker.scheduled.timer.names import CANCEL_NAME, due_of, slot_of
from broker.scheduled.timer.pending.table import PendingTimerRecord
from broker.store import Store

_FACTS = re.compile(
    rb"TIMER_DELIVER_MS\x01(\d{1,18})\x02TIMER_OUT_MS\x01(\d{1,18})\x02REAL_TOPIC\x01([^\x01\x02]+)\x02"
)
"""As this broker writes them."""
_UNUSUAL = re.compile(rb"TIMER_DEL(?:AY|_U)")
"""A cancel (TIMER_DEL_UNIQKEY), or a delay whose receipt is not known (TIMER_DELAY_*)."""
_PREPARED = struct.Struct(">qi").unpack_from

Lost = Callable[[int, int, StoreError], None]
"""Told of a record that cannot be entered: its queue offset, its commit-log offset, why."""


def read_entries(
    store: Store,
    queue: ConsumeQueue,
    offset: int,
    *,
    count_max: int,
    precision_ms: int,
    lost: Lost,
) -> tuple[list[tuple[int, PendingTimerRecord]], int]:
    """Read records of the timer topic.

    Args:
        store: The store.
        queue: The topic's queue.
        offset: Where to begin.
        count_max: How many at most.
        precision_ms: Width of a slot.
        lost: Told of records that cannot be read or have no real topic.

    Returns:
        (queue offset, entry) in their order, and the offset to go on at.

    Raises:
        OSError: The queue cannot be read.
    """
    units = queue.read(offset, count_max)
    entries: list[tuple[int, PendingTimerRecord]] = []
    places = [(physical, size) for physical, size, _ in units if size != FILLER_SIZE]
    offsets = [offset + place for place, unit in enumerate(units) if unit[1] != FILLER_SIZE]
    located: list[Located | None]
    try:
        located = list(store.locate(places))
    except (DamagedRecord, RecordGone):
        located = [_located(store, place, at, lost) for place, at in zip(places, offsets, strict=True)]
    for found, (physical, size), at in zip(located, places, offsets, strict=True):
        if found is None:
            continue
        entry = entry_of(found, physical, size, precision_ms)
        if entry is None:
            lost(at, physical, StoreError("it has no real topic, or no time"))
        else:
            entries.append((at, entry))
    return entries, offset + len(units)


def _located(store: Store, place: tuple[int, int], offset: int, lost: Lost) -> Located | None:
    try:
        store.read(*place)
        [found] = store.locate([place])
    except (DamagedRecord, RecordGone) as error:
        lost(offset, place[0], error)
        return None
    return found


def entry_of(found: Located, physical: int, size: int, precision_ms: int) -> PendingTimerRecord | None:
    """Return what a record says, None when it has no real topic or no time."""
    view, body_at, _, block_at, end = found
    block = view[block_at:end].tobytes()
    prepared, _ = _PREPARED(view, body_at - 12)
    replaces = -1 if not prepared else max(prepared, 0)
    facts = _FACTS.search(block)
    if facts is not None and _UNUSUAL.search(block) is None:
        due, out = int(facts[1]), int(facts[2])
        if out == slot_of(due, precision_ms):
            return PendingTimerRecord(physical, size, out, due, tags_code(facts[3]), replaces)
    block = strip_own(block)
    topic = find_property(block, REAL_TOPIC_NAME)
    found_due = due_of(block, precision_ms)
    if topic is None or found_due is None:
        return None
    cancel = find_property(block, CANCEL_NAME) is not None
    return PendingTimerRecord(
        physical, size, slot_of(found_due, precision_ms), found_due, tags_code(topic), replaces, cancel
    )
