"""For which share of the time, and of the messages, an objective was kept: the oldest unfinished message no older.

Of the time between two samples counts what the first of them says, as in reports; of a minute or an
hour that is kept as a summary, its worst sample. Time without samples, and time of which samples cannot say it, is
unknown: it is in no share and is given beside it, as `coverage`.

A message counts where it ended: in time if it was finished while the objective was kept, missed if it was finished
later or was lost to retention. A message that still waits at the end counts as missed if the objective is not kept
then. What an operator skips, or passes over with a reset, is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from lag.blocks import BlockGap
from lag.history.rows import LagFigures, figures
from lag.history.trend import STEP_ROWS, Place
from lag.journal.files import WIDTH_MS, Tier
from lag.journal.reader import SLACK_MS
from lag.journal.scan import Block
from lag.rules.limits import LagLimits
from lag.samples import EventKind

GAP_INTERVALS: Final = 3
"""Samples more intervals apart than this have a gap between them."""
BURN_MS: Final = (259_200_000, 21_600_000, 3_600_000, 1_800_000, 300_000)
"""The last 3 d, 6 h, 1 h, 30 min and 5 min: burn rates are compared over a long window and a short one."""


@dataclass(slots=True)
class Kept:
    """How an objective was kept.

    Attributes:
        kept_ms: Time within it.
        over_ms: Time over it.
        messages: Messages that were finished or lost, or waited over the objective at the end.
        messages_kept: Those of them that were finished while it was kept.
        lost: Those of them that retention took before they were finished.
        queues: Queues that this is the sum of.
    """

    kept_ms: int = 0
    over_ms: int = 0
    messages: int = 0
    messages_kept: int = 0
    lost: int = 0
    queues: int = 1

    @property
    def share(self) -> float | None:
        """Share of the known time within it, 0.0 to 1.0; null: nothing is known."""
        known = self.kept_ms + self.over_ms
        return self.kept_ms / known if known else None

    @property
    def messages_share(self) -> float | None:
        """Share of the messages; null: there were none."""
        return self.messages_kept / self.messages if self.messages else None

    def burn_rate(self, at_least: float) -> float | None:
        """Return how fast the error budget is used up: 1.0 uses all of it over the span, 2.0 in half of it.

        Args:
            at_least: Share of the messages that is the goal; what is left to 1.0 is the budget.

        Returns:
            The share of messages that were missed, over the budget; null: no messages, or no budget.
        """
        if not self.messages or at_least >= 1:
            return None
        return round((self.messages - self.messages_kept) / self.messages / (1 - at_least), 3)

    def unknown_ms(self, span_ms: int) -> int:
        """Return how much of a span, over all queues, is not known."""
        return max(0, span_ms * self.queues - self.kept_ms - self.over_ms)

    def coverage(self, span_ms: int) -> float:
        """Return the share of a span that is known, 0.0 to 1.0."""
        return min(1.0, (self.kept_ms + self.over_ms) / (span_ms * self.queues)) if self.queues else 0.0

    def add(self, other: Kept) -> None:
        """Add another queue's."""
        self.kept_ms += other.kept_ms
        self.over_ms += other.over_ms
        self.messages += other.messages
        self.messages_kept += other.messages_kept
        self.lost += other.lost
        self.queues += other.queues

    def pass_ms(self, passed_ms: int, state: bool | None) -> None:
        """Add time in a state; None: it is not known."""
        if state:
            self.kept_ms += passed_ms
        elif state is not None:
            self.over_ms += passed_ms


@dataclass(slots=True)
class _ObjectiveQueue:
    """One queue while the journal is read: what is summed up, and what its last row said."""

    kept: Kept
    time_ms: int = 0
    state: bool | None = None
    last: LagFigures | None = None
    expired: int | None = None
    block: int = 0


class Objectives:
    """Gathers how queues kept an objective.

    Args:
        target_ms: The objective.
        since_ms: Begin of the span.
        until_ms: Its end, exclusive.
        group: Only this one.
    """

    def __init__(self, target_ms: int, since_ms: int, until_ms: int, group: str | None = None) -> None:
        self._queues: dict[Place, _ObjectiveQueue] = {}
        self._resets: dict[Place, list[int]] = {}
        """When operators reset offsets, by the names of the events."""
        self._target_ms = target_ms
        self._since_ms = since_ms
        self._until_ms = until_ms
        self._group = group
        self._blocks = 0

    def add(self, block: Block) -> Iterator[None]:
        """Take a block of the journal in, in steps; blocks come in the order of their times."""
        if block.time_ms + max(SLACK_MS, WIDTH_MS[block.tier]) < self._since_ms:
            return
        interval_ms, self._blocks = block.head.interval_ms, self._blocks + 1
        if interval_ms == WIDTH_MS[block.tier]:
            # So of summaries, however near to each other their samples are.
            interval_ms = 0
        gap_ms = max(LagLimits().stale_ms, GAP_INTERVALS * interval_ms)
        for event in block.events:
            if event.kind is EventKind.RESET:
                self._resets.setdefault((event.group, event.topic, event.queue), []).append(event.time_ms)
        for number, (key, time_ms, row) in enumerate(block.queues):
            if not number % STEP_ROWS:
                yield
            if not self._since_ms <= time_ms < self._until_ms or self._group not in (None, key[0]):
                continue
            found = figures(block.tier, time_ms, row)
            state = self._state(found)
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = _ObjectiveQueue(Kept())
            first_ms = max(self._since_ms, found.first_ms)
            if queue.last is not None:
                linked = 0 < first_ms - queue.time_ms <= gap_ms or (
                    # Within a file of summaries what was not recorded is noted.
                    not (block.tier is Tier.RAW or block.is_first)
                    and queue.block == self._blocks - 1
                    and not _missing_ms(block.missing, queue.time_ms, first_ms)
                )
                if linked:
                    queue.kept.pass_ms(first_ms - queue.time_ms, queue.state)
                of_row = queue.state if block.tier is Tier.RAW else state
                self._count(
                    queue, queue.last, found, of_row, known=linked and not self._was_reset(key, queue.time_ms, time_ms)
                )
            if first_ms < time_ms:
                # A summary covers the time from its first sample to its last, less what was not recorded in it.
                queue.kept.pass_ms(time_ms - first_ms - _missing_ms(block.missing, first_ms, time_ms), state)
            queue.time_ms, queue.state, queue.last, queue.block = time_ms, state, found, self._blocks
            queue.expired = queue.expired if found.expired is None else found.expired

    def _count(
        self, queue: _ObjectiveQueue, before: LagFigures, found: LagFigures, state: bool | None, *, known: bool
    ) -> None:
        """Count the messages that ended between the last row and this one; what was lost is known over gaps, too."""
        kept = queue.kept
        lost = 0 if found.expired is None or queue.expired is None else max(0, found.expired - queue.expired)
        kept.lost += lost
        kept.messages += lost
        if known and found.committed is not None and before.committed is not None:
            skipped = max(0, found.skipped - before.skipped)
            finished = max(0, found.committed - before.committed - lost - skipped)
            kept.messages += finished
            kept.messages_kept += finished if state else 0

    def _was_reset(self, key: Place, after_ms: int, until_ms: int) -> bool:
        """Whether an operator reset a queue between two of its samples: not each reset is in the block of the later."""
        if not self._resets:
            return False
        group, topic, queue = key
        named = ((one, other, number) for one in (group, "") for other in (topic, "") for number in (queue, -1))
        return any(after_ms < each <= until_ms for name in named for each in self._resets.get(name, ()))

    def _state(self, found: LagFigures) -> bool | None:
        if found.age_ms is not None:
            return found.age_ms <= self._target_ms
        return False if found.age_low_ms is not None and found.age_low_ms > self._target_ms else None

    def queues(self) -> dict[Place, Kept]:
        """Return how each queue kept it, by its name; what waits too long at the end is missed."""
        found: dict[Place, Kept] = {}
        for place, queue in sorted(self._queues.items()):
            kept = found[place] = Kept(queues=0)
            kept.add(queue.kept)
            if queue.state is False and queue.last is not None and queue.last.lag:
                kept.messages += queue.last.lag
        return found

    def groups(self) -> dict[str, Kept]:
        """Return what the queues of each group are together, by its name."""
        found: dict[str, Kept] = {}
        for place, kept in self.queues().items():
            found.setdefault(place[0], Kept(queues=0)).add(kept)
        return found


def _missing_ms(gaps: Sequence[BlockGap], from_ms: int, to_ms: int) -> int:
    """Return how much of a stretch was not recorded."""
    known = ((each.from_ms, each.to_ms) for each in gaps if each.from_ms is not None and each.to_ms is not None)
    return min(to_ms - from_ms, sum(max(0, min(end, to_ms) - max(begin, from_ms)) for begin, end in known))
