"""The store: one commit log, its consume queues and topics, with group commit and recovery.

Guarantees:

- Under `flush="sync"` a record becomes visible, and its `done` runs, in the `flush` whose fdatasync covers it (D1).
  Under `async`, in the `flush` that wrote it; `checkpoint` syncs, so the caller calls that at least every 500 ms.
- A kill loses nothing that a returned `flush` wrote; a power cut loses nothing that it synced.
- Queue offsets are dense: every offset in [min, max) has a record or is a reported filler. They are never reused
  silently: after recovery, commit-log offsets from `recovery.end` on, and queue offsets from `max_offset` on, mean
  something new (D11).
- Store timestamps never go back, whatever the wall clock does (D4).
- After a failed write or sync the store is failed for good: nothing is written or synced again, what was staged is told
  the error, reading goes on.
- A full disk refuses appends that need another segment and nothing else; it is tried anew with each of them (D5).

One thread uses a store. Callbacks (`done`, topic listeners, `on_pending`) may append; what they append is staged for
the next flush.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Unpack

import structlog

from broker.errors import (
    DamagedRecord,
    DiskFull,
    MessageRefused,
    RecordGone,
    StoreError,
    StoreFailed,
    StoreFormatNewer,
    StoreGeometryDiffers,
    StoreInUse,
    StoreUnreadable,
    StoreUnwritable,
)
from broker.feature import Feature, Given
from broker.format.locating import Place
from broker.format.record import Entry, Located, Locator, locate
from broker.format.unique_key import UniqueKeys
from broker.log.decisions import Decided, decisions
from broker.log.encoder import Encoder, stamp_of
from broker.log.flight import Flight, tell_all
from broker.log.landed import Landed
from broker.log.put import Done, Position, Put
from broker.log.scan import record_at
from broker.log.staged import Staged
from broker.opening.damage import Damage
from broker.opening.opening import OpeningSeams, run_to_end, take_lock
from broker.opening.recovery import RecoveryFacts, RecoveryProgress
from broker.options import StoreOptions
from broker.queues.queue_locks import QueueLocks
from broker.queues.topics import Topic
from broker.runtime.metrics import Metrics
from broker.runtime.seams import Clock, Disk, Lock, Syncs
from broker.runtime.store_metrics import APPENDED, DAMAGED, FAILED, FLUSHES, GONE, REFUSED, SYNCS, WRITTEN
from broker.single_puts import SinglePuts
from broker.store_parts import StoreParts
from broker.waits import Waits

__all__ = [
    "DamagedRecord",
    "DiskFull",
    "MessageRefused",
    "Position",
    "Put",
    "RecordGone",
    "Store",
    "StoreError",
    "StoreFailed",
    "StoreFormatNewer",
    "StoreGeometryDiffers",
    "StoreInUse",
    "StoreOptions",
    "StoreUnreadable",
    "StoreUnwritable",
    "Topic",
]

logger = structlog.get_logger()


class Store:
    """An open store; see the module's docstring for what it guarantees.

    Attributes:
        topics: All topics by name.
        options: As given to `open`.
        recovery, damage: What opening found; where the log is damaged.
        metrics: As given to `open`.
        pending: Something is staged.
        store_ms: Latest store timestamp, which the wall clock may have fallen behind (D4), or not reached yet.
        on_pending: Called when the first record is staged after a flush.
        syncs: Makes the syncs of `begin_flush`.
        retention: Deletes old log files; without limits until they are set.
        room: Space for the log.
        staged: What was appended since the last flush began.
        landed: What is durable and not told: flushes that have ended in the background.
        index: Finds records by key (`broker.query` asks it).
        create_topic: Makes or widens a topic (`broker.topic_changes`).
        savings: Saves state files in steps; beside the loop, once it has `syncs`.
        topic_changes: Deletes topics (`delete`), among others.
        queue_locks: Who consumes which queue for which group.
        waiting: What makes messages wait in one way, by its class (`broker.waits`).
        put, queue_for: Appends one message and flushes; the queue of one that names none (`broker.single_puts`).
        unique_keys: Makes `UNIQ_KEY`s for whoever needs one before the append.
        closed: `close` or `abandon` was called.
        failed: The error of the failed write or sync after which nothing is accepted, or None.
    """

    def __init__(
        self,
        root: str,
        *,
        options: StoreOptions,
        given: Given,
        lock: Lock,
        disk: Disk,
        clock: Clock,
        random: Random,
        metrics: Metrics,
    ) -> None:
        self.root = root
        self.options = options
        self.recovery: RecoveryFacts
        self.damage = Damage()
        self.pending = False
        self.on_pending: Callable[[], None] | None = None
        self.failed: StoreFailed | None = None
        self.closed = False
        self._waits = Waits(self, given, clock=clock, random=random)
        self._clock = clock
        self.unique_keys = UniqueKeys(options.store_host, random)
        self._encoder = Encoder(options, self.unique_keys)
        parts = self._parts = StoreParts(self, given=given, disk=disk, clock=clock, metrics=metrics, lock=lock)
        self._log = parts.log
        self._read, self.walk = parts.log.read, parts.walk
        self.room = parts.room
        self._notices = parts.notices
        self._checkpointer = parts.checkpointer
        self.topics: Mapping[str, Topic] = parts.topics.by_name
        self.topic_changes, self.create_topic = parts.topic_changes, parts.topic_changes.create
        self.retention = parts.retention
        self.index, self.savings = parts.index, parts.savings
        self._feed = parts.index.feed.add
        self.queue_locks = QueueLocks(clock)
        self.store_ms = 0
        self._last_record = -1
        self.syncs: Syncs | None = None
        self.staged = Staged(parts.log)
        self._begun: list[Flight] = []
        self.landed = Landed(clock, self._show)
        singles = SinglePuts(self, self._waits, clock)
        self.put, self.queue_for, self.waiting = singles.put, singles.queue_for, self._waits.of
        self.metrics = metrics
        self._appended = metrics.counter(APPENDED)
        self._written = metrics.counter(WRITTEN)
        self._flushes, self._syncs = metrics.counter(FLUSHES), metrics.counter(SYNCS)

    # Opening and closing

    @classmethod
    def open(
        cls,
        root: str,
        *,
        options: StoreOptions,
        features: Sequence[Feature],
        progress: Callable[[RecoveryProgress], None] = lambda _: None,
        **seams: Unpack[OpeningSeams],
    ) -> Store:
        """Open a store, creating it when the directory is empty, and recover it; `progress` is told now and then.

        Raises:
            FeatureMissing: It has something of a feature that `features` lacks (`broker.features.ALL` has all of them).
            ValueError: A feature is given without one that it needs.
            StoreInUse: Somebody has it open.
            StoreUnwritable: The directory cannot be created, read or written.
            StoreFormatNewer: A newer version wrote it.
            StoreGeometryDiffers: The configured file sizes are not its own.
            StoreUnreadable: A file that cannot be derived is damaged with all its copies.
        """
        return run_to_end(cls.opening(root, options=options, features=features, **seams), progress)

    @classmethod
    def opening(
        cls, root: str, *, options: StoreOptions, features: Sequence[Feature], **seams: Unpack[OpeningSeams]
    ) -> Generator[RecoveryProgress, None, Store]:
        """`open` in steps of bounded work, for a caller that does other things in between; returns the store.

        The first step takes the lock and compares the geometry; nothing is changed before the second. Closing the
        generator early gives the lock back and leaves the store as a kill would: the next opening recovers it.

        Raises:
            StoreError: As `open`.
        """
        given = Given(features)
        lock = take_lock(root, seams["disk"])
        store = cls(root, options=options, given=given, lock=lock, **seams)
        try:
            yield from store._open()
        except BaseException as error:
            store.abandon()
            if isinstance(error, OSError):
                raise StoreUnwritable(root, error) from error
            raise
        return store

    def _open(self) -> Generator[RecoveryProgress, None, None]:
        facts = self.recovery = yield from self._parts.recover()
        self.damage.found(facts)
        self.store_ms = facts.store_ms
        self.staged.last_record = self._last_record = facts.last_record

    def _moment(self) -> tuple[int, int]:
        """Make what is visible durable; tell the last record of it and the latest store timestamp. Raises OSError."""
        self.make_durable()
        return self._last_record, self.store_ms

    def _write_checkpoint(self) -> None:
        self._checkpointer.write(last_record=self._last_record, store_ms=self.store_ms)

    def close(self) -> None:
        """Flush, write the checkpoint and give the lock back; a failed store is only released. Harmless twice."""
        if self.closed:
            return
        self.flush()
        self.closed = True
        if self.failed is None:
            try:
                self._parts.close(last_record=self._last_record, store_ms=self.store_ms)
            except OSError as error:
                self.fail("closing the store", error)
        self._notices.flush(everything=True)
        self._parts.release()

    def abandon(self) -> None:
        """Let go of files and lock as a killed process would: what is staged is lost, nothing is written."""
        if self.closed:
            return
        self.closed = True
        self.pending = False
        self._begun = []
        self.landed.forget()
        self._parts.release()

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
    ) -> list[Position]:
        """Stage messages, all or none of them; nothing is visible or durable before `flush`.

        Args:
            puts: The messages, in order.
            born_ms: When the producer made them, ms since the epoch.
            born_host: Its address (4 or 16 bytes) and i32 port.
            done: Called in the flush that settles them: with None when they are stored as `flush` promises, else with
                the error.
            atomic: One contiguous write in one segment, cut as a whole by recovery (D8).
            origins: Born time and host of each message, where they differ; hosts as long as `born_host`.

        Returns:
            The position of each message.

        Raises:
            MessageRefused: One of them can never be stored; none is staged.
            DiskFull: No segment could be claimed; none is staged.
            StoreFailed: The store has failed.
        """
        if self.failed is not None:
            raise self.failed
        if not puts:
            if done is not None:
                done(None)
            return []
        self.store_ms = max(self.store_ms, self._clock.wall_ms(), self.staged.moment_ms)
        stamp = stamp_of((born_ms, born_host, self.store_ms))
        try:
            measured = self._encoder.measure(puts, stamp, atomic=atomic)
        except MessageRefused:
            self.metrics.counter(REFUSED, "illegal").add(len(puts))
            raise
        physicals = self.room.reserve(puts, measured.sizes, atomic=atomic)
        encode = self._encoder.encode
        buffers, positions, flags = encode(puts, measured, physicals, stamp, self.staged.touched, origins=origins)
        tails, sizes, keys = measured
        self._log.stage(physicals, sizes, buffers)
        self._feed(tails, keys, physicals, sizes, store_ms=stamp.store_ms, flags=flags)
        self.staged.last_record = physicals[-1]
        self._appended.value += len(puts)
        if done is not None:
            self.staged.dones.append(done)
        if not self.pending:
            self.pending = True
            if self.on_pending is not None:
                self.on_pending()
        return positions

    # Flushing

    def flush(self) -> None:
        """Write what is staged, sync (`flush="sync"`), make it visible, then run its `done`s and topic listeners.

        A flush that is on its way in the background is waited for and settled as well.

        Never raises for a failed disk: `failed` is set and the `done`s get the error. An exception of a callback is
        raised after all of them ran.
        """
        try:
            self.settle()
        finally:
            flights = self._take_all()
            if flights:
                tell_all(flights, self._write(flights))

    def _write(self, flights: Sequence[Flight]) -> StoreError | None:
        """Write and sync what flights took and show it, or tell why that failed."""
        try:
            # Before another sync, which would not hear of their failure: the system tells one of the two.
            for flight in flights:
                flight.wait()
            self._written.value += self._log.write()
            if self.options.flush == "sync":
                self._log.sync()
                self._syncs.value += 1
        except OSError as cause:
            for flight in flights:
                flight.forget()
            return self.fail("writing the commit log", cause)
        self.landed.wait(flights)
        for flight in flights:
            self._show(flight)
        return None

    def begin_flush(self) -> bool:
        """Write what is staged and begin its sync in the background; False when there is nothing, or one on its way.

        When it has ended what it took is visible, at its moment where it has one (`broker.log.landed`), and
        `landed.on_shown` is called, which is to call `settle`. Meanwhile what is appended is staged for the next one.
        Needs `syncs`, and `flush="sync"`.
        """
        if not self.pending or self._begun:
            return False
        assert self.syncs is not None
        flights = self._begun = self._take()
        try:
            self._written.value += self._log.write()
        except OSError as cause:
            self.fail("writing the commit log", cause)
            return False
        flights[-1].sync(self._log, self.syncs, partial(self._synced, flights))
        return True

    def _synced(self, flights: list[Flight], error: OSError | None) -> None:
        """Note that the sync of a flush in the background has ended."""
        if flights is not self._begun:
            return  # `flush` has settled it, or the store has failed or was closed meanwhile.
        if error is not None:
            self.fail("writing the commit log", error)
            return
        self._begun = []
        self._syncs.value += 1
        self.landed.add(flights)

    def settle(self) -> None:
        """Run `done`s and topic listeners of what became durable in the background; exceptions as with `flush`."""
        self.landed.tell()

    @property
    def unsettled(self) -> bool:
        """Whether something is staged, on its way, or durable and not told."""
        return self.pending or bool(self._begun) or self.landed.last is not None

    def tell_settled(self, done: Done) -> None:
        """Call a `done` when what is staged or on its way is durable and told, or has failed; at once without any."""
        last = self._begun[-1] if self._begun else self.landed.last
        if not self.pending and last is None:
            done(None)
        else:
            (self.staged.dones if self.pending or last is None else last.dones).append(done)

    def _take(self) -> list[Flight]:
        self.pending = False
        return self.staged.take()

    def _take_all(self) -> list[Flight]:
        begun, self._begun = self._begun, []
        return [*self.landed.take_early(), *begun, *(self._take() if self.pending else ())]

    def _show(self, flight: Flight) -> None:
        self._flushes.value += 1
        flight.show(self._log)
        self._last_record = flight.last_record

    def fail(self, what: str, cause: OSError) -> StoreFailed:
        """Stop the write side for good; who waits for a flush, begun or not, is told. One line in the log."""
        if self.failed is None:
            self.failed = StoreFailed(what, cause, at_ms=self._clock.wall_ms())
            self.metrics.counter(FAILED).value = 1
            self.index.stop()
            self.savings.abandon()
            logger.error("store_failed", root=self.root, what=what, file=cause.filename, error=str(cause))
        flights = self._take_all()
        for flight in flights:
            flight.forget()
        tell_all(flights, self.failed)
        return self.failed

    def decisions(self, start: int) -> Generator[Decided, None, None]:
        """Walk the visible log from an offset on for the records that replace others (`broker.log.decisions`)."""
        return decisions(self._log, start, self.end)

    def record_at(self, physical: int) -> Entry | None:
        """Return what a valid record says that begins at a commit-log offset; None when there is none."""
        return record_at(self._log, physical)

    def make_durable(self) -> None:
        """Sync what is visible and not synced, which only `async` leaves; the caller tells `fail` of an OSError."""
        if self.options.flush == "async" and self._log.sync():
            self._syncs.value += 1

    def checkpoint(self) -> None:
        """Do what is due in the background; call it about once a second, under `async` at least every 500 ms.

        Syncs the log (`async`), claims the next segment early, and after 16 MiB of log or 10 s writes queue tails and
        checkpoint. A full disk postpones the latter; another error fails the store.
        """
        if self.failed is not None or self.closed:
            return
        self._notices.flush()
        self._log.forget_idle()
        try:
            self.make_durable()
            self.room.tend()
            self.index.tick()
            if self._checkpointer.due and not self._checkpointer.is_under_way:
                self._checkpointer.begin(self._moment, self.fail)
        except OSError as error:
            self.fail("writing the checkpoint", error)

    # Reading

    def read(self, physical: int, size: int) -> memoryview:
        """Return a whole record, a slice of the mapped segment.

        Size, magic and own position are compared always, the sum when an earlier process wrote the record (D2).

        Raises:
            DamagedRecord: Something else stands there; counted and reported.
            RecordGone: Retention deleted it; counted.
        """
        try:
            return self._read(physical, size)
        except DamagedRecord as error:
            self.metrics.counter(DAMAGED).add()
            self.damage.met(physical)
            self._notices.note("damaged_record", physical=physical, size=size, why=str(error))
            raise
        except RecordGone:
            self.metrics.counter(GONE).add()
            self._notices.note("record_gone", physical=physical)
            raise

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
        """Commit-log offset of the end of what is visible."""
        return self._log.visible_end
