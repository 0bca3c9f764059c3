"""Acks that are answered when they are durable: one sync of the ack journal for all that came meanwhile.

An ack of a low-level client says of thousands of messages that they are done, and its client forgets them. So unlike
the results of pulls, which are written before they are answered and synced some moments later (D9), it is answered
after a sync. While one is under way what comes waits for the next, so clients that ack at once share them.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.runtime.file_writes import FileWrite, FileWrites
from broker.runtime.seams import Scheduler
from upstream.progress.progress import Progress, ProgressFailed

Durable = Callable[[bool], None]
"""Receives whether it is durable; not called when that is unknown, since the node is closing."""


class AckSyncs:
    """Makes durable what was acked."""

    def __init__(self, progress: Progress, file_writes: FileWrites, scheduler: Scheduler) -> None:
        self._progress = progress
        self._file_writes = file_writes
        self._scheduler = scheduler
        self._waiting: list[Durable] = []
        self._is_under_way = False

    def add(self, reported: Durable) -> None:
        """Have what was acked so far made durable, and report."""
        self._waiting.append(reported)
        if not self._is_under_way:
            self._is_under_way = True
            # All that came with it in this turn of the loop goes along.
            self._scheduler.call_later(0.0, self._begin)

    def _begin(self) -> None:
        self._file_writes.add(self._sync(), self._dropped)

    def _dropped(self) -> None:
        """The store has failed, which drops all file writes; acks go on, and who waited may ack again."""
        self._scheduler.call_later(0.0, self._ended, len(self._waiting), False)

    def _sync(self) -> FileWrite:
        count, durable = len(self._waiting), False
        try:
            yield from self._progress.syncing()
            durable = True
        except ProgressFailed:
            # The journal has its line in the log.
            pass
        self._ended(count, durable)

    def _ended(self, count: int, durable: bool) -> None:
        waiting, self._waiting = self._waiting[:count], self._waiting[count:]
        self._is_under_way = bool(self._waiting)
        if self._waiting:
            self._scheduler.call_later(0.0, self._begin)
        for reported in waiting:
            reported(durable)
