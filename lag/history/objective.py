"""For which share of the time an objective was kept: the oldest unfinished message no older than it.

Of the time between two samples counts what the first of them says, as in `lag.rules.history_rules`; of a minute or an
hour that is kept as a summary, its worst sample. Time of which nothing was recorded counts for nothing, and what a
sample does not tell counts as not kept: `unknown_ms`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lag.history.rows import Figures, figures
from lag.history.trend import STEP_ROWS, Place
from lag.journal.files import Tier
from lag.journal.scan import Block
from lag.rules.limits import Limits

GAP_INTERVALS: Final = 3
"""Rows further apart than so many intervals have a gap between them."""


@dataclass(slots=True)
class Kept:
    """How an objective was kept.

    Attributes:
        kept_ms: Time within it.
        over_ms: Time over it.
        unknown_ms: Time of which it cannot be told.
        messages: Messages that came.
        messages_kept: Those of them that came while it was kept.
    """

    kept_ms: int = 0
    over_ms: int = 0
    unknown_ms: int = 0
    messages: int = 0
    messages_kept: int = 0

    @property
    def share(self) -> float | None:
        """Share of the time within it, 0.0 to 1.0; null: there is none."""
        total = self.kept_ms + self.over_ms + self.unknown_ms
        return self.kept_ms / total if total else None

    @property
    def messages_share(self) -> float | None:
        """Share of the messages; null: none came."""
        return self.messages_kept / self.messages if self.messages else None

    def add(self, other: Kept) -> None:
        """Add another queue's."""
        self.kept_ms += other.kept_ms
        self.over_ms += other.over_ms
        self.unknown_ms += other.unknown_ms
        self.messages += other.messages
        self.messages_kept += other.messages_kept

    def pass_ms(self, passed_ms: int, state: bool | None) -> None:
        """Add time in a state; None: it cannot be told."""
        if state is None:
            self.unknown_ms += passed_ms
        elif state:
            self.kept_ms += passed_ms
        else:
            self.over_ms += passed_ms


class Objectives:
    """Gathers how queues kept an objective.

    Args:
        target_ms: The objective.
        since_ms: Begin of the span.
        until_ms: Its end, exclusive.
        group: Only this one.
    """

    def __init__(self, target_ms: int, since_ms: int, until_ms: int, group: str | None = None) -> None:
        self.queues: dict[Place, Kept] = {}
        self._target_ms = target_ms
        self._since_ms = since_ms
        self._until_ms = until_ms
        self._group = group
        self._before: dict[Place, tuple[int, bool | None, int | None]] = {}

    def add(self, block: Block) -> Iterator[None]:
        """Take a block of the journal in, in steps; blocks come in the order of their times."""
        gap_ms = max(Limits().stale_ms, GAP_INTERVALS * block.head.interval_ms)
        for number, (key, time_ms, row) in enumerate(block.queues):
            if not number % STEP_ROWS:
                yield
            if not self._since_ms <= time_ms < self._until_ms or self._group not in (None, key[0]):
                continue
            found = figures(block.tier, time_ms, row)
            state = self._state(found)
            kept = self.queues.setdefault(key, Kept())
            before = self._before.get(key)
            self._before[key] = (time_ms, state, found.end)
            if before is None:
                continue
            passed_ms = time_ms - before[0]
            if not 0 < passed_ms <= gap_ms:
                continue
            kept.pass_ms(passed_ms, before[1] if block.tier is Tier.RAW else state)
            came = max(0, found.end - before[2]) if found.end is not None and before[2] is not None else 0
            kept.messages += came
            kept.messages_kept += came if state else 0

    def _state(self, found: Figures) -> bool | None:
        if found.age_ms is not None:
            return found.age_ms <= self._target_ms
        return False if found.age_low_ms is not None and found.age_low_ms > self._target_ms else None

    def groups(self) -> dict[str, Kept]:
        """Return what the queues of each group are together, by its name."""
        found: dict[str, Kept] = {}
        for place, kept in sorted(self.queues.items()):
            found.setdefault(place[0], Kept()).add(kept)
        return found
