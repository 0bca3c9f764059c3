"""Which undecided halves a producer is to be asked about, and when. Moments are monotonic seconds; no I/O.

A half that was never checked costs nothing here but its place in `arrivals` until its time comes; then it is in its
group's line, 8 bytes. Halves that were checked, or asked for another time, have an entry of their own
(`ScheduledCheck`).
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

REMARKS_MAX = 10_000
REMARK_CHARS_MAX = 200
_COMPACT = 1024


class GroupCheckQueue:
    """Halves of one producer group whose check is due, in the order in which they became so."""

    __slots__ = ("_head", "_offsets")

    def __init__(self) -> None:
        self._offsets = array("q")
        self._head = 0

    def __len__(self) -> int:
        return len(self._offsets) - self._head

    def __iter__(self) -> Iterator[int]:
        return iter(self._offsets[self._head :])

    def add(self, offset: int) -> None:
        """Put a half at the end."""
        self._offsets.append(offset)

    def take(self) -> int:
        """Return the first and remove it."""
        offset = self._offsets[self._head]
        self._head += 1
        if self._head >= _COMPACT and self._head * 2 >= len(self._offsets):
            del self._offsets[: self._head]
            self._head = 0
        return offset

    def keep(self, offsets: Iterator[int]) -> None:
        """Replace all of them."""
        self._offsets, self._head = array("q", offsets), 0


@dataclass(slots=True)
class ScheduledCheck:
    """A half that was checked, or whose time is its own.

    Attributes:
        group: Its producer group.
        times: Checks that were fetched.
        due: When it comes into line; meaningless while it is there.
        out: A producer has a check of it, until `due`.
        arrival: When it arrived, where `due` is that and the timeout of the settings.
    """

    group: str
    times: int = 0
    due: float = 0.0
    out: bool = False
    arrival: float | None = None


class CheckSchedule:
    """Lines of due halves, and those whose time comes later.

    Attributes:
        lines: By producer group.
        asked: By offset.
        cursor: The first half that has not come into line or got an entry yet.
        remarks: By offset, the last words of a producer that could not decide a half, whether it was checked or not.
        leases: By transaction id, until when a producer has a check of a half that was put again meanwhile.
    """

    def __init__(self, cursor: int = 0) -> None:
        self.lines: dict[str, GroupCheckQueue] = {}
        self.asked: dict[int, ScheduledCheck] = {}
        self.cursor = cursor
        self.remarks: dict[int, str] = {}
        self.leases: dict[str, float] = {}
        self._later: list[tuple[float, int]] = []
        self._arrivals: deque[tuple[int, float]] = deque()

    # Arrivals

    def arrived(self, first: int, now: float) -> None:
        """Note that halves from an offset on arrived at a moment."""
        self._arrivals.append((first, now))

    def arrival(self) -> float | None:
        """When the half at the cursor arrived; None when this process does not know."""
        arrivals = self._arrivals
        while len(arrivals) > 1 and arrivals[1][0] <= self.cursor:
            arrivals.popleft()
        return arrivals[0][1] if arrivals and arrivals[0][0] <= self.cursor else None

    # Lines

    def ready(self, group: str, offset: int) -> None:
        """Put a half into its group's line."""
        self.lines.setdefault(group, GroupCheckQueue()).add(offset)

    def postpone(self, offset: int, group: str, due: float, *, times: int = 0) -> ScheduledCheck:
        """Have a half come into line at a moment; its count stays, or begins with `times`."""
        asked = self.asked.get(offset)
        if asked is None:
            asked = self.asked[offset] = ScheduledCheck(group, times)
        asked.due, asked.arrival = due, None
        heapq.heappush(self._later, (due, offset))
        return asked

    def next_due(self) -> float | None:
        """When the next postponed half is due."""
        later = self._later
        while later and not self._valid(*later[0]):
            heapq.heappop(later)
        return later[0][0] if later else None

    def pop_due(self, now: float) -> int | None:
        """Return a postponed half that is due, and forget its moment."""
        due = self.next_due()
        if due is None or due > now:
            return None
        offset = heapq.heappop(self._later)[1]
        asked = self.asked[offset]
        asked.due, asked.out, asked.arrival = 0.0, False, None
        return offset

    def set_timeout(self, seconds: float, now: float) -> None:
        """Have the postponed halves that wait for the timeout of the settings wait for another one."""
        for offset, asked in self.asked.items():
            if (arrival := asked.arrival) is not None:
                self.postpone(offset, asked.group, max(arrival + seconds, now)).arrival = arrival

    def _valid(self, due: float, offset: int) -> bool:
        asked = self.asked.get(offset)
        return asked is not None and asked.due == due

    def forget(self, offset: int) -> None:
        """A half is decided: no more checks are handed out for it. Lines drop it when they come to it."""
        self.asked.pop(offset, None)
        self.remarks.pop(offset, None)

    # Remarks

    def remark(self, offset: int, text: str) -> None:
        """Keep the words of a producer; of more than REMARKS_MAX halves those of the longest ago go."""
        if not text:
            return
        self.remarks.pop(offset, None)
        if len(self.remarks) >= REMARKS_MAX:
            del self.remarks[next(iter(self.remarks))]
        self.remarks[offset] = text[:REMARK_CHARS_MAX]

    # On disk

    def saved(self) -> dict[int, int]:
        """Count by offset of every half that was checked, for a checkpoint."""
        return {offset: asked.times for offset, asked in self.asked.items() if asked.times}
