"""What all consumers of one store share: its seams, who is a member, and how far each group is.

Offsets stand in `config/consumerOffset.json`, where RocketMQ finds them (D10): changed with every commit, written
every 5 s, when a queue changes hands and at a stop. A kill repeats what was consumed since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ClassVar, Protocol

from broker.consumer.counters import OFFSETS_CLAMPED, SAVE_ERRORS
from broker.consumer.options import ConsumerOptions
from broker.consumer.retry_counts import Key, RetryCounts
from broker.consumer.tags import TagExpression
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.message_queue import BROKER_NAME, MessageQueue
from broker.queues.offsets import ConsumerOffsets
from broker.queues.queue_locks import Place, QueueLocks
from broker.queues.time_search import offset_at
from broker.retry.finished import FILE as FINISHED_FILE
from broker.retry.finished import Finished
from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import can_wait
from broker.runtime.later import Repeated
from broker.store import Store


class ConsumerMember(Protocol):
    """What a group asks of a member."""

    kind: ClassVar[str]
    locks_queues: ClassVar[bool]

    @property
    def group(self) -> str:
        """Its group."""

    @property
    def client_id(self) -> str:
        """Its name within the group."""

    @property
    def tags(self) -> Mapping[str, TagExpression]:
        """The topics that it subscribes."""

    @property
    def places(self) -> Collection[Place]:
        """The queues that it has, also those that it releases."""

    def schedule_rebalance(self) -> None:
        """Compute the allocation again in the next turn."""

    def stop(self) -> None:
        """Leave the group: queues are given up, those in which a listener runs when it returns."""

    def abandon(self) -> None:
        """Commit nothing any more, whatever its listeners answer."""

    def persist(self) -> None:
        """Write what this member alone keeps."""


class Members:
    """The members of all groups, and those that left and still give up their queues.

    Args:
        locks: The store's; they show members outside of the program.
    """

    def __init__(self, locks: QueueLocks) -> None:
        self._locks = locks
        self._members: dict[str, dict[str, ConsumerMember]] = {}
        self._present: dict[str, dict[str, ConsumerMember]] = {}
        self._closed = False

    def join(self, member: ConsumerMember, places: Iterable[Place]) -> None:
        """Make a consumer a member; the others hear of it.

        Raises:
            ValueError, QueuesOwned: As `Consumer.start`.
        """
        group = member.group
        present = self._present.get(group, {})
        if member.client_id in present:
            raise ValueError(f"group {group!r} already has a member {member.client_id!r}; each member needs its own id")
        for other in present.values():
            if other.kind != member.kind:
                raise ValueError(f"group {group!r} has {other.kind} members; a {member.kind} one cannot join it")
        if member.locks_queues:
            strangers = [place for place in places if not self.knows(group, self._locks.owner(group, place) or "")]
            refusal = self._locks.refusal(group, member.client_id, strangers)
            if refusal is not None:
                raise refusal
        self._members.setdefault(group, {})[member.client_id] = member
        self._present.setdefault(group, {})[member.client_id] = member
        self.changed(group)

    def leave(self, member: ConsumerMember) -> None:
        """Take a consumer out of the allocation; it may still hold queues."""
        self._members.get(member.group, {}).pop(member.client_id, None)
        self.changed(member.group)

    def left(self, member: ConsumerMember) -> None:
        """Forget a consumer that holds nothing any more."""
        present = self._present.get(member.group, {})
        if present.get(member.client_id) is member:
            if not self._closed:
                member.persist()
            del present[member.client_id]

    def changed(self, group: str) -> None:
        """Have all members of a group compute the allocation again."""
        for member in self._members.get(group, {}).values():
            member.schedule_rebalance()

    def clients(self, group: str, topic: str) -> list[str]:
        """Return the client ids of the members that subscribe a topic, sorted."""
        return sorted(name for name, each in self._members.get(group, {}).items() if topic in each.tags)

    def has(self, group: str, place: Place) -> bool:
        """Whether a queue is with one of them, whatever became of its lock."""
        return any(place in member.places for member in self._present.get(group, {}).values())

    def knows(self, group: str, client_id: str) -> bool:
        """Whether this is a member of the group, or one that left and still gives up its queues."""
        return client_id in self._present.get(group, {})

    def persist(self) -> None:
        """Write what each of them keeps for itself."""
        for present in self._present.values():
            for member in present.values():
                member.persist()

    def stop(self) -> None:
        """Stop all of them; one whose listener still runs keeps its queue, and what it answers does not count."""
        for members in list(self._members.values()):
            for member in list(members.values()):
                member.stop()
        for present in self._present.values():
            for member in present.values():
                member.abandon()

    def close(self) -> None:
        """Stop all writes."""
        self._closed = True


# Where listeners run: in the thread of the loop, or in an executor that the program hands in.


Work = Callable[[], Any]
Reported = Callable[[Any, Exception | None], None]
"""Told, in the loop's thread, what the work returned (None when it raised) and what it raised."""
Runner = Callable[[Work, Reported], None]


def described(error: BaseException) -> str:
    """Return what a listener raised, as text; its `__repr__` is code of the program's as well, and may raise."""
    try:
        return str.__str__(repr(error))
    except Exception as fault:
        return f"{type(error).__name__}, which cannot be shown: {type(fault).__name__}"


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(f"the listener ended with {described(error)}")


def run_inline(work: Work, reported: Reported) -> None:
    """Run a listener at once, in the caller's thread: the loop waits for it."""
    try:
        result = work()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # Also a cancellation, which the loop would only log.
        reported(None, _as_exception(error))
        return
    reported(result, None)


class ExecutorRunner:
    """Runs listeners in an executor.

    Args:
        executor: Runs the work; a thread pool needs as many threads as listeners shall run at once.
        to_loop: Runs a callback in the loop's thread, called from another one: `loop.call_soon_threadsafe`.
    """

    def __init__(self, executor: Executor, to_loop: Callable[..., object]) -> None:
        self._executor = executor
        self._to_loop = to_loop

    def __call__(self, work: Work, reported: Reported) -> None:
        """Run `work` in the executor and `told` in the loop's thread."""

        def done(future: Future[Any]) -> None:
            error = future.exception()
            if error is None:
                self._to_loop(reported, future.result(), None)
            else:
                self._to_loop(reported, None, _as_exception(error))

        self._executor.submit(work).add_done_callback(done)


PERSIST_SECONDS = 5.0
OFFSETS_FILE = "config/consumerOffset.json"


class Shared:
    """What all consumers of one store share; used from the loop's thread only.

    Attributes:
        store: The broker.
        locks: Its queue locks.
        members: Who consumes.
        offsets: Committed offsets.
        retries: How often messages failed.
        finished: What was sent back or dead-lettered above the committed offsets.
    """

    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        *,
        run: Runner = run_inline,
        offsets: ConsumerOffsets | None = None,
        broker_name: str = BROKER_NAME,
    ) -> None:
        """Set up; no consumer may start before `finished` was read.

        Args:
            store: The broker. Where no node's turns flush it, dead letters are flushed here.
            runtime: Its disk and clock are the store's; its scheduler makes all callbacks, the event loop or another.
            run: Where listeners run; in the loop's thread when left out.
            offsets: The table, where the program has one open (a node's is `Progress.offsets`); else it is read here.
            broker_name: Second part of queue names.

        Raises:
            StoreUnreadable: consumerOffset.json and its copies are damaged.
            OSError: The files cannot be read.
        """
        disk, clock, metrics = runtime.disk, runtime.clock, runtime.metrics
        self.store = store
        self.locks = store.queue_locks
        self.members = Members(self.locks)
        self.offsets = offsets or ConsumerOffsets.open(store.root, disk=disk, clock=clock, metrics=metrics)
        self.disk = disk
        self.clock = clock
        self.scheduler = runtime.scheduler
        self.metrics = metrics
        self.limited_log = runtime.limited_log
        self.run = run
        self.broker_name = broker_name
        self.finished = Finished(store, self.offsets, disk=disk)
        self.retries = RetryCounts(store.root, runtime)
        self._saves = Repeated(runtime.scheduler, PERSIST_SECONDS, self.persist)
        self._persist_asked = False
        self._closed = False

    def join(self, member: ConsumerMember, places: Iterable[Place]) -> None:
        """Make a consumer a member; from the first one on offsets are written every 5 s.

        Raises:
            ValueError, QueuesOwned: As `Consumer.start`.
        """
        self.members.join(member, places)
        self._saves.begin()

    def flush(self) -> None:
        """Have the store write what consumers appended, where no node does."""
        if not self.store.is_driven:
            self.store.flush()

    def close(self) -> None:
        """Stop all consumers and write what is to be written. Harmless twice."""
        self.members.stop()
        self._saves.end()
        self.retries.save()
        self.persist()
        self.members.close()
        self._closed = True

    def number_of(self, group: str, topic: str, name: str, value: object, default: int) -> int:
        """Return a number that a listener put into its context, or `default` where it is not one."""
        if isinstance(value, int):
            return value
        what = f"context.{name} must be a number, got {type(value).__name__}"
        self.limited_log.note("listener_failed", group, topic=topic, what=what)
        return default

    # Offsets

    def first_offset(self, group: str, name: MessageQueue, options: ConsumerOptions) -> int:
        """Where a group begins in a queue: at its committed offset, else as `begin` says, which is committed (8.4)."""
        offsets = self.offsets
        return self.begin(group, name, options, get=partial(offsets.get, group), put=partial(offsets.set, group))

    def begin(
        self,
        group: str,
        name: MessageQueue,
        options: ConsumerOptions,
        *,
        get: Callable[[str, int], int | None],
        put: Callable[[str, int, int], object],
    ) -> int:
        """Return a known offset, within the queue, or where a new group starts; noted before it is returned.

        A group that is new to a topic starts in all its queues at once, as `from_where` says. In one that the topic
        gets later it starts at the first message: it would miss what is sent before it hears of the queue.

        Args:
            group: The group.
            name: The queue.
            options: Where a new group starts.
            get: Returns the committed offset of a topic's queue, None where there is none.
            put: Notes one.
        """
        queues = self.store.topics[name.topic].queues
        queue, known = queues[name.queue_id], get(name.topic, name.queue_id)
        if known is not None and known <= queue.max_offset:
            return known
        if known is not None:
            # The log lost its end, or another store's file was put here (D11).
            self.metrics.counter(OFFSETS_CLAMPED, group).add()
            self.limited_log.note("offset_beyond_queue", group, topic=name.topic, queue=name.queue_id, offset=known)
            starts = {queue: queue.max_offset}
        elif any(get(name.topic, each.queue_id) is not None for each in queues):
            starts = {queue: queue.min_offset}
        else:
            starts = {each: self._start(each, options) for each in queues}
        for each, start in starts.items():
            put(name.topic, each.queue_id, start)
        self.persist_soon()
        return starts[queue]

    def _start(self, queue: ConsumeQueue, options: ConsumerOptions) -> int:
        """Where a new group starts in a queue."""
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

        A full disk is tried again with the next call; any other error stops the store's write side (design: fail-stop),
        and so does a failed sync of the log, which may have lost what a second one would not miss.
        """
        self._persist_asked = False
        if self._closed or self.store.failed is not None:
            return False
        self.members.persist()
        file = OFFSETS_FILE
        try:
            self.offsets.save()
            # Behind the offsets: what they have passed is in the table no more.
            file = FINISHED_FILE
            self.finished.save()
        except OSError as error:
            self.metrics.counter(SAVE_ERRORS, file).add()
            self.limited_log.note("offsets_not_written", file=file, error=str(error))
            if not can_wait(error):
                self.store.writes.fail(f"writing {file}", error)
            return False
        return True
