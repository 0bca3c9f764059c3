"""Commits: watermarks go to `consumerOffset.json`, which is never ahead of the ack journal (D10).

Before the file is written, the journal says durably which values it is about to get. So a value found there at a start
that the journal does not know was put there by somebody else, and wins.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from broker.errors import NO_SPACE
from broker.metrics import Metrics, declare
from broker.offsets import ConsumerOffsets
from upstream import journal_format as form
from upstream.ack_writer import AckWriter, ProgressFailed
from upstream.tracker_table import Known

log = structlog.get_logger()

FILE_VALUES_MAX = 100
"""Values that consumerOffset.json may hold while writing it fails; the journal's entry has room for 255."""

OFFSETS_COMMITTED = declare("pyddmq_offsets_committed_total", "Offsets written to consumerOffset.json.")
OFFSETS_COMMIT_ERRORS = declare("pyddmq_offsets_commit_errors_total", "Writes of consumerOffset.json that failed.")


class OffsetCommits:
    """Writes the watermarks of one node's trackers to `consumerOffset.json`."""

    def __init__(
        self,
        offsets: ConsumerOffsets,
        *,
        known: list[Known],
        writer: AckWriter,
        sync: Callable[[], None],
        metrics: Metrics,
    ) -> None:
        """Set up.

        Args:
            offsets: The file.
            known: The node's trackers, a list that grows with them.
            writer: The ack journal's; told when the file can be written no more.
            sync: Makes the journal durable, what is staged too; raises ProgressFailed.
            metrics: Counts offsets written and writes that failed.
        """
        self._offsets = offsets
        self._known = known
        self._writer = writer
        self._sync = sync
        self._metrics = metrics
        self._file_failed = False

    def commit(self) -> None:
        """Write the watermarks that moved, after making the journal durable.

        A failed write of the file is counted and logged, and made up for by the next commit.

        Raises:
            ProgressFailed: The journal cannot be written; the file stays as it was.
        """
        unsettled = [
            known
            for known in self._known
            if (len(known.file_values) != 1 or known.file_values[0] != known.tracker.watermark) and not known.let_go
        ]
        self._announce(unsettled)
        for known in unsettled:
            tracker = known.tracker
            self._offsets.set(tracker.group, tracker.topic, tracker.queue_id, known.file_values[-1])
        self._writer.set_space_aside()
        if self._file_failed or not self._save():
            return
        if unsettled:
            for known in unsettled:
                del known.file_values[:-1]
            self._writer.stage(form.encode_written())
            self._metrics.counter(OFFSETS_COMMITTED).add(len(unsettled))

    def _save(self) -> bool:
        """Write the file; a failed write is never tried again, unless the disk was only full."""
        try:
            self._offsets.save()
        except OSError as error:
            self._metrics.counter(OFFSETS_COMMIT_ERRORS).add()
            on_failed = self._writer.on_failed
            if error.errno in NO_SPACE or on_failed is None:
                log.error("offsets_not_written", error=str(error))
            else:
                self._file_failed = True
                on_failed("writing consumerOffset.json", error)
            return False
        return True

    def _announce(self, unsettled: list[Known]) -> None:
        """Make the journal say, durably, which values the file is about to get."""
        announced = []
        for known in unsettled:
            value, values = known.tracker.watermark, known.file_values
            # Where the file cannot be written for long, values gather; then the last one announced is tried again.
            if len(values) < FILE_VALUES_MAX and values[-1:] != [value]:
                values.append(value)
                announced.append(known)
                self._writer.stage(form.encode_writing(known.tracker.tracker_id, value))
        try:
            self._sync()
        except ProgressFailed:
            # The file was not touched. That the journal may name these values does no harm.
            for known in announced:
                known.file_values.pop()
            raise
