"""A message on its way out of its queue, into a record that takes its place: a retry's, or a dead letter.

The durable record is the decision (D27). A kill before that leaves the message unfinished in its queue. Where the disk
fails after the append nobody can tell before a restart whether the record is there: the message stays on its way, and
nobody gets it until then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from broker.consumer.counters import SKIPPED, UNDECIDED
from broker.consumer.reading import ConsumedMessage
from broker.consumer.retry_counts import Key
from broker.consumer.shared import Shared
from broker.errors import DamagedRecord, MessageRefused, RecordGone, StoreError
from broker.log.put import Put
from broker.runtime.seams import Handle

AGAIN_SECONDS = 1.0
"""How long a refused append waits; space may be free again by then (D5)."""

Settled = Callable[[ConsumedMessage], None]


class Leaving(ABC):
    """One message on its way; `withdraw` ends it while the store refuses the record.

    Args:
        shared: What all consumers share.
        group: Who consumed it.
        message: The message.
        settled: Told when the record is durable, or the message cannot be read any more.
    """

    def __init__(self, shared: Shared, group: str, message: ConsumedMessage, *, settled: Settled) -> None:
        self._shared = shared
        self._group = group
        self._message = message
        self._settled = settled
        self._timer: Handle | None = None
        self._key: Key = (group, message.topic, message.queue_id)

    def start(self) -> None:
        """Append the record; `settled` is told when it is durable."""
        shared = self._shared
        try:
            put, born_ms, host = self._made()
            shared.store.append([put], born_ms=born_ms, born_host=host, done=self._done)
        except (DamagedRecord, RecordGone) as error:
            self._give_up("gone" if isinstance(error, RecordGone) else "damaged")
        except MessageRefused as error:
            self._refused(error)
        except StoreError as error:
            self._postpone(str(error))
        else:
            shared.flush()

    @abstractmethod
    def _made(self) -> tuple[Put, int, bytes]:
        """Make the record: the put, its born time in ms and host. Raises StoreError."""

    @abstractmethod
    def _count_durable(self) -> None:
        """The record is durable."""

    @abstractmethod
    def _count_refused(self, error: str) -> None:
        """The store does not take the record now."""

    def _refused(self, error: MessageRefused) -> None:
        """The store takes the record never as it is."""
        self._postpone(str(error))

    def withdraw(self) -> bool:
        """Give up while the record is refused; False when the store has it: it will tell, or a restart will."""
        if self._timer is None:
            return False
        self._timer.cancel()
        self._timer = None
        return True

    def _done(self, error: StoreError | None) -> None:
        if error is not None:
            shared, message = self._shared, self._message
            shared.metrics.counter(UNDECIDED, self._group).add()
            shared.notices.note(
                "message_undecided", self._group, topic=message.topic, queue=message.queue_id, offset=message.offset
            )
            return
        self._shared.finished.finish(self._key, self._message.offset)
        self._count_durable()
        self._settle()

    def _settle(self) -> None:
        # Not inside the store's flush: what follows may append and flush again.
        self._shared.scheduler.call_soon(self._settled, self._message)

    def _postpone(self, error: str) -> None:
        self._count_refused(error)
        self._timer = self._shared.scheduler.call_later(AGAIN_SECONDS, self._again)

    def _again(self) -> None:
        self._timer = None
        self.start()

    def _give_up(self, reason: str) -> None:
        shared, message = self._shared, self._message
        shared.metrics.counter(SKIPPED, self._group, reason).add()
        shared.notices.note("message_given_up", self._group, topic=message.topic, offset=message.offset, reason=reason)
        self._settle()
