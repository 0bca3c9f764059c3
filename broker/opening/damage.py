"""Where the log of an open store is damaged, as far as this process has met it and as far as that is still kept.

What a start finds (holes), and records that a read found damaged. A place is forgotten when retention has deleted its
log file; after a repair the next start finds none.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.opening.recovery import RecoveryFacts

PLACES_MAX = 10_000


class DamageLeft(NamedTuple):
    """What is damaged and still kept.

    Attributes:
        holes: Damaged stretches that the start found.
        hole_bytes: Bytes in them.
        fillers: Queue offsets that were left empty for them: messages lost to every group.
        records: Records that a read found damaged.
        first: Commit-log offset of the first damaged place, -1 for none.
    """

    holes: int = 0
    hole_bytes: int = 0
    fillers: int = 0
    records: int = 0
    first: int = -1

    def __bool__(self) -> bool:
        return self.first >= 0


class DamagedPlaces:
    """Keeps the places; cheap, since it is called for damage only."""

    def __init__(self) -> None:
        self._holes: tuple[tuple[int, int], ...] = ()
        self._fillers = 0
        self._records: set[int] = set()

    def found(self, recovery: RecoveryFacts) -> None:
        """Take notice of what opening found."""
        self._holes = recovery.holes
        self._fillers = recovery.fillers

    def met(self, physical: int) -> None:
        """Take notice of a record that a read found damaged, at a commit-log offset."""
        if len(self._records) < PLACES_MAX:
            self._records.add(physical)

    def left(self, min_offset: int) -> DamageLeft:
        """Return what is damaged from a commit-log offset on, and forget what is before it."""
        self._holes = tuple(each for each in self._holes if each[1] > min_offset)
        if not self._holes:
            self._fillers = 0
        self._records = {each for each in self._records if each >= min_offset}
        return DamageLeft(
            len(self._holes),
            sum(end - start for start, end in self._holes),
            self._fillers,
            len(self._records),
            min([start for start, _ in self._holes] + list(self._records), default=-1),
        )
