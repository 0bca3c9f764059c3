"""Cancelling what sendDelaySync added: by the id of the message, or of any delivery of a loop (D31).

What waits is found by its id in the index, a loop by that of its first occurrence, and confirmed on its record. Nothing
of it is held in memory. A cancel is a record of the timer topic in RocketMQ's form, in the slot of its target, which
names its target as replaced (D27); whether it is in time is decided by the log. It is looked at when nothing is on its
way there: a delivery that is staged is flushed first, since a loop's next occurrence is staged with it.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import IntEnum

from broker.decisions import prepared_offset_of
from broker.loop.occurrence import Occurrence, parse_id
from broker.loop.puts import LOOP_NAME
from broker.message import Message
from broker.put import Put
from broker.query import KeyQuery, by_key, by_unique_key
from broker.store import Store
from broker.timer.names import CANCEL_NAME, DELIVER_NAME, TIMER_TOPIC
from broker.timer.timers import Timers

_FOUND_MAX = 64
"""Records looked at, the newest first. The newest of a loop is what is pending, older ones are delivered; more than one
has an id when an add was repeated, or moved within the log."""
_BODY, _TAG = b"0", b"_RECALL_TAG_"
"""RocketMQ's (its recall of messages); neither is ever delivered."""


class CancelOutcome(IntEnum):
    """What became of a cancel.

    CANCELLED: it precedes the delivery in the log, or an earlier cancel did. TOO_LATE: the delivery, of a loop the last
    one, precedes it. UNKNOWN: there is no such message, or no record of it is left.
    """

    CANCELLED = 1
    TOO_LATE = 2
    UNKNOWN = 3


class DelayCancels:
    """Cancels in one store."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store = store
        self._timers = timers

    def steps(self, topic: str, occurrence: Occurrence) -> Generator[None, None, CancelOutcome]:
        """Cancel, in steps of bounded work; the outcome is durable when it is returned.

        Args:
            topic: Where it was sent to; it is there.
            occurrence: Which one, or any of a loop.

        Raises:
            StoreError: The cancel cannot be stored.
            OSError: The index cannot be read.
        """
        store, key = self._store, occurrence.first.id
        if TIMER_TOPIC in store.topics:
            # Brings the index up to date and has its files checked; the search that counts is then short.
            yield from by_key(store, TIMER_TOPIC, key, limit=1).steps()
            self._flush()
            query = by_key(store, TIMER_TOPIC, key, limit=_FOUND_MAX).run()
            outcomes = [self._cancel(topic, each) for each in _newest(query, topic, occurrence)]
            self._flush()
            if outcomes:
                return min(outcomes)
        # It did not wait, or what waited is no longer kept.
        delivered = by_key(store, topic, occurrence.id, limit=1)
        yield from delivered.steps()
        return CancelOutcome.TOO_LATE if delivered.found else CancelOutcome.UNKNOWN

    def _flush(self) -> None:
        self._store.flush()
        if self._store.failed is not None:
            raise self._store.failed

    def _cancel(self, topic: str, target: Message) -> CancelOutcome:
        """Cancel one waiting record, unless that was done before or it was delivered."""
        store, unique_key = self._store, target.unique_key
        known = by_unique_key(store, TIMER_TOPIC, unique_key, limit=_FOUND_MAX).run()
        if any(CANCEL_NAME.decode() in each.properties and each.prepared_offset for each in known.found):
            return CancelOutcome.CANCELLED
        if by_unique_key(store, topic, unique_key, limit=1).run().found:
            return CancelOutcome.TOO_LATE
        block = b"TAGS\x01%b\x02UNIQ_KEY\x01%b\x02" % (_TAG, unique_key.encode())
        real = store.topics[topic]
        made = store.timed.timed(
            Put(real, 0, _BODY, block, _TAG, unique_key.encode()), int(target.properties[DELIVER_NAME.decode()])
        )
        named = b"%b\x01%b+%b\x02" % (CANCEL_NAME, real.name_bytes, unique_key.encode())
        replaced = prepared_offset_of(target.physical)
        record = made._replace(properties=made.properties + named, prepared_offset=replaced)
        store.append([record], born_ms=target.born_ms, born_host=target.born_host)
        due = self._timers.due
        aside = due.aside.pop(target.physical, None)
        if aside is None:
            due.superseded.add(target.physical)
        else:
            self._timers.table.forget(aside.timer.unit)
        return CancelOutcome.CANCELLED


def _newest(query: KeyQuery, topic: str, occurrence: Occurrence) -> list[Message]:
    """Return what may still be pending: the newest records of the message, one for each time that it was added."""
    found: dict[str, Message] = {}
    made: int | None = None
    for message in query.found:
        waiting = _occurrence(message) if occurrence.is_loop else occurrence
        if message.properties.get("REAL_TOPIC") != topic or waiting is None:
            continue
        made = waiting.made if made is None else made
        if waiting.made == made:
            found.setdefault(message.unique_key, message)
    return list(found.values())


def _occurrence(message: Message) -> Occurrence | None:
    value = message.properties.get(LOOP_NAME.decode())
    return None if value is None else parse_id(value)
