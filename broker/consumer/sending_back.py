"""Sending a failed message back to its group's retry topic, until the store has it (RocketMQ: sendMessageBack).

The durable record is the decision (D27): from then on the message is finished where it was, and comes again from
`%RETRY%<group>` when its delay is over. A kill before that leaves it unfinished in its queue, with the failure
uncounted.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.consumer.leaving import Ended, Leaving
from broker.consumer.reading import ConsumedMessage
from broker.consumer.shared import Shared
from broker.errors import MessageRefused
from broker.log.put import Put
from broker.retry.metrics import REFUSED, SENT_BACK
from broker.retry.puts import retry_level, send_back
from broker.scheduled.delay.puts import DelayedPuts

Unfit = Callable[[ConsumedMessage, str], None]


class SendingBack(Leaving):
    """One message on its way to the retry topic.

    Args:
        shared, group, ended: As `Leaving`.
        message: The message, with this failure counted.
        asked: Delay level that the listener wants, 0 for the broker's choice.
        unfit: Told with a sentence when no store will ever take the record.
    """

    def __init__(
        self,
        shared: Shared,
        group: str,
        message: ConsumedMessage,
        *,
        asked: int,
        ended: Ended,
        unfit: Unfit,
    ) -> None:
        super().__init__(shared, group, message, ended=ended)
        self._level = retry_level(message.reconsume_times - 1, asked)
        self._unfit = unfit

    def _made(self) -> tuple[Put, int, bytes]:
        message, store = self._message, self._shared.store
        record = store.read(message.physical, message.size)
        return send_back(store, self._group, record, times=message.reconsume_times, level=self._level)

    def _refused(self, error: MessageRefused) -> None:
        shared = self._shared
        shared.metrics.counter(REFUSED, self._group, "unfit").add()
        shared.scheduler.call_soon(self._unfit, self._message, f"it cannot be stored for a retry: {error}")

    def _count_durable(self) -> None:
        shared = self._shared
        shared.metrics.counter(SENT_BACK, self._group).add()
        if shared.store.waiting(DelayedPuts).on_topic is None:
            shared.limited_log.note("retries_without_delivery", self._group, why="the program delivers no delay levels")

    def _count_refused(self, error: str) -> None:
        self._shared.metrics.counter(REFUSED, self._group, "waits").add()
        self._shared.limited_log.note("retry_refused", self._group, error=error, offset=self._message.offset)
