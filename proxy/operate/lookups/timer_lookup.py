"""What a store knows of one timer: waiting, delivered, cancelled or rescheduled; from the index and the records.

A timer is named by the UNIQ_KEY that its producer received, or by its recall handle (D31). Nothing of it is in memory.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import StrEnum

from broker.format.message import LogMessage
from broker.format.numbers import whole_number
from broker.query import QueryRefused, Searchable, after_in_batch, by_key, by_unique_key
from broker.scheduled.recurring.occurrence import Occurrence, parse_id, user_key
from broker.scheduled.timer.handle import RecallHandle, parse_handle
from broker.scheduled.timer.names import TIMER_TOPIC
from proxy.operate.moments import moment_text
from proxy.operate.views.waiting import TimerAnswer, TimerDelivery

UNKNOWN = (
    "unknown: the timer does not exist, or its records were deleted (`delays list` shows messages of delay levels)"
)
_RECORDS_MAX = 256


class TimerState(StrEnum):
    """What became of a timer."""

    PENDING = "pending"
    DELIVERED = "delivered"
    CANCELLED = "cancelled"
    RESCHEDULED = "rescheduled"
    UNKNOWN = "unknown"


class TimerLookup:
    """One search.

    Args:
        store: Where.
        name: UNIQ_KEY, handle, or DDMQ's id (docs/loops.md), which finds what of its loop waited last.
        topic: Topic of the message; of no use with a handle.
        broker_name: Of this broker; another's handle is refused.

    Attributes:
        topic: Topic of the message, "" when it is not known.
        unique_key: Its UNIQ_KEY.
        state: What became of it, after `steps`.
        record: The record that waits or waited, the newest; None when there is none.
        delivery: The delivered record.
        successor: What it was rescheduled to: another timer, or a delivered record; None when it was not.
        due_ms: When it is due, ms since the epoch.
        occurrence: What a DDMQ id names, any of a loop; None for other names.

    Raises:
        QueryRefused: It is a handle of another broker, or names another topic than given.
    """

    def __init__(self, store: Searchable, name: str, topic: str | None, *, broker_name: str) -> None:
        self._store = store
        self._broker_name = broker_name
        self.topic = topic or ""
        self.unique_key = name
        self.state = TimerState.UNKNOWN
        self.record: LogMessage | None = None
        self.delivery: LogMessage | None = None
        self.successor: LogMessage | None = None
        self.occurrence = parse_id(name)
        handle = parse_handle(name)
        if handle is None:
            return
        if handle.broker_name != broker_name:
            raise QueryRefused(f"the handle is from broker {handle.broker_name}, this broker is {broker_name}")
        if topic is not None and topic != handle.topic:
            raise QueryRefused(f"the handle is for topic {handle.topic}, not {topic}; omit the topic")
        self.topic, self.unique_key = handle.topic, handle.unique_key

    @property
    def due_ms(self) -> int | None:
        """When it is due, as its record says; None of one that was moved to a moment that was over."""
        moved = self.delivery is not None and self.delivery is self.successor
        text = "" if self.record is None or moved else self.record.properties.get("TIMER_DELIVER_MS", "")
        return whole_number(text)

    def steps(self) -> Generator[None, None, None]:
        """Search, yielding after each bounded piece of work.

        Raises:
            QueryRefused: Timers of several topics have the id.
            OSError: A file cannot be read.
        """
        if self.occurrence is not None:
            yield from self._by_id(self.occurrence)
        if TIMER_TOPIC in self._store.topics:
            query = by_unique_key(self._store, TIMER_TOPIC, self.unique_key, limit=_RECORDS_MAX)
            yield from query.steps()
            self._judge(query.found)
        if self.topic and self.topic in self._store.topics:
            query = by_unique_key(self._store, self.topic, self.unique_key, limit=_RECORDS_MAX)
            yield from query.steps()
            if query.found:
                self.state, self.delivery = TimerState.DELIVERED, query.found[0]

    def _by_id(self, occurrence: Occurrence) -> Generator[None, None, None]:
        """Find the UNIQ_KEY of what has a DDMQ id: of the newest record that waited, else of the delivered message."""
        places = [(TIMER_TOPIC, occurrence.first.id), (self.topic, occurrence.id)]
        for topic, key in places:
            if topic not in self._store.topics:
                continue
            query = by_key(self._store, topic, key, limit=_RECORDS_MAX)
            yield from query.steps()
            found = query.found
            if topic == TIMER_TOPIC:
                self._judge(found)
                found = [] if self.record is None else [self.record]
            if found:
                self.unique_key = found[0].unique_key
                return

    def _judge(self, records: list[LogMessage]) -> None:
        """Look at the records of the timer topic, the newest first."""
        waits = [each for each in records if "TIMER_DEL_UNIQKEY" not in each.properties]
        topics = sorted({each.properties.get("REAL_TOPIC", "") for each in waits})
        if not self.topic:
            if len(topics) > 1:
                raise QueryRefused(f"timers of several topics have this id ({', '.join(topics)}); pass the topic")
            self.topic = topics[0] if topics else ""
        waits = [each for each in waits if each.properties.get("REAL_TOPIC") == self.topic]
        if not waits:
            return
        self.record = waits[0]
        names = (f"{self.topic}+{waits[0].unique_key}", waits[0].unique_key)
        cancels = [each for each in records if each.properties.get("TIMER_DEL_UNIQKEY") in names]
        if not cancels:
            self.state = TimerState.PENDING
            return
        self.successor = after_in_batch(self._store, cancels[0])
        if self.successor is None:
            self.state = TimerState.CANCELLED
        elif self.occurrence is not None and self.successor.topic == self.topic:
            # DDMQ's id is that of the message, whatever its UNIQ_KEY.
            self.state, self.delivery = TimerState.DELIVERED, self.successor
        else:
            self.state = TimerState.RESCHEDULED

    def text(self) -> str:
        """Say what became of it."""
        if self.delivery is not None:
            where = f"topic {self.delivery.topic}, queue {self.delivery.queue_id}, offset {self.delivery.offset}"
            return f"delivered at {moment_text(self.delivery.store_ms)}: {where}"
        if self.state is TimerState.UNKNOWN:
            return UNKNOWN
        if self.successor is not None:
            new, due_ms = self.successor.unique_key, whole_number(self.successor.properties.get("TIMER_DELIVER_MS"))
            when = moment_text(due_ms) if due_ms is not None else "a time that has passed, and delivered"
            return f"rescheduled to {when}; its id is now {new}"
        if self.due_ms is None:
            return self.state.value
        was = "is" if self.state is TimerState.PENDING else "was"
        return f"{self.state.value}; it {was} due at {moment_text(self.due_ms)}"

    def answer(self, *, now_ms: int) -> TimerAnswer:
        """Return it as it is shown."""
        record, delivery = self.record, self.delivery
        out_ms = None if record is None else whole_number(record.properties.get("TIMER_OUT_MS"))
        handle = None
        if out_ms is not None:
            handle = RecallHandle(self.topic, self._broker_name, out_ms + 1, self.unique_key)
        return TimerAnswer(
            now_ms=now_ms,
            id=self.unique_key,
            topic=self.topic,
            state=self.state.value,
            text=self.text(),
            key=None if record is None else user_key(record.properties.get("KEYS", "")) or None,
            stored_ms=None if record is None else record.store_ms,
            due_ms=self.due_ms,
            new_id=None if self.successor is None else self.successor.unique_key,
            handle=None if handle is None else str(handle),
            delivered=None
            if delivery is None
            else TimerDelivery(queue=delivery.queue_id, offset=delivery.offset, store_ms=delivery.store_ms),
        )
