"""What a member knew of partitions that went, for the case that it gets them back as it left them.

A member that is expelled, as after a restart of the cluster or a pause, often is given the same partitions again. The
commit then says less than it knew: what was answered while nothing could be committed is missing there. That a message
is finished stays true whoever had the partition meanwhile, so it may be kept, and need not come again. Only where
somebody has set the group back must it come again; then what is committed is none of the texts that this member has
sent since its last commit that is known to have succeeded, and what it knew is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from upstream.kafka.commits.metadata import Ranges
from upstream.kafka.link import Assignment, KafkaPartition
from upstream.progress.tracker import OffsetTracker

Said = tuple[int, str]
"""Offset and text of a commit."""


class _Known(NamedTuple):
    said: Sequence[Said]
    ranges: Ranges


class Remembered:
    """That of one member. It is kept for a partition until that goes again, or the member leaves."""

    def __init__(self) -> None:
        self._known: dict[KafkaPartition, _Known] = {}

    def keep(self, place: KafkaPartition, tracker: OffsetTracker, said: Sequence[Said]) -> None:
        """Keep what a tracker knows of a partition that goes.

        Args:
            place: The partition.
            tracker: As it stands at the end.
            said: Commits that Kafka may have of it: the last that has succeeded, and those that were sent since.
        """
        if said:
            start = min(offset for offset, _ in said)
            below = [(start, tracker.watermark)] if start < tracker.watermark else []
            self._known[place] = _Known(list(said), [*below, *tracker.finished_ranges()])

    def finished(self, assignment: Assignment) -> Ranges:
        """Return what is finished of a partition that is given, beyond what its commit says; nothing where it moved."""
        known = self._known.get(assignment.place)
        if known is None or (assignment.committed, assignment.metadata) not in known.said:
            return ()
        if known.ranges and known.ranges[-1][1] > assignment.high:
            return ()  # Records are gone, as by an unclean election: their offsets are or will be those of others.
        return known.ranges

    def forget(self) -> None:
        """Forget all: the member has left, and what comes later is another life."""
        self._known.clear()
