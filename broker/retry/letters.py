"""Dead letters as they are read: what ended where, when and why; RocketMQ's own, too (reference 3.4)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.errors import DamagedRecord, RecordGone
from broker.format.message import LogMessage, message_of
from broker.format.numbers import whole_number
from broker.query import QueryRefused
from broker.queues.consume_queue import FILLER
from broker.queues.topics import DEAD_LETTER_PREFIX, dead_letter_topic

if TYPE_CHECKING:
    from broker.queues.topics import Topic
    from broker.store import Store

UNKNOWN_REASON = "unknown (written by RocketMQ)"
"""RocketMQ's dead letters do not say why they died."""
_CLIENT_PORT = re.compile(
    r"((?:^|^failed \d+ times: |; before: )(?:failed by|no answer from) (?:\[[^\]\s]*\]|[^\s:\[]+)):\d+(?=[ :;]|$)"
)
_UNITS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One place of a dead-letter queue.

    Attributes:
        queue_id: Queue of the dead-letter topic; RocketMQ and this broker use one.
        offset: Offset in it.
        message: The dead letter; None when its record is damaged or gone.
        size: Bytes of the record.
    """

    queue_id: int
    offset: int
    message: LogMessage | None
    size: int = 0

    @property
    def id(self) -> str:
        """Its offsetMsgId, "" where its record cannot be read."""
        return "" if self.message is None else self.message.id

    def _reported(self, name: str) -> str:
        return "" if self.message is None else self.message.properties.get(name, "")

    def _written_by_us(self, name: str) -> str:
        """What this broker wrote: its dead letters name the record that they replace (D27), RocketMQ's name none.

        In those of RocketMQ's a property of this name is the producer's.
        """
        return self._reported(name) if self.message is not None and self.message.prepared_offset else ""

    @property
    def topic(self) -> str:
        """Topic that the message was sent to, "" when the record does not name it."""
        return self._written_by_us("DLQ_ORIGIN_TOPIC") or self._reported("RETRY_TOPIC")

    @property
    def queue(self) -> int | None:
        """Its queue there; RocketMQ does not write it."""
        return whole_number(self._written_by_us("DLQ_ORIGIN_QUEUE"))

    @property
    def offset_in_topic(self) -> int | None:
        """Its offset there; RocketMQ does not write it."""
        return whole_number(self._written_by_us("DLQ_ORIGIN_OFFSET"))

    @property
    def key(self) -> str:
        """Its key, "" for none."""
        return self._reported("KEYS")

    @property
    def reason(self) -> str:
        """Why it died."""
        return self._written_by_us("DLQ_REASON") or UNKNOWN_REASON

    @property
    def shared_reason(self) -> str:
        """Its reason without the client's port, which differs for each connection."""
        return _CLIENT_PORT.sub(r"\1", self.reason)

    @property
    def action(self) -> str:
        """Name of the action that failed last, "" when the record does not name it."""
        return self._written_by_us("DLQ_ACTION")

    @property
    def attempts(self) -> int:
        """How often it failed."""
        return 0 if self.message is None else self.message.reconsume_times


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Which dead letters are meant; what is None does not matter.

    Attributes:
        id: offsetMsgId of the dead letter, or UNIQ_KEY of the message.
        topic: Topic it was sent to.
        reason: Part of the reason, with or without the client's port; upper and lower case alike.
        action: Name of the action that failed last.
        key: Its key.
        from_ms: Died at this moment or later, ms since the epoch.
        until_ms: Died before this moment.
    """

    id: str | None = None
    topic: str | None = None
    reason: str | None = None
    action: str | None = None
    key: str | None = None
    from_ms: int | None = None
    until_ms: int | None = None

    @property
    def anything(self) -> bool:
        """Whether all are meant."""
        return self == DeadLetterFilter()

    def matches(self, letter: Letter) -> bool:
        """Whether a dead letter is meant; one that cannot be read only when all are."""
        message = letter.message
        if message is None:
            return self.anything
        return (
            (self.id is None or self.id in (letter.id, message.unique_key))
            and (self.topic is None or self.topic == letter.topic)
            and (self.reason is None or _holds(letter, self.reason.casefold()))
            and (self.action is None or self.action == letter.action)
            and (self.key is None or self.key == letter.key)
            and (self.from_ms is None or message.store_ms >= self.from_ms)
            and (self.until_ms is None or message.store_ms < self.until_ms)
        )


def _holds(letter: Letter, part: str) -> bool:
    return part in letter.reason.casefold() or part in letter.shared_reason.casefold()


def groups_with_letters(store: Store) -> list[str]:
    """Return the groups that have a dead-letter topic, by name."""
    return sorted(name.removeprefix(DEAD_LETTER_PREFIX) for name in store.topics if name.startswith(DEAD_LETTER_PREFIX))


def letter_topic(store: Store, group: str) -> Topic | None:
    """Return a group's dead-letter topic, None when it never had a dead letter."""
    return store.topics.get(dead_letter_topic(group))


def place_of(cursor: str | None) -> tuple[int, int]:
    """Return queue and offset of the dead letter with which a page begins. Raises QueryRefused."""
    if cursor is None:
        return 0, 0
    queue, _, offset = cursor.partition(":")
    place = whole_number(queue), whole_number(offset)
    if place[0] is None or place[1] is None:
        raise QueryRefused(f"invalid cursor {cursor!r}; use the cursor returned by the previous page")
    return place[0], place[1]


def letters(store: Store, topic: Topic, *, queue_id: int = 0, offset: int = 0) -> Iterator[Letter]:
    """Read dead letters from a place on: queue by queue, each in its order, up to what is visible now."""
    for queue in topic.queues[queue_id:]:
        at, end = max(offset if queue.queue_id == queue_id else 0, queue.min_offset), queue.max_offset
        while at < end:
            try:
                units = queue.read(at, min(_UNITS, end - at))
            except RecordGone:
                at = queue.min_offset
                continue
            if not units:
                break
            for physical, size, code in units:
                message = None
                if (physical, size, code) != FILLER:
                    try:
                        message = message_of(store.read(physical, size))
                    except (DamagedRecord, RecordGone):
                        message = None
                yield Letter(queue_id=queue.queue_id, offset=at, message=message, size=size)
                at += 1
