"""How old records are whose store timestamps are ahead of the wall clock.

Store timestamps never go back (D4). After a clock that was ahead by hours or years, every new record has the latest
one of that time until the clock gets there. Judged by it, no record would become old.
Meanwhile marks are made, each second:
what is in the log below an offset was stored by this moment of the monotonic clock, which is never set. A record is at
least as old as the first mark behind it says. Marks are in memory alone: after a restart, what was stored before counts
as stored at the restart. So age is too small by that at most, and never too large.
"""

from __future__ import annotations

from bisect import bisect_right

from broker.runtime.seams import Clock

AHEAD_MS = 1_000
"""Store timestamps that are ahead by less, as those of records before their moment, need no marks."""
MARKS_MAX = 4_096
"""With more, every second one goes: ages of a thousandth more or less."""


class Arrivals:
    """When records of one store were stored, where their timestamps cannot say it.

    Args:
        clock: Its wall clock is what timestamps are compared with; its monotonic clock has the ages.

    Attributes:
        ends: Commit-log offsets of the marks; without one timestamps say when records were stored.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ends: list[int] = []
        self._moments: list[float] = []

    def ahead_seconds(self, latest_ms: int) -> float:
        """By how much a store timestamp is ahead of the wall clock; 0.0 where it is not."""
        return max(0.0, (latest_ms - self._clock.wall_ms()) / 1000)

    def note(self, start: int, end: int, latest_ms: int) -> None:
        """Make a mark if one is needed; to be called about once a second.

        Args:
            start: Commit-log offset of the first record that is kept: marks before it go.
            end: The end of the log.
            latest_ms: The latest store timestamp.
        """
        ends, moments = self.ends, self._moments
        gone = bisect_right(ends, start)
        del ends[:gone], moments[:gone]
        if latest_ms <= self._clock.wall_ms() + AHEAD_MS or end <= start or (ends and ends[-1] >= end):
            return
        ends.append(end)
        moments.append(self._clock.monotonic())
        if len(ends) > MARKS_MAX:
            # What loses its mark is younger by the next one, never older.
            del ends[-2::-2], moments[-2::-2]

    def stored_ms(self, physical: int, stamp_ms: int) -> int:
        """Return when a record was stored, by the present wall clock, ms since the epoch.

        Args:
            physical: Its commit-log offset.
            stamp_ms: Its store timestamp.
        """
        now_ms = self._clock.wall_ms()
        place = bisect_right(self.ends, physical) if self.ends else 0
        # Behind the last mark it was stored since then: just now, to callers that ask each second.
        if place < len(self.ends):
            now_ms -= round((self._clock.monotonic() - self._moments[place]) * 1000)
        return stamp_ms if stamp_ms < now_ms else now_ms
