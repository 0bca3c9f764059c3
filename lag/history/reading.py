"""Reads a span of a journal for trends and objectives, in steps, and no more rows than a bound."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from lag.blocks import BlockGap
from lag.journal.files import WIDTH_MS, Tier
from lag.journal.reader import JournalQuery, JournalReader
from lag.journal.scan import Block

ROWS_MAX: Final = 1_000_000
"""Rows that a running node reads for one question: some seconds, in steps."""
RAW_MS: Final = 7_200_000
"""Up to so long a span every sample is looked at; minutes are made of past hours, so that of a longer one as
much is raw."""
MINUTES_MS: Final = 3 * 86_400_000
"""Up to so long a span it is looked at by the minute, and above by the hour."""


class Gatherer(Protocol):
    """`Trend` or `Objectives`."""

    def add(self, block: Block) -> Iterator[None]:
        """Take a block in, in steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySpan:
    """What is read.

    Attributes:
        since_ms: Its begin.
        until_ms: Its end, exclusive.
        finest: How fine rows are, where there are summaries.
        asked_ms: The length that was asked for; longer where that is more than may be read.
    """

    since_ms: int
    until_ms: int
    finest: Tier
    asked_ms: int

    @property
    def shortened(self) -> bool:
        """Whether more was asked for than may be read."""
        return self.until_ms - self.since_ms < self.asked_ms


def span_of(
    since_ms: int, until_ms: int, *, queues: int = 0, every_ms: int = 10_000, rows_max: int | None = None
) -> HistorySpan:
    """Return the span to read, which ends where it should, and begins later where it would be too much.

    Args:
        since_ms: Begin of what is asked for.
        until_ms: Its end.
        queues: Queues in a snapshot.
        every_ms: How far apart snapshots are.
        rows_max: Rows that may be read; None: any number.

    Raises:
        ValueError: The span is none.
    """
    if since_ms >= until_ms:
        raise ValueError(f"the span begins at {since_ms}, which is not before its end, {until_ms}")
    length_ms = until_ms - since_ms
    fitting_ms = length_ms
    finest = Tier.RAW if length_ms <= RAW_MS else Tier.MINUTE if length_ms <= MINUTES_MS else Tier.HOUR
    if rows_max is not None and queues:
        raw_rows = min(length_ms, RAW_MS) / every_ms * queues
        if raw_rows > rows_max:
            fitting_ms = max(1, int(rows_max * every_ms / queues))
        elif finest is not Tier.RAW:
            left = (rows_max - raw_rows) / queues * WIDTH_MS[finest]
            fitting_ms = min(length_ms, RAW_MS + int(left))
    if fitting_ms == length_ms:
        return HistorySpan(since_ms=since_ms, until_ms=until_ms, finest=finest, asked_ms=length_ms)
    return HistorySpan(since_ms=until_ms - fitting_ms, until_ms=until_ms, finest=finest, asked_ms=length_ms)


def gather(reader: JournalReader, span: HistorySpan, *into: Gatherer) -> Generator[None, None, None]:
    """Read a span in steps of some tenths of a millisecond; what cannot be read is left out."""
    # A summary has the moment of its begin; the one that the span begins in counts.
    since_ms = span.since_ms - WIDTH_MS[span.finest]
    for block in reader.steps(JournalQuery(since_ms=since_ms, until_ms=span.until_ms, finest=span.finest)):
        if block is None or isinstance(block, BlockGap):
            yield
            continue
        for each in into:
            yield from each.add(block)
