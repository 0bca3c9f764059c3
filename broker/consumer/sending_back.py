"""Sending a failed message back to its group's retry topic, until the store has it (RocketMQ: sendMessageBack).

The durable record is the decision (D27): from then on the message is finished where it was, and comes again from
`%RETRY%<group>` when its delay is over. A kill before that leaves it unfinished in its queue, with the failure
uncounted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.consumer.counters import SKIPPED
from broker.consumer.reading import ConsumedMessage
from broker.errors import DamagedRecord, MessageRefused, RecordGone, StoreError
from broker.retry.metrics import REFUSED, SENT_BACK
from broker.retry.puts import retry_level, send_back
from broker.seams import Handle

if TYPE_CHECKING:
    from broker.consumer.consumers import Consumers

AGAIN_SECONDS = 1.0
"""How long a refused append waits; space may be free again by then (D5)."""

Settled = Callable[[ConsumedMessage], None]
Unfit = Callable[[ConsumedMessage, str], None]


class SendingBack:
    """One message on its way to the retry topic; `withdraw` ends it while the store refuses the record.

    Args:
        consumers: What all consumers share.
        group: Who failed it.
        message: The message, with this failure counted.
        asked: Delay level that the listener wants, 0 for the broker's choice.
        settled: Told when the record is durable, or the message cannot be read any more.
        unfit: Told with a sentence when no store will ever take the record.
    """

    def __init__(
        self,
        consumers: Consumers,
        group: str,
        message: ConsumedMessage,
        *,
        asked: int,
        settled: Settled,
        unfit: Unfit,
    ) -> None:
        self._consumers = consumers
        self._group = group
        self._message = message
        self._level = retry_level(message.reconsume_times - 1, asked)
        self._settled = settled
        self._unfit = unfit
        self._timer: Handle | None = None

    def start(self) -> None:
        """Append the record."""
        message, consumers = self._message, self._consumers
        try:
            record = consumers.store.read(message.physical, message.size)
            put, born_ms, host = send_back(
                consumers.store, self._group, record, times=message.reconsume_times, level=self._level
            )
            consumers.store.append([put], born_ms=born_ms, born_host=host, done=self._done)
        except (DamagedRecord, RecordGone) as error:
            self._lose("gone" if isinstance(error, RecordGone) else "damaged")
            return
        except MessageRefused as error:
            consumers.metrics.counter(REFUSED, self._group, "unfit").add()
            consumers.scheduler.call_soon(self._unfit, message, f"it cannot be stored for a retry: {error}")
            return
        except StoreError as error:
            self._postpone(str(error))
            return
        if consumers.store.delayed.on_topic is None:
            consumers.notices.note("retries_without_delivery", self._group, why="the program delivers no delay levels")
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
        message, consumers = self._message, self._consumers
        consumers.finished.finish((self._group, message.topic, message.queue_id), message.offset)
        consumers.metrics.counter(SENT_BACK, self._group).add()
        # Not inside the store's flush: what follows may append and flush again.
        consumers.scheduler.call_soon(self._settled, message)

    def _postpone(self, error: str) -> None:
        self._consumers.metrics.counter(REFUSED, self._group, "waits").add()
        self._consumers.notices.note("retry_refused", self._group, error=error, offset=self._message.offset)
        self._timer = self._consumers.scheduler.call_later(AGAIN_SECONDS, self._again)

    def _again(self) -> None:
        self._timer = None
        self.start()

    def _lose(self, reason: str) -> None:
        self._consumers.metrics.counter(SKIPPED, self._group, reason).add()
        self._consumers.notices.note(
            "message_given_up", self._group, topic=self._message.topic, offset=self._message.offset, reason=reason
        )
        self._consumers.scheduler.call_soon(self._settled, self._message)
