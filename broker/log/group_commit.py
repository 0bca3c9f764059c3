"""Group commit: what was appended becomes durable, visible and reported, many records with one write and one sync.

**Why.** A sync takes the disk a good part of a millisecond, for one record as for a thousand. So appends are staged in
memory, and a *flush* takes all that is staged to the disk with one write and one sync. While its sync is under way the
next records are staged: the slower the disk, the larger the next flush, so that no timer and no threshold has to be
chosen. The loop does not wait.

**A batch** is what one flush takes and is shown at one moment; nearly always that is all of it. This file follows its
way from top to bottom:

======== ======================================================== ================================================
state    what holds                                               what leads on
======== ======================================================== ================================================
STAGED   its records have their offsets, and are in memory alone  `begin` when no sync is on its way, or `flush`
WRITTEN  a kill does not lose it; its sync is under way           the sync ends; under `async` it is shown at once
DURABLE  a power loss does not lose it                            its moment comes: at once, for nearly all
SHOWN    consumers can read it, and the next flush has begun      callers are notified
REPORTED its `done`s and listeners ran: replies are queued        the driver sends them
FAILED   a write or sync failed: it is never shown                callers receive the error
======== ======================================================== ================================================

**Moments.** A sync now and then takes several milliseconds, and what is due at a moment would be late by it. So it may
be appended before, and is shown once the wall clock says so: the disk works while it waits anyway (the *commit wait* of
Spanner). How long before follows from the syncs: nine of ten end in time. What was flushed with it or after it is shown
with it, in the order of the log, so that others wait for what is left of that time. Where the clock is set back by
more than AHEAD_MAX_US meanwhile, the rest of that time is taken from the clock that is never set. A process may stop in
between: `seconds_early` says how long the next one has to wait with what it finds.

**Invariants**, asserted where a batch continues:

1. Batches follow each other in the log without a gap, and are written, shown and reported in that order.
2. Nothing is written while a sync is under way, so a sync covers whole flushes, and its failure is theirs alone.
3. Nothing is shown before it is durable (under `async`: written), and no caller is notified before it is shown.
4. What may be read only grows, in the log and in each queue.
5. Each caller is notified once. After a failure nothing is written or shown, and each caller receives the error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from broker.errors import StoreError, StoreFailed
from broker.log.commit_batch import DURABLE, REPORTED, STAGED, WRITTEN, CommitBatch, report_all
from broker.log.commit_log import CommitLog
from broker.log.put import Done
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.topics import Topic
from broker.runtime.bundle import Runtime
from broker.runtime.disks.timed_syncs import TimedSyncs
from broker.runtime.file_writes import SyncFailed
from broker.runtime.seams import Buffer, Clock, ScheduledCall, Syncing, Syncs
from broker.runtime.store_metrics import FLUSHES, SYNCS
from broker.runtime.store_metrics import WRITTEN as WRITTEN_BYTES

AHEAD_MAX_US = 4000
"""How long before its moment something is appended at most: what is asked of a disk in between, and of a restart."""
_FIRST_US = 1000
_LATE_US, _IN_TIME_US = 27, 3
"""By how much that grows with each batch that is durable after its moment, and shrinks with each other."""


class CommitDriver:
    """Whose turns flush a store: what the group commit calls, in the order of a flush. Here each does nothing."""

    def on_staged(self) -> None:
        """The first record was staged since the last flush began; a turn is to call `begin`, or `flush`."""

    def on_begun(self) -> None:
        """A flush was written, and its sync has begun."""

    def on_visible(self, end: int) -> None:
        """A batch is visible: the commit log may be read up to this offset, itself not included."""

    def on_shown(self, flushes: int) -> None:
        """What was begun is visible and completes this number of flushes; callers are notified next."""

    def on_disk_free(self) -> None:
        """A sync has ended and shows nothing: its batch waits for its moment, or the store has failed."""

    def on_reported(self, raised: Exception | None) -> None:
        """Callers were notified: the replies may leave. `raised` is the first exception of a callback."""


class GroupCommit:
    """The flushes of one store; see the module.

    Attributes:
        pending: Something is staged.
        touched: Queues that got units since the last batch was closed, and their topics; the encoder adds to it.
        moment_ms: When what is staged now is shown at the earliest; 0 for as soon as it can be.
        last_staged: Commit-log offset of the last record that was staged, -1 without any.
        last_visible: That of the last record that is visible.
        driver: Its hooks; without one the appending code calls `flush`.
        syncs: Makes the syncs of `begin`; without it `flush` makes them.
        alarms: Calls at a moment. Without it nothing may be staged before its moment.
    """

    def __init__(
        self,
        log: CommitLog,
        *,
        syncing: bool,
        runtime: Runtime,
        fail: Callable[[str, OSError], StoreFailed],
        driver: CommitDriver | None,
        before_write: Callable[[], None] = lambda: None,
    ) -> None:
        """Make it; nothing is staged before `recovered`.

        Args:
            log: Where the records go.
            syncing: A flush syncs; else (`async`) it is shown when it is written.
            runtime: Its wall clock has the moments; its syncs and alarms are used where a flush syncs.
            fail: Stops the store, which calls `fail` here.
            driver: As the attribute.
            before_write: Writes what files must have before records name it; raises OSError, which fails the store.
        """
        self.pending = False
        self.touched: dict[ConsumeQueue, Topic] = {}
        self.moment_ms = 0
        self.last_staged = self.last_visible = -1
        self.driver = driver
        self.syncs: Syncs | None = None
        if syncing and runtime.syncs is not None:
            self.syncs = TimedSyncs(runtime.syncs, runtime.clock, runtime.metrics, "commit_log")
        self._log = log
        self._before_write = before_write
        self._is_syncing = syncing
        self._clock = runtime.clock
        self.alarms = runtime.alarms if syncing else None
        self._fail_store = fail
        self._dones: list[Done] = []
        self._closed: list[CommitBatch] = []
        """Batches that are staged behind each other and wait for the next flush."""
        self._closed_end = 0
        self._begun: list[CommitBatch] = []
        """Those of the flush that is on its way."""
        self._sync: Syncing | None = None
        self._sync_error: OSError | None = None
        self._early: deque[CommitBatch] = deque()
        """Durable before their moment, and those behind them."""
        self._shown: list[CommitBatch] = []
        self._alarm: ScheduledCall | None = None
        self._ahead_us = _FIRST_US
        self._moment_at = 0.0
        metrics = runtime.metrics
        self._flushes, self._syncs = metrics.counter(FLUSHES), metrics.counter(SYNCS)
        self._written = metrics.counter(WRITTEN_BYTES)

    def recovered(self, last_record: int) -> None:
        """Go on behind what recovery found, whose last record begins there."""
        self.last_staged = self.last_visible = last_record
        self._closed_end = self._log.end

    # 1. Staged

    def stage(self, physicals: list[int], sizes: list[int], buffers: list[Buffer], done: Done | None) -> None:
        """Take records in, whose units the encoder has staged; arguments as of `CommitLog.stage`.

        Args:
            physicals: Their offsets.
            sizes: Their sizes in bytes.
            buffers: Their bytes.
            done: Called once they are shown, or with the error.
        """
        self._log.stage(physicals, sizes, buffers)
        self.last_staged = physicals[-1]
        if done is not None:
            self._dones.append(done)
        if not self.pending:
            self.pending = True
            if self.driver is not None:
                self.driver.on_staged()

    @property
    def ahead_us(self) -> int:
        """How long before its moment something may be staged now, in microseconds."""
        return 0 if self.alarms is None else self._ahead_us

    def wait_for(self, moment_ms: int) -> None:
        """Show what is staged from now on, until the next flush begins, no sooner than at a moment.

        Args:
            moment_ms: Since the epoch, no earlier than one that was named before; at most `ahead_us` away.
        """
        if moment_ms != self.moment_ms:
            if self.touched:
                self._close()
            self.moment_ms = moment_ms
            self._moment_at = self._clock.monotonic() + seconds_early(moment_ms, self._clock)

    def _close(self) -> None:
        batch = CommitBatch(
            self._dones,
            self.touched,
            start=self._closed_end,
            end=self._log.end,
            last_record=self.last_staged,
            not_before_ms=self.moment_ms,
            not_before=self._moment_at,
        )
        self._closed.append(batch)
        self._closed_end = batch.end
        self._dones, self.touched = [], {}

    def _take(self) -> list[CommitBatch]:
        """Return what is staged; what follows belongs to the next flush."""
        self._close()
        batches, self._closed = self._closed, []
        batches[-1].is_last = True
        self.pending, self.moment_ms = False, 0
        return batches

    # 2. Written, and its sync begun

    def begin(self) -> bool:
        """Begin a flush in the background; False when nothing is staged, or one is on its way.

        What it took is reported when its sync has ended, and its moment has come. Needs `syncs`.
        """
        if not self.pending or self._begun:
            return False
        assert self.syncs is not None, "a store flushes in the background where syncs are made there"
        batches = self._begun = self._take()
        try:
            self._write(batches)
        except OSError as cause:
            self._fail_store("writing the commit log", cause)
            return False
        self._sync_oldest()
        if self.driver is not None:
            self.driver.on_begun()
        return True

    def _write(self, batches: Sequence[CommitBatch]) -> None:
        assert self._sync is None, "nothing is written while a sync is under way"
        self._before_write()
        written = self._log.write()
        assert 0 < written <= batches[-1].end - batches[0].start, "what was written is what the batches hold"
        self._written.value += written
        for batch in batches:
            batch.go_on(WRITTEN)

    def _sync_oldest(self) -> None:
        """Sync in the background what is unsynced, one file after the other, the oldest first.

        The order keeps a power loss from leaving a later file whole behind a torn one.
        """
        segment, syncs = self._log.unsynced, self.syncs
        if segment is None or syncs is None:
            self._sync = None
            self._sync_ended(None)
            return

        def synced(error: OSError | None) -> None:
            if error is not None:
                self._sync, self._sync_error = None, error
                self._sync_ended(error)
                return
            self._log.synced(segment)
            self._sync_oldest()

        self._sync = syncs.begin(segment.file, synced)

    # 3. Durable, and shown at its moment

    def _sync_ended(self, error: OSError | None) -> None:
        if not self._begun:
            return  # `flush` has completed it, or the store has failed or was closed meanwhile.
        if error is not None:
            self._fail_store("writing the commit log", error)
            return
        batches, self._begun = self._begun, []
        self._syncs.value += 1
        for batch in batches:
            batch.go_on(DURABLE)
            seconds = 0.0
            if batch.not_before_ms:
                seconds = self._seconds_left(batch)
                self._learn(in_time=seconds > 0)
            if seconds or self._early:
                self._early.append(batch)
            else:
                self._shown.append(self._show(batch))
        if self._early and self._alarm is None:
            self._set_alarm()
        if self._shown:
            self._come_back()
        elif self.driver is not None:
            # The disk can continue, whatever this one waits for.
            self.begin()
            self.driver.on_disk_free()

    def _show(self, batch: CommitBatch) -> CommitBatch:
        assert batch.state is DURABLE or not self._is_syncing, "only what is durable is shown"
        batch.show(self._log)
        self._flushes.value += 1
        self.last_visible = batch.last_record
        if self.driver is not None:
            self.driver.on_visible(batch.end)
        return batch

    def _learn(self, *, in_time: bool) -> None:
        ahead_us = self._ahead_us - _IN_TIME_US if in_time else self._ahead_us + _LATE_US
        self._ahead_us = min(max(ahead_us, 0), AHEAD_MAX_US)

    def _set_alarm(self) -> None:
        assert self.alarms is not None, "without calls at a moment nothing is staged before it"
        self._alarm = self.alarms.call_later(self._seconds_left(self._early[0]), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        while self._early and not self._seconds_left(self._early[0]):
            self._shown.append(self._show(self._early.popleft()))
        if self._early:
            self._set_alarm()
        if self._shown:
            self._come_back()

    def _seconds_left(self, batch: CommitBatch) -> float:
        left_us = batch.not_before_ms * 1000 - self._clock.wall_us()
        if left_us > AHEAD_MAX_US:
            # The clock was set back.
            return max(0.0, batch.not_before - self._clock.monotonic())
        return max(0.0, left_us / 1e6)

    # 4. Reported, and the replies leave

    def _come_back(self) -> None:
        """Begin the next flush, report what is shown, and have the replies sent."""
        driver = self.driver
        if driver is None:
            self.report()
            return
        driver.on_shown(sum([batch.is_last for batch in self._shown]))
        self.begin()
        raised = self._report_shown()
        # What came of it, where nothing was staged before.
        self.begin()
        driver.on_reported(raised)

    def report(self) -> None:
        """Run `done`s and topic listeners of what was shown; raises the first exception after all have run."""
        _raise(self._report_shown())

    def _report_shown(self) -> Exception | None:
        shown, self._shown = self._shown, []
        return report_all(shown, None)

    # All of that at once

    def flush(self) -> None:
        """Write what is staged, sync, show and report it, and complete a flush that is on its way; the caller waits.

        Never raises for a failed disk: the store has failed, and the `done`s get the error. An exception of a callback
        is raised after all of them ran.
        """
        try:
            self.report()
        finally:
            batches = self._take_all()
            if batches:
                _raise(report_all(batches, self._complete(batches)))

    def _complete(self, batches: Sequence[CommitBatch]) -> StoreError | None:
        """Write, sync and show what is not yet, or report why that failed."""
        try:
            # Before another sync, which would not see its failure: the system reports it to one of the two.
            self._wait_for_sync()
            for batch in batches:
                if batch.state is WRITTEN:
                    batch.go_on(DURABLE)
            staged = [batch for batch in batches if batch.state is STAGED]
            if staged:
                self._write(staged)
            if self._is_syncing:
                self._log.sync()
                self._syncs.value += 1
                for batch in staged:
                    batch.go_on(DURABLE)
        except OSError as cause:
            for batch in batches:
                batch.fail()
            return self._fail_store("writing the commit log", cause)
        seconds = max(self._seconds_left(batch) for batch in batches)
        if seconds:
            self._clock.sleep(seconds)
        for batch in batches:
            self._show(batch)
        return None

    def _wait_for_sync(self) -> None:
        """Wait until the syncs of a flush on its way have ended. Raises OSError: one of them failed."""
        while self._sync is not None:
            # Its end begins the next, if any.
            sync, self._sync = self._sync, None
            sync.wait()
        if self._sync_error is not None:
            raise self._sync_error

    def make_durable(self) -> None:
        """Sync what is visible and not synced, which only `async` leaves.

        Raises:
            SyncFailed: What was written may be gone, on a full disk, too: a later sync would succeed without it.
        """
        if self._is_syncing:
            return
        try:
            self._syncs.value += self._log.sync()
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, error.filename) from error

    # Who waits

    @property
    def unsettled(self) -> bool:
        """Whether records are staged, being written, or durable and not yet reported."""
        return self.pending or bool(self._begun or self._early or self._shown)

    @property
    def is_early(self) -> bool:
        """Whether something is durable and waits for its moment."""
        return bool(self._early)

    @property
    def longest_sync_seconds(self) -> float:
        """Longest sync beside the loop of the last minute, the one on its way included; 0 where none is made there."""
        return self.syncs.longest_seconds if isinstance(self.syncs, TimedSyncs) else 0.0

    @property
    def is_under_way(self) -> bool:
        """Whether a flush is on its way to the disk."""
        return bool(self._begun)

    def when_reported(self, done: Done) -> None:
        """Call a `done` when what is staged or under way is durable and reported, or has failed."""
        if self.pending:
            self._dones.append(done)
            return
        last = next((batches[-1] for batches in (self._begun, self._early, self._shown) if batches), None)
        if last is None:
            done(None)
        else:
            assert last.state is not REPORTED, "every waiting caller is notified"
            last.dones.append(done)

    # The end

    def fail(self, error: StoreFailed) -> None:
        """Show nothing any more, and give the error to all that wait for a flush, begun or not."""
        batches = self._take_all()
        for batch in batches:
            batch.fail()
        if self.driver is not None:
            self.driver.on_disk_free()
        _raise(report_all(batches, error))

    def forget(self) -> None:
        """Show and report nothing any more."""
        self.pending = False
        self._begun = []
        self._take_early()
        self._shown.clear()

    def _take_all(self) -> list[CommitBatch]:
        """Take what is not shown, in the order of the log."""
        begun, self._begun = self._begun, []
        return [*self._take_early(), *begun, *(self._take() if self.pending else ())]

    def _take_early(self) -> list[CommitBatch]:
        """Give up those that wait for their moment: it is waited for otherwise, or they will not be shown."""
        batches = list(self._early)
        self._early.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        return batches


def seconds_early(stored_ms: int, clock: Clock) -> float:
    """Seconds until the moment of all that was durable before it when a process stopped; 0 after a clock's step back.

    Args:
        stored_ms: Latest store timestamp that recovery found: nothing is shown before its own.
        clock: Its wall clock has the moments.
    """
    left_us = stored_ms * 1000 - clock.wall_us()
    return left_us / 1e6 if 0 < left_us <= AHEAD_MAX_US else 0.0


def _raise(error: Exception | None) -> None:
    if error is not None:
        raise error
