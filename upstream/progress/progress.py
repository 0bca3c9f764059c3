"""Progress: what every group has finished, kept through crashes. One per node.

It owns the trackers of all (group, topic, queue)s, the ack journal and `consumerOffset.json`, and keeps three promises:

- What `flush` returned from survives SIGKILL; what `sync` returned from, or is 100 ms old, survives power loss (D9).
- `consumerOffset.json` holds watermarks only and is never ahead of the journal (D10): `commit` first makes the journal
  durable, together with the values that it is about to write. So a value found there that the journal does not know
  was put there by another program, and wins.
- Nothing is taken for finished that was not: after damage, a lost log tail or a foreign file, what is in doubt comes
  again (D11).

After a write or sync of the journal failed, `failed` is set and every `flush` raises: acks are refused, visibly. A
full disk, with the reserve gone too, refuses in the same way and ends by itself (D5).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Literal, NamedTuple

import structlog

from broker.errors import NO_SPACE, StoreUnreadable
from broker.retry.metrics import RECOVERED as RETRIES_RECOVERED
from broker.runtime.bundle import Runtime
from broker.runtime.disks.timed_syncs import TimedSyncs
from broker.runtime.file_writes import FileWrite, FileWrites
from broker.runtime.metrics import declare
from broker.runtime.sealed_file import SealedFile
from broker.runtime.seams import Disk
from upstream.progress import journal_format as form
from upstream.progress.ack_writer import AckWriter, Driver, ProgressFailed, ProgressFull
from upstream.progress.journal import SEGMENT_BYTES, AckJournal
from upstream.progress.offset_commits import OffsetCommits
from upstream.progress.reconcile import OFFSETS_CLAMPED, Reconciler, names_of, report_damage
from upstream.progress.replay import JournalReplay, finish_gone, identity_at, replaying
from upstream.progress.tracker import AttemptFailures, FailureKind, OffsetTracker
from upstream.progress.tracker_table import TrackerExtras, TrackerTable
from upstream.queues import UNKNOWN, CommittedOffsets, Queues, QueueView, TakeOver
from upstream.retention_losses import Losses

# `pyddmq/acks_lost.json`: the ack journal lost its snapshot, so a group that is known nowhere may not be a new one.
#
# Such a group begins at the oldest message (nothing may be skipped) until every configured group has its place in the
# journal again. The file keeps that over a kill in between, and over a repair, which knows no configuration.

FILE = "pyddmq/acks_lost.json"


class LostSnapshot:
    """The file of one store."""

    def __init__(self, root: str, *, disk: Disk) -> None:
        self._folder = f"{root}/pyddmq"
        self._path = f"{root}/{FILE}"
        self._disk = disk
        self._file = SealedFile(disk, self._path)

    @property
    def noted(self) -> bool:
        """Whether it is there; a damaged one says the same. Raises OSError."""
        try:
            return self._file.load() is not None
        except StoreUnreadable:
            return True

    def note(self) -> None:
        """Write it, durably; a full disk leaves it to this process to know. Raises OSError."""
        try:
            self._file.save({"version": 1})
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise

    def forget(self) -> bool:
        """Delete it, where it is; False when that is to be tried again."""
        try:
            if self._disk.exists(self._path):
                self._disk.remove(self._path)
                self._disk.sync_folder(self._folder)
        except OSError:
            return False
        return True


log = structlog.get_logger()

DEAD_LETTERS_RECOVERED = declare(
    "pyddmq_dead_letters_recovered_total", "Messages finished at start because their dead letter exists.", ("group",)
)


class DeadLetterOrigin(NamedTuple):
    """The message of a dead-letter record."""

    group: str
    topic: str
    queue_id: int
    offset: int
    physical: int = UNKNOWN
    """Its commit-log offset, compared with the log's where given."""


Begin = Callable[[str, str, int], int | None]
"""Tells the first offset of a group in a queue of a topic; None for what it does not subscribe."""


def _end_of(queues: Queues, topic: str, queue_id: int) -> int | None:
    queue = queues.queue(topic, queue_id)
    return None if queue is None else queue.max_offset


class Progress:
    """Trackers, ack journal and committed offsets of one node; see the module's text for what it promises."""

    def __init__(
        self,
        *,
        journal: AckJournal,
        offsets: CommittedOffsets,
        queues: Queues,
        runtime: Runtime,
        ack_flush: Literal["async", "sync"],
        lost: LostSnapshot,
        file_writes: FileWrites,
        driver: Driver | None,
    ) -> None:
        """Assemble; use `opening`."""
        clock, metrics = runtime.clock, runtime.metrics
        self._table = TrackerTable(queues)
        self.trackers = self._table.by_key
        """Every tracker known, also of groups that are no longer configured (D6)."""
        self.losses = Losses(metrics, clock)
        self.offsets = offsets
        self._queues = queues
        self._metrics = metrics
        self._writer = AckWriter(
            journal,
            runtime=runtime,
            sync_each_flush=ack_flush == "sync",
            fence=self._table.fence,
            snapshot=self._table.snapshot,
            syncs=file_writes.syncs and TimedSyncs(file_writes.syncs, clock, metrics, "ack_journal"),
            driver=driver,
            make_log_durable=queues.make_durable,
        )
        self._commits = OffsetCommits(
            offsets,
            known=self._table.known,
            writer=self._writer,
            runtime=runtime,
            file_writes=file_writes,
        )
        self.shared_read: set[tuple[str, int]] = set()
        """Queues with retry records of all groups that were read since the start (`upstream.retry.retry_topic`)."""
        self._commit_next = False
        self._lost = lost
        self._snapshot_lost = False
        self._groups_known = False

    @classmethod
    def opening(
        cls,
        root: str,
        *,
        queues: Queues,
        runtime: Runtime,
        ack_flush: Literal["async", "sync"] = "async",
        segment_bytes: int = SEGMENT_BYTES,
        file_writes: FileWrites | None = None,
        driver: Driver | None = None,
    ) -> Generator[None, None, Progress]:
        """Read the journal and consumerOffset.json, and bring both in line with the log, in steps of bounded work.

        Nothing but a note is written before the last step, which may be left out; all is durable after it.

        Args:
            root: The store's root; the journal is in `pyddmq/acks` below it.
            queues: Recovered, and nothing appended to them since (D11).
            runtime: Where both live; the scheduler runs the sync that is due after a flush.
            ack_flush: "sync" makes every `flush` durable.
            segment_bytes: Size at which a new journal segment begins.
            file_writes: The store's; does unawaited work beside the loop where it has `syncs`.
            driver: Whose turns flush it; hears nothing of the opening.

        Raises:
            ProgressFailed: The journal cannot be read or written.
            StoreFormatNewer: A newer version wrote it.
            StoreUnreadable: consumerOffset.json and its copies are damaged.
        """
        disk, clock, metrics = runtime.disk, runtime.clock, runtime.metrics
        started = clock.monotonic()
        file_writes = file_writes or FileWrites(disk)
        journal = AckJournal(f"{root}/pyddmq/acks", disk, segment_bytes=segment_bytes)
        try:
            content = yield from journal.reading()
            offsets = queues.opening_offsets(root, runtime, finish_writes=file_writes.finish)
            lost = LostSnapshot(root, disk=disk)
            snapshot_lost = lost.noted
            if content is not None and not content.whole:
                snapshot_lost = True
                lost.note()
        except OSError as error:
            raise ProgressFailed("reading", error) from error
        progress = cls(
            journal=journal,
            offsets=offsets,
            queues=queues,
            runtime=runtime,
            ack_flush=ack_flush,
            lost=lost,
            file_writes=file_writes,
            driver=driver,
        )
        entries = content.entries if content is not None else []
        found = yield from replaying(entries, partial(_end_of, queues))
        if content is not None:
            report_damage(content, found, metrics)
        progress._snapshot_lost = snapshot_lost
        take_over = (yield from queues.taking_over(offsets)) if content is None or offsets.changed_outside else None
        progress._adopt(found, take_over)
        progress._writer.begin()
        log.info(
            "acks_replayed",
            trackers=len(progress.trackers),
            entries=len(entries),
            seconds=round(clock.monotonic() - started, 3),
        )
        return progress

    # Trackers

    def tracker(self, group: str, topic: str, queue_id: int, *, first_offset: Callable[[], int]) -> OffsetTracker:
        """Return the tracker of a queue.

        A known one keeps its position, or the oldest message where that is later. A new one starts at the value
        that consumerOffset.json has for it, or else at `first_offset()`; that is durable with the next flush (D6).
        """
        queue = self._queues.queue(topic, queue_id)
        tracker = self.trackers.get((group, topic, queue_id))
        if tracker is None:
            tracker = self._new_tracker(group, topic, queue_id, queue, first_offset)
        self._table.known[tracker.tracker_id].queue = queue
        self._skip_expired(tracker, queue)
        return tracker

    def _at_committed(self, group: str, topic: str, queue_id: int) -> OffsetTracker:
        return self.tracker(group, topic, queue_id, first_offset=int)

    def _new_tracker(
        self, group: str, topic: str, queue_id: int, queue: QueueView | None, first_offset: Callable[[], int]
    ) -> OffsetTracker:
        value = self.offsets.get(group, topic, queue_id)
        if value is not None:
            start = value
        elif self._snapshot_lost and queue is not None:
            # It is unknown whether this group is new or its tracker was lost; nothing may be skipped.
            start = queue.min_offset
        else:
            start = first_offset()
        if queue is not None and start > queue.max_offset:
            start = queue.max_offset
            self._metrics.counter(OFFSETS_CLAMPED, group).add()
        tracker = OffsetTracker(group, topic, queue_id, watermark=start)
        known = self._register(tracker, [] if value is None else [value])
        self._writer.stage(self._table.entry(known), durable=True)
        return tracker

    def _register(self, tracker: OffsetTracker, file_values: list[int]) -> TrackerExtras:
        known = self._table.add(tracker, file_values)
        tracker.stage_to(self._writer.add_dirty)
        return known

    def _skip_expired(self, tracker: OffsetTracker, queue: QueueView | None) -> None:
        """Move a tracker that is below the oldest message up to it, and count what was unfinished."""
        if queue is None or tracker.watermark >= queue.min_offset:
            return
        expired = finish_gone(tracker, queue, tracker.watermark)
        if expired:
            self.lost(tracker, expired)
            log.warning("messages_expired_unfinished", count=expired, **names_of(tracker), offset=tracker.watermark)

    # What happens to messages

    def fail(self, tracker: OffsetTracker, offset: int, *, kind: FailureKind, count: int, due_wall_ms: int) -> None:
        """Note a failed attempt: the offset's count of `kind` is now `count`, and it is due again at `due_wall_ms`.

        Ignored for a finished offset.
        """
        if tracker.is_finished(offset):
            return
        before = tracker.failures.get(offset, AttemptFailures())
        tracker.failures[offset] = before.with_count(kind, count, due_wall_ms)
        self._writer.stage(form.encode(form.FailedAttempt(tracker.tracker_id, offset, kind, count, due_wall_ms)))

    def dead_lettered(self, tracker: OffsetTracker, offset: int) -> None:
        """Note that the offset's dead-letter record is durable, and finish it (D16)."""
        if tracker.finish(offset):
            tracker.dead_letters += 1
            self._writer.stage(form.encode(form.Dead(tracker.tracker_id, offset)))

    def lost(self, tracker: OffsetTracker, count: int) -> None:
        """Count messages that retention took from a tracker; called in the turn in which they are finished there."""
        tracker.lose(count, self.losses.add(tracker.group, tracker.topic, count))

    def scan_position(self, topic: str, queue_id: int) -> int:
        """Return the first dead letter of this queue whose origin may not be finished here; 0 when never scanned."""
        return self._table.scanned.get((topic, queue_id), 0)

    def dead_letters_done(self, topic: str, queue_id: int, offset: int) -> None:
        """Remember that all dead letters of this queue below `offset` have their origins finished here.

        Called after `dead_lettered` of the record at `offset - 1`; they become durable in the order of their queue.
        """
        self._writer.follow_log()
        if offset > self._table.scanned.get((topic, queue_id), 0):
            self._table.scanned[topic, queue_id] = offset
            self._writer.stage(form.encode_scanned(topic, queue_id, offset))

    def finish_replaced(
        self,
        queue: QueueView,
        replaced_by: Callable[[QueueView, int], Iterable[DeadLetterOrigin]],
        *,
        begin: Begin,
        sent_back: bool = False,
    ) -> None:
        """Finish the messages that the records of a queue replace and the journal did not hear of (D16, D27, D37).

        To be called before the group starts; what it finishes is durable with the next flush.

        Args:
            queue: Holds dead letters, or retry records; is read from `scan_position` on, which then is its end.
            replaced_by: Reads what its records replace, from an offset on.
            begin: Tells where the group starts in a queue that neither journal nor committed offsets know: what became
                of a message there is known by the record alone.
            sent_back: They are retry records.
        """
        start = self.scan_position(queue.topic, queue.queue_id)
        if start >= queue.max_offset:
            return
        finish, recovered = (
            (OffsetTracker.finish, RETRIES_RECOVERED) if sent_back else (self.dead_lettered, DEAD_LETTERS_RECOVERED)
        )
        for tracker, origin in self._unfinished(replaced_by(queue, start), begin):
            finish(tracker, origin.offset)
            self._metrics.counter(recovered, origin.group).add()
        self.dead_letters_done(queue.topic, queue.queue_id, queue.max_offset)

    def _unfinished(
        self, origins: Iterable[DeadLetterOrigin], begin: Begin
    ) -> Iterator[tuple[OffsetTracker, DeadLetterOrigin]]:
        for origin in origins:
            key = (origin.group, origin.topic, origin.queue_id)
            tracker = self.trackers.get(key)
            if tracker is None:
                # The journal is lost, and with it what it knew above the committed offset, if that is not lost, too.
                first = 0 if self.offsets.get(*key) is not None else begin(*key)
                if first is not None:
                    tracker = self.tracker(*key, first_offset=partial(int, first))
            if tracker is None or not self._is_same_record(origin) or tracker.is_finished(origin.offset):
                continue
            yield tracker, origin

    def _is_same_record(self, origin: DeadLetterOrigin) -> bool:
        queue = self._queues.queue(origin.topic, origin.queue_id)
        if queue is not None and origin.offset >= queue.max_offset:
            return False
        held = identity_at(queue, origin.offset)
        return UNKNOWN in (held, origin.physical) or held == origin.physical

    def reset(self, tracker: OffsetTracker, offset: int) -> None:
        """Set a tracker to `offset`, forgetting acks and failures above it; durable with the next flush.

        The next flush begins a new segment, so that no damage can bring back acks from before, and writes
        consumerOffset.json.
        """
        tracker.reset(offset)
        known = self._table.known[tracker.tracker_id]
        known.fence_offset = -1
        known.let_go = False
        queue = self._queues.queue(tracker.topic, tracker.queue_id)
        tracker.reset_end = offset if queue is None else queue.max_offset
        self._writer.stage_segment(form.encode(form.Reset(tracker.tracker_id, offset)))
        self._commit_next = True

    def follow(self, tracker: OffsetTracker) -> None:
        """Take over the committed offset that a consumer inside the program left for this queue, if one did (D36)."""
        value = self.offsets.get(tracker.group, tracker.topic, tracker.queue_id)
        known = self._table.known[tracker.tracker_id]
        known.let_go = False
        if value is None or value in (known.file_values or [tracker.watermark]):
            # The journal knows it: no other program put it there.
            return
        queue = self._queues.queue(tracker.topic, tracker.queue_id)
        self.reset(tracker, value if queue is None else min(value, queue.max_offset))

    def let_go(self, group: str, topic: str | None = None) -> None:
        """Leave committed offsets of a group, or of one topic of it, to who consumes next, until `follow` (D36)."""
        for known in self._table.known:
            tracker = known.tracker
            known.let_go = known.let_go or (tracker.group == group and topic in (None, tracker.topic))

    # Writing

    @property
    def failed(self) -> ProgressFailed | None:
        """Set while acks are refused: by a full disk until there is space, by anything else until a restart."""
        return self._writer.failed

    @property
    def pending(self) -> bool:
        """Whether something is staged."""
        return self._writer.pending

    def flush(self) -> None:
        """Write everything staged, in one write; to be called before the replies that promise it.

        Raises:
            ProgressFailed: It could not be written. What was applied stays applied in memory, so nothing is delivered
                twice by this process; no reply may promise it.
        """
        self._writer.flush()
        if self._commit_next:
            self._commit_next = False
            self.commit()

    def sync(self) -> None:
        """Make everything durable, staged entries too. Free when nothing changed since the last one.

        Raises:
            ProgressFailed: The write or the sync failed.
        """
        self.flush()
        self._writer.sync()

    def syncing(self) -> FileWrite:
        """`sync` in steps. Raises ProgressFailed: as `sync`."""
        return self._writer.syncing()

    def sync_after_log(self) -> None:
        """Begin to sync now that the log was, but not more often than every 20 ms; the timer sees to the rest (D9).

        Raises:
            ProgressFailed: As `flush`.
        """
        if self._writer.is_sync_due:
            self.flush()
            self._writer.begin_sync()

    def commit(self) -> None:
        """Write the watermarks that moved to consumerOffset.json, after making the journal durable.

        A failed write of that file is counted and logged, and made up for by the next commit.

        Raises:
            ProgressFailed: The journal cannot be written; the file stays as it was.
        """
        self._writer.look()
        self._commits.commit()
        self._committed()

    def begin_commit(self) -> None:
        """`commit` beside the loop, unless one is under way. Raises ProgressFailed: as `flush`."""
        self._writer.look()
        self.flush()
        self._commits.begin(self._committed)

    def _committed(self) -> None:
        if self._groups_known:
            self._groups_known = not self._lost.forget()

    def groups_started(self) -> None:
        """Every configured group has its trackers: after the next commit an unknown one is new for certain (D6)."""
        self._groups_known = True

    def close(self) -> None:
        """Commit and close; after a failure, only close.

        Raises:
            ProgressFailed: What was staged could not be written.
        """
        try:
            if self.failed is None or isinstance(self.failed, ProgressFull):
                self.commit()
                self.sync()
        finally:
            self._writer.close()

    def _adopt(self, found: JournalReplay, take_over: TakeOver | None) -> None:
        """Take over what the journal says, as far as committed offsets and log agree; that is the new beginning."""
        reconciler = Reconciler(self.offsets, self._queues, self._metrics)
        for each in found.trackers.values():
            tracker = each.tracker
            self._register(tracker, each.file_values)
            self.losses.known(tracker.group, tracker.topic, tracker.expired, tracker.expired_ms)
            reconciler.resolve(each)
            self._skip_expired(tracker, self._queues.queue(tracker.topic, tracker.queue_id))
        reconciler.clamp_others(self.trackers)
        for (topic, queue_id), offset in found.scanned.items():
            queue = self._queues.queue(topic, queue_id)
            self._table.scanned[topic, queue_id] = offset if queue is None else min(offset, queue.max_offset)
        taken = take_over is not None and take_over(self._at_committed, self._metrics)
        self._writer.stage_segment(*reconciler.markers)
        self.flush()
        if reconciler.changed or taken:
            self.commit()


__all__ = ["DeadLetterOrigin", "Progress", "ProgressFailed", "ProgressFull"]
