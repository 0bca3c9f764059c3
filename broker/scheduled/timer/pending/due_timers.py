"""What is about to be due: the timers of the slots that were read, by due time and then in the order of enqueuing.

Eight bytes per timer: positions in the timer log, in one array per due time. Nothing else of a timer is in memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from heapq import heapify, heappop, heappush


class Coming:
    """Positions of units by due time.

    Attributes:
        count: How many.
    """

    def __init__(self) -> None:
        self.count = 0
        self._buckets: dict[int, array[int]] = {}
        self._dues: list[int] = []
        self._taken: dict[int, int] = {}
        """By due time: how many of its bucket were taken."""

    def push(self, due_ms: int, position: int) -> None:
        """Add one that was enqueued after all that are here."""
        bucket = self._buckets.get(due_ms)
        if bucket is None:
            bucket = self._buckets[due_ms] = array("q")
            heappush(self._dues, due_ms)
        bucket.append(position)
        self.count += 1

    def load(self, found: dict[int, array[int]]) -> None:
        """Add those of a slot: positions by due time, the last enqueued first. The arrays are taken over."""
        for due, positions in found.items():
            positions.reverse()
            bucket = self._buckets.get(due)
            if bucket is None:
                self._buckets[due] = positions
                self._dues.append(due)
            else:
                # Late ones of an earlier slot, or a slot that was being read: the rest is in order of positions.
                rest = bucket[self._taken.pop(due, 0) :]
                self._buckets[due] = array("q", sorted([*rest, *positions]))
            self.count += len(positions)
        heapify(self._dues)

    @property
    def next_due(self) -> int | None:
        """Due time of the first, None when there is none."""
        return self._dues[0] if self._dues else None

    def due_by(self, now_ms: int) -> int:
        """Return how many are due by a moment."""
        return sum(len(self._buckets[due]) - self._taken.get(due, 0) for due in self._dues if due <= now_ms)

    def take(self, now_ms: int, count_max: int) -> list[int]:
        """Return the positions of those that are due, in order, and forget them."""
        found: list[int] = []
        dues = self._dues
        while dues and dues[0] <= now_ms and len(found) < count_max:
            due = dues[0]
            bucket = self._buckets[due]
            start = self._taken.get(due, 0)
            end = start + count_max - len(found)
            found += bucket[start:end]
            if end >= len(bucket):
                heappop(dues)
                del self._buckets[due]
                self._taken.pop(due, None)
            else:
                self._taken[due] = end
        self.count -= len(found)
        return found

    def give_back(self, taken: list[tuple[int, int]]) -> None:
        """Put back what was taken last, the first of it first again."""
        by_due: dict[int, array[int]] = {}
        for due, position in taken:
            by_due.setdefault(due, array("q")).append(position)
        for due, positions in list(by_due.items()):
            start = self._taken.get(due, 0) - len(positions)
            if start >= 0 and self._buckets[due][start : start + len(positions)] == positions:
                # Most often nothing came in between.
                self._taken[due] = start
                self.count += len(positions)
                del by_due[due]
            else:
                positions.reverse()
        self.load(by_due)

    def __contains__(self, key: tuple[int, int]) -> bool:
        due, position = key
        bucket = self._buckets.get(due)
        if bucket is None:
            return False
        place = bisect_left(bucket, position, self._taken.get(due, 0))
        return place < len(bucket) and bucket[place] == position

    def __iter__(self) -> Iterator[int]:
        for due, bucket in self._buckets.items():
            yield from bucket[self._taken.get(due, 0) :]

    def clear(self) -> None:
        """Forget everything."""
        self.count = 0
        self._buckets.clear()
        self._dues.clear()
        self._taken.clear()
