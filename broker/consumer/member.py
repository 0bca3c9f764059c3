"""A consumer as a member of its group: which queues it has, their locks, and how they change hands (6.3 to 6.5).

Allocation is computed again when members come or go, when a topic gets queues, when a queue was given up, and every
20 s. A queue is taken only with its lock, and its offset is read after that.

Each member computes the whole allocation by itself from the same two sorted lists, members and queues, and takes its
own share; no member assigns for others. While members see different lists, two may want one queue; the lock decides,
and the other tries again after UNBALANCED_SECONDS. A queue that is given up goes when nothing is busy in it any more
(`released`): only then is its lock given back, so that the next holder begins behind what was finished.

A lock is a lease. Its holder renews it every RENEWAL_SECONDS and relies on it for LOCK_TRUSTED_SECONDS, half of what
the broker grants; after that it asks again before it continues. So a process that was stopped for a minute finds out
that the queue is another's before it commits anything in it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from broker.consumer.counters import LOCKS_LOST, LOCKS_REFUSED, SKIPPED
from broker.consumer.options import ConsumerOptions
from broker.consumer.reading import UNITS_PER_TURN, ConsumedMessage, QueueReader
from broker.consumer.shared import Shared
from broker.consumer.tags import TagExpression
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.message_queue import MessageQueue, queue_names
from broker.queues.queue_locks import RENEWAL_SECONDS, Place
from broker.queues.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, Topic, is_system
from broker.runtime.later import Later, Repeated

REBALANCE_SECONDS = 20.0
UNBALANCED_SECONDS = 0.5
"""How soon a queue is tried again that another consumer holds."""
FIRST_RENEWAL_SECONDS = 1.0
LOCK_TRUSTED_SECONDS = 30.0
"""How long a consumer relies on a lock without renewing it: half of what the broker grants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """One queue of a consumer: next offset to consume, end of the queue, since when (monotonic) it is busy."""

    name: MessageQueue
    committed: int
    produced: int
    busy_since: float | None


@dataclass(eq=False, repr=False)
class GroupConsumer:
    """One member of a group; made by `Consumers`, and `start` begins. All methods are called in the loop's thread.

    Attributes:
        shared: What all consumers share.
        group: The group.
        client_id: Its name within the group.
        topics: Tag expression by topic.
        options: How it consumes.
        listener: What its kind of work calls with a batch and a context.
        tags: What it wants of each topic.
        works: Its queues.
        running: Between `start` and `stop`.

    Raises:
        ValueError: No topic, a topic without subscriptions, or a tag expression without a tag.
    """

    kind: ClassVar[str] = ""
    locks_queues: ClassVar[bool] = True
    work: ClassVar[type[QueueWork]]
    """The class of what it does in one queue."""

    shared: Shared
    group: str
    client_id: str
    topics: Mapping[str, str]
    options: ConsumerOptions = field(kw_only=True)
    listener: Callable[..., Any] = field(kw_only=True)

    def __post_init__(self) -> None:
        if not self.topics:
            raise ValueError(f"consumer {self.client_id!r} of group {self.group!r} has no topic")
        for topic in self.topics:
            if is_system(topic) and not topic.startswith((DEAD_LETTER_PREFIX, RETRY_PREFIX)):
                raise ValueError(f"topic {topic!r} is an internal topic of the broker and cannot be consumed")
        self.tags = {topic: TagExpression(text) for topic, text in self.topics.items()}
        self.works: dict[Place, QueueWork] = {}
        self.running = False
        self._listened: dict[Topic, Callable[[], None]] = {}
        self._renewal = Later(self.shared.scheduler, self._renew)
        self._rebalances = Repeated(self.shared.scheduler, REBALANCE_SECONDS, self.rebalance)
        self._sooner = Later(self.shared.scheduler, self.rebalance)
        """The rebalance after a refusal."""
        self._counts: dict[str, int] = {}
        self._scheduled = False

    # Life

    def start(self) -> None:
        """Join the group and begin to consume.

        Raises:
            KeyError: A topic is not in the store.
            ValueError: The group has a member of this client id, or members of another kind.
            QueuesOwned: A consumer that is not a member, such as the proxy, has the group's queues.
            Exception: Whatever the strategy raised; the consumer has not joined then.
        """
        names = [name for topic in self.tags for name in self._names(topic)]
        self.shared.join(self, [(name.topic, name.queue_id) for name in names])
        self.running = True
        try:
            self.rebalance()
        except BaseException:
            # As a member it would have the strategies of all others raise as well.
            self.stop()
            raise
        self._renewal.after(FIRST_RENEWAL_SECONDS)
        self._rebalances.begin()

    def stop(self) -> None:
        """Leave the group: queues are released, those with a running listener when it returns. Idempotent."""
        if not self.running:
            return
        self.running = False
        self._rebalances.end()
        self._sooner.cancel()
        for topic, listener in self._listened.items():
            topic.listeners.remove(listener)
        self._listened.clear()
        self.shared.members.leave(self)
        for work in list(self.works.values()):
            work.drop()
        self._complete()

    @property
    def stopped(self) -> bool:
        """Whether it was stopped and has given all its queues up."""
        return not self.running and not self.works

    @property
    def places(self) -> Collection[Place]:
        """The queues that it has, also those that it releases."""
        return self.works.keys()

    def stats(self) -> list[QueueStats]:
        """Return its queues, by name."""
        return [
            QueueStats(
                name=work.name, committed=work.committed, produced=work.queue.max_offset, busy_since=work.busy_since
            )
            for work in sorted(self.works.values(), key=lambda work: work.name)
        ]

    def now(self) -> float:
        """Monotonic seconds."""
        return self.shared.clock.monotonic()

    # Allocation

    def schedule_rebalance(self) -> None:
        """Compute the allocation again in the next turn."""
        if not self._scheduled and self.running:
            self._scheduled = True
            self.shared.scheduler.call_soon(self.rebalance)

    def rebalance(self) -> None:
        """Release queues that are now assigned to others, and lock assigned queues that are free."""
        self._scheduled = False
        if not self.running:
            return
        mine = {(name.topic, name.queue_id): name for topic in self.tags for name in self._allocated(topic)}
        for place, work in list(self.works.items()):
            if not self.is_current(work):
                work.drop(lost=True)
            elif place not in mine:
                work.drop()
        missing = [place for place in mine if place not in self.works]
        held = self._lock([place for place in missing if not self._is_with_another(place)])
        for place in missing:
            if place in held:
                self._take(mine[place])
        refused = [place for place in missing if place not in held]
        if refused:
            self._refused(refused)

    def _allocated(self, topic: str) -> list[MessageQueue]:
        if topic not in self.shared.store.topics:
            return []
        return self.allocate(self._names(topic), self.shared.members.clients(self.group, topic))

    def allocate(self, names: list[MessageQueue], clients: list[str]) -> list[MessageQueue]:
        """Return those of a topic's queues that this member is to consume."""
        return self.options.strategy(self.client_id, names, clients)

    def _names(self, topic: str) -> list[MessageQueue]:
        """Name the topic's queues, sorted. Raises KeyError."""
        found = self.shared.store.topics[topic]
        if found not in self._listened and self.running:
            self._listened[found] = partial(self._arrived, found)
            found.listeners.append(self._listened[found])
        self._counts[topic] = len(found.queues)
        return queue_names(topic, self.shared.broker_name, range(len(found.queues)))

    def is_current(self, work: QueueWork) -> bool:
        """Whether a queue is one of its topic; else that was deleted, and its offsets mean nothing any more."""
        topic, number = self.shared.store.topics.get(work.name.topic), work.name.queue_id
        return topic is not None and number < len(topic.queues) and topic.queues[number] is work.queue

    def _take(self, name: MessageQueue) -> None:
        queue = self.shared.store.topics[name.topic].queues[name.queue_id]
        start = self.first_offset(name)
        work = self.works[name.topic, name.queue_id] = self.work(self, name, queue, start)
        work.wake()

    def first_offset(self, name: MessageQueue) -> int:
        """Next offset to consume of a queue that was just taken."""
        return self.shared.first_offset(self.group, name, self.options)

    def committed(self, work: QueueWork) -> None:
        """Note a queue's committed offset."""
        self.shared.commit(work.key, work.committed)

    def persist(self) -> None:
        """Write what this member alone keeps."""

    def abandon(self) -> None:
        """Commit nothing any more, whatever its listeners answer."""
        for work in self.works.values():
            work.lost = True

    def _refused(self, places: list[Place]) -> None:
        shared = self.shared
        shared.metrics.counter(LOCKS_REFUSED, self.group).add(len(places))
        refusal = shared.locks.refusal(self.group, self.client_id, places)
        if refusal is not None and not shared.members.knows(self.group, refusal.owner):
            shared.limited_log.note("queues_owned", self.group, len(places), owner=refusal.owner, place=refusal.place)
        self._sooner.after(UNBALANCED_SECONDS)

    def _arrived(self, topic: Topic) -> None:
        """Wake the queues of a topic; its listener."""
        if len(topic.queues) != self._counts.get(topic.name):
            self.shared.members.changed(self.group)
        for (name, _), work in self.works.items():
            if name == topic.name:
                work.wake()

    def released(self, work: QueueWork) -> None:
        """Let a queue go that nothing is busy in; what `QueueWork.drop` leads to."""
        if self.works.get(work.place) is not work:
            return
        del self.works[work.place]
        self.shared.persist_soon()
        if self.locks_queues:
            # (One that another consumer has stays.)
            self.shared.locks.unlock_batch(self.group, self.client_id, [work.place])
        self.shared.members.changed(self.group)
        self._complete()

    def _complete(self) -> None:
        """Stop renewing, and leave for good, once a stopped consumer has no queue left."""
        if self.stopped:
            self._renewal.cancel()
            self._rebalances.end()
            self._sooner.cancel()
            self.shared.members.left(self)

    # Locks

    def _is_with_another(self, place: Place) -> bool:
        # A program that stood still for longer than a lock lasts: the listener that runs there has outlived it.
        return self.locks_queues and self.shared.members.has(self.group, place)

    def _lock(self, places: list[Place]) -> set[Place]:
        if not self.locks_queues:
            return set(places)
        # What it has itself and gives up must not be granted again before it is given up.
        return self.shared.locks.lock_batch(self.group, self.client_id, places)

    def _renew(self) -> None:
        """Renew all locks, also of a consumer that stops and whose listeners still run."""
        places = list(self.works)
        held = self._lock(places)
        for place in places:
            if place in held:
                self.works[place].locked_at = self.now()
            else:
                self._lose(self.works[place])
        if self.works or self.running:
            self._renewal.after(RENEWAL_SECONDS)

    def still_holds(self, work: QueueWork) -> bool:
        """Whether a queue's lock is valid; a lock that was not renewed for 30 s is requested again."""
        if not self.locks_queues or self.now() - work.locked_at <= LOCK_TRUSTED_SECONDS:
            return True
        if self._lock([work.place]):
            work.locked_at = self.now()
            return True
        self._lose(work)
        return False

    def _lose(self, work: QueueWork) -> None:
        shared = self.shared
        shared.metrics.counter(LOCKS_LOST, self.group).add()
        owner = shared.locks.owner(self.group, work.place)
        shared.limited_log.note("queue_lock_lost", self.group, owner=owner, place=work.place)
        work.drop(lost=True)


class QueueWork(ABC):
    """One queue of one consumer, RocketMQ's ProcessQueue; subclasses say how messages are handed out.

    It is given up only while nothing of it is busy: no listener runs in it and no dead letter is on its way. A listener
    that never returns keeps its queue forever; `GroupConsumer.stats` shows since when.

    Attributes:
        committed: Next offset to consume, as committed last.
        locked_at: When its lock was taken or renewed last, monotonic seconds.
        dropped: It is given up, or will be once nothing of it is busy.
        lost: Somebody else holds its lock: nothing of it may be committed any more.
        busy_since: Since when a listener runs in it or a dead letter is on its way, monotonic seconds; None: neither.
    """

    def __init__(self, owner: GroupConsumer, name: MessageQueue, queue: ConsumeQueue, start: int) -> None:
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
        self._ready: deque[ConsumedMessage] = deque()
        """Read, and not handed out."""
        self._scheduled = False
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
        if not self._scheduled and not self.dropped:
            self._scheduled = True
            self.owner.shared.scheduler.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if not self.dropped and not self.owner.is_current(self):
            # Its files are gone: what it has would be read as damage.
            self.drop(lost=True)
        elif not self.dropped and not self._pause.is_due and self.owner.still_holds(self):
            self.reader.left = UNITS_PER_TURN
            self.step()
            if not self.reader.left:
                # What follows may be much that is not wanted; all else has its turn meanwhile.
                self.wake()

    @abstractmethod
    def step(self) -> None:
        """Hand out what can be handed out. Called while the queue is held and not paused."""

    def pause(self, seconds: float) -> None:
        """Do nothing for so long; a pause that runs already is replaced."""
        self._pause.after(seconds)

    def commit(self, offset: int) -> None:
        """Make `offset` the next one to consume, unless the queue belongs to another consumer by now."""
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
        """Nothing of the queue is busy any more: continue, or give it up."""
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
