"""The short way to append for programs that use the broker alone: one message, durable when the call returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from broker.errors import MessageRefused, StoreFailed
from broker.format.java import queue_of_key
from broker.format.properties import check_given, encode_properties
from broker.format.wait_properties import NAMES, Wait, wait_of
from broker.log.put import LogPosition, Put
from broker.options import StoreOptions
from broker.queues.topics import Topic
from broker.runtime.seams import Buffer, Clock
from broker.waits import StoreWaits


class PutStore(Protocol):
    """What is asked of the store."""

    options: StoreOptions
    topics: Mapping[str, Topic]
    failed: StoreFailed | None

    def append(self, puts: Sequence[Put], *, born_ms: int, born_host: bytes) -> list[LogPosition]:
        """Stage messages."""
        ...

    def flush(self) -> None:
        """Write what is staged."""
        ...


class SinglePuts:
    """Puts one message at a time into a store."""

    def __init__(self, store: PutStore, waits: StoreWaits, clock: Clock) -> None:
        self._store = store
        self._waits = waits
        self._clock = clock
        self._round_robin = 0

    def put(
        self,
        topic: str | Topic,
        body: Buffer,
        *,
        key: str = "",
        tags: str = "",
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        delay_level: int = 0,
        deliver_at_ms: int = 0,
        delay_ms: int = 0,
    ) -> LogPosition:
        """Append one message and flush: the short way for programs that use the broker alone.

        The queue is the key's (Java's hash), without a key the next one in turn, unless `queue_id` says otherwise.
        With a delay level (1 or more) it goes to the schedule topic, where its position then is; else with a moment
        (wall clock, ms since the epoch) or a delay in ms to the timer topic. The level wins, as in RocketMQ. Its
        properties DELAY, TIMER_DELAY_SEC, TIMER_DELAY_MS and TIMER_DELIVER_MS ask for the same (`wait_of`). What the
        broker itself writes and reads back is refused as a property.

        Raises:
            KeyError: No topic has that name.
            MessageRefused, DiskFull, StoreFailed: As `Store.append`; StoreFailed also when the flush failed,
                MessageRefused also when a wait is asked for by argument and by property.
        """
        store = self._store
        target = store.topics[topic] if isinstance(topic, str) else topic
        if queue_id is None:
            queue_id = self.queue_for(target, key)
        wait = Wait(delay_level, deliver_at_ms, delay_ms)
        if properties and not NAMES.isdisjoint(properties):
            if any(wait):
                raise MessageRefused("the message requests a wait by argument and by property; remove one of them")
            wait = wait_of(properties)
            properties = {name: value for name, value in properties.items() if name not in NAMES}
        for name in properties or ():
            check_given(name.encode("utf-8", "surrogatepass"))
        block = encode_properties({"TAGS": tags, "KEYS": key, **(properties or {})})
        put = Put(target, queue_id, body, block, tags.encode("utf-8"))
        put = self._waits.put(put, level=wait.level, deliver_at_ms=wait.deliver_at_ms, delay_ms=wait.delay_ms)
        [position] = store.append([put], born_ms=self._clock.wall_ms(), born_host=store.options.store_host)
        store.flush()
        if store.failed is not None:
            raise store.failed
        return position

    def queue_for(self, topic: Topic, key: str = "") -> int:
        """Queue of a message that names none: the key's (Java's hash), without a key the next one in turn."""
        if key:
            return queue_of_key(key, len(topic.queues))
        self._round_robin += 1
        return self._round_robin % len(topic.queues)
