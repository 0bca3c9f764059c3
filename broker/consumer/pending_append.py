"""A message on its way out of its queue, into a record that takes its place: a retry's, or a dead letter.

The durable record is the decision (D27). A kill before that leaves the message unfinished in its queue. Where the disk
fails after the append it is unknown until a restart whether the record is there: the message stays on its way, and
it is not delivered until then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from broker.consumer.counters import SKIPPED, UNDECIDED
from broker.consumer.reading import ConsumedMessage
from broker.consumer.retry_counts import Key
from broker.consumer.shared import Shared
from broker.errors import DamagedRecord, MessageRefused, RecordGone, StoreError
from broker.log.put import Put
from broker.runtime.later import Later

AGAIN_SECONDS = 1.0
"""How long a refused append waits; space may be free again by then (D5)."""

Ended = Callable[[ConsumedMessage], None]


@dataclass(eq=False)
class PendingAppend(ABC):
    """One message on its way; `withdraw` ends it while the store refuses the record.

    Attributes:
        shared: What all consumers share.
        group: Who consumed it.
        message: The message.
        ended: Told when the record is durable, or the message cannot be read any more.
    """

    shared: Shared
    group: str
    message: ConsumedMessage
    ended: Ended = field(kw_only=True)

    def __post_init__(self) -> None:
        self._next_try = Later(self.shared.scheduler, self.start)
        self._key: Key = (self.group, self.message.topic, self.message.queue_id)

    def start(self) -> None:
        """Append the record; `ended` is called when it is durable."""
        shared = self.shared
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
        """Give up while the record is refused; False when the store has it: its callback decides, or a restart."""
        was_refused = self._next_try.is_due
        self._next_try.cancel()
        return was_refused

    def _done(self, error: StoreError | None) -> None:
        if error is not None:
            shared, message = self.shared, self.message
            shared.metrics.counter(UNDECIDED, self.group).add()
            shared.limited_log.note(
                "message_undecided", self.group, topic=message.topic, queue=message.queue_id, offset=message.offset
            )
            return
        self.shared.finished.finish(self._key, self.message.offset)
        self._count_durable()
        self._complete()

    def _complete(self) -> None:
        # Not inside the store's flush: what follows may append and flush again.
        self.shared.scheduler.call_soon(self.ended, self.message)

    def _postpone(self, error: str) -> None:
        self._count_refused(error)
        self._next_try.after(AGAIN_SECONDS)

    def _give_up(self, reason: str) -> None:
        shared, message = self.shared, self.message
        shared.metrics.counter(SKIPPED, self.group, reason).add()
        shared.limited_log.note(
            "message_given_up", self.group, topic=message.topic, offset=message.offset, reason=reason
        )
        self._complete()
