"""What is added up for one block of summaries: a minute, or an hour, of one start of a node."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from lag.blocks import BlockGap
from lag.journal.columns import Key
from lag.journal.files import WIDTH_MS, Tier
from lag.journal.scan import STEP_ROWS, Block
from lag.journal.snapshots import SnapshotEncoder
from lag.journal.summaries import QueueSums, ScheduledSums
from lag.samples import LagEvent


class JournalWindow:
    """Blocks of one minute, or hour, of one epoch.

    Attributes:
        missing: What is missing in it.

    Args:
        tier: What is made.
    """

    def __init__(self, tier: Tier) -> None:
        self.missing: list[BlockGap] = []
        self._width_ms = WIDTH_MS[tier]
        self._last: Block | None = None
        self._queues: dict[Key, QueueSums] = {}
        self._scheduled: dict[Key, ScheduledSums] = {}
        self._events: list[LagEvent] = []

    def takes(self, block: Block) -> bool:
        """Whether a block is of the same minute, or hour, and start as those before it; the first always is."""
        last = self._last
        return last is None or (
            block.epoch == last.epoch
            and block.time_ms // self._width_ms == last.time_ms // self._width_ms
            # Else the clock was stepped back: rows of two files must not mix their order.
            and block.time_ms >= last.time_ms
        )

    def add(self, block: Block) -> Iterator[None]:
        """Add the rows of a block, in steps."""
        assert self.takes(block), "a window is of one minute, or hour, and of one start"
        self._last = block
        self._events += block.events
        is_raw = block.tier is Tier.RAW
        queues = self._queues
        for number, (key, time_ms, row) in enumerate(block.queues):
            sums = queues.get(key)
            if sums is None:
                sums = queues[key] = QueueSums()
            if is_raw:
                sums.add(time_ms, row)
            else:
                sums.add_summary(time_ms, row)
            if not number % STEP_ROWS:
                yield None
        for key, time_ms, row in block.scheduled:
            waiting = self._scheduled.get(key)
            if waiting is None:
                waiting = self._scheduled[key] = ScheduledSums(key)
            if is_raw:
                waiting.add(time_ms, row)
            else:
                waiting.add_summary(time_ms, row)

    def payload(self, encoder: SnapshotEncoder) -> Generator[bytes | None, None, None]:
        """Yield the block of summaries, after a None per step; nothing where nothing was added."""
        last = self._last
        if last is None:
            return
        encoder.begin(last.time_ms // self._width_ms * self._width_ms, last.sequence, last.epoch)
        for number, (key, sums) in enumerate(self._queues.items()):
            encoder.add(key, sums.time_ms, sums.summary())
            if not number % STEP_ROWS:
                yield None
        waiting: list[tuple[Key, int, Any]] = [
            (key, sums.time_ms, sums.summary()) for key, sums in self._scheduled.items()
        ]
        yield encoder.end(waiting, self._events, self.missing)
