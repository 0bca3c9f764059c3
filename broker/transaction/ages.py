"""How old halves are in uptime of the broker (D32): time in which producers could have decided them. No I/O.

Marks say at which uptime halves from an offset on arrived; one is set when the last is older than a hundredth of the
age that matters, 10 minutes at most, so that a half is at most that much older here than it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

MARK_SECONDS_MAX = 600.0


class Ages:
    """Ages of undecided halves.

    Args:
        uptime: Seconds of uptime before this opening.
        marks: Pairs of offset and uptime, both rising.
    """

    def __init__(self, uptime: float = 0.0, marks: Sequence[Sequence[float]] = ()) -> None:
        self._before = uptime
        self._marks: list[tuple[int, float]] = [(int(offset), float(at)) for offset, at in marks]
        self.older: dict[int, float] = {}
        """Uptime at the arrival of halves that had an age when they were put again."""

    def uptime(self, running: float) -> float:
        """Seconds of uptime, with those of this opening."""
        return self._before + running

    def begin(self, first: int) -> None:
        """Have halves from an offset on begin their age now, unless it is known."""
        if not self._marks:
            self._marks.append((first, self._before))

    def arrived(self, first: int, running: float, age_seconds_max: float) -> None:
        """Note that halves from an offset on arrived."""
        at = self.uptime(running)
        if not self._marks or at - self._marks[-1][1] >= min(MARK_SECONDS_MAX, age_seconds_max / 100):
            self._marks.append((first, at))

    def put_again(self, offset: int, age_seconds: float, running: float) -> None:
        """Note the age that a half had when it was put again; it arrived just now, or before this opening."""
        self.older[offset] = min(self._arrived_at(offset), self.uptime(running)) - age_seconds

    def age(self, offset: int, running: float) -> float:
        """Age of a half in seconds."""
        at = self.older.get(offset)
        return self.uptime(running) - (self._arrived_at(offset) if at is None else at)

    def _arrived_at(self, offset: int) -> float:
        place = bisect_right(self._marks, offset, key=lambda mark: mark[0]) - 1
        return self._marks[place][1] if place >= 0 else self._before

    def forget_below(self, position: int) -> None:
        """Drop what no half from `position` on needs."""
        while len(self._marks) > 1 and self._marks[1][0] <= position:
            del self._marks[0]
        for offset in [offset for offset in self.older if offset < position]:
            del self.older[offset]

    def saved(self) -> list[list[float]]:
        """The marks, for a checkpoint."""
        return [[offset, round(at, 3)] for offset, at in self._marks]

    def too_old(self, waiting: Iterator[int], running: float, age_seconds_max: float) -> Iterator[int]:
        """Yield those of the undecided halves, in their order, that are too old; and ones that were put again."""
        for offset in waiting:
            if offset in self.older:
                continue
            if self.age(offset, running) < age_seconds_max:
                break
            yield offset
        for offset in list(self.older):
            if self.age(offset, running) >= age_seconds_max:
                yield offset
