"""Sets of offsets as ranges: few numbers for many messages."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

Range = tuple[int, int]
"""First and last offset, both in it."""


def ranges_of(offsets: Iterable[int]) -> list[Range]:
    """Return the ranges of some offsets, in order."""
    found: list[Range] = []
    for offset in sorted(offsets):
        if found and offset <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], offset))
        else:
            found.append((offset, offset))
    return found


class OffsetSet:
    """Offsets of one queue that may only shrink once it is made.

    Args:
        ranges: Any, in any order.
    """

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._ranges: list[Range] = []
        for first, last in sorted(ranges):
            if self._ranges and first <= self._ranges[-1][1] + 1:
                self._ranges[-1] = (self._ranges[-1][0], max(self._ranges[-1][1], last))
            else:
                self._ranges.append((first, last))

    @property
    def ranges(self) -> list[Range]:
        """What is in it."""
        return list(self._ranges)

    def take(self, offset: int) -> bool:
        """Take an offset out; whether it was in."""
        place = bisect_right(self._ranges, (offset, 1 << 63)) - 1
        if place < 0 or not self._ranges[place][0] <= offset <= self._ranges[place][1]:
            return False
        first, last = self._ranges[place]
        self._ranges[place : place + 1] = [
            each for each in ((first, offset - 1), (offset + 1, last)) if each[0] <= each[1]
        ]
        return True
