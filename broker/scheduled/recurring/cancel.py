"""Cancelling what sendDelaySync added: by the id of the message, or of any delivery of a loop (D31).

What waits is found by its id in the index, a loop by that of its first occurrence, and confirmed on its record. Nothing
of it is held in memory. From there it is the cancel of a timer (`broker.scheduled.timer.cancel`). Whether it is in time
is looked at when nothing is on its way into the log: a delivery that is staged is flushed first, since a loop's next
occurrence is staged with it.
"""

from __future__ import annotations

from collections.abc import Generator

from broker.format.message import LogMessage
from broker.log.durability import AwaitedSteps, all_durable
from broker.log.put import OWNER_NAME, is_foreign
from broker.query import by_key
from broker.runtime.steps import run_now
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.recurring.occurrence import LOOP_NAME, Occurrence, parse_id
from broker.scheduled.timer.names import TIMER_TOPIC
from broker.scheduled.timer.timers import Timers
from broker.store import Store

LOOKS = 3
"""How often a cancel looks while an occurrence is on its way into the log. With the last look the loop waits for the
disk: a loop that comes round faster than the disk syncs would be ahead of its cancel forever."""
_FOUND_MAX = 64
"""Records looked at, the newest first. The newest of a loop is what is pending, older ones are delivered or moved; more
than one is pending when an add was repeated."""
_OWNED_MAX = 1024
"""Likewise where others' messages of the same id are passed over."""


def cancelling_delay(
    timers: Timers, topic: str, occurrence: Occurrence, *, owner: str | None = None
) -> AwaitedSteps[CancelEffect]:
    """Cancel, in steps of bounded work; the outcome is durable when it is returned.

    Args:
        timers: What waits.
        topic: Where it was sent to; it is there.
        occurrence: Which one, or any of a loop.
        owner: The principal that cancels: messages of others are unknown to it. None: any.

    Raises:
        StoreError: The cancel cannot be stored.
        OSError: The index cannot be read.
    """
    store, key, parts = timers.store, occurrence.first.id, timers.parts
    is_cancelled = False
    if TIMER_TOPIC in store.topics:
        # Brings the index up to date and has its files checked; the search that counts is then short.
        yield from by_key(store, TIMER_TOPIC, key, limit=1).steps()
        for left in reversed(range(LOOKS)):
            yield from all_durable(store.writes)
            yield from parts.until_whole()
            if not left or store.failed is not None:
                _flush(store)
            under_way = parts.due.delivery.in_flight
            query = by_key(store, TIMER_TOPIC, key, limit=_FOUND_MAX if owner is None else _OWNED_MAX).run()
            waited = [
                each for each in query.found if each.properties.get("REAL_TOPIC") == topic and _is_of(each, owner)
            ]
            pending = {each.unique_key for each in waited if parts.is_pending(each.physical, each.offset)}
            for unique_key in pending:
                cancelling = timers.cancelling(topic, unique_key)
                # An occurrence that was due meanwhile has a next one: another look finds it.
                outcome = (yield from cancelling) if left else run_now(cancelling)
                is_cancelled = is_cancelled or outcome is CancelEffect.CANCELLED
            if is_cancelled:
                return CancelEffect.CANCELLED
            if not waited or not (pending or under_way):
                break
        if waited:
            return (yield from _ended(timers, topic, occurrence, waited[0], owner))
    # It did not wait, or what waited is no longer kept.
    was_delivered = yield from _is_delivered(timers.store, topic, occurrence, owner)
    return CancelEffect.TOO_LATE if was_delivered else CancelEffect.UNKNOWN


def _ended(
    timers: Timers, topic: str, occurrence: Occurrence, newest: LogMessage, owner: str | None
) -> AwaitedSteps[CancelEffect]:
    """Tell how it ended, from the newest record that waited: a move cancels a record too, and delivers later."""
    last = (_occurrence(newest) or occurrence) if occurrence.is_loop else occurrence
    if (yield from _is_delivered(timers.store, topic, last, owner)):
        return CancelEffect.TOO_LATE
    outcome: CancelEffect = yield from timers.cancelling(topic, newest.unique_key)
    return outcome


def _is_delivered(store: Store, topic: str, occurrence: Occurrence, owner: str | None) -> Generator[None, None, bool]:
    delivered = by_key(store, topic, occurrence.id, limit=1 if owner is None else _OWNED_MAX)
    yield from delivered.steps()
    return any(_is_of(each, owner) for each in delivered.found)


def _flush(store: Store) -> None:
    store.flush()
    if store.failed is not None:
        raise store.failed


def _is_of(message: LogMessage, owner: str | None) -> bool:
    return not is_foreign(message.properties.get(OWNER_NAME.decode(), ""), owner)


def _occurrence(message: LogMessage) -> Occurrence | None:
    value = message.properties.get(LOOP_NAME.decode())
    return None if value is None else parse_id(value)
