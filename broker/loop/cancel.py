"""Cancelling what sendDelaySync added: by the id of the message, or of any delivery of a loop (D31).

What waits is found by its id in the index, a loop by that of its first occurrence, and confirmed on its record. Nothing
of it is held in memory. From there it is the cancel of a timer (`broker.timer.cancel`). Whether it is in time is looked
at when nothing is on its way into the log: a delivery that is staged is flushed first, since a loop's next occurrence
is staged with it.
"""

from __future__ import annotations

from collections.abc import Generator

from broker.loop.occurrence import Occurrence, parse_id
from broker.loop.puts import LOOP_NAME
from broker.message import Message
from broker.query import KeyQuery, by_key
from broker.store import Store
from broker.timer.cancel import CancelOutcome
from broker.timer.names import TIMER_TOPIC
from broker.timer.timers import Timers

_FOUND_MAX = 64
"""Records looked at, the newest first. The newest of a loop is what is pending, older ones are delivered; more than one
has an id when an add was repeated, or moved within the log."""


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
            outcomes = {self._timers.cancel(topic, each.unique_key) for each in _newest(query, topic, occurrence)}
            for outcome in (CancelOutcome.CANCELLED, CancelOutcome.TOO_LATE):
                if outcome in outcomes:
                    return outcome
        # It did not wait, or what waited is no longer kept.
        delivered = by_key(store, topic, occurrence.id, limit=1)
        yield from delivered.steps()
        return CancelOutcome.TOO_LATE if delivered.found else CancelOutcome.UNKNOWN

    def _flush(self) -> None:
        self._store.flush()
        if self._store.failed is not None:
            raise self._store.failed


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
