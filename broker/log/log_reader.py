"""Reads records of the log through a window of bounded size that moves forward.

What is read is read from the files, not mapped: it can be counted, and no damaged disk can end the process by a signal.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.format.record import (
    BLANK,
    BLANK_BYTES,
    CLAIM,
    MAGIC_BLANK,
    MAGICS,
    RECORD_OVERHEAD_BYTES,
    RecordSummary,
    check,
)
from broker.log.commit_log import CommitLog
from broker.runtime.disks.unreadable import BadStretch

WINDOW_BYTES = 1 << 18

Loaded = Callable[[int, int, bytes, list[BadStretch]], None]
"""Called with what was read: number of the segment, position in it, bytes, and those that are zeros for a bad read."""


class LogReader:
    """Reads records of the log through a window that moves forward."""

    def __init__(self, log: CommitLog, *, window_bytes: int = WINDOW_BYTES, loaded: Loaded | None = None) -> None:
        """Set up; `loaded` is called with what is read."""
        self._log = log
        self._loaded = loaded
        self._window_bytes = window_bytes
        self._limit = log.segment_bytes - BLANK_BYTES
        self._number = -1
        self._start = 0
        self._view = memoryview(b"")

    def record(self, position: int) -> RecordSummary | None:
        """Return the valid record that begins at a commit-log offset, or None. Raises OSError."""
        number, start = divmod(position, self._log.segment_bytes)
        if start + RECORD_OVERHEAD_BYTES > self._limit:
            return None
        at = self._show(number, start, RECORD_OVERHEAD_BYTES)
        view = self._view
        if len(view) - at < RECORD_OVERHEAD_BYTES:
            return None
        total, magic, own = CLAIM.unpack_from(view, at)
        if own != position or magic not in MAGICS or not RECORD_OVERHEAD_BYTES <= total <= self._limit - start:
            return None
        # `start` is the place in the segment, `at` the place in the window, which may begin behind the segment.
        if at + total > len(view):
            at = self._show(number, start, total)
            view = self._view
        return check(view, at, min(at + self._limit - start, len(view)), position)

    def is_blank(self, position: int) -> bool:
        """Whether a blank record, which fills the rest of its segment, begins at a commit-log offset."""
        number, start = divmod(position, self._log.segment_bytes)
        at = self._show(number, start, BLANK_BYTES)
        if len(self._view) - at < BLANK_BYTES:
            return False
        left = self._log.segment_bytes - start
        return BLANK.unpack_from(self._view, at) == (left, MAGIC_BLANK)

    def forget(self) -> None:
        """Read again what is asked for next."""
        self._number = -1

    def _show(self, number: int, start: int, size: int) -> int:
        """Have `size` bytes of a segment in the window, as far as it has them; return where in it they begin."""
        at = start - self._start
        if number != self._number or not 0 <= at <= len(self._view):
            self._view = memoryview(b"")
            self._number, self._start, at = number, start, 0
        if at + size > len(self._view):
            # What is shown already is kept: every byte is read once.
            rest = bytes(self._view[at:])
            segment = self._log.segments.get(number)
            wanted = max(size, self._window_bytes) - len(rest)
            assert wanted > 0, "the window lacks something of what is asked for"
            data, bad = (
                self._log.pages.read_around(number, start + len(rest), wanted) if segment is not None else (b"", [])
            )
            if self._loaded is not None:
                self._loaded(number, start + len(rest), data, bad)
            self._view = memoryview(rest + data)
            self._start, at = start, 0
        return at
