"""Cancelling and rescheduling a timer (D31).

A timer is named by topic and UNIQ_KEY; the index finds its record, and the record confirms it. A cancel is a record of
the timer topic in RocketMQ's form, for the target's slot, that also names the target as replaced (D27): it holds from
the moment it is durable, unless the target's delivery precedes it in the log. Rescheduling appends the cancel and the
new timer, which has a new UNIQ_KEY, as one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import NamedTuple

from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.format.message import LogMessage
from broker.format.numbers import whole_number
from broker.format.properties import find_property
from broker.format.record import split
from broker.log.decisions import prepared_offset_of
from broker.log.durability import Awaited, AwaitedSteps, all_durable
from broker.log.put import Put
from broker.query import by_unique_key
from broker.scheduled.cancelling import CancelEffect, delivered, run_query
from broker.scheduled.release import release
from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.due import MARK
from broker.scheduled.timer.names import CANCEL_NAME, OUT_NAME, TIMER_NAMES, TIMER_TOPIC
from broker.scheduled.timer.parts import TimerParts
from broker.scheduled.timer.puts import TimedPuts

_CANCEL = b"TIMER_OUT_MS\x01%d\x02TIMER_DELIVER_MS\x01%d\x02TIMER_DEL_UNIQKEY\x01%b+%b\x02REAL_TOPIC\x01%b\x02"
_CANCEL_REST = b"REAL_QID\x01%b\x02TAGS\x01_RECALL_TAG_\x02UNIQ_KEY\x01%b\x02"
_TAG = b"_RECALL_TAG_"
_BODY = b"0"
_FOUND_MAX = 64
"""Records of one UNIQ_KEY that are looked at, the newest: a far timer has one for every two days."""


class Rescheduled(NamedTuple):
    """What became of it; the new UNIQ_KEY when it was in time, else ""."""

    outcome: CancelEffect
    unique_key: str


class _Target(NamedTuple):
    """A pending timer: its record as a message and as bytes."""

    message: LogMessage
    record: memoryview


def cancelling(parts: TimerParts, topic: str, unique_key: str) -> AwaitedSteps[CancelEffect]:
    """Cancel a timer, in steps of bounded work; durable when it ends.

    Raises:
        DiskFull, StoreFailed: It cannot be stored; the timer stays.
        OSError: The store cannot be read.
    """
    target = yield from _find(parts, topic, unique_key)
    if isinstance(target, CancelEffect):
        return target
    yield from _append(parts, target, [_cancel_put(parts, target)])
    parts.due.count_cancel(split(target.record)[1])
    return CancelEffect.CANCELLED


def rescheduling(parts: TimerParts, topic: str, unique_key: str, due_ms: int) -> AwaitedSteps[Rescheduled]:
    """Give a timer another moment, in steps of bounded work; a past one delivers it. Durable when it ends.

    A loop's occurrence waits also when the moment has passed, for a millisecond: its delivery makes the one after it.
    What follows keeps its own moments, since they are computed from the occurrence's id
    (`broker.scheduled.recurring.occurrence`).

    Raises:
        MessageRefused: It would be refused as a new timer; the old one stays.
        DiskFull, StoreFailed: It cannot be stored; the old one stays.
        OSError: The store cannot be read.
    """
    target = yield from _find(parts, topic, unique_key)
    if isinstance(target, CancelEffect):
        return Rescheduled(target, "")
    released = release(target.record, parts.store.topics, (*TIMER_NAMES, b"UNIQ_KEY"))
    moved = released.put._replace(unique_key=b"")
    again = parts.store.waiting(TimedPuts).put(moved, due_ms)
    if again is moved and find_property(moved.properties, MARK) is not None:
        again = parts.store.waiting(TimedPuts).timed(moved, parts.clock.wall_ms() + 1)
    keys = yield from _append(parts, target, [_cancel_put(parts, target), again])
    parts.metrics.counter(counted.CANCELLED).add()
    return Rescheduled(CancelEffect.CANCELLED, keys[1])


def _find(parts: TimerParts, topic: str, unique_key: str) -> AwaitedSteps[_Target | CancelEffect]:
    """Find the pending record of a timer, or raise why there is none.

    What is under way with a look has landed before the next one, so a second look at the same record decides, and a
    third one is made only where something new has begun with it meanwhile: a copy, or another attempt after a refusal.
    """
    taken: set[int] = set()
    while True:
        retry_at = parts.due.retry_at
        # A refused one may be on its way into the log again.
        yield from all_durable(parts.store.writes)
        yield from parts.until_whole()
        found = yield from _look(parts, topic, unique_key, taken, retry_at)
        if found is not None:
            return found


def _look(
    parts: TimerParts, topic: str, unique_key: str, taken: set[int], retry_at: float
) -> Generator[None, None, _Target | CancelEffect | None]:
    """`_find`, once; None while something is under way that may be of this timer.

    Args:
        timers: Where.
        topic: Its topic.
        unique_key: Its name there.
        taken: Records that were not pending before what was under way then has landed; this look adds its own.
        retry_at: When the refused were to be tried again, before the same.
    """
    store, due = parts.store, parts.due
    if TIMER_TOPIC not in store.topics:
        return (yield from delivered(parts.store, topic, unique_key))
    found = yield from run_query(by_unique_key(store, TIMER_TOPIC, unique_key, limit=_FOUND_MAX))
    mine = [each for each in found if each.properties.get("REAL_TOPIC") == topic]
    cancels = {each.prepared_offset for each in mine if CANCEL_NAME.decode() in each.properties}
    timed = [each for each in mine if CANCEL_NAME.decode() not in each.properties]
    if not timed:
        return CancelEffect.CANCELLED if cancels else (yield from delivered(parts.store, topic, unique_key))
    newest = max(timed, key=lambda each: each.physical)
    if prepared_offset_of(newest.physical) in cancels:
        return CancelEffect.CANCELLED
    if newest.physical in due.held:
        return None
    is_pending = parts.is_pending(newest.physical, newest.offset)
    if parts.is_rebuilding:
        return None
    if due.landing and (
        (not is_pending and newest.physical not in taken)
        or (newest.physical in due.refused and retry_at != due.retry_at)
    ):
        taken.add(newest.physical)
        return None
    if not is_pending:
        # Another cancel of it may have become durable since: asked once more, in one step.
        found = by_unique_key(store, TIMER_TOPIC, unique_key, limit=_FOUND_MAX).run().found
        cancels = {each.prepared_offset for each in found if CANCEL_NAME.decode() in each.properties}
        replaced = prepared_offset_of(newest.physical) in cancels
        return CancelEffect.CANCELLED if replaced else CancelEffect.TOO_LATE
    try:
        return _Target(newest, store.read(newest.physical, newest.size))
    except (DamagedRecord, RecordGone):
        return CancelEffect.UNKNOWN


def _cancel_put(parts: TimerParts, target: _Target) -> Put:
    message, block = target.message, split(target.record)[1]
    topic = find_property(block, b"REAL_TOPIC") or b""
    queue = find_property(block, b"REAL_QID") or b"0"
    key = find_property(block, b"UNIQ_KEY") or b""
    slot_ms = whole_number(find_property(block, OUT_NAME)) or 0
    properties = _CANCEL % (slot_ms, slot_ms + 1, topic, key, topic) + _CANCEL_REST % (queue, key)
    return Put(
        topic=parts.store.topics[TIMER_TOPIC],
        queue_id=0,
        body=_BODY,
        properties=properties,
        tags=_TAG,
        unique_key=key,
        prepared_offset=prepared_offset_of(message.physical),
    )


def _append(parts: TimerParts, target: _Target, puts: list[Put]) -> AwaitedSteps[list[str]]:
    """Append, and take the timer out when that is durable, until when it is held; return the UNIQ_KEYs."""
    store, message = parts.store, target.message
    awaited = Awaited(store.commit)

    def done(error: StoreError | None) -> None:
        parts.replaced(message.physical, error)
        awaited.report(error)

    positions = store.append(
        puts, born_ms=message.born_ms, born_host=message.born_host, atomic=len(puts) > 1, done=done
    )
    parts.due.hold(message.physical)
    yield from awaited.steps()
    if store.options.flush == "sync":
        # Durable as it is, it may stand in the timer log: after a kill RocketMQ delivers what is overdue and is put
        # again by it (a roll) without a look at cancels. What cannot be written now is with the next checkpoint.
        with contextlib.suppress(OSError):
            parts.table.log.write_marks()
    return [position.unique_key.decode() for position in positions]
