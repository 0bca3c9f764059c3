"""Dead letters of consumers inside the program: the same records as the proxy's, settled once (D16).

Before the record is appended the retry counts say, durably, from where in the dead-letter queue it may be found. So a
kill between the record and the committed offset costs no second record: the next owner looks there first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.consumer.counters import BURIALS_REFUSED, BURIED, SKIPPED
from broker.consumer.reading import ConsumedMessage
from broker.consumer.retry_counts import Key, Retries
from broker.dead_letter import dead_letter, is_dead_letter_topic
from broker.decisions import prepared_offset_of
from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.record import prepared_offset
from broker.seams import Handle
from broker.topics import dead_letter_topic

if TYPE_CHECKING:
    from broker.consumer.consumers import Consumers

RETRY_SECONDS = 1.0
"""How long a refused append waits; space may be free again by then (D5)."""
_SCAN_UNITS = 256

Settled = Callable[[ConsumedMessage], None]


class Burial:
    """One message on its way to the dead letters; `withdraw` ends it while the store refuses the record."""

    def __init__(
        self, consumers: Consumers, group: str, message: ConsumedMessage, *, reason: str, label: str, settled: Settled
    ) -> None:
        self._consumers = consumers
        self._group = group
        self._message = message
        self._reason = reason
        self._label = label
        self._settled = settled
        self._timer: Handle | None = None
        self._key: Key = (group, message.topic, message.queue_id)

    def start(self) -> None:
        """Append the record, or find it; `settled` is told when it is durable."""
        message = self._message
        if is_dead_letter_topic(message.sent_to):
            # No dead letter of a dead letter (D16).
            self._give_up("dead_letter_exhausted")
            return
        consumers = self._consumers
        known = consumers.retries.of(self._key, message.offset, message.physical)
        if known.buried_from >= 0 and self._is_there(known.buried_from):
            consumers.scheduler.call_soon(self._settled, message)
            return
        try:
            queue = consumers.store.create_topic(dead_letter_topic(self._group), 1, system=True).queues[0]
            if known.buried_from < 0:
                place = queue.max_offset
                entry = Retries(message.physical, message.reconsume_times, place)
                consumers.retries.note(self._key, message.offset, entry)
            if not consumers.retries.save():
                self._postpone("the retry counts could not be written")
                return
            record = consumers.store.read(message.physical, message.size)
            put, born_ms, host = dead_letter(consumers.store, self._group, message, self._reason, record)
            consumers.store.append([put], born_ms=born_ms, born_host=host, done=self._done)
        except (DamagedRecord, RecordGone) as error:
            self._give_up("gone" if isinstance(error, RecordGone) else "damaged")
            return
        except StoreError as error:
            self._postpone(str(error))
            return
        consumers.flush()

    def withdraw(self) -> bool:
        """Give up while the record is refused; False when the store has it and will tell."""
        if self._timer is None:
            return False
        self._timer.cancel()
        self._timer = None
        return True

    def _done(self, error: StoreError | None) -> None:
        if error is not None:
            self._postpone(str(error))
            return
        self._consumers.finished.finish(self._key, self._message.offset)
        self._consumers.metrics.counter(BURIED, self._group, self._label).add()
        self._consumers.notices.note(
            "message_dead_lettered",
            self._group,
            topic=self._message.topic,
            queue=self._message.queue_id,
            offset=self._message.offset,
            reason=self._reason,
        )
        # Not inside the store's flush: what follows may append and flush again.
        self._consumers.scheduler.call_soon(self._settled, self._message)

    def _postpone(self, error: str) -> None:
        self._consumers.metrics.counter(BURIALS_REFUSED, self._group).add()
        self._consumers.notices.note("dead_letter_refused", self._group, error=error, offset=self._message.offset)
        self._timer = self._consumers.scheduler.call_later(RETRY_SECONDS, self._again)

    def _again(self) -> None:
        self._timer = None
        self.start()

    def _give_up(self, reason: str) -> None:
        self._consumers.metrics.counter(SKIPPED, self._group, reason).add()
        self._consumers.notices.note(
            "message_given_up", self._group, topic=self._message.topic, offset=self._message.offset, reason=reason
        )
        self._consumers.scheduler.call_soon(self._settled, self._message)

    def _is_there(self, start: int) -> bool:
        """Whether the dead-letter queue has this message's record at `start` or later."""
        topic = self._consumers.store.topics.get(dead_letter_topic(self._group))
        if topic is None:
            return False
        queue = topic.queues[0]
        offset = max(start, queue.min_offset)
        while offset < queue.max_offset:
            units = queue.read(offset, _SCAN_UNITS)
            for physical, size, _ in units:
                try:
                    if self._is_its(self._consumers.store.read(physical, size)):
                        return True
                except (DamagedRecord, RecordGone):
                    continue
            offset += len(units)
        return False

    def _is_its(self, record: memoryview) -> bool:
        return prepared_offset(record) == prepared_offset_of(self._message.physical)
