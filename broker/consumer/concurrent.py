"""The concurrent consumer: batches of a queue at one time, in no promised order (RocketMQ: ConsumeMessageConcurrently).

The committed offset of a queue is its smallest unfinished one, so one message that never ends holds it back and a kill
repeats what was consumed above it. Reading stops `span_max` offsets ahead of it.

A failed batch is repeated in this queue, alone, after a delay that grows with its failures, RocketMQ's delay levels
from the third on (10 s, 30 s, 1 min ... 2 h); the topic `%RETRY%<group>` takes no part yet. The counts survive a
restart, what is left of a delay does not. After `reconsume_max` repetitions (16) a message is a dead letter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from broker.consume_queue import ConsumeQueue
from broker.consumer.burial import Burial
from broker.consumer.counters import CONSUMED, FAILED
from broker.consumer.member import Consumer
from broker.consumer.options import ConsumerOptions
from broker.consumer.reading import ConsumedMessage
from broker.consumer.retry_counts import Retries
from broker.consumer.work import QueueWork
from broker.message_queue import MessageQueue
from broker.seams import Handle

if TYPE_CHECKING:
    from broker.consumer.consumers import Consumers

RECONSUME_MAX = 16
RETRY_SECONDS = (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Delay before the n-th repetition: RocketMQ's delay levels 3 to 18."""


class ConcurrentStatus(Enum):
    """What a concurrent listener answers (RocketMQ: ConsumeConcurrentlyStatus)."""

    SUCCESS = "success"
    RECONSUME_LATER = "later"


@dataclass(slots=True, kw_only=True)
class ConcurrentContext:
    """What a listener may know and say about its batch.

    Attributes:
        queue: Where the batch is from.
        delay_seconds: How long a failed batch waits; None: as its count of failures says.
    """

    queue: MessageQueue
    delay_seconds: float | None = None


ConcurrentListener = Callable[[Sequence[ConsumedMessage], ConcurrentContext], ConcurrentStatus | None]


class ConcurrentWork(QueueWork):
    """One queue of a concurrent consumer."""

    def __init__(
        self, owner: Consumer, name: MessageQueue, queue: ConsumeQueue, *, start: int, listener: ConcurrentListener
    ) -> None:
        super().__init__(owner, name, queue, start=start)
        self._listener = listener
        self._ready: deque[ConsumedMessage] = deque()
        self._again: deque[ConsumedMessage] = deque()
        """Whose delay is over; each goes alone."""
        self._unfinished: set[int] = set()
        self._waiting: dict[int, Handle] = {}
        self._running = 0
        self._burials: dict[int, Burial] = {}

    @property
    def busy_batches(self) -> int:
        """Batches whose listener runs, and dead letters on their way."""
        return self._running + len(self._burials)

    def step(self) -> None:
        """Hand out batches while the consumer has room for one more, and the queue has messages."""
        while not self.dropped:
            batch = self._next_batch()
            if not batch:
                break
            self._run(batch)
        self._commit_finished()

    def _next_batch(self) -> list[ConsumedMessage]:
        owner = self.owner
        assert isinstance(owner, ConcurrentConsumer)
        if owner.running_batches >= owner.options.concurrency:
            owner.wait_for_room(self)
            return []
        if self._again:
            return [self._again.popleft()]
        batch: list[ConsumedMessage] = []
        while len(batch) < owner.options.batch_max and (self._ready or self._read()):
            message = self._ready.popleft()
            if message.unusable is not None or self._known(message).buried_from >= 0:
                label = "exhausted" if message.unusable is None else "unusable"
                self._bury(message, message.unusable or "its retries were used up", label)
            else:
                batch.append(message)
        return batch

    def _read(self) -> bool:
        low = min(self._unfinished, default=self.reader.next)
        if self.reader.next - low >= self.owner.options.span_max:
            return False
        for message in self.reader.read():
            self._unfinished.add(message.offset)
            known = self._known(message)
            self._ready.append(replace(message, reconsume_times=known.times) if known.times else message)
        return bool(self._ready)

    def _known(self, message: ConsumedMessage) -> Retries:
        return self.owner.consumers.retries.of(self.key, message.offset, message.physical)

    def _run(self, batch: list[ConsumedMessage]) -> None:
        if not self.busy_batches:
            self.begin()
        self._running += 1
        context = ConcurrentContext(queue=self.name)
        self.owner.consumers.run(partial(self._listener, batch, context), partial(self._answered, batch, context))

    def _answered(
        self, batch: list[ConsumedMessage], context: ConcurrentContext, answer: Any, error: Exception | None
    ) -> None:
        owner = self.owner
        if answer is ConcurrentStatus.SUCCESS:
            owner.consumers.metrics.counter(CONSUMED, owner.group).add(len(batch))
            self._unfinished.difference_update(message.offset for message in batch)
        elif not self.lost:
            self._failed(batch, context, answer, error)
        self._running -= 1
        self._settle()

    def _failed(
        self, batch: list[ConsumedMessage], context: ConcurrentContext, answer: Any, error: Exception | None
    ) -> None:
        owner = self.owner
        answered = isinstance(answer, ConcurrentStatus)
        how = "answered" if answered else "nothing" if error is None else "raised"
        owner.consumers.metrics.counter(FAILED, owner.group, how).add(len(batch))
        if not answered:
            owner.consumers.notices.note("listener_failed", owner.group, topic=self.name.topic, what=repr(error))
        most = owner.options.reconsume_max if owner.options.reconsume_max >= 0 else RECONSUME_MAX
        for message in batch:
            times, failed = message.reconsume_times, message.failed_again()
            if times >= most and not self.dropped:
                self._bury(failed, f"the listener {how} {error!r}" if error else f"the listener {how}", "exhausted")
                continue
            owner.consumers.retries.note(self.key, message.offset, Retries(message.physical, failed.reconsume_times))
            if self.dropped:
                continue
            seconds = context.delay_seconds
            if seconds is None:
                seconds = RETRY_SECONDS[min(times, len(RETRY_SECONDS) - 1)]
            later = owner.consumers.scheduler.call_later(seconds, self._due, failed)
            self._waiting[message.offset] = later

    def _due(self, message: ConsumedMessage) -> None:
        del self._waiting[message.offset]
        self._again.append(message)
        self.wake()

    def _bury(self, message: ConsumedMessage, reason: str, label: str) -> None:
        if not self.busy_batches:
            self.begin()
        owner = self.owner
        burial = Burial(owner.consumers, owner.group, message, reason=reason, label=label, settled=self._is_buried)
        self._burials[message.offset] = burial
        burial.start()

    def _is_buried(self, message: ConsumedMessage) -> None:
        del self._burials[message.offset]
        self._unfinished.discard(message.offset)
        self._settle()

    def _settle(self) -> None:
        """Something ended: commit what can be, and go on or give the queue up."""
        owner = self.owner
        assert isinstance(owner, ConcurrentConsumer)
        self._commit_finished()
        if not self.busy_batches:
            self.end()
        else:
            self.wake()
        owner.room()

    def _commit_finished(self) -> None:
        """Commit the smallest unfinished offset (reference 8.4)."""
        self.commit(min(self._unfinished, default=self.reader.next))

    def withdraw(self) -> None:
        """End delays, and dead letters that the store refuses: the next owner goes on with those messages."""
        for handle in self._waiting.values():
            handle.cancel()
        self._waiting.clear()
        for offset in [offset for offset, burial in self._burials.items() if burial.withdraw()]:
            del self._burials[offset]
        if not self.busy_batches:
            self.busy_since = None


class ConcurrentConsumer(Consumer):
    """Consumes its queues with up to `concurrency` batches at one time; see the module's text."""

    kind: ClassVar[str] = "concurrent"

    def __init__(
        self,
        consumers: Consumers,
        group: str,
        client_id: str,
        topics: Mapping[str, str],
        *,
        options: ConsumerOptions,
        listener: ConcurrentListener,
    ) -> None:
        make = partial(ConcurrentWork, listener=listener)
        super().__init__(consumers, group, client_id, topics, options=options, make_work=make)
        self._waiting: dict[QueueWork, None] = {}

    @property
    def running_batches(self) -> int:
        """Batches under way in all its queues."""
        return sum(work.busy_batches for work in self.works.values() if isinstance(work, ConcurrentWork))

    def wait_for_room(self, work: QueueWork) -> None:
        """Wake this queue when a batch has ended."""
        self._waiting[work] = None

    def room(self) -> None:
        """Wake the queues that waited for a batch to end, the longest waiting first."""
        waiting, self._waiting = self._waiting, {}
        for work in waiting:
            work.wake()
