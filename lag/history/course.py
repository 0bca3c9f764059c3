"""How a group went over a span, as a chart shows it: lag, rates, and what happened meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lag.history.rows import figures
from lag.history.trend import Number, sum_lines
from lag.journal.scan import Block
from lag.samples import LagEvent

PARTS: Final = 180
STEP_ROWS: Final = 200
"""Rows that a step looks at: some tenths of a millisecond."""
EVENTS_MAX: Final = 100

Queue = tuple[str, int]
"""Topic, number of the queue."""


class _QueueParts:
    """The parts of one queue: the worst lag of each; committed offset and end where it was last read."""

    __slots__ = ("committed", "end", "peak")

    def __init__(self, count: int) -> None:
        self.peak: list[int | None] = [None] * count
        self.committed: list[int | None] = [None] * count
        self.end: list[int | None] = [None] * count


class Course:
    """Gathers one group. A queue counts from its first known part to its last.

    Args:
        since_ms: Begin of the span.
        until_ms: Its end, exclusive.
        group: The group.
        parts: How many equal parts the span has.

    Attributes:
        width_ms: Length of a part.
        events: What happened to the group or the node, the last `EVENTS_MAX`, in order.
    """

    def __init__(self, since_ms: int, until_ms: int, group: str, parts: int = PARTS) -> None:
        assert since_ms < until_ms, "a span is of time"
        self.since_ms = since_ms
        self.width_ms = max(1, -(-(until_ms - since_ms) // parts))
        self.events: list[LagEvent] = []
        self._until_ms = until_ms
        self._group = group
        self._count = parts
        self._queues: dict[Queue, _QueueParts] = {}

    def add(self, block: Block) -> Iterator[None]:
        """Take a block of the journal in, in steps; blocks come in the order of their times."""
        for number, (key, time_ms, row) in enumerate(block.queues):
            if not number % STEP_ROWS:
                yield
            if key[0] != self._group or not self.since_ms <= time_ms < self._until_ms:
                continue
            found = figures(block.tier, time_ms, row)
            if found.lag is None or found.committed is None:
                continue
            queue = self._queues.setdefault((key[1], key[2]), _QueueParts(self._count))
            at = (time_ms - self.since_ms) // self.width_ms
            queue.peak[at] = max(queue.peak[at] or 0, found.peak or 0)
            queue.committed[at], queue.end[at] = found.committed, found.committed + found.lag
        for event in block.events:
            if event.group in ("", self._group) and self.since_ms <= event.time_ms < self._until_ms:
                self.events.append(event)
        del self.events[:-EVENTS_MAX]

    def lag(self) -> list[int | None]:
        """Return the most messages behind in each part, over all queues; null: not known."""
        return self._sums([each.peak for each in self._queues.values()])

    def finished(self) -> list[float | None]:
        """Return the messages per second that were finished in each part; null: not known."""
        return self._sums([self._rates(each.committed) for each in self._queues.values()])

    def published(self) -> list[float | None]:
        """Return the messages per second that were stored in each part; null: not known."""
        return self._sums([self._rates(each.end) for each in self._queues.values()])

    def _sums(self, lines: list[list[Number | None]]) -> list[Number | None]:
        return sum_lines(lines) if lines else [None] * self._count

    def _rates(self, offsets: list[int | None]) -> list[float | None]:
        """Return by how much an offset rose from one known part to the next, per second; a fall is 0."""
        found: list[float | None] = [None] * self._count
        before: tuple[int, int] | None = None
        for at, offset in enumerate(offsets):
            if offset is None:
                continue
            if before is not None:
                rate = max(0.0, (offset - before[1]) * 1000 / ((at - before[0]) * self.width_ms))
                found[before[0] + 1 : at + 1] = [round(rate, 3)] * (at - before[0])
            before = at, offset
        return found
