"""A message on its way into the schedule topic, and out of it: RocketMQ's form of a delayed message.

In: topic and queue become the schedule topic's, the real ones stand in `REAL_TOPIC` and `REAL_QID`, the level in
`DELAY`. Out: everything as it was sent, without those properties (RocketMQ leaves them in the delivered record).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from broker.decisions import prepared_offset_of
from broker.delay.levels import DELAY_NAME, REAL_QUEUE_NAME, REAL_TOPIC_NAME, SCHEDULE_TOPIC, WAIT_NAME, DelayLevels
from broker.errors import MessageRefused
from broker.properties import find_property
from broker.put import Put
from broker.record import (
    SYS_BORN_HOST_V6,
    SYS_STORE_HOST_V6,
    born_host,
    born_timestamp,
    physical_offset,
    reconsume_times,
    split,
    sys_flag,
    user_flag,
)
from broker.seams import Clock
from broker.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, Topic, is_system

_NAMES = (DELAY_NAME, REAL_TOPIC_NAME, REAL_QUEUE_NAME, WAIT_NAME)
_HOSTS_V6 = SYS_BORN_HOST_V6 | SYS_STORE_HOST_V6


class DelayedPuts:
    """Gives messages their delay.

    Attributes:
        levels: The list in force.
        on_topic: Called with the schedule topic when it is made; None while nobody delivers.

    Args:
        levels: The list of delays.
        clock: Wall clock.
        store_ms: Tells the latest store timestamp, which the wall clock may have fallen behind (D4).
        make_topic: `Store.create_topic` for the schedule topic with so many queues.
        body_bytes_max: Largest body; the schedule topic itself has no limit.
    """

    def __init__(
        self,
        levels: DelayLevels,
        *,
        clock: Clock,
        store_ms: Callable[[], int],
        make_topic: Callable[[int], Topic],
        body_bytes_max: int,
    ) -> None:
        self.levels = levels
        self.on_topic: Callable[[], None] | None = None
        self._clock = clock
        self._store_ms = store_ms
        self._make_topic = make_topic
        self._body_bytes_max = body_bytes_max
        self._topic: Topic | None = None

    def put(self, put: Put, level: int) -> Put:
        """Return what to append so that a message is delivered after the delay of a level.

        Args:
            put: The message as it would be appended without delay.
            level: 1 or more; above the highest it is the highest's. 0 is no delay.

        Raises:
            MessageRefused: The level is negative, the topic is one that takes no delayed messages, the queue is not
                there, or the body is too large.
            DiskFull, StoreFailed: The schedule topic is not there yet and cannot be made.
        """
        if level == 0:
            return put
        if level < 0:
            raise MessageRefused(
                f"delay level {level} is negative; use 1 to {len(self.levels.delays_ms)}, or 0 for none"
            )
        if put.topic.system and not put.topic.name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            raise MessageRefused(f"{put.topic.name} is a topic of the broker's own: it takes no delayed messages")
        if not 0 <= put.queue_id < len(put.topic.queues):
            raise MessageRefused(f"topic {put.topic.name} has no queue {put.queue_id}")
        if len(put.body) > self._body_bytes_max:
            raise MessageRefused(f"the body has {len(put.body)} bytes, {self._body_bytes_max} are allowed")
        level = self.levels.level(level)
        now = self._clock.wall_ms()
        return self.delayed(put, level, wait_ms=self.levels.ms(level) - max(0, self._store_ms() - now))

    def delayed(self, put: Put, level: int, *, wait_ms: int) -> Put:
        """Return the record of a message in a level's queue, due `wait_ms` after its store timestamp."""
        topic = self._topic
        if topic is None or len(topic.queues) < len(self.levels.delays_ms):
            topic = self._topic = self._make_topic(len(self.levels.delays_ms))
            if self.on_topic is not None:
                self.on_topic()
        block = put.properties
        if block and not block.endswith(b"\x02"):
            block += b"\x02"
        facts = b"DELAY\x01%d\x02REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02%b\x01%d\x02"
        own = facts % (level, put.topic.name_bytes, put.queue_id, WAIT_NAME, wait_ms)
        return put._replace(topic=topic, queue_id=level - 1, properties=block + own, tags=wait_ms)


class Released(NamedTuple):
    """A message of the schedule topic as it goes to its real topic."""

    put: Put
    born_ms: int
    born_host: bytes


def release(record: memoryview, topics: Mapping[str, Topic]) -> Released:
    """Make the message to deliver from its record in the schedule topic.

    The body is not copied. The record's offset goes into the prepared offset, by which a start knows that this one was
    delivered (D27).

    Raises:
        MessageRefused: Its real topic is not there, takes nothing, or lacks the queue.
        DamagedRecord: The bytes are no record.
    """
    body, block = split(record)
    name = (find_property(block, REAL_TOPIC_NAME) or b"").decode("utf-8", "replace")
    queue = find_property(block, REAL_QUEUE_NAME) or b""
    topic = topics.get(name)
    if topic is None:
        raise MessageRefused(f"topic {name!r} is not there; create it")
    if is_system(name) and not name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        raise MessageRefused(f"{name} is a topic of the broker's own; it takes no delayed messages")
    if not queue.isdigit() or int(queue) >= len(topic.queues):
        raise MessageRefused(f"topic {name} has no queue {queue.decode('utf-8', 'replace')}; give it more")
    return _moved(record, body, without(block, _NAMES), topic, int(queue))


class Home(Protocol):
    """A store, as far as it is needed here."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """By name."""
        ...

    @property
    def delayed(self) -> DelayedPuts:
        """Gives messages their delay."""
        ...


def put_again(record: memoryview, store: Home) -> Released:
    """Make the record that takes the place of one in the schedule topic, as one of level 1, whatever its real topic.

    Raises:
        DamagedRecord: The bytes are no record.
    """
    body, block = split(record)
    facts = [pair for pair in block.split(b"\x02") if pair.partition(b"\x01")[0] in (REAL_TOPIC_NAME, REAL_QUEUE_NAME)]
    wait_ms = store.delayed.levels.ms(1)
    own = b"".join([b"DELAY\x011\x02", *[pair + b"\x02" for pair in facts], WAIT_NAME, b"\x01%d\x02" % wait_ms])
    released = _moved(record, body, without(block, _NAMES) + own, store.topics[SCHEDULE_TOPIC], 0)
    return released._replace(put=released.put._replace(tags=wait_ms))


def _moved(record: memoryview, body: memoryview, properties: bytes, topic: Topic, queue_id: int) -> Released:
    put = Put(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=properties,
        tags=find_property(properties, b"TAGS") or b"",
        unique_key=find_property(properties, b"UNIQ_KEY") or b"",
        prepared_offset=prepared_offset_of(physical_offset(record)),
        reconsume_times=reconsume_times(record),
        sys_flag=sys_flag(record) & ~_HOSTS_V6,
        flag=user_flag(record),
    )
    return Released(put, born_timestamp(record), born_host(record))


def without(block: bytes, names: tuple[bytes, ...]) -> bytes:
    """Return a property block without these properties; the order of the others stays."""
    pairs = [pair for pair in block.split(b"\x02") if pair and pair.partition(b"\x01")[0] not in names]
    return b"".join([pair + b"\x02" for pair in pairs])


__all__ = ["DelayedPuts", "Released", "put_again", "release"]
