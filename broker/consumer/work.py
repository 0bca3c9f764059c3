"""What a consumer does with one of its queues: RocketMQ's ProcessQueue, as a small machine of the loop's thread.

A queue is given up only while nothing of it is busy: no listener runs in it and no dead letter is on its way. A
listener that never returns keeps its queue for ever; `Consumer.stats` shows since when.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol

from broker.consumer.counters import SKIPPED
from broker.consumer.options import ConsumerOptions
from broker.consumer.reading import QueueReader
from broker.consumer.shared import Shared
from broker.consumer.tags import TagExpression
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.message_queue import MessageQueue
from broker.queues.queue_locks import Place
from broker.runtime.later import Later


class QueueConsumer(Protocol):
    """What the work in a queue asks of the consumer that has it."""

    @property
    def shared(self) -> Shared:
        """What all consumers share."""
        ...

    @property
    def group(self) -> str:
        """The group that it consumes for."""
        ...

    @property
    def options(self) -> ConsumerOptions:
        """How it behaves."""
        ...

    @property
    def tags(self) -> Mapping[str, TagExpression]:
        """What it wants of each topic."""
        ...

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def still_holds(self, work: QueueWork) -> bool:
        """Whether the queue's lock can be relied on."""
        ...

    def committed(self, work: QueueWork) -> None:
        """Note the queue's committed offset."""
        ...

    def released(self, work: QueueWork) -> None:
        """Let the queue go: nothing of it is busy."""
        ...


class QueueWork(ABC):
    """One queue of one consumer; subclasses say how messages are handed out.

    Attributes:
        committed: Next offset to consume, as committed last.
        locked_at: When its lock was taken or renewed last, monotonic seconds.
        dropped: It is given up, or will be once nothing of it is busy.
        lost: Somebody else holds its lock: nothing of it may be committed any more.
        busy_since: Since when a listener runs in it or a dead letter is on its way, monotonic seconds; None: neither.
    """

    def __init__(self, owner: QueueConsumer, name: MessageQueue, queue: ConsumeQueue, *, start: int) -> None:
        self.owner = owner
        self.name = name
        self.queue = queue
        self.committed = start
        self.locked_at = owner.now()
        self.dropped = self.lost = False
        self.busy_since: float | None = None
        self.reader = QueueReader(
            owner.shared.store, queue, start=start, tags=owner.tags[name.topic], skipped=self._skipped
        )
        self._asked = False
        self._pause = Later(owner.shared.scheduler, self.wake)

    @property
    def place(self) -> Place:
        """Topic and queue id."""
        return self.name.topic, self.name.queue_id

    @property
    def key(self) -> tuple[str, str, int]:
        """Group, topic and queue id."""
        return self.owner.group, self.name.topic, self.name.queue_id

    def wake(self) -> None:
        """Look for something to do in the next turn; harmless at any time."""
        if not self._asked and not self.dropped:
            self._asked = True
            self.owner.shared.scheduler.call_soon(self._turn)

    def _turn(self) -> None:
        self._asked = False
        if not self.dropped and not self._pause.is_due and self.owner.still_holds(self):
            self.step()

    @abstractmethod
    def step(self) -> None:
        """Hand out what can be handed out. Called while the queue is held and not paused."""

    def pause(self, seconds: float) -> None:
        """Do nothing for so long; a pause that runs already is replaced."""
        self._pause.after(seconds)

    def commit(self, offset: int) -> None:
        """Make `offset` the next one to consume, unless the queue is somebody else's by now."""
        if self.lost or offset <= self.committed:
            return
        self.committed = offset
        self.owner.committed(self)

    def drop(self, *, lost: bool = False) -> None:
        """Give the queue up as soon as nothing of it is busy; `lost`: its lock is another's already."""
        self.dropped = True
        self.lost = self.lost or lost
        self._pause.cancel()
        self.withdraw()
        if self.busy_since is None:
            self.owner.released(self)

    def withdraw(self) -> None:  # noqa: B027 - a hook; broadcasting has nothing that could wait
        """End what waits and can be ended; the queue is being given up."""

    def begin(self) -> None:
        """Something of the queue is busy from now on."""
        self.busy_since = self.owner.now()

    def end(self) -> None:
        """Nothing of the queue is busy any more: go on, or give it up."""
        self.busy_since = None
        if self.dropped:
            self.owner.released(self)
        else:
            self.wake()

    def _skipped(self, offset: int, reason: str, count: int) -> None:
        owner = self.owner
        owner.shared.metrics.counter(SKIPPED, owner.group, reason).add(count)
        if reason != "tag_filter":
            owner.shared.limited_log.note(
                "message_unreadable",
                owner.group,
                count,
                topic=self.name.topic,
                queue=self.name.queue_id,
                offset=offset,
                reason=reason,
            )
