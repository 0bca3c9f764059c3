"""How a group went over a span, as a chart shows it: lag, rates, and what happened meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from lag.history.rows import figures
from lag.journal.scan import Block
from lag.samples import LagEvent

PARTS: Final = 180
STEP_ROWS: Final = 200
"""Rows that a step looks at: some tenths of a millisecond."""
EVENTS_MAX: Final = 100

Queue = tuple[str, int]
"""Topic, number of the queue."""


class Course:
    """Gathers one group.

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
        self._ends: dict[Queue, list[tuple[int, int] | None]] = {}
        """By queue: committed offset and lag at the end of each part; null: not known."""

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
            ends = self._ends.setdefault((key[1], key[2]), [None] * self._count)
            ends[(time_ms - self.since_ms) // self.width_ms] = found.committed, found.lag
        for event in block.events:
            if event.group in ("", self._group) and self.since_ms <= event.time_ms < self._until_ms:
                self.events.append(event)
        del self.events[:-EVENTS_MAX]

    def lag(self) -> list[int | None]:
        """Return the messages behind at the end of each part, over all queues; null: not known of every queue."""
        return [_sum(None if end is None else end[1] for end in at) for at in self._parts()]

    def finished(self) -> list[float | None]:
        """Return the messages per second that were finished in each part; null: not known."""
        return self._rates(lambda committed, _: committed)

    def published(self) -> list[float | None]:
        """Return the messages per second that were stored in each part; null: not known."""
        return self._rates(lambda committed, lag: committed + lag)

    def _parts(self) -> list[list[tuple[int, int] | None]]:
        return [[ends[at] for ends in self._ends.values()] for at in range(self._count)]

    def _rates(self, figure: Callable[[int, int], int]) -> list[float | None]:
        """Return by how much a figure rose from one known part to the next, per second."""
        found: list[float | None] = [None] * self._count
        before: tuple[int, int] | None = None
        for at, ends in enumerate(self._parts()):
            total = _sum(None if end is None else figure(*end) for end in ends)
            if total is None:
                continue
            if before is not None:
                rate = max(0.0, (total - before[1]) * 1000 / ((at - before[0]) * self.width_ms))
                found[before[0] + 1 : at + 1] = [round(rate, 3)] * (at - before[0])
            before = at, total
        return found


def _sum(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if not known or None in known else sum(each for each in known if each is not None)
