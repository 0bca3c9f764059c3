"""AckWriter: what is staged for the ack journal, and when it is written, synced, or refused.

One write per turn, however many acks it covers; a sync after one of the log when the last is 20 ms ago, and so soon
after a write that it is durable 100 ms later (D9). Nobody waits for such a sync, so it continues beside the loop, and
so do those of a new segment, the *roll*. A failed write or sync ends all writing (a failed sync is never tried again:
the pages it was for may be gone); a full disk only until there is space again (D5).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import structlog

from broker.errors import NO_SPACE, StoreError
from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import FileWrite, FileWrites, SyncFailed, can_wait
from broker.runtime.later import Later
from broker.runtime.metrics import declare
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import Syncing, Syncs
from broker.runtime.store_metrics import FILES_DELETED
from conf.file_faults import file_fault
from upstream.progress.journal import AckJournal
from upstream.progress.journal_format import encode_acked, encode_counted
from upstream.progress.tracker import OffsetTracker

log = structlog.get_logger()

SYNC_SECONDS = 0.09
"""An ack's sync begins after this long at the latest, to have ended within the 100 ms of D9."""
SYNC_SPACING_SECONDS = 0.02
"""How far apart syncs that follow those of the log are: no caller waits for one, but the disk has it to do."""

JOURNAL_BLOCKS = declare("pyddmq_ack_journal_blocks_total", "Blocks written to the ack journal: one per turn.")
JOURNAL_BYTES = declare("pyddmq_ack_journal_bytes_total", "Bytes of entries written to the ack journal.")
JOURNAL_SYNCS = declare(
    "pyddmq_ack_journal_syncs_total", "Syncs of the ack journal; a new segment with its folder counts as one."
)
JOURNAL_SEGMENTS = declare("pyddmq_ack_journal_segments_total", "Segments started in the ack journal.")
JOURNAL_FAILURES = declare("pyddmq_ack_journal_failures_total", "Writes or syncs of the ack journal that failed.")


class ProgressFailed(StoreError):
    """The ack journal cannot be written; acks are refused."""

    def __init__(self, what: str, cause: OSError) -> None:
        where = f" ({cause.filename})" if cause.filename else ""
        super().__init__(
            f"{what} the ack journal failed{where}: {file_fault(cause)}; acks are refused. Check the disk, "
            "then restart: everything acknowledged so far is kept"
        )
        self.cause = cause


class ProgressFull(ProgressFailed):
    """The disk is full and so is the journal's reserve; acks are accepted again by themselves."""

    def __init__(self, cause: OSError) -> None:
        StoreError.__init__(
            self,
            "the disk is full, and so is the space reserved for acks; free some space: then acks are "
            "accepted again without a restart",
        )
        self.cause = cause


class Driver(NamedTuple):
    """Whose turns flush the journal.

    Attributes:
        on_pending: Called when the first entry is staged after a flush.
        on_failed: Called, once, with what failed and the error when journal or offsets are written no more; it says so
            in the log.
    """

    on_pending: Callable[[], None]
    on_failed: Callable[[str, OSError], object]


class AckWriter:
    """The write side of one node's ack journal.

    Attributes:
        failed: Set while acks are refused.
        pending: Whether something is staged.
        on_failed: The driver's, until it was called for the journal.
        limited_log: Of what was not written, here and by those that commit what is journaled.
    """

    def __init__(
        self,
        journal: AckJournal,
        *,
        runtime: Runtime,
        sync_each_flush: bool,
        fence: Callable[[OffsetTracker, int], int],
        snapshot: Callable[[], list[bytes]],
        syncs: Syncs | None = None,
        driver: Driver | None = None,
        make_log_durable: Callable[[], object] = lambda: None,
    ) -> None:
        """Write to `journal`, which was read.

        Args:
            journal: Where.
            runtime: Its clock says how long ago the last sync is; its scheduler runs what is due after a write.
            sync_each_flush: Whether every `flush` is durable.
            fence: Tells the commit-log offset of a finished message, -1 where it says nothing new.
            snapshot: Tells the blocks that describe everything as it is in memory.
            syncs: Makes the syncs of `begin_sync`; without them they are made at once.
            driver: Hears, after `begin`, of what is staged and fails; without one the log says so.
            make_log_durable: See `follow_log`. Raises OSError.
        """
        self.failed: ProgressFailed | None = None
        self.pending = False
        self._driver = driver
        self._on_pending: Callable[[], None] | None = None
        self.on_failed: Callable[[str, OSError], object] | None = None
        self.limited_log = RateLimitedLog(runtime.clock)
        self._journal = journal
        metrics = runtime.metrics
        self._clock = runtime.clock
        self._sync_each_flush = sync_each_flush
        self._fence = fence
        self._snapshot = snapshot
        self._make_log_durable = make_log_durable
        self._follows_log = False
        self._dirty: list[OffsetTracker] = []
        self._staged: list[bytes] = []
        self._markers: list[bytes] = []
        self._roll_next = False
        self._sync_next = False
        self._unsynced = False
        self._synced_at = -SYNC_SPACING_SECONDS
        self._beside = syncs
        self._syncing: Syncing | None = None
        self._in_flight: int | None = None
        """How many blocks the sync covers that is on its way, None for no such sync."""
        self._begin_next = False
        self._rolls = FileWrites(journal.disk, syncs)
        self._rolling = False
        """Whether the current segment is not durable yet, and the one before it kept for that reason."""
        self._closed = False
        self._next_sync = Later(runtime.scheduler, self._on_timer)
        self._blocks = metrics.counter(JOURNAL_BLOCKS)
        self._bytes = metrics.counter(JOURNAL_BYTES)
        self._syncs = metrics.counter(JOURNAL_SYNCS)
        self._segments = metrics.counter(JOURNAL_SEGMENTS)
        self._failures = metrics.counter(JOURNAL_FAILURES)
        self._deleted = metrics.counter(FILES_DELETED, "pyddmq/acks")

    def add_dirty(self, tracker: OffsetTracker) -> None:
        """Note that a tracker has staged ranges; once per tracker and flush."""
        self._dirty.append(tracker)
        if not self.pending:
            self._mark_pending()

    def stage(self, entry: bytes, *, durable: bool = False) -> None:
        """Stage an entry; with `durable`, the flush that writes it also syncs."""
        self._staged.append(entry)
        self._sync_next |= durable
        if not self.pending:
            self._mark_pending()

    def stage_segment(self, *markers: bytes) -> None:
        """Make the next flush begin a new segment, with `markers` behind its snapshot; it returns with that durable."""
        self._markers += markers
        self._roll_next = self._sync_next = True
        if not self.pending:
            self._mark_pending()

    def follow_log(self) -> None:
        """Have the log durable before what is staged is written: a record in it takes a message's place.

        Under `flush: async` it is not on the disk yet: a power loss would take it, and leave its message finished.
        """
        self._follows_log = True

    def look(self) -> None:
        """Have the next flush begin a new segment where the current one's file was deleted. Raises OSError."""
        if not self._rolling and not self._roll_next and self._journal.is_deleted:
            log.error("ack_journal_deleted", folder=self._journal.folder)
            self._deleted.add()
            self.stage_segment()

    def flush(self) -> None:
        """Write everything staged in one write.

        When the segment is full that begins a new one, which is made durable beside the loop. While that continues it
        is written to; only when it is full before it is durable does this wait.

        Raises:
            ProgressFailed: It could not be written; no reply may promise it.
        """
        failed = self.failed
        if failed is not None and not (self.pending and isinstance(failed, ProgressFull)):
            raise failed
        if not self.pending:
            return
        try:
            if self._follows_log:
                self._make_log_durable()
                self._follows_log = False
            payload = self._take_staged()
            if self._roll_next or (payload and not self._journal.append(payload)):
                self._roll()
            elif payload:
                self._unsynced = True
                self._blocks.value += 1
                self._bytes.value += len(payload)
        except OSError as error:
            # Nothing is lost by a failed claim of space: the snapshot that is tried next holds what was staged.
            self._roll_next = True
            failed = self._refuse("writing", error)
            self._save_earlier()
            raise failed from error
        self.failed = None
        self.pending = False
        if self._unsynced:
            if self._sync_each_flush or self._sync_next:
                self.sync()
            else:
                self._next_sync.unless_due(SYNC_SECONDS)

    @property
    def _written(self) -> int:
        """How much was written, in blocks and segments: this says what a sync covers."""
        return int(self._blocks.value + self._segments.value)

    def sync(self) -> None:
        """Make everything durable, staged entries too; free when nothing changed since the last one.

        Raises:
            ProgressFailed: The write or the sync failed.
        """
        if self.pending:
            self.flush()
        self.wait()
        if self.failed is not None:
            raise self.failed
        if not self._unsynced:
            return
        try:
            self._journal.sync()
        except OSError as error:
            raise self._refuse("syncing", error) from error
        self._durable(self._written)

    def syncing(self) -> FileWrite:
        """`sync` in steps; what is written meanwhile waits for the next one. Raises the same."""
        if self.pending:
            self.flush()
        if self.failed is not None:
            raise self.failed
        if not self._unsynced:
            return
        covered, before, rolling, segment = self._written, self._syncing, self._rolling, self._journal.number
        try:
            yield self._journal.file
            if rolling:
                yield self._journal.folder
        except OSError as error:
            raise self.failed or self._refuse("syncing", error) from error
        # The system may have reported a failure to those that had begun before, which end about now, too.
        if before is not None:
            before.wait()
        if rolling and segment == self._journal.number:
            self._rolls.finish()
        if self.failed is not None:
            raise self.failed
        self._durable(covered)

    def _durable(self, covered: int) -> None:
        """Note that as many blocks are durable."""
        self._synced_at = self._clock.monotonic()
        self._syncs.value += 1
        if covered == self._written:
            self._unsynced = False
            if not self.pending:
                # What is staged now may ask for its own.
                self._sync_next = False

    def wait(self) -> None:
        """Wait for syncs that are on their way: the system reports a failure to them or to another one, not both."""
        self._begin_next = False
        if self._syncing is not None:
            self._syncing.wait()
        self._rolls.finish()

    def begin_sync(self) -> None:
        """Begin to make everything durable, staged entries too, beside the loop; a sync on its way is let end first.

        Raises:
            ProgressFailed: The write failed. A failed sync sets `failed` when it has ended.
        """
        if self._beside is None:
            self.sync()
            return
        if self.pending:
            self.flush()
        if self.failed is not None:
            raise self.failed
        if self._in_flight is not None or self._rolling:
            self._begin_next = True
        elif self._unsynced:
            self._in_flight = self._written
            self._syncing = self._beside.begin(self._journal.file, partial(self._synced, self._written))

    def _synced(self, covered: int, error: OSError | None) -> None:
        """Note that a sync beside the loop has ended; what was written after it began waits for the next one."""
        self._in_flight = self._syncing = None
        if error is not None:
            if not self._closed and (self.failed is None or isinstance(self.failed, ProgressFull)):
                self._refuse("syncing", error)
            return
        self._durable(covered)
        self._begin_asked_for()

    def _begin_asked_for(self) -> None:
        """Begin the sync that was to follow those that have ended."""
        if self._in_flight is None and not self._rolling:
            begin_next, self._begin_next = self._begin_next, False
            if self._unsynced and begin_next and self.failed is None and not self._closed:
                # In a turn of its own: what is staged may need the next segment, which cannot begin amid the steps of
                # the roll that has just ended, and whose failure its own flush must hear of.
                self._next_sync.after(0.0)

    @property
    def is_sync_due(self) -> bool:
        """Whether the last sync is so long ago that one may follow a sync of the log."""
        return (
            self._in_flight is None
            and not self._rolling
            and self._clock.monotonic() - self._synced_at >= SYNC_SPACING_SECONDS
        )

    def set_space_aside(self) -> None:
        """Claim the next segment's space where that could not be done before; quiet when there is none."""
        if self._rolling:
            # The segment that is about to be released will be it.
            return
        try:
            self._journal.ensure_spare()
        except OSError as error:
            if self.on_failed is not None and error.errno not in NO_SPACE:
                self._refuse("reserving space for", error)
            else:
                self.limited_log.note("ack_journal_reserve_missing", error=str(error))

    def close(self) -> None:
        """Withdraw the timer and close the journal."""
        self._closed = True
        self._next_sync.cancel()
        self.limited_log.flush(everything=True)
        self._rolls.abandon()
        self._journal.close()

    def begin(self) -> None:
        """Have the driver hear of everything from now on: what failed before was the opening's failure."""
        if self._driver is not None:
            self._on_pending, self.on_failed = self._driver

    def _mark_pending(self) -> None:
        self.pending = True
        self._next_sync.unless_due(SYNC_SECONDS)
        if self._on_pending is not None:
            self._on_pending()

    def _take_staged(self) -> bytes:
        parts = self._staged
        self._staged = []
        dirty = self._dirty
        if dirty:
            self._dirty = []
            for tracker in dirty:
                ranges = tracker.take_staged()
                if ranges:
                    parts.append(encode_acked(tracker.tracker_id, self._fence(tracker, ranges[-1] - 1), ranges))
                if tracker.counts_staged:
                    tracker.counts_staged = False
                    counts = tracker.expired, tracker.expired_ms, tracker.dead_letters
                    parts.append(encode_counted(tracker.tracker_id, *counts))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _roll(self) -> None:
        """Begin a new segment; its snapshot covers whatever is staged.

        Raises:
            OSError: It could not be begun.
            ProgressFailed: It is not durable, or the one before it is not.
        """
        before = self.failed
        self._rolls.finish()
        if self.failed is not None and self.failed is not before:
            raise self.failed
        self._rolls.add(self._roll_steps())
        if self.failed is not None and self.failed is not before:
            raise self.failed
        if not self._unsynced:
            # It was made at once.
            self._sync_next = False

    def _roll_steps(self) -> FileWrite:
        """Begin a segment, make it durable, and give up the one before it."""
        self._journal.begin_segment(self._snapshot(), self._markers)
        unsynced_before = self._unsynced
        self._markers.clear()
        self._roll_next = False
        self._rolling = self._unsynced = True
        self._segments.value += 1
        covered = self._written
        try:
            yield self._journal.file
            yield self._journal.folder
        except SyncFailed as error:
            if unsynced_before and self.failed is None:
                # What was answered before it began is in the segment that counts if this one is lost.
                with contextlib.suppress(OSError):
                    self._journal.sync_earlier()
            if self.failed is None or isinstance(self.failed, ProgressFull):
                self._refuse("syncing", error)
            return
        finally:
            self._rolling = False
        if self.failed is None or isinstance(self.failed, ProgressFull):
            self._journal.give_up_earlier()
            self._durable(covered)
            self._begin_asked_for()

    def _refuse(self, what: str, error: OSError) -> ProgressFailed:
        before = self.failed
        full = what == "writing" and can_wait(error)
        failed = self.failed = ProgressFull(error) if full else ProgressFailed(what, error)
        self._failures.value += 1
        on_failed = None if full else self.on_failed
        if on_failed is not None:
            self.on_failed = None
            on_failed(f"{what} the ack journal", error)
        elif type(before) is not type(failed):
            log.error("acks_refused", reason=str(failed))
        return failed

    def _save_earlier(self) -> None:
        """Sync, once, what was written and answered before a write failed: D9's 100 ms hold for it all the same."""
        self.wait()
        if self._unsynced:
            self._unsynced = False
            with contextlib.suppress(OSError):
                self._journal.sync()

    def _on_timer(self) -> None:
        """Begin the sync that is due."""
        self._next_sync.cancel()
        try:
            self.begin_sync()
        except ProgressFailed as error:
            # `failed` says so, and the log has its line; only a full disk is worth another try.
            if isinstance(error, ProgressFull):
                self._next_sync.after(SYNC_SECONDS)
