"""Dead letters of consumers inside the program: the same records as the proxy's, written once (D16).

Before the record is appended the retry counts say, durably, from where in the dead-letter queue it may be found. So a
kill between the record and the committed offset costs no second record: the next owner looks there first.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.consumer.counters import DEAD_LETTERED, DEAD_LETTERS_REFUSED
from broker.consumer.pending_append import PendingAppend
from broker.consumer.retry_counts import Retries
from broker.errors import DamagedRecord, RecordGone, StoreError
from broker.format.record import prepared_offset
from broker.log.decisions import prepared_offset_of
from broker.log.put import Put
from broker.queues.topics import dead_letter_topic
from broker.retry.dead_letter import dead_letter, is_dead_letter_topic

_SCAN_UNITS = 256


@dataclass(eq=False, kw_only=True)
class DeadLettering(PendingAppend):
    """One message on its way to the dead letters.

    Attributes:
        shared, group, message, ended: As `PendingAppend`.
        reason: Why, in a sentence.
        label: Why, for the counter.
    """

    reason: str
    label: str

    def start(self) -> None:
        """Append the record, or find it; `ended` is called when it is durable."""
        if is_dead_letter_topic(self.message.sent_to):
            # No dead letter of a dead letter (D16).
            self._give_up("dead_letter_exhausted")
        elif (known := self._known()).dead_letter_from >= 0 and self._is_there(known.dead_letter_from):
            self._complete()
        else:
            super().start()

    def _known(self) -> Retries:
        return self.shared.retries.of(self._key, self.message.offset, self.message.physical)

    def _made(self) -> tuple[Put, int, bytes]:
        message, shared = self.message, self.shared
        queue = shared.store.create_topic(dead_letter_topic(self.group), 1, system=True).queues[0]
        if self._known().dead_letter_from < 0:
            entry = Retries(message.physical, message.reconsume_times, queue.max_offset)
            shared.retries.note(self._key, message.offset, entry)
        if not shared.retries.save():
            raise StoreError("the retry counts could not be written")
        record = shared.store.read(message.physical, message.size)
        return dead_letter(shared.store, self.group, message, self.reason, record)

    def _count_durable(self) -> None:
        self.shared.metrics.counter(DEAD_LETTERED, self.group, self.label).add()
        self.shared.limited_log.note(
            "message_dead_lettered",
            self.group,
            topic=self.message.topic,
            queue=self.message.queue_id,
            offset=self.message.offset,
            reason=self.reason,
        )

    def _count_refused(self, error: str) -> None:
        self.shared.metrics.counter(DEAD_LETTERS_REFUSED, self.group).add()
        self.shared.limited_log.note("dead_letter_refused", self.group, error=error, offset=self.message.offset)

    def _is_there(self, start: int) -> bool:
        """Whether the dead-letter queue has this message's record at `start` or later."""
        topic = self.shared.store.topics.get(dead_letter_topic(self.group))
        if topic is None:
            return False
        queue = topic.queues[0]
        offset = max(start, queue.min_offset)
        while offset < queue.max_offset:
            units = queue.read(offset, _SCAN_UNITS)
            for physical, size, _ in units:
                try:
                    if self._is_its(self.shared.store.read(physical, size)):
                        return True
                except (DamagedRecord, RecordGone):
                    continue
            offset += len(units)
        return False

    def _is_its(self, record: memoryview) -> bool:
        return prepared_offset(record) == prepared_offset_of(self.message.physical)
