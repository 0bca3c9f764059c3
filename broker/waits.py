"""Both ways for a message to wait in a store: delay levels and timers."""

from __future__ import annotations

from random import Random
from typing import Protocol

from broker.delay.levels import SCHEDULE_TOPIC, DelayLevels
from broker.delay.puts import DelayedPuts
from broker.options import StoreOptions
from broker.put import Put
from broker.seams import Clock
from broker.timer.names import TIMER_TOPIC
from broker.timer.puts import TimedPuts
from broker.topics import Topic


class Owner(Protocol):
    """What is asked of the store."""

    options: StoreOptions

    @property
    def store_ms(self) -> int:
        """Latest store timestamp."""
        ...

    def create_topic(self, name: str, queues: int, *, system: bool = False) -> Topic:
        """Return the topic, made or grown."""
        ...


class Waits:
    """Gives the messages of one store their delay or moment.

    Attributes:
        delayed: By level.
        timed: By time.
    """

    def __init__(self, owner: Owner, *, clock: Clock, random: Random) -> None:
        options = owner.options
        self.delayed = DelayedPuts(
            DelayLevels(options.delay_levels),
            clock=clock,
            store_ms=lambda: owner.store_ms,
            make_topic=lambda queues: owner.create_topic(SCHEDULE_TOPIC, queues, system=True),
            body_bytes_max=options.message_bytes_max,
        )
        self.timed = TimedPuts(
            options.timers,
            clock=clock,
            random=random,
            make_topic=lambda: owner.create_topic(TIMER_TOPIC, 1, system=True),
            body_bytes_max=options.message_bytes_max,
        )

    def put(self, put: Put, *, level: int, deliver_at_ms: int, delay_ms: int) -> Put:
        """Return what to append: the level wins over the moment, and that over the delay (reference: HookUtils).

        Raises:
            MessageRefused, DiskFull, StoreFailed: As `DelayedPuts.put` and `TimedPuts.put`.
        """
        if level:
            return self.delayed.put(put, level)
        if deliver_at_ms:
            return self.timed.put(put, deliver_at_ms)
        return self.timed.after(put, delay_ms) if delay_ms else put
