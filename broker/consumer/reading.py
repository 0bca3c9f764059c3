"""Reading one queue for a consumer: filtered, damaged and vanished messages are passed over and counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from broker.consumer.tags import TagExpression
from broker.errors import BodyUnusable, DamagedRecord, RecordGone
from broker.format.body import body_limit, split_body
from broker.format.properties import parse_properties
from broker.format.record import born_timestamp, reconsume_times, split, store_timestamp
from broker.queues.consume_queue import FILLER, ConsumeQueue, Unit
from broker.retry.puts import is_retry_topic

if TYPE_CHECKING:
    from broker.store import Store

UNITS_PER_READ = 32
BYTES_PER_READ = 256 * 1024
"""RocketMQ's bounds of one pull from memory (reference 8.3): what a queue holds ready at most."""
UNITS_PER_TURN = 1024
"""Units that a queue looks at in one turn: about a millisecond where none of their messages is wanted."""

Skipped = Callable[[int, str, int], None]
"""Told the offset of the first message that is passed over, why, and how many go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedMessage:
    """A message as a listener gets it.

    `physical` is its commit-log offset, `message_id` its UNIQ_KEY, `born_ms` the producer's and `stored_ms` the
    broker's wall clock. `reconsume_times` counts how often listeners have failed it. `unusable` is why its body cannot
    be unpacked; listeners never see such a message.
    """

    topic: str
    queue_id: int
    offset: int
    physical: int
    size: int
    message_id: str
    key: str
    tags: str
    body: bytes
    properties: Mapping[str, str]
    born_ms: int
    stored_ms: int
    reconsume_times: int = 0
    unusable: str | None = None

    @property
    def sent_to(self) -> str:
        """The topic that it was sent to, also of a message that its group failed and gets again."""
        return self.properties.get("RETRY_TOPIC", "") or self.topic if is_retry_topic(self.topic) else self.topic

    @property
    def attempts(self) -> int:
        """Failed attempts, from its dead letter."""
        return self.reconsume_times

    def failed_again(self) -> ConsumedMessage:
        """Return the same message with one failure more."""
        return replace(self, reconsume_times=self.reconsume_times + 1)


class QueueReader:
    """Reads one queue from a position on.

    Attributes:
        next: Offset behind the last unit that was looked at.
        left: Units that may still be looked at in this turn.
    """

    def __init__(self, store: Store, queue: ConsumeQueue, *, start: int, tags: TagExpression, skipped: Skipped) -> None:
        self._store = store
        self._queue = queue
        self._tags = tags
        self._skipped = skipped
        self._retried = is_retry_topic(queue.topic)
        self._limit = body_limit(store.options.message_bytes_max)
        self.next = start
        self.left = UNITS_PER_TURN

    def read(self) -> list[ConsumedMessage]:
        """Return the next messages, at most UNITS_PER_READ and about BYTES_PER_READ.

        None at the queue's end, and where `left` is used up.
        """
        found: list[ConsumedMessage] = []
        while not found and self.left > 0:
            if self.next < self._queue.min_offset:
                self._skipped(self.next, "expired", self._queue.min_offset - self.next)
                self.next = self._queue.min_offset
            if self.next >= self._queue.max_offset:
                break
            held = 0
            for unit in self._queue.read(self.next, min(UNITS_PER_READ, self.left)):
                if found and held + unit[1] > BYTES_PER_READ:
                    break
                message = self._message(self.next, unit)
                self.next += 1
                self.left -= 1
                if message is not None:
                    held += unit[1]
                    found.append(message)
        return found

    def _message(self, offset: int, unit: Unit) -> ConsumedMessage | None:
        physical, size, code = unit
        if unit == FILLER:
            self._skipped(offset, "damaged", 1)
            return None
        if not self._tags.may_match(code):
            self._skipped(offset, "tag_filter", 1)
            return None
        try:
            record = self._store.read(physical, size)
        except (DamagedRecord, RecordGone) as error:
            self._skipped(offset, "gone" if isinstance(error, RecordGone) else "damaged", 1)
            return None
        unusable = None
        try:
            body, block = split_body(record, self._limit)
        except BodyUnusable as error:
            (body, block), unusable = split(record), str(error)
        if not self._tags.matches(block):
            self._skipped(offset, "tag_filter", 1)
            return None
        properties = parse_properties(block)
        return ConsumedMessage(
            topic=self._queue.topic,
            queue_id=self._queue.queue_id,
            offset=offset,
            physical=physical,
            size=size,
            message_id=properties.get("UNIQ_KEY", ""),
            key=properties.get("KEYS", ""),
            tags=properties.get("TAGS", ""),
            body=bytes(body),
            properties=properties,
            born_ms=born_timestamp(record),
            stored_ms=store_timestamp(record),
            reconsume_times=reconsume_times(record) if self._retried else 0,
            unusable=unusable,
        )
