"""How many of a client's messages wait for their moment: by when each is due, since they need not be told of its end.

A message that is due counts no more; one that was cancelled is taken off by the moment that it would have been due.
"""

from __future__ import annotations

from heapq import heappop, heappush


class Pending:
    """The due times of what one client has waiting, ms since the epoch."""

    __slots__ = ("_due", "_ended")

    def __init__(self) -> None:
        self._due: list[int] = []
        self._ended: list[int] = []

    def add(self, due_ms: int) -> None:
        """Count one that is due then."""
        heappush(self._due, due_ms)

    def end(self, due_ms: int) -> None:
        """Count one no more that was due then: it was cancelled."""
        heappush(self._ended, due_ms)

    def count(self, now_ms: int) -> int:
        """Return how many wait."""
        for heap in (self._due, self._ended):
            while heap and heap[0] <= now_ms:
                heappop(heap)
        return max(0, len(self._due) - len(self._ended))

    def next_ms(self) -> int | None:
        """Return when the first of them is due, as of the last count; None where none waits."""
        return self._due[0] if self._due else None
