"""What was appended lately, kept for the index, so that it needs not read the log again.

Each append hands over the columns that the encoder made anyway: nothing is computed or copied per message. The feed is
bounded; what does not fit, or was stored before, the index reads from the log. Both ways give the same entries.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import NamedTuple

from broker.format.record import SYS_ROLLBACK
from broker.index.rows import Fed

RECORDS_MAX = 4096
BYTES_MAX = 1 << 20
"""Bytes of topics and property blocks that are kept."""
# NamedTuple's own constructor is a Python function; this one is not.
_new = tuple.__new__


class _Append(NamedTuple):
    """One append, by columns; `end` is the commit-log offset behind its last record, `cost` counts bytes."""

    tails: list[bytes]
    physicals: list[int]
    store_ms: int
    end: int
    cost: int


class IndexFeed:
    """The latest appends, oldest first.

    Attributes:
        start: From this commit-log offset on nothing is missing here but what was dropped again; None before the first
            append.
        total: Records that were appended so far, kept or not.
    """

    def __init__(self) -> None:
        self.start: int | None = None
        self.total = 0
        self._appends: deque[_Append] = deque()
        self._records = 0
        self._bytes = 0
        self._closed = False

    def add(
        self,
        tails: list[bytes],
        physicals: list[int],
        sizes: list[int],
        *,
        store_ms: int,
        flags: int,
    ) -> None:
        """Take over the columns of an append; they must not change any more.

        Args:
            tails: See `Fed`.
            physicals: Commit-log offset of each record.
            sizes: Size of each record.
            store_ms: Their store timestamp.
            flags: The bits of sysFlag that any of them has.
        """
        self.total += len(tails)
        if self._closed:
            return
        if flags & SYS_ROLLBACK == SYS_ROLLBACK:
            # Rollbacks are not indexed: which of these are, the log says.
            self._clear()
            self.start = physicals[-1] + sizes[-1]
            return
        if self.start is None:
            self.start = physicals[0]
        cost = sum(map(len, tails))
        self._appends.append(_new(_Append, (tails, physicals, store_ms, physicals[-1] + sizes[-1], cost)))
        self._records += len(tails)
        self._bytes += cost
        while self._records > RECORDS_MAX or self._bytes > BYTES_MAX:
            self._drop_first()

    def read(self, position: int, end: int, records_max: int) -> tuple[Fed, int] | None:
        """Return records from a commit-log offset on, and where the next read continues.

        None when what is there is not in the feed, or nothing.

        Args:
            position: Where a record begins, or ended; what ends before is released.
            end: Only appends that end before this or there: the log's `visible_end`.
            records_max: No more records than that.
        """
        if self.start is None or position < self.start:
            return None
        while self._appends and self._appends[0].end <= position:
            self._drop_first()
        found = Fed([], [], [])
        left = records_max
        for tails, physicals, store_ms, append_end, _ in self._appends:
            if append_end > end or not left:
                break
            first = bisect_left(physicals, position) if physicals[0] < position else 0
            last = min(first + left, len(tails))
            found.tails.extend(tails[first:last])
            found.physicals.extend(physicals[first:last])
            found.stamps.extend([store_ms] * (last - first))
            left -= last - first
            position = append_end if last == len(tails) else physicals[last]
        return (found, position) if found.tails else None

    def close(self) -> None:
        """Keep nothing from now on: nothing will be built any more."""
        self._closed = True
        self._clear()
        self.start = None

    def _clear(self) -> None:
        self._appends.clear()
        self._records = self._bytes = 0

    def _drop_first(self) -> None:
        dropped = self._appends.popleft()
        self._records -= len(dropped.tails)
        self._bytes -= dropped.cost
        self.start = dropped.end
