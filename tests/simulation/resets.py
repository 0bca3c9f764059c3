"""An operator's resets of offsets, as the checkers see them: what they pass over, and what comes anew after them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from tests.simulation.facts import Place, Stamp


class Reset(NamedTuple):
    """One reset: the offset at which each queue (by qid) stands since then, and when that was."""

    to: Mapping[str, int]
    stamp: Stamp


class Resets:
    """Those of one run, by group and topic."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], list[Reset]] = defaultdict(list)

    def note(self, group: str, topic: str, to: Mapping[str, int], stamp: Stamp) -> None:
        """Note one that was just made; queues that stay where they stand are not in `to`."""
        self._made[group, topic].append(Reset(to, stamp))

    def _of(self, group: str, place: Place) -> list[Reset]:
        return [each for each in self._made.get((group, place.topic), ()) if place.qid in each.to]

    def passed_over(self, group: str, place: Place) -> Stamp | None:
        """When a message was passed over, and not taken back since; None if it was not."""
        when = None
        for each in self._of(group, place):
            if place.offset >= each.to[place.qid]:
                when = None
            elif when is None:
                when = each.stamp
        return when

    def touched(self, group: str, place: Place) -> bool:
        """Whether a message's queue was ever moved."""
        return bool(self._of(group, place))

    def since(self, group: str, place: Place, stamp: Stamp) -> bool:
        """Whether a reset of a message's queue was made after something."""
        return any(each.stamp.sequence > stamp.sequence for each in self._of(group, place))

    def taken_back_at(self, group: str, place: Place) -> Stamp | None:
        """When a message was last to come, again or for the first time; None if no reset said so."""
        stamps = [each.stamp for each in self._of(group, place) if place.offset >= each.to[place.qid]]
        return stamps[-1] if stamps else None

    def taken_back(self, group: str, place: Place) -> int:
        """How often a message was to come, again or for the first time, whatever had become of it."""
        return sum(place.offset >= each.to[place.qid] for each in self._of(group, place))
