"""The store: one commit log, its consume queues and topics, with group commit and recovery.

Guarantees:

- Under `flush="sync"` a record becomes visible, and its `done` runs, in the `flush` whose fdatasync covers it (D1).
  Under `async`, in the `flush` that wrote it; `checkpoint` syncs, so the caller calls that at least every 500 ms.
- A kill loses nothing that a returned `flush` wrote; a power cut loses nothing that it synced.
- Queue offsets are dense: every offset in [min, max) has a record or is a reported filler. They are never reused
  silently: after recovery, commit-log offsets from `recovery.end` on, and queue offsets from `max_offset` on, mean
  something new (D11).
- Store timestamps never go back, whatever the wall clock does (D4).
- After a failed write or sync the store is failed for good: nothing is written or synced again, what was staged
  receives the error, reading continues.
- A full disk refuses appends that need another segment and nothing else; it is tried again with each of them (D5).

One thread uses a store. Callbacks (`done`s, topic listeners, those of its driver) may append; what they append is
staged for the next flush. How records become durable and visible is `broker.log.group_commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from random import Random
from typing import TypeVar

import structlog

from broker.errors import (
    DamagedRecord,
    MessageRefused,
    RecordGone,
    StoreFailed,
    StoreUnwritable,
)
from broker.feature import Feature, Home, OpenedFeatures, WaitingPuts
from broker.format.java import queue_of_key
from broker.format.locating import Place
from broker.format.properties import check_given, encode_properties
from broker.format.record import Located, Locator, RecordSummary, locate, store_timestamp
from broker.format.unique_key import UniqueKeys
from broker.format.wait_properties import NAMES, Wait, wait_of
from broker.log.arrivals import Arrivals
from broker.log.decisions import Decided, decisions
from broker.log.encoder import Encoder, stamp_of
from broker.log.group_commit import CommitDriver
from broker.log.put import Done, LogPosition, Put, Traced
from broker.log.scan import record_at
from broker.log.stored_time import usual_stored_ms
from broker.log.walk import Walked, walk
from broker.opening.damage import DamagedPlaces
from broker.opening.opening import take_lock
from broker.opening.recovery import RecoveryFacts, RecoveryProgress
from broker.options import StoreOptions
from broker.queues.queue_locks import QueueLocks
from broker.queues.topics import Topic
from broker.runtime.bundle import Runtime, runtime_of
from broker.runtime.metrics import Metrics
from broker.runtime.seams import Buffer, Clock, Disk, Lock
from broker.runtime.steps import noted, run_now
from broker.runtime.store_metrics import APPENDED, DAMAGED, GONE, REFUSED
from broker.store_parts import StoreParts

# How `Store.put` makes a message wait: by the feature that was given for it.


W = TypeVar("W", bound=WaitingPuts)


class StoreWaits:
    """What makes the messages of one store wait, of all features that it is opened with."""

    def __init__(self, owner: Home, given: OpenedFeatures, runtime: Runtime) -> None:
        makers = [feature.make_waiting for feature in given.features if feature.make_waiting is not None]
        self._ways = [make(owner, runtime) for make in makers]

    def of(self, kind: type[W]) -> W:
        """Return what makes messages of this store wait in one way, by its class, as `DelayedPuts`.

        Raises:
            LookupError: The store was opened without the feature that makes it.
        """
        for way in self._ways:
            if isinstance(way, kind):
                return way
        raise LookupError(f"the store was opened without the feature of {kind.__name__}; pass it in `features`")

    def put(self, put: Put, *, level: int, deliver_at_ms: int, delay_ms: int) -> Put:
        """Return what to append: the level wins over the moment, and that over the delay (reference: HookUtils).

        Raises:
            MessageRefused: It cannot wait so, or the store was opened without the feature for it.
            DiskFull, StoreFailed: The topic in which it is to wait is missing and cannot be made.
        """
        if level:
            wait = Wait(level=level)
        elif deliver_at_ms:
            wait = Wait(deliver_at_ms=deliver_at_ms)
        elif delay_ms:
            wait = Wait(delay_ms=delay_ms)
        else:
            return put
        for way in self._ways:
            made = way.waiting(put, wait)
            if made is not None:
                return made
        raise MessageRefused("the store was opened without the feature that delays this message")


logger = structlog.get_logger()


class Store:
    """An open store; see the module's docstring for what it guarantees.

    Attributes:
        topics: All topics by name.
        options: As given to `open`.
        damage: Where the log is damaged.
        metrics: As given to `open`.
        store_ms: Latest store timestamp, which the wall clock may have fallen behind (D4), or not reached yet.
        retention: Deletes old log files; without limits until they are set.
        segment_space: Space for the log.
        commit: Makes appended records durable and visible, reports them, and returns their end.
        index: Finds records by key (`broker.query` asks it).
        file_writes: Writes state files in steps; beside the loop, once it has `syncs`.
        topic_changes: Deletes topics (`delete`), among others.
        queue_locks: Who consumes which queue for which group.
        unique_keys: Creates `UNIQ_KEY`s for callers that need one before the append.
        writes: All through which it writes, for changes that are made in steps (`broker.log.durability`).
    """

    def __init__(
        self,
        root: str,
        *,
        options: StoreOptions,
        given: OpenedFeatures,
        lock: Lock,
        runtime: Runtime,
        driver: CommitDriver | None,
        traced: Traced | None = None,
    ) -> None:
        clock, random, metrics = runtime.clock, runtime.random, runtime.metrics
        self.root = root
        self.options = options
        self._recovery: RecoveryFacts | None = None
        self.damage = DamagedPlaces()
        self._traced = traced
        self._clock = clock
        self.arrivals = Arrivals(clock)
        self.unique_keys = UniqueKeys(options.store_host, random)
        self._encoder = Encoder(options, self.unique_keys)
        parts = self._parts = StoreParts(
            root,
            options=options,
            given=given,
            runtime=runtime,
            lock=lock,
            driver=driver,
            arrivals=self.arrivals,
            damage=self.damage,
        )
        self.writes, self.commit, self.file_writes = parts.writes, parts.writes.commit, parts.file_writes
        self._log = parts.log
        self._read = parts.log.read
        self.segment_space = parts.segment_space
        self._limited_log = parts.limited_log
        self.checkpointer = parts.checkpointer
        self.topics: Mapping[str, Topic] = parts.topics.by_name
        self.topic_changes, self.retention, self.index = parts.topic_changes, parts.retention, parts.index
        self._feed = parts.index.feed.add
        self.queue_locks = QueueLocks(clock)
        self.store_ms = 0
        home = Home(options=options, store_ms=lambda: self.store_ms, create_topic=parts.topic_changes.create)
        self._waits = StoreWaits(home, given, runtime)
        self._round_robin = 0
        self.metrics = metrics
        self._appended = metrics.counter(APPENDED)

    # Opening and closing

    @classmethod
    def open(
        cls,
        root: str,
        *,
        options: StoreOptions,
        features: Sequence[Feature],
        disk: Disk,
        clock: Clock,
        random: Random,
        metrics: Metrics,
        progress: Callable[[RecoveryProgress], None] = lambda _: None,
    ) -> Store:
        """Open a store, creating it when the directory is empty, and recover it; `progress` is called periodically.

        Raises:
            FeatureMissing: It has something of a feature that `features` lacks (`broker.features.ALL` has all of them).
            ValueError: A feature is given without one that it needs.
            StoreInUse: Another process has it open.
            StoreUnwritable: The directory cannot be created, read or written.
            StoreFormatNewer: A newer version wrote it.
            StoreGeometryDiffers: The configured file sizes are not its own.
            StoreUnreadable: A file that cannot be derived is damaged with all its copies.
        """
        runtime = runtime_of(disk, clock, metrics=metrics, random=random)
        opening = cls.opening(root, options=options, features=features, runtime=runtime)
        return run_now(noted(opening, progress))

    @classmethod
    def opening(
        cls,
        root: str,
        *,
        options: StoreOptions,
        features: Sequence[Feature],
        runtime: Runtime,
        driver: CommitDriver | None = None,
        traced: Traced | None = None,
    ) -> Generator[RecoveryProgress, None, Store]:
        """`open` in steps of bounded work, for a caller that does other things in between; returns the store.

        The first step takes the lock and compares the geometry; nothing is changed before the second. Closing the
        generator early gives the lock back and leaves the store as a kill would: the next opening recovers it.
        `traced` is called with what an append stages; None: nothing is traced.

        Raises:
            StoreError: As `open`.
        """
        given = OpenedFeatures(features)
        lock = take_lock(root, runtime.disk)
        store = cls(root, options=options, given=given, lock=lock, runtime=runtime, driver=driver, traced=traced)
        try:
            yield from store._open()
        except BaseException as error:
            store.abandon()
            if isinstance(error, OSError):
                raise StoreUnwritable(root, error) from error
            raise
        return store

    def _open(self) -> Generator[RecoveryProgress, None, None]:
        facts = self._recovery = yield from self._parts.recover()
        self.damage.found(facts)
        self.store_ms = facts.store_ms
        self.arrivals.note(self.min_offset, self.end, self.store_ms)
        self.commit.recovered(facts.last_record)
        if self.options.flush == "async" and not facts.clean:
            for topic in self.topics.values():
                for queue in topic.queues:
                    queue.may_have_lost()

    def _moment(self) -> tuple[int, int]:
        """Make what is visible durable; return its last record and the latest store timestamp. Raises OSError."""
        self.make_durable()
        return self.commit.last_visible, self.store_ms

    def close(self) -> None:
        """Flush, write the checkpoint and give the lock back; a failed store is only released. Harmless twice."""
        if self.closed:
            return
        self.flush()
        self.writes.closed = True
        if self.failed is None:
            try:
                self._parts.close(last_record=self.commit.last_visible, store_ms=self.store_ms)
            except OSError as error:
                self.writes.fail("closing the store", error)
        self._limited_log.flush(everything=True)
        self._parts.release()

    def abandon(self) -> None:
        """Release files and lock like a killed process: staged records are lost, nothing is written."""
        if self.closed:
            return
        self.writes.closed = True
        self.commit.forget()
        self._parts.release()

    @property
    def closed(self) -> bool:
        """Whether `close` or `abandon` was called."""
        return self.writes.closed

    @property
    def failed(self) -> StoreFailed | None:
        """The error of the failed write or sync after which nothing is accepted, or None."""
        return self.writes.failed

    @property
    def recovery(self) -> RecoveryFacts:
        """What opening found."""
        assert self._recovery is not None, "the store is not open yet"
        return self._recovery

    @property
    def used_bytes(self) -> int:
        """Bytes that the commit log's files take on disk."""
        return len(self._log.segments) * self.options.segment_bytes

    # Appending

    def append(
        self,
        puts: Sequence[Put],
        *,
        born_ms: int,
        born_host: bytes,
        done: Done | None = None,
        atomic: bool = False,
        origins: Sequence[tuple[int, bytes]] | None = None,
        is_tentative: bool = False,
    ) -> list[LogPosition]:
        """Stage messages, all or none of them; nothing is visible or durable before `flush`.

        Args:
            puts: The messages, in order.
            born_ms: When the producer made them, ms since the epoch.
            born_host: Its address (4 or 16 bytes) and i32 port.
            done: Called when their flush has ended: with None when they are stored as `flush` promises, else with
                the error.
            atomic: One contiguous write in one segment, cut as a whole by recovery (D8).
            origins: Born time and host of each message, where they differ; hosts as long as `born_host`.
            is_tentative: If they are refused, the caller appends them one by one, and refusals are counted then.

        Returns:
            The position of each message.

        Raises:
            MessageRefused: One of them can never be stored; none is staged.
            DiskFull: No segment could be claimed; none is staged.
            StoreFailed: The store has failed.
        """
        if self.writes.failed is not None:
            raise self.writes.failed
        if not puts:
            if done is not None:
                done(None)
            return []
        self.store_ms = max(self.store_ms, self._clock.wall_ms(), self.commit.moment_ms)
        stamp = stamp_of((born_ms, born_host, self.store_ms))
        try:
            measured = self._encoder.measure(puts, stamp, atomic=atomic)
        except MessageRefused:
            if not is_tentative:
                self.metrics.counter(REFUSED, "illegal").add(len(puts))
            raise
        physicals = self.segment_space.reserve(puts, measured.sizes, atomic=atomic, is_tentative=is_tentative)
        encode = self._encoder.encode
        buffers, positions, flags = encode(puts, measured, physicals, stamp, self.commit.touched, origins=origins)
        tails, sizes, _ = measured
        self._feed(tails, physicals, sizes, store_ms=stamp.store_ms, flags=flags)
        self._appended.value += len(puts)
        if self._traced is not None:
            done = self._traced(puts, positions, done)
        self.commit.stage(physicals, sizes, buffers, done)
        return positions

    def put(
        self,
        topic: str | Topic,
        body: Buffer,
        *,
        key: str = "",
        tags: str = "",
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        delay_level: int = 0,
        deliver_at_ms: int = 0,
        delay_ms: int = 0,
    ) -> LogPosition:
        """Append one message and flush: the short way for programs that use the broker alone.

        The queue is the key's (Java's hash), without a key the next one in turn, unless `queue_id` says otherwise.
        With a delay level (1 or more) it goes to the schedule topic, where its position then is; else with a moment
        (wall clock, ms since the epoch) or a delay in ms to the timer topic. The level wins, as in RocketMQ. Its
        properties DELAY, TIMER_DELAY_SEC, TIMER_DELAY_MS and TIMER_DELIVER_MS ask for the same (`wait_of`). What the
        broker itself writes and reads back is refused as a property; key and tags may be given as KEYS and TAGS.

        Raises:
            KeyError: No topic has that name.
            MessageRefused, DiskFull, StoreFailed: As `Store.append`; StoreFailed also when the flush failed,
                MessageRefused also when argument and property both set a wait.
        """
        target = self.topics[topic] if isinstance(topic, str) else topic
        if properties:
            # A program that passes a message on gives them so, and what is found by them must find it.
            key, tags = properties.get("KEYS", key), properties.get("TAGS", tags)
        if queue_id is None:
            queue_id = self.queue_for(target, key)
        wait = Wait(delay_level, deliver_at_ms, delay_ms)
        if properties and not NAMES.isdisjoint(properties):
            if any(wait):
                raise MessageRefused("the message requests a wait by argument and by property; remove one of them")
            wait = wait_of(properties)
            properties = {name: value for name, value in properties.items() if name not in NAMES}
        for name in properties or ():
            check_given(name.encode("utf-8", "surrogatepass"))
        block = encode_properties({"TAGS": tags, "KEYS": key, **(properties or {})})
        put = Put(target, queue_id, body, block, tags.encode("utf-8"))
        put = self._waits.put(put, level=wait.level, deliver_at_ms=wait.deliver_at_ms, delay_ms=wait.delay_ms)
        [position] = self.append([put], born_ms=self._clock.wall_ms(), born_host=self.options.store_host)
        self.flush()
        if self.failed is not None:
            raise self.failed
        return position

    def queue_for(self, topic: Topic, key: str = "") -> int:
        """Queue of a message that names none: the key's (Java's hash), without a key the next one in turn."""
        if key:
            return queue_of_key(key, len(topic.queues))
        self._round_robin += 1
        return self._round_robin % len(topic.queues)

    def waiting(self, kind: type[W]) -> W:
        """Return what makes messages wait in one way, by its class (`StoreWaits.of`). Raises LookupError."""
        return self._waits.of(kind)

    def create_topic(self, name: str, queues: int, *, system: bool = False) -> Topic:
        """Make or widen a topic (`TopicChanges.create`). Raises as that."""
        return self.topic_changes.create(name, queues, system=system)

    # Flushing

    def flush(self) -> None:
        """Make what is staged durable and visible, and report it (`GroupCommit.flush`)."""
        self.commit.flush()

    def make_durable(self) -> None:
        """Sync what is visible and not synced (`GroupCommit.make_durable`). Raises OSError."""
        self.commit.make_durable()

    @property
    def pending(self) -> bool:
        """Something is staged."""
        return self.commit.pending

    @property
    def unsettled(self) -> bool:
        """Whether records are staged, being written, or durable and not yet reported."""
        return self.commit.unsettled

    @property
    def is_driven(self) -> bool:
        """Whether an event loop flushes it; otherwise each append does."""
        return self.commit.driver is not None

    def walk(self, start: int, records_max: int) -> tuple[list[Walked], int]:
        """Read up to `records_max` visible records from a commit-log offset on (`broker.log.walk`). Raises OSError."""
        return walk(self._log, start, self.end, records_max=records_max)

    def decisions(self, start: int) -> Generator[Decided, None, None]:
        """Walk the visible log from an offset on for the records that replace others (`broker.log.decisions`)."""
        return decisions(self._log, start, self.end)

    def record_at(self, physical: int) -> RecordSummary | None:
        """Return the content of a valid record that begins at a commit-log offset; None without one."""
        return record_at(self._log, physical)

    def checkpoint(self) -> None:
        """Do what is due in the background; call it about once a second, under `async` at least every 500 ms.

        Syncs the log (`async`), claims the next segment early, and after 16 MiB of log or 10 s writes queue tails and
        checkpoint. A full disk postpones the latter; another error fails the store.
        """
        if self.failed is not None or self.closed:
            return
        self._limited_log.flush()
        self._log.forget_idle()
        self.arrivals.note(self.min_offset, self.end, self.store_ms)
        try:
            self.make_durable()
            self.segment_space.tend()
            self.index.tick()
            if self.checkpointer.due and not self.checkpointer.is_under_way:
                self.checkpointer.begin(self._moment, self.writes.fail)
        except OSError as error:
            self.writes.fail("writing the checkpoint", error)

    # Reading

    def read(self, physical: int, size: int) -> memoryview:
        """Return a whole record, a slice of the mapped segment.

        Size, magic and own position are compared always, the sum when an earlier process wrote the record (D2).

        Raises:
            DamagedRecord: Another record is at that offset; counted and reported.
            RecordGone: Retention deleted it; counted.
        """
        try:
            return self._read(physical, size)
        except DamagedRecord as error:
            self.metrics.counter(DAMAGED).add()
            self.damage.met(physical)
            self._limited_log.note("damaged_record", physical=physical, size=size, why=str(error))
            raise
        except RecordGone:
            self.metrics.counter(GONE).add()
            self._limited_log.note("record_gone", physical=physical)
            raise

    def stored_ms(self, physical: int, size: int) -> int:
        """Return when a record was stored, ms of the present wall clock; raises as `read`, which looks at more."""
        try:
            stored_ms = usual_stored_ms(self._log, physical, size)
        except (DamagedRecord, RecordGone):
            stored_ms = None
        stamp_ms = store_timestamp(self.read(physical, size)) if stored_ms is None else stored_ms
        return self.arrivals.stored_ms(physical, stamp_ms)

    def locate(self, places: Sequence[Place], unusual: Locator = locate) -> list[Located]:
        """Find bodies and property blocks of the records at these (physical offset, size): `read` for batches.

        `unusual` looks into records of other layouts and with packed bodies; see `CommitLog.locate`.

        Raises:
            DamagedRecord, RecordGone: One of them cannot be read. Nothing is counted: `read` them one by one.
        """
        return self._log.locate(places, unusual)

    @property
    def min_offset(self) -> int:
        """Commit-log offset of the first byte that is kept."""
        return self._log.min_offset

    @property
    def end(self) -> int:
        """Commit-log offset of the end of the visible log."""
        return self._log.visible_end
