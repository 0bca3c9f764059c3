"""The concurrent consumer: batches of a queue at one time, in no promised order (RocketMQ: ConsumeMessageConcurrently).

The committed offset of a queue is its smallest unfinished one, so one message that never ends holds it back and a kill
repeats what was consumed above it. Reading stops `span_max` offsets ahead of it.

The messages of a failed batch are sent back, each for itself: through a delay level (3 + how often it failed before,
so 10 s, 30 s, 1 min ... 2 h) to `%RETRY%<group>`, which the consumer reads besides its topics (D37). There they hold up
nobody. Once the record of the retry is durable the message is finished in its own queue. After `reconsume_max` retries
(16) a message is a dead letter. `broker.retry` has the record; a node must deliver delay levels
(`broker.scheduled.delay.delays`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, ClassVar

from broker.consumer.counters import CONSUMED, FAILED
from broker.consumer.dead_lettering import DeadLettering
from broker.consumer.member import GroupConsumer, QueueWork
from broker.consumer.options import ConsumerOptions
from broker.consumer.pending_append import PendingAppend
from broker.consumer.reading import ConsumedMessage
from broker.consumer.retry_counts import Retries
from broker.consumer.shared import described
from broker.consumer.strategies import averagely
from broker.consumer.tags import ALL
from broker.errors import MessageRefused
from broker.log.put import Put
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.message_queue import MessageQueue
from broker.queues.topics import retry_topic
from broker.retry.metrics import KNOWN_FINISHED, REFUSED, SENT_BACK
from broker.retry.puts import is_retry_topic, retry_level, send_back
from broker.runtime.steps import run_now
from broker.scheduled.delay.puts import DelayedPuts

# Sending a failed message back to its group's retry topic, until the store has it (RocketMQ: sendMessageBack).
#
# The durable record is the decision (D27): from then on the message is finished where it was, and comes again from
# `%RETRY%<group>` when its delay is over. A kill before that leaves it unfinished in its queue, with the failure
# uncounted.

Unfit = Callable[[ConsumedMessage, str], None]


@dataclass(eq=False, kw_only=True)
class SendingBack(PendingAppend):
    """One message on its way to the retry topic.

    Attributes:
        shared, group, ended: As `PendingAppend`.
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


RECONSUME_MAX = 16


class ConcurrentStatus(Enum):
    """What a concurrent listener answers (RocketMQ: ConsumeConcurrentlyStatus)."""

    SUCCESS = "success"
    RECONSUME_LATER = "later"


@dataclass(slots=True, kw_only=True)
class ConcurrentContext:
    """What a listener may know and say about its batch.

    Attributes:
        queue: Where the batch is from.
        delay_level: Delay level of a failed batch (delayLevelWhenNextConsume): 0: the broker's choice, 1 or more: that
            one, negative: no retry, to the dead letters at once.
    """

    queue: MessageQueue
    delay_level: int = 0


ConcurrentListener = Callable[[Sequence[ConsumedMessage], ConcurrentContext], ConcurrentStatus | None]


_FROM_FIRST = ConsumerOptions()


class ConcurrentWork(QueueWork):
    """One queue of a concurrent consumer."""

    def __init__(self, owner: GroupConsumer, name: MessageQueue, queue: ConsumeQueue, start: int) -> None:
        super().__init__(owner, name, queue, start)
        self._retried = is_retry_topic(name.topic)
        self._unfinished: set[int] = set()
        self._running = 0
        self._leaving: dict[int, PendingAppend] = {}

    @property
    def busy_batches(self) -> int:
        """Batches whose listener runs, retries and dead letters on their way."""
        return self._running + len(self._leaving)

    def step(self) -> None:
        """Hand out batches while the consumer has room for one more, and the queue has messages.

        Where listeners run in the loop's thread, one: its end has asked for the next turn.
        """
        while not self.dropped:
            batch = self._next_batch()
            if not batch:
                break
            running = self._running
            self._run(batch)
            if self._running == running:
                # It ran in this turn, and all else has its turn before the next one.
                break
        self._commit_finished()

    def _next_batch(self) -> list[ConsumedMessage]:
        owner = self.owner
        assert isinstance(owner, ConcurrentConsumer)
        if owner.running_batches >= owner.options.concurrency:
            owner.wait_for_room(self)
            return []
        batch: list[ConsumedMessage] = []
        while len(batch) < owner.options.batch_max and (self._ready or self._read()):
            message = self._ready.popleft()
            if message.unusable is not None or self._known(message).dead_letter_from >= 0:
                label = "exhausted" if message.unusable is None else "unusable"
                self._dead_letter(message, message.unusable or "its retries are exhausted", label)
            else:
                batch.append(message)
        return batch

    def _read(self) -> bool:
        low = min(self._unfinished, default=self.reader.next)
        if self.reader.next - low >= self.owner.options.span_max:
            return False
        shared = self.owner.shared
        while not self._ready and (messages := self.reader.read()):
            for message in messages:
                if shared.finished.has(self.key, message.offset):
                    shared.metrics.counter(KNOWN_FINISHED, self.owner.group).add()
                    continue
                self._unfinished.add(message.offset)
                # Only what was on its way to the dead letters, or failed under a version without retry topics, is here.
                times = self._known(message).times
                self._ready.append(replace(message, reconsume_times=times) if times else message)
        return bool(self._ready)

    def _known(self, message: ConsumedMessage) -> Retries:
        return self.owner.shared.retries.of(self.key, message.offset, message.physical)

    def _run(self, batch: list[ConsumedMessage]) -> None:
        if not self.busy_batches:
            self.begin()
        self._running += 1
        context = ConcurrentContext(queue=self.name)
        shown = [replace(message, topic=message.sent_to) for message in batch] if self._retried else batch
        self.owner.shared.run(partial(self.owner.listener, shown, context), partial(self._answered, batch, context))

    def _answered(
        self, batch: list[ConsumedMessage], context: ConcurrentContext, answer: Any, error: Exception | None
    ) -> None:
        owner = self.owner
        if answer is ConcurrentStatus.SUCCESS:
            owner.shared.metrics.counter(CONSUMED, owner.group).add(len(batch))
            self._unfinished.difference_update(message.offset for message in batch)
        elif not self.lost:
            self._failed(batch, context, answer, error)
        self._running -= 1
        self._complete()

    def _failed(
        self, batch: list[ConsumedMessage], context: ConcurrentContext, answer: Any, error: Exception | None
    ) -> None:
        owner = self.owner
        answered = isinstance(answer, ConcurrentStatus)
        how = "answered" if answered else "nothing" if error is None else "raised"
        owner.shared.metrics.counter(FAILED, owner.group, how).add(len(batch))
        if not answered:
            what = described(error) if error is not None else "it returned no status"
            owner.shared.limited_log.note("listener_failed", owner.group, topic=self.name.topic, what=what)
        most = owner.options.reconsume_max if owner.options.reconsume_max >= 0 else RECONSUME_MAX
        level = owner.shared.number_of(owner.group, self.name.topic, "delay_level", context.delay_level, 0)
        for message in batch:
            failed = message.failed_again()
            if level < 0:
                self._dead_letter(failed, f"the listener {how} and requested no retry", "exhausted")
            elif message.reconsume_times >= most:
                self._dead_letter(
                    failed,
                    f"the listener {how} {described(error)}" if error is not None else f"the listener {how}",
                    "exhausted",
                )
            else:
                self._send_back(failed, level)

    def _send_back(self, message: ConsumedMessage, level: int) -> None:
        owner = self.owner
        unfit = partial(self._dead_letter, label="exhausted")
        self._leave(
            message,
            SendingBack(owner.shared, owner.group, message, asked=level, ended=self._has_left, unfit=unfit),
        )

    def _dead_letter(self, message: ConsumedMessage, reason: str, label: str) -> None:
        owner = self.owner
        self._leave(
            message,
            DeadLettering(owner.shared, owner.group, message, reason=reason, label=label, ended=self._has_left),
        )

    def _leave(self, message: ConsumedMessage, leaving: PendingAppend) -> None:
        if not self.busy_batches:
            self.begin()
        self._leaving[message.offset] = leaving
        leaving.start()
        if self.dropped and leaving.withdraw():
            # Where the store refuses the record, the next owner gets the message again.
            del self._leaving[message.offset]

    def _has_left(self, message: ConsumedMessage) -> None:
        del self._leaving[message.offset]
        self._unfinished.discard(message.offset)
        self._complete()

    def _complete(self) -> None:
        """Something ended: commit what can be, and continue or give the queue up."""
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
        """End retries and dead letters that the store refuses: the next owner continues with those messages."""
        for offset in [offset for offset, leaving in self._leaving.items() if leaving.withdraw()]:
            del self._leaving[offset]
        if not self.busy_batches:
            self.busy_since = None
        owner = self.owner
        assert isinstance(owner, ConcurrentConsumer)
        owner.room()


class ConcurrentConsumer(GroupConsumer):
    """Consumes its queues with up to `concurrency` batches at one time; see the module's text."""

    kind: ClassVar[str] = "concurrent"
    work = ConcurrentWork

    def __post_init__(self) -> None:
        self._retry_topic = retry_topic(self.group)
        self.topics = {**self.topics, self._retry_topic: ALL}
        super().__post_init__()
        self._waiting: dict[QueueWork, None] = {}

    def start(self) -> None:
        """Join the group and begin to consume, also what the group failed.

        Raises:
            KeyError, ValueError, QueuesOwned: As `GroupConsumer.start`.
            DiskFull, StoreFailed: The retry topic is not there yet and cannot be made.
        """
        shared = self.shared
        if self._retry_topic not in shared.store.topics:
            shared.finished.begin(self.group)
        elif not shared.finished.is_known_of(self.group):
            # Its committed offsets went while this process ran: what the log says is finished is so all the same.
            run_now(shared.finished.read_all())
        shared.store.create_topic(self._retry_topic, 1, system=True)
        super().start()

    def allocate(self, names: list[MessageQueue], clients: list[str]) -> list[MessageQueue]:
        """Return its share; of the retry topic evenly, since a strategy of fixed lists does not know it."""
        if names and names[0].topic == self._retry_topic:
            return averagely(self.client_id, names, clients)
        return super().allocate(names, clients)

    def first_offset(self, name: MessageQueue) -> int:
        """Next offset to consume; of the retry topic the first, wherever a new group begins."""
        if name.topic == self._retry_topic:
            return self.shared.first_offset(self.group, name, _FROM_FIRST)
        return super().first_offset(name)

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
