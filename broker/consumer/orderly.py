"""The orderly consumer: the messages of a queue one batch after the other, in order, across failures (6.3).

What a listener answers:

==============  ===================================================  ==================================================
status          auto-commit (default)                                ``context.auto_commit = False``
==============  ===================================================  ==================================================
SUCCESS         committed                                            consumed; committed with the next COMMIT
COMMIT          as SUCCESS, with a notice                            everything consumed so far is committed
ROLLBACK        as SUCCESS, with a notice (RocketMQ's rule)          back to the last commit, after a pause
SUSPEND         the same batch again, after a pause                  the same batch again, after a pause
raises, None    as SUSPEND                                           as SUSPEND
==============  ===================================================  ==================================================

While a queue pauses nothing else of it is consumed. Every message of a suspended batch counts one failure; the counts
survive a restart. With `reconsume_max` set, a message that failed so often and fails once more goes to the group's
dead-letter topic and the queue continues; the queue waits until that record is durable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Any, ClassVar

from broker.consumer.counters import CONSUMED, FAILED
from broker.consumer.dead_lettering import DeadLettering
from broker.consumer.member import GroupConsumer, QueueWork
from broker.consumer.options import clamp_suspend
from broker.consumer.reading import ConsumedMessage
from broker.consumer.retry_counts import Retries
from broker.consumer.shared import described
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.message_queue import MessageQueue
from broker.retry.metrics import KNOWN_FINISHED


class OrderlyStatus(Enum):
    """What an orderly listener answers (RocketMQ: ConsumeOrderlyStatus)."""

    SUCCESS = "success"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "suspend"


@dataclass(slots=True, kw_only=True)
class OrderlyContext:
    """What a listener may know and say about its batch.

    Attributes:
        queue: Where the batch is from.
        auto_commit: Whether SUCCESS commits.
        suspend_ms: How long the queue pauses if this batch fails; -1: as the consumer's options say.
    """

    queue: MessageQueue
    auto_commit: bool = True
    suspend_ms: int = -1


OrderlyListener = Callable[[Sequence[ConsumedMessage], OrderlyContext], OrderlyStatus | None]

_SUSPEND = OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


class OrderlyWork(QueueWork):
    """One queue of an orderly consumer."""

    def __init__(self, owner: GroupConsumer, name: MessageQueue, queue: ConsumeQueue, start: int) -> None:
        super().__init__(owner, name, queue, start)
        self._uncommitted = False
        """Consumed without auto-commit: the reader is ahead of what may be committed."""
        self._dead_lettered: set[int] = set()
        """Offsets at or above the committed one whose dead letters are durable."""
        self._to_dead_letter: deque[tuple[ConsumedMessage, str, str]] = deque()
        self._dead_lettering: DeadLettering | None = None
        self._after: Callable[[], None] = self.end

    def step(self) -> None:
        """Hand the next batch to the listener, unless something of the queue is busy."""
        if self.busy_since is not None:
            return
        batch = self._next_batch()
        if not batch:
            if not self._uncommitted:
                self.commit(self.reader.next)
            return
        self.begin()
        first = batch[0]
        if first.unusable is not None:
            self._dead_letter([(first, first.unusable, "unusable")], partial(self._consumed, batch))
        elif self._dead_letter_begun(first):
            self._dead_letter([(first, "its retries are exhausted", "exhausted")], partial(self._consumed, batch))
        else:
            context = OrderlyContext(queue=self.name)
            self.owner.shared.run(partial(self.owner.listener, batch, context), partial(self._answered, batch, context))

    def _next_batch(self) -> list[ConsumedMessage]:
        """Take the next messages; one that no listener may get comes alone."""
        batch: list[ConsumedMessage] = []
        while len(batch) < self.owner.options.batch_max and (self._ready or self._read()):
            message = self._ready[0]
            if message.offset in self._dead_lettered:
                self._ready.popleft()
                continue
            alone = message.unusable is not None or self._dead_letter_begun(message)
            if alone and batch:
                break
            batch.append(self._ready.popleft())
            if alone:
                break
        return batch

    def _read(self) -> bool:
        shared = self.owner.shared
        while not self._ready and (messages := self.reader.read()):
            for message in messages:
                if shared.finished.has(self.key, message.offset):
                    shared.metrics.counter(KNOWN_FINISHED, self.owner.group).add()
                    continue
                known = shared.retries.of(self.key, message.offset, message.physical)
                self._ready.append(replace(message, reconsume_times=known.times) if known.times else message)
        return bool(self._ready)

    def _dead_letter_begun(self, message: ConsumedMessage) -> bool:
        """Whether it was on its way to the dead letters before a restart or a change of hands."""
        return self.owner.shared.retries.of(self.key, message.offset, message.physical).dead_letter_from >= 0

    # Answers

    def _answered(
        self, batch: list[ConsumedMessage], context: OrderlyContext, answer: Any, error: Exception | None
    ) -> None:
        if self.lost:
            # Somebody else reads the queue by now; what this listener did will be done again.
            self.end()
            return
        status = answer if isinstance(answer, OrderlyStatus) else None
        if status is None or status is _SUSPEND:
            self._failed(batch, context, status, error)
        elif status is OrderlyStatus.ROLLBACK and not context.auto_commit:
            self._roll_back(batch, context)
        else:
            if context.auto_commit and status is not OrderlyStatus.SUCCESS:
                self.owner.shared.limited_log.note(
                    "orderly_status_without_effect", self.owner.group, **self._place(), what=status.value
                )
            self.owner.shared.metrics.counter(CONSUMED, self.owner.group).add(len(batch))
            self._consumed(batch, commit=context.auto_commit or status is OrderlyStatus.COMMIT)

    def _consumed(self, batch: list[ConsumedMessage], *, commit: bool | None = None) -> None:
        """Go on behind a batch; without `commit` it is committed unless something before it is not."""
        if commit or (commit is None and not self._uncommitted):
            self._uncommitted = False
            self.commit(batch[-1].offset + 1)
            self._dead_lettered = {offset for offset in self._dead_lettered if offset >= self.committed}
        else:
            self._uncommitted = True
        self.end()

    def _roll_back(self, batch: list[ConsumedMessage], context: OrderlyContext) -> None:
        self.owner.shared.metrics.counter(FAILED, self.owner.group, "rollback").add(len(batch))
        self._ready.clear()
        self._uncommitted = False
        self.reader.next = self.committed
        self._suspend(context)
        self.end()

    def _failed(
        self,
        batch: list[ConsumedMessage],
        context: OrderlyContext,
        status: OrderlyStatus | None,
        error: Exception | None,
    ) -> None:
        owner = self.owner
        how = "answered" if status is not None else "nothing" if error is None else "raised"
        owner.shared.metrics.counter(FAILED, owner.group, how).add(len(batch))
        if status is None:
            what = described(error) if error is not None else "it returned no status"
            owner.shared.limited_log.note("listener_failed", owner.group, **self._place(), what=what)
        most = owner.options.reconsume_max
        exhausted = [message for message in batch if 0 <= most <= message.reconsume_times]
        others = [message.failed_again() for message in batch if not 0 <= most <= message.reconsume_times]
        for message in others:
            owner.shared.retries.note(self.key, message.offset, Retries(message.physical, message.reconsume_times))
        if others:
            # They stay at the head of the queue, so that nothing behind them overtakes.
            self._ready.extendleft(reversed(others))
            after = partial(self._suspend_and_end, context)
        else:
            after = partial(self._consumed, batch, commit=context.auto_commit)
        if exhausted:
            reason = f"the listener raised {described(error)}" if error is not None else f"the listener answered {how}"
            # The failure that used the retries up counts, too.
            self._dead_letter([(message.failed_again(), reason, "exhausted") for message in exhausted], after)
        else:
            after()

    def _suspend_and_end(self, context: OrderlyContext) -> None:
        self._suspend(context)
        self.end()

    def _suspend(self, context: OrderlyContext) -> None:
        owner = self.owner
        wanted = owner.shared.number_of(owner.group, self.name.topic, "suspend_ms", context.suspend_ms, -1)
        if not self.dropped:
            self.pause(clamp_suspend(owner.options.suspend_ms if wanted == -1 else wanted) / 1000)

    def _place(self) -> dict[str, Any]:
        """What a log line says of this queue."""
        return {"topic": self.name.topic, "queue": self.name.queue_id}

    # Dead letters

    def _dead_letter(self, messages: list[tuple[ConsumedMessage, str, str]], after: Callable[[], None]) -> None:
        """Dead-letter messages in their order; the queue stays busy until the last one's record is durable."""
        self._to_dead_letter.extend(messages)
        self._after = after
        self._dead_letter_next()

    def _dead_letter_next(self) -> None:
        message, reason, label = self._to_dead_letter[0]
        owner = self.owner
        self._dead_lettering = DeadLettering(
            owner.shared, owner.group, message, reason=reason, label=label, ended=self._is_dead_lettered
        )
        self._dead_lettering.start()
        if self.dropped:
            # Where the store refuses the record, the next owner writes it: the failures are kept.
            self.withdraw()
            if self.busy_since is None:
                owner.released(self)

    def _is_dead_lettered(self, message: ConsumedMessage) -> None:
        self._dead_lettering = None
        self._to_dead_letter.popleft()
        self._dead_lettered.add(message.offset)
        if self._to_dead_letter and not self.lost:
            self._dead_letter_next()
            return
        self._to_dead_letter.clear()
        after, self._after = self._after, self.end
        after()

    def withdraw(self) -> None:
        """Give up a dead letter that the store refuses: the next owner does it."""
        if self._dead_lettering is not None and self._dead_lettering.withdraw():
            self._dead_lettering = None
            self._to_dead_letter.clear()
            self.busy_since = None


class OrderlyConsumer(GroupConsumer):
    """Consumes its queues in order, one batch of a queue at a time; see the module's text."""

    kind: ClassVar[str] = "orderly"
    work = OrderlyWork
