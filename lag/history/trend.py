"""How lag went over a span: the ends, the slope, and the worst of each of its equal parts.

A group's lag in a part is the sum over its queues. Where one of them is known before and after a part and not in it,
the sum is not known either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from lag.history.rows import figures
from lag.journal.scan import Block
from lag.rules.facts import median_slope

PARTS: Final = 30
STEP_ROWS: Final = 200
"""Rows that a step looks at: some tenths of a millisecond."""

Number = TypeVar("Number", int, float)
Place = tuple[str, str, int]
"""Group, topic, number of the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendLine:
    """How the lag of a queue, or of a group, went.

    Attributes:
        first: Messages behind where it is first known; null: nowhere.
        last: Where it is last known.
        slope: Messages per second by which it rose: the median over pairs of parts half the span apart; null: fewer
            than two are known.
        parts: The most messages behind in each part; null: not known.
    """

    first: int | None
    last: int | None
    slope: float | None
    parts: Sequence[int | None]


class _Parts:
    """The parts of one queue: the worst, and the last, of each."""

    __slots__ = ("last", "peak")

    def __init__(self, count: int) -> None:
        self.last: list[int | None] = [None] * count
        self.peak: list[int | None] = [None] * count


class Trend:
    """Gathers the lag of queues.

    Args:
        since_ms: Begin of the span.
        until_ms: Its end, exclusive.
        group: Only this one.
        parts: How many parts it has.
    """

    def __init__(self, since_ms: int, until_ms: int, group: str | None = None, parts: int = PARTS) -> None:
        assert since_ms < until_ms, "a span is of time"
        self.since_ms = since_ms
        self.width_ms = max(1, -(-(until_ms - since_ms) // parts))
        self._until_ms = until_ms
        self._group = group
        self._count = parts
        self._queues: dict[Place, _Parts] = {}

    def add(self, block: Block) -> Iterator[None]:
        """Take a block of the journal in, in steps; blocks come in the order of their times."""
        for number, (key, time_ms, row) in enumerate(block.queues):
            if not number % STEP_ROWS:
                yield
            if not self.since_ms <= time_ms < self._until_ms or self._group not in (None, key[0]):
                continue
            found = figures(block.tier, time_ms, row)
            if found.lag is None and found.peak is None:
                continue
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = _Parts(self._count)
            at = (time_ms - self.since_ms) // self.width_ms
            before = queue.peak[at]
            queue.peak[at] = found.peak if before is None else max(before, found.peak or 0)
            if found.lag is not None:
                queue.last[at] = found.lag

    def queues(self) -> dict[Place, TrendLine]:
        """Return the line of each queue, by group, topic and number."""
        return {place: self._line(each.last, each.peak) for place, each in sorted(self._queues.items())}

    def groups(self) -> dict[str, TrendLine]:
        """Return the line of each group, by name."""
        members: dict[str, list[_Parts]] = {}
        for place, each in sorted(self._queues.items()):
            members.setdefault(place[0], []).append(each)
        return {
            name: self._line(sum_lines([each.last for each in found]), sum_lines([each.peak for each in found]))
            for name, found in members.items()
        }

    def _line(self, last: Sequence[int | None], peak: Sequence[int | None]) -> TrendLine:
        lags = [lag for lag in last if lag is not None]
        return TrendLine(
            first=lags[0] if lags else None,
            last=lags[-1] if lags else None,
            slope=median_slope([at * self.width_ms for at, lag in enumerate(last) if lag is not None], lags),
            parts=list(peak),
        )


def sum_lines(lines: Sequence[Sequence[Number | None]]) -> list[Number | None]:
    """Add lines up; null where a line that is known before and after is not."""
    spans = [_known(line) for line in lines]
    found: list[Number | None] = []
    for at in range(len(lines[0])):
        here = [line[at] for line, span in zip(lines, spans, strict=True) if at in span]
        known = [each for each in here if each is not None]
        found.append(sum(known) if known and len(known) == len(here) else None)
    return found


def _known(line: Iterable[float | None]) -> range:
    places = [at for at, each in enumerate(line) if each is not None]
    return range(places[0], places[-1] + 1) if places else range(0)
