"""`Consumers`: what all consumers of one store share, and the place that makes them.

Offsets stand in `config/consumerOffset.json`, where RocketMQ finds them (D10): changed with every commit, written
every 5 s, when a queue changes hands and at a stop. A kill repeats what was consumed since.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import TYPE_CHECKING, NotRequired, TypedDict, Unpack

from broker.consumer.broadcasting import BroadcastConsumer
from broker.consumer.concurrent import ConcurrentConsumer, ConcurrentListener
from broker.consumer.counters import OFFSETS_CLAMPED, SAVE_ERRORS
from broker.consumer.member import Consumer
from broker.consumer.options import ConsumerOptions
from broker.consumer.orderly import OrderlyConsumer, OrderlyListener
from broker.consumer.retry_counts import Key, RetryCounts
from broker.consumer.running import Runner, run_inline
from broker.errors import NO_SPACE
from broker.message_queue import BROKER_NAME, MessageQueue
from broker.metrics import Metrics
from broker.notices import Notices
from broker.offsets import ConsumerOffsets
from broker.opening import run_to_end
from broker.queue_locks import Place
from broker.retry.finished import FILE as FINISHED_FILE
from broker.retry.finished import Finished
from broker.seams import Clock, Disk, Handle, Scheduler
from broker.shared_walk import Reading, alone
from broker.time_search import offset_at
from broker.topics import GROUP_BYTES_MAX, check_name

if TYPE_CHECKING:
    from broker.store import Store

PERSIST_SECONDS = 5.0
OFFSETS_FILE = "config/consumerOffset.json"


class ConsumerSeams(TypedDict):
    """Keyword arguments of `Consumers`, whose text says what each is for."""

    disk: Disk
    clock: Clock
    scheduler: Scheduler
    metrics: Metrics
    run: NotRequired[Runner]
    offsets: NotRequired[ConsumerOffsets | None]
    notices: NotRequired[Notices | None]
    broker_name: NotRequired[str]


class Consumers:
    """All consumers inside the program over one store; used from the loop's thread only.

    Attributes:
        store: The broker.
        offsets: Committed offsets.
        retries: How often messages failed.
        finished: What was sent back or buried above the committed offsets.
    """

    def __init__(
        self,
        store: Store,
        *,
        disk: Disk,
        clock: Clock,
        scheduler: Scheduler,
        metrics: Metrics,
        run: Runner = run_inline,
        offsets: ConsumerOffsets | None = None,
        notices: Notices | None = None,
        broker_name: str = BROKER_NAME,
    ) -> None:
        """Set up; `opening` is to follow before any consumer starts.

        Args:
            store: The broker. Without its `on_pending` set, dead letters are flushed here.
            disk: Where the store lies.
            clock: The store's clock.
            scheduler: The event loop, or any scheduler; all callbacks come from it.
            metrics: Where consumers count.
            run: Where listeners run; in the loop's thread when left out.
            offsets: The table, where the program has one open (a node's is `Progress.offsets`); else it is read here.
            notices: Rate-limited log lines.
            broker_name: Second part of queue names.

        Raises:
            StoreUnreadable: consumerOffset.json and its copies are damaged.
            OSError: The files cannot be read.
        """
        self.store = store
        self.locks = store.queue_locks
        self.offsets = offsets or ConsumerOffsets.open(store.root, disk=disk, clock=clock, metrics=metrics)
        self.disk = disk
        self.clock = clock
        self.scheduler = scheduler
        self.metrics = metrics
        self.notices = notices or Notices(clock)
        self.run = run
        self.broker_name = broker_name
        self.finished = Finished(store, self.offsets, disk=disk)
        self.retries = RetryCounts(store.root, disk=disk, scheduler=scheduler, metrics=metrics, notices=self.notices)
        self._members: dict[str, dict[str, Consumer]] = {}
        self._present: dict[str, dict[str, Consumer]] = {}
        self.closed = False
        self._timer: Handle | None = None
        self._persist_asked = False

    @classmethod
    def open(cls, store: Store, **seams: Unpack[ConsumerSeams]) -> Consumers:
        """Make consumers possible on an open store: `Consumers(...)`, and `opening` in one go.

        Raises:
            StoreUnreadable, OSError: As the two.
        """
        return run_to_end(cls(store, **seams).opening())

    def opening(self) -> Generator[None, None, Consumers]:
        """Find out what was sent back and buried, in steps of bounded work; returns these consumers.

        Raises:
            OSError: A file cannot be read.
        """
        return alone(self.store, self.reading())

    def reading(self) -> Reading[Consumers]:
        """`opening`, for `broker.shared_walk.together`."""
        yield from self.finished.reading()
        if self.finished.damaged is not None:
            self.metrics.counter(SAVE_ERRORS, FINISHED_FILE).add()
            self.notices.note("consumer_finished_unreadable", error=str(self.finished.damaged), cost="reads the log")
        return self

    def orderly(
        self,
        group: str,
        topics: Mapping[str, str],
        listener: OrderlyListener,
        *,
        client_id: str = "client-0",
        options: ConsumerOptions | None = None,
    ) -> OrderlyConsumer:
        """Make an orderly consumer; `start` it.

        Args:
            group: Its group, 1 to 120 of the characters of a topic's name.
            topics: Topic to tag expression (`*`: all).
            listener: Gets batches of one queue, one after the other; see `broker.consumer.orderly`.
            client_id: Its name among the members of the group.
            options: How it behaves.

        Raises:
            MessageRefused: The group's name is not allowed.
            ValueError: No topic, one that nobody may subscribe, or a tag expression without a tag.
        """
        check_group(group)
        return OrderlyConsumer(self, group, client_id, topics, options=options or ConsumerOptions(), listener=listener)

    def concurrent(
        self,
        group: str,
        topics: Mapping[str, str],
        listener: ConcurrentListener,
        *,
        client_id: str = "client-0",
        options: ConsumerOptions | None = None,
    ) -> ConcurrentConsumer:
        """Make a concurrent consumer; `start` it. Arguments and errors as `orderly`."""
        check_group(group)
        return ConcurrentConsumer(
            self, group, client_id, topics, options=options or ConsumerOptions(), listener=listener
        )

    def broadcasting(
        self,
        group: str,
        topics: Mapping[str, str],
        listener: ConcurrentListener,
        *,
        client_id: str = "client-0",
        options: ConsumerOptions | None = None,
    ) -> BroadcastConsumer:
        """Make a broadcasting consumer; `start` it. Arguments and errors as `orderly`; its client id names a file.

        Raises:
            MessageRefused, ValueError: As `orderly`; MessageRefused also for a client id with other characters.
        """
        check_group(group)
        check_name(client_id)
        return BroadcastConsumer(
            self, group, client_id, topics, options=options or ConsumerOptions(), listener=listener
        )

    def close(self) -> None:
        """Stop all consumers and write what is to be written; call it before the store is closed. Harmless twice.

        A listener that still runs in an executor keeps its queue, and what it answers later does not count.
        """
        for members in list(self._members.values()):
            for consumer in list(members.values()):
                consumer.stop()
        for present in self._present.values():
            for consumer in present.values():
                for work in consumer.works.values():
                    work.lost = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.retries.save()
        self.persist()
        self.closed = True

    # Members

    def join(self, consumer: Consumer, places: Iterable[Place]) -> None:
        """Make a consumer a member; the others hear of it.

        Raises:
            ValueError, QueuesOwned: As `Consumer.start`.
        """
        group = consumer.group
        present = self._present.get(group, {})
        if consumer.client_id in present:
            raise ValueError(f"group {group!r} has a member {consumer.client_id!r} already: each needs its own id")
        for other in present.values():
            if other.kind != consumer.kind:
                raise ValueError(f"group {group!r} has {other.kind} members; a {consumer.kind} one cannot join it")
        if consumer.locks_queues:
            strangers = [place for place in places if not self.knows(group, self.locks.owner(group, place) or "")]
            refusal = self.locks.refusal(group, consumer.client_id, strangers)
            if refusal is not None:
                raise refusal
        self._members.setdefault(group, {})[consumer.client_id] = consumer
        self._present.setdefault(group, {})[consumer.client_id] = consumer
        if self._timer is None:
            self._timer = self.scheduler.call_later(PERSIST_SECONDS, self._persist_again)
        self.changed(group)

    def leave(self, consumer: Consumer) -> None:
        """Take a consumer out of the allocation; it may still hold queues."""
        self._members.get(consumer.group, {}).pop(consumer.client_id, None)
        self.changed(consumer.group)

    def left(self, consumer: Consumer) -> None:
        """Forget a consumer that holds nothing any more."""
        present = self._present.get(consumer.group, {})
        if present.get(consumer.client_id) is consumer:
            if not self.closed:
                consumer.persist()
            del present[consumer.client_id]

    def changed(self, group: str) -> None:
        """Have all members of a group compute the allocation anew."""
        for consumer in self._members.get(group, {}).values():
            consumer.ask_rebalance()

    def clients(self, group: str, topic: str) -> list[str]:
        """Return the client ids of the members that subscribe a topic, sorted."""
        return sorted(name for name, each in self._members.get(group, {}).items() if topic in each.tags)

    def knows(self, group: str, client_id: str) -> bool:
        """Whether this is a member of the group, or one that left and still gives up its queues."""
        return client_id in self._present.get(group, {})

    # Offsets

    def first_offset(self, group: str, name: MessageQueue, options: ConsumerOptions) -> int:
        """Committed offset of a queue; where there is none, what `from_where` says, which is then committed (8.4)."""
        known = self.offsets.get(group, name.topic, name.queue_id)
        start = self.bounded(group, name, known, options)
        if start != known:
            self.offsets.set(group, name.topic, name.queue_id, start)
            self.persist_soon()
        return start

    def bounded(self, group: str, name: MessageQueue, start: int | None, options: ConsumerOptions) -> int:
        """Return a known offset, within the queue, or where a new group starts."""
        queue = self.store.topics[name.topic].queues[name.queue_id]
        if start is not None and start <= queue.max_offset:
            return start
        if start is not None:
            # The log lost its end, or another store's file was put here (D11).
            self.metrics.counter(OFFSETS_CLAMPED, group).add()
            self.notices.note("offset_beyond_queue", group, topic=name.topic, queue=name.queue_id, offset=start)
            return queue.max_offset
        if options.from_where == "first":
            return queue.min_offset
        if options.from_where == "last":
            return queue.max_offset
        return offset_at(self.store, queue, options.from_ms)

    def commit(self, key: Key, offset: int) -> None:
        """Note a committed offset; written within 5 s."""
        self.offsets.set(*key, offset)
        self.retries.forget_below(key, offset)
        self.finished.forget_below(key, offset)

    def persist_soon(self) -> None:
        """Write the offsets at the end of this turn."""
        if not self._persist_asked:
            self._persist_asked = True
            self.scheduler.call_soon(self.persist)

    def persist(self) -> bool:
        """Write the offsets that changed; whether the file says now what memory does.

        A full disk is tried again with the next call; any other error stops the store's write side (design: fail-stop).
        """
        self._persist_asked = False
        if self.closed or self.store.failed is not None:
            return False
        for present in self._present.values():
            for consumer in present.values():
                consumer.persist()
        file = OFFSETS_FILE
        try:
            self.offsets.save()
            # Behind the offsets: what they have passed is in the table no more.
            file = FINISHED_FILE
            self.finished.save()
        except OSError as error:
            self.metrics.counter(SAVE_ERRORS, file).add()
            self.notices.note("offsets_not_written", file=file, error=str(error))
            if error.errno not in NO_SPACE:
                self.store.fail(f"writing {file}", error)
            return False
        return True

    def _persist_again(self) -> None:
        self.persist()
        self._timer = self.scheduler.call_later(PERSIST_SECONDS, self._persist_again)

    def flush(self) -> None:
        """Have the store write what consumers appended, where nobody else does."""
        if self.store.on_pending is None:
            self.store.flush()


def check_group(name: str) -> None:
    """Check a group's name (D6).

    Raises:
        MessageRefused: It is empty, too long for its dead-letter topic, or has a character that topics may not have.
    """
    check_name(name[: GROUP_BYTES_MAX + 8])
    if len(name) > GROUP_BYTES_MAX:
        raise ValueError(f"group name {name[:140]!r} is longer than {GROUP_BYTES_MAX} characters")
