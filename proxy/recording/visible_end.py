"""The visible end of a node's store, written as its log grows: up to there others may read its files.

Not with each commit batch: a publish would wait for the write, and others need no more than where the end was lately.
"""

from __future__ import annotations

from broker.runtime.bundle import Runtime
from broker.runtime.later import Later
from lag.visible_end import FILE, VisibleEnd

BEHIND_SECONDS = 0.01
"""By how much what is written may be behind."""


class ShownEnd:
    """Writes the visible end from `open` to `close`; before and after that it does nothing.

    Args:
        runtime: The node's.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._file: VisibleEnd | None = None
        self._end = 0
        self._writing = Later(runtime.scheduler, self._write)

    def open(self, root: str, end: int) -> None:
        """Begin, once the store is recovered.

        Args:
            root: The store's folder.
            end: Commit-log offset up to which it may be read.
        """
        clock = self._runtime.clock
        self._file = VisibleEnd(self._runtime.disk, f"{root}/{FILE}", clock, epoch=clock.wall_us())
        self._end = end
        self._write()

    def set(self, end: int) -> None:
        """Let others read up to here, soon."""
        self._end = end
        if self._file is not None:
            self._writing.unless_due(BEHIND_SECONDS)

    def _write(self) -> None:
        file = self._file
        if file is None:
            return
        file.set(self._end)
        if file.trouble is not None:
            self._file = None
            self._runtime.limited_log.note("visible_end_not_written", fault=file.trouble)

    def close(self) -> None:
        """Say that the node stops; from now on what is whole counts."""
        if self._writing.is_due:
            self._writing.cancel()
            self._write()
        if self._file is not None:
            self._file.close()
            self._file = None

    def abandon(self) -> None:
        """Say nothing, as a kill does; harmless twice."""
        self._writing.cancel()
        if self._file is not None:
            self._file.abandon()
            self._file = None
