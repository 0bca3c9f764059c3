"""A message on its way into the schedule topic, and out of it: RocketMQ's form of a delayed message.

In: topic and queue become the schedule topic's, the real ones stand in `REAL_TOPIC` and `REAL_QID`, the level in
`DELAY`. Out: everything as it was sent, without those properties (RocketMQ leaves them in the delivered record).
"""

from __future__ import annotations

from collections.abc import Callable

from broker import feature
from broker.errors import MessageRefused
from broker.feature import Feature, SystemTopic
from broker.format.record import split
from broker.format.wait_properties import REAL_QUEUE_NAME, REAL_TOPIC_NAME, Wait
from broker.log.put import Put
from broker.queues.topics import Topic
from broker.runtime.bundle import Runtime
from broker.runtime.seams import Clock
from broker.scheduled.delay.levels import DELAY_NAME, SCHEDULE_TOPIC, STANDARD_LEVELS, WAIT_NAME, DelayLevels, due_ms
from broker.scheduled.release import Released, check_waits, closed, moved, without
from broker.store import Store

DELAY_NAMES = (DELAY_NAME, REAL_TOPIC_NAME, REAL_QUEUE_NAME, WAIT_NAME)


class DelayedPuts:
    """Gives messages their delay.

    Attributes:
        levels: The list in force.
        on_topic: Called with the schedule topic when it is created; None if delivery is off.

    Args:
        levels: The list of delays.
        clock: Wall clock.
        store_ms: Returns the latest store timestamp, which the wall clock may be behind (D4).
        make_topic: `Store.create_topic` for the schedule topic with the given number of queues.
        body_bytes_max: Largest body of what producers send; system topics have no limit.
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

    def connect(self, *, on_topic: Callable[[], None]) -> None:
        """What waits is delivered from now on; `on_topic` is called when the schedule topic is made."""
        # A true circle: a store is opened with its puts, and what delivers is made over the open store.
        self.on_topic = on_topic

    def waiting(self, put: Put, wait: Wait) -> Put | None:
        """Return the put of a message that waits for a level, None for another wait. Raises as `put`."""
        return self.put(put, wait.level) if wait.level else None

    def put(self, put: Put, level: int) -> Put:
        """Return what to append so that a message is delivered after the delay of a level.

        Args:
            put: The message as it would be appended without delay.
            level: 1 or more; above the highest it is the highest's. 0 means no delay.

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
        check_waits(put, body_bytes_max=self._body_bytes_max, which="delayed")
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
        if b"DELAY" in block or b"REAL_" in block or WAIT_NAME in block:
            block = without(block, DELAY_NAMES)
        block = closed(block)
        facts = b"DELAY\x01%d\x02REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02%b\x01%d\x02"
        own = facts % (level, put.topic.name_bytes, put.queue_id, WAIT_NAME, wait_ms)
        return put._replace(topic=topic, queue_id=level - 1, properties=block + own, tags=wait_ms)


def delay_feature(levels: str = STANDARD_LEVELS) -> Feature:
    """Return the feature of delay levels, as `Store.open` takes it.

    Args:
        levels: Delays of the levels, as RocketMQ's messageDelayLevel writes them.

    Raises:
        ValueError: As `DelayLevels`.
    """
    list_of_levels = DelayLevels(levels)

    def unit_code(properties: bytes, store_ms: int) -> int | None:
        """When a record is due, ms since the epoch; delays of RocketMQ's records are those of the list."""
        return due_ms(properties, store_ms, list_of_levels)

    def make(home: feature.Home, runtime: Runtime) -> DelayedPuts:
        """Make what gives messages their delay."""
        return DelayedPuts(
            list_of_levels,
            clock=runtime.clock,
            store_ms=home.store_ms,
            make_topic=lambda queues: home.create_topic(SCHEDULE_TOPIC, queues, system=True),
            body_bytes_max=home.options.message_bytes_max,
        )

    # Nothing is put there a second time: a batch mark is the record's own.
    schedule = SystemTopic(name=SCHEDULE_TOPIC, published=True, unit_code=unit_code, carries_copy=lambda _: False)
    return Feature(name="delay", topics=(schedule,), make_waiting=make)


def put_again(record: memoryview, store: Store) -> Released:
    """Make the record that takes the place of one in the schedule topic, as one of level 1, whatever its real topic.

    Raises:
        DamagedRecord: The bytes are no record.
    """
    body, block = split(record)
    facts = [pair for pair in block.split(b"\x02") if pair.partition(b"\x01")[0] in (REAL_TOPIC_NAME, REAL_QUEUE_NAME)]
    wait_ms = store.waiting(DelayedPuts).levels.ms(1)
    own = b"".join([b"DELAY\x011\x02", *[pair + b"\x02" for pair in facts], WAIT_NAME, b"\x01%d\x02" % wait_ms])
    released = moved(record, body, without(block, DELAY_NAMES) + own, store.topics[SCHEDULE_TOPIC], 0)
    return released._replace(put=released.put._replace(tags=wait_ms))
