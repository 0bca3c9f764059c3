"""Halves that RocketMQ put again: its copies name no half that they replace, as ours do.

RocketMQ counts the old place as done because the offset in `consumerOffset.json` passes it. It writes that file every
5 s, so after a kill old places and copies are all undecided by what is on the disk: one message would be checked, and
committed, several times. A copy is known by its count of checks, what it replaces by the transaction's id.
"""

from __future__ import annotations

from collections.abc import Generator

from broker.errors import DamagedRecord, RecordGone
from broker.format.record import prepared_offset
from broker.transaction.half import Half
from broker.transaction.halves import Halves
from broker.transaction.names import Fate
from broker.transaction.states import Known

STEP_HALVES = 256


def resolve_copied(halves: Halves, start: int, owed: dict[int, Fate]) -> Generator[None, None, None]:
    """Settle undecided halves of which there is a later copy, in steps of bounded work.

    Args:
        halves: What is known of each half.
        start: Copies below this offset were taken into account before.
        owed: Takes the halves that were resolved, for op records.

    Raises:
        OSError: A file cannot be read.
    """
    states, queue = halves.states, halves.queue()
    if queue is None:
        return
    last: dict[str, int] = {}
    for place, offset in enumerate(range(max(start, states.position, queue.min_offset), states.end)):
        half = _read(halves, offset)
        if half is not None and half.times and not prepared_offset(half.record):
            last[half.transaction_id] = offset
        if place % STEP_HALVES == STEP_HALVES - 1:
            yield
    for place, offset in enumerate(states.waiting(states.position, max(last.values(), default=-1))):
        half = _read(halves, offset)
        if half is not None and last.get(half.transaction_id, -1) > offset:
            states.resolve(offset, Known.ELSEWHERE)
            owed[offset] = Fate.MOVED
        if place % STEP_HALVES == STEP_HALVES - 1:
            yield


def _read(halves: Halves, offset: int) -> Half | None:
    try:
        return halves.read(offset)
    except (DamagedRecord, RecordGone):
        # Whoever looks at it next loses it, if it is undecided.
        return None
