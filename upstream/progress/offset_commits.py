"""Commits: watermarks go to `consumerOffset.json`, which is never ahead of the ack journal (D10).

Before the file is written, the journal says durably which values it is about to get. So a value found there at a start
that the journal does not know was put there by another program, and wins.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import AT_ONCE, TURN, FileWrite, FileWrites, Steps, at_once, can_wait
from broker.runtime.metrics import declare
from upstream.progress import journal_format as form
from upstream.progress.ack_writer import AckWriter, ProgressFailed
from upstream.progress.tracker_table import TrackerExtras
from upstream.queues import CommittedOffsets

FILE_VALUES_MAX = 100
"""Values that consumerOffset.json may hold while writing it fails; the journal's entry has room for 255."""

OFFSETS_COMMITTED = declare("pyddmq_offsets_committed_total", "Offsets written to consumerOffset.json.")
OFFSETS_COMMIT_ERRORS = declare("pyddmq_offsets_commit_errors_total", "Writes of consumerOffset.json that failed.")


class OffsetCommits:
    """Writes the watermarks of one node's trackers to `consumerOffset.json`."""

    def __init__(
        self,
        offsets: CommittedOffsets,
        *,
        known: list[TrackerExtras],
        writer: AckWriter,
        runtime: Runtime,
        file_writes: FileWrites,
    ) -> None:
        """Set up.

        Args:
            offsets: The file.
            known: The node's trackers, a list that grows with them.
            writer: The ack journal's; which fails when its file does. A commit flushes its rate-limited log.
            runtime: Its disk has both; counts offsets written and writes that failed.
            file_writes: Makes the commits that are begun.
        """
        self._offsets = offsets
        self._known = known
        self._writer = writer
        self._disk = runtime.disk
        self._file_writes = file_writes
        self._is_under_way = False
        self._metrics = runtime.metrics
        self._file_failed = False

    def commit(self) -> None:
        """Write the watermarks that moved, after making the journal durable.

        A failed write of the file is counted and logged, and made up for by the next commit.

        Raises:
            ProgressFailed: The journal cannot be written; the file stays as it was.
        """
        self._offsets.finish_writes()
        self._writer.wait()
        at_once(self._disk, self._committing())

    def begin(self, done: Callable[[], None]) -> None:
        """`commit` beside the loop, and call `done` after it; nothing when one is under way.

        That the journal cannot be written sets its `failed`.
        """
        if not self._is_under_way:
            self._is_under_way = True
            self._file_writes.add(self._committing_some_time(done), self._dropped)

    def _dropped(self) -> None:
        """The store has failed, which drops all file writes; the next commit is made all the same."""
        self._is_under_way = False

    def _committing_some_time(self, done: Callable[[], None]) -> FileWrite:
        try:
            yield from self._committing()
            done()
        except ProgressFailed:
            # It has its line in the log and shows in readiness.
            return
        finally:
            self._is_under_way = False

    def _committing(self) -> FileWrite:
        changed = [
            known
            for known in self._known
            if (len(known.file_values) != 1 or known.file_values[0] != known.tracker.watermark) and not known.let_go
        ]
        yield from self._announcing(changed)
        for number, known in enumerate(changed, start=1):
            if number % AT_ONCE == 0:
                yield TURN
            tracker = known.tracker
            self._offsets.set(tracker.group, tracker.topic, tracker.queue_id, known.file_values[-1])
        self._writer.set_space_aside()
        self._writer.limited_log.flush()
        if self._file_failed or not (yield from self._writing()):
            return
        if changed:
            for known in changed:
                del known.file_values[:-1]
            self._writer.stage(form.encode(form.Written()))
            self._metrics.counter(OFFSETS_COMMITTED).add(len(changed))

    def _writing(self) -> Steps[bool]:
        """Write the file; a failed write is never tried again, unless the disk was only full."""
        try:
            yield from self._offsets.writing()
        except OSError as error:
            self._metrics.counter(OFFSETS_COMMIT_ERRORS).add()
            on_failed = self._writer.on_failed
            if can_wait(error) or on_failed is None:
                self._writer.limited_log.note("offsets_not_written", fault=str(error))
            else:
                self._file_failed = True
                on_failed("writing consumerOffset.json", error)
            return False
        return True

    def _announcing(self, changed: list[TrackerExtras]) -> FileWrite:
        """Make the journal say, durably, which values the file is about to get."""
        announced = []
        for number, known in enumerate(changed, start=1):
            if number % AT_ONCE == 0:
                yield TURN
            value, values = known.tracker.watermark, known.file_values
            # Where the file cannot be written for long, values gather; then the last one announced is tried again.
            if len(values) < FILE_VALUES_MAX and values[-1:] != [value]:
                values.append(value)
                announced.append(known)
                self._writer.stage(form.encode(form.Writing(known.tracker.tracker_id, value)))
        try:
            yield from self._writer.syncing()
        except ProgressFailed:
            # The file was not touched. That the journal may name these values does no harm.
            for known in announced:
                known.file_values.pop()
            raise
