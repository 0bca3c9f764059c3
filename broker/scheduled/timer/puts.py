"""A message on its way into the timer topic: RocketMQ's form of a timed message (reference: HookUtils).

Topic and queue become the timer topic's, the real ones stand in `REAL_TOPIC` and `REAL_QID`, the slot in `TIMER_OUT_MS`
and the due time in `TIMER_DELIVER_MS`. `broker.scheduled.release` has the way out.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from broker.errors import MessageRefused
from broker.feature import Feature, Home, SystemTopic
from broker.format.properties import find_property
from broker.format.wait_properties import Wait
from broker.log.put import Put
from broker.queues.topics import Topic
from broker.runtime.bundle import Runtime
from broker.runtime.seams import Clock
from broker.scheduled.release import check_waits, closed, without
from broker.scheduled.timer.names import ROLLS_NAME, TIMER_NAMES, TIMER_TOPIC, TimerOptions, slot_of

_FACTS = b"TIMER_DELIVER_MS\x01%d\x02TIMER_OUT_MS\x01%d\x02REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02"
_DAY_SECONDS = 86_400


def timer_feature(options: TimerOptions | None = None) -> Feature:
    """Return the feature of timers, as `Store.open` takes it; without options they are the usual ones."""
    chosen = options or TimerOptions()

    def make(home: Home, runtime: Runtime) -> TimedPuts:
        """Make what gives messages their moment."""
        return TimedPuts(
            chosen,
            clock=runtime.clock,
            random=runtime.random,
            make_topic=lambda: home.create_topic(TIMER_TOPIC, 1, system=True),
            body_bytes_max=home.options.message_bytes_max,
        )

    def is_rolled(properties: bytes) -> bool:
        """Whether RocketMQ put the record again, with all properties of the one before it."""
        return find_property(properties, ROLLS_NAME) is not None

    topic = SystemTopic(name=TIMER_TOPIC, published=True, carries_copy=is_rolled)
    return Feature(name="timer", topics=(topic,), make_waiting=make)


class TimedPuts:
    """Gives messages their moment.

    Attributes:
        options: Configured precision and limits; a wheel of another precision is rebuilt.
        on_topic: Called when the timer topic is created; None if delivery is off.
        in_slot: Returns the number of messages in the slot that begins at a given time; None if unknown.

    Args:
        options: As configured.
        clock: Wall clock.
        random: Decides who is refused while a slot fills up.
        make_topic: `Store.create_topic` for the timer topic.
        body_bytes_max: Largest body; the timer topic itself has no limit.
    """

    def __init__(
        self,
        options: TimerOptions,
        *,
        clock: Clock,
        random: Random,
        make_topic: Callable[[], Topic],
        body_bytes_max: int,
    ) -> None:
        self.options = options
        self.on_topic: Callable[[], None] | None = None
        self.in_slot: Callable[[int], int] | None = None
        self._clock = clock
        self._random = random
        self._make_topic = make_topic
        self._body_bytes_max = body_bytes_max
        self._topic: Topic | None = None

    def connect(self, *, on_topic: Callable[[], None], in_slot: Callable[[int], int]) -> None:
        """What waits is delivered from now on.

        Args:
            on_topic: Called when the timer topic is made.
            in_slot: Returns the number of messages in the slot that begins at a given time.
        """
        # A true circle: a store is opened with its puts, and what delivers is made over the open store.
        self.on_topic, self.in_slot = on_topic, in_slot

    def waiting(self, put: Put, wait: Wait) -> Put | None:
        """Return the put of a message that waits for a time; None where it waits for something else.

        Raises:
            MessageRefused, DiskFull, StoreFailed: As `put` and `after`.
        """
        if wait.deliver_at_ms:
            return self.put(put, wait.deliver_at_ms)
        return self.after(put, wait.delay_ms) if wait.delay_ms else None

    def put(self, put: Put, due_ms: int) -> Put:
        """Return the record to append so that a message is delivered at a time; the put unchanged if it has passed.

        Args:
            put: The message as it would be appended now.
            due_ms: Wall clock, ms since the epoch.

        Raises:
            MessageRefused: The time is too far ahead, or too many messages are due then; the topic accepts no timed
                messages; the queue does not exist; or the body is too large.
            DiskFull, StoreFailed: The timer topic is not there yet and cannot be made.
        """
        check_waits(put, body_bytes_max=self._body_bytes_max, which="timed")
        now = self._clock.wall_ms()
        if due_ms <= now:
            return put
        limit = self.options.delay_ms_max
        if due_ms - now > limit:
            raise MessageRefused(
                f"the message is due in {(due_ms - now) / 1000 / _DAY_SECONDS:,.1f} days; the limit is "
                f"{limit / 1000 / _DAY_SECONDS:,.1f} (timerMaxDelaySec)"
            )
        self._check_slot(due_ms)
        return self.timed(put, due_ms)

    def after(self, put: Put, delay_ms: int) -> Put:
        """Return what to append so that a message is delivered `delay_ms` from now; 0 is now.

        Raises:
            MessageRefused: The delay is negative, or as `put`.
            DiskFull, StoreFailed: As `put`.
        """
        if delay_ms < 0:
            raise MessageRefused(f"the delay of {delay_ms} ms is negative; use 0 or more")
        return self.put(put, self._clock.wall_ms() + delay_ms)

    def timed(self, put: Put, due_ms: int) -> Put:
        """Return the record of a message in the timer topic, whatever the moment and the slot."""
        topic = self._topic
        if topic is None:
            topic = self._topic = self._make_topic()
            if self.on_topic is not None:
                self.on_topic()
        block = put.properties
        if b"TIMER_" in block or b"REAL_" in block:
            block = without(block, TIMER_NAMES)
        slot = slot_of(due_ms, self.options.precision_ms)
        own = _FACTS % (due_ms, slot, put.topic.name_bytes, put.queue_id)
        return put._replace(topic=topic, queue_id=0, properties=closed(block) + own)

    def _check_slot(self, due_ms: int) -> None:
        """Refuse with a probability that rises from 0 at the bound to 1 at twice the bound.

        RocketMQ's falls (TimerMessageStore.isReject): hardly any is refused shortly before the slot is full.
        """
        limit = self.options.slot_messages_max
        if not limit or self.in_slot is None:
            return
        count = self.in_slot(slot_of(due_ms, self.options.precision_ms))
        if count > limit and self._random.random() * limit < count - limit:
            raise MessageRefused(
                f"{count:,} messages are due in the same {self.options.precision_ms} ms; the limit is "
                f"{limit:,} (timerCongestNumEachSlot); choose another time or try again"
            )
