"""Sending a failed message back to its group's retry topic, until the store has it (RocketMQ: sendMessageBack).

The durable record is the decision (D27): from then on the message is finished where it was, and comes again from
`%RETRY%<group>` when its delay is over. A kill before that leaves it unfinished in its queue, with the failure
uncounted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.consumer.leaving import Leaving
from broker.consumer.reading import ConsumedMessage
from broker.errors import MessageRefused
from broker.log.put import Put
from broker.retry.metrics import REFUSED, SENT_BACK
from broker.retry.puts import retry_level, send_back
from broker.scheduled.delay.puts import DelayedPuts

Unfit = Callable[[ConsumedMessage, str], None]


@dataclass(eq=False, kw_only=True)
class SendingBack(Leaving):
    """One message on its way to the retry topic.

    Attributes:
        shared, group, ended: As `Leaving`.
        message: The message, with this failure counted.
        asked: Delay level that the listener wants, 0 for the broker's choice.
        unfit: Told with a sentence when no store will ever take the record.
    """

    asked: int
    unfit: Unfit

    def _made(self) -> tuple[Put, int, bytes]:
        message, store = self.message, self.shared.store
        record = store.read(message.physical, message.size)
        level = retry_level(message.reconsume_times - 1, self.asked)
        return send_back(store, self.group, record, times=message.reconsume_times, level=level)

    def _refused(self, error: MessageRefused) -> None:
        shared = self.shared
        shared.metrics.counter(REFUSED, self.group, "unfit").add()
        shared.scheduler.call_soon(self.unfit, self.message, f"it cannot be stored for a retry: {error}")

    def _count_durable(self) -> None:
        shared = self.shared
        shared.metrics.counter(SENT_BACK, self.group).add()
        if shared.store.waiting(DelayedPuts).on_topic is None:
            shared.limited_log.note("retries_without_delivery", self.group, why="the program delivers no delay levels")

    def _count_refused(self, error: str) -> None:
        self.shared.metrics.counter(REFUSED, self.group, "waits").add()
        self.shared.limited_log.note("retry_refused", self.group, error=error, offset=self.message.offset)
