"""One delay level: which of its messages are completed, and when the next one is due. No I/O but the queue's units.

All messages of a level have the same delay, so the order in which they came is that in which they are due: no heap is
needed, and what is pending is one offset and a few ranges, whatever number it is.

Offsets of the level's queue below `position` are completed: delivered, or lost. Above it, `completed` has those that
were delivered while an earlier one could not be, and `refused` those that were refused.

A unit says when its message is due. Within a queue that never falls, as all have the same delay, unless the clock was
set back (D35). Then

- what came later may be due sooner: it begins a new *run* of the queue, and each run is delivered by itself;
- what came before has waited for its delay when that has passed since the step was noticed, whatever the wall clock
  says. A *cap* holds this moment by the monotonic clock, in memory alone: as a moment of the wall clock it would be
  early once that is set right. The same holds for a due time more than the delay away.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from operator import attrgetter
from typing import NamedTuple

from broker.queues.consume_queue import FILLER_SIZE, ConsumeQueue
from broker.runtime.seams import Clock

CHUNK_UNITS = 1024
_HEAD_UNITS = 4
_RUNS_MAX = 64
"""Runs that a level has; further ones wait for what is before them in the last one."""
_NO_END = 1 << 62


class LevelMessage(NamedTuple):
    """A message: number of its level, queue offset, commit-log offset, size, due time in ms since the epoch."""

    level: int
    offset: int
    physical: int
    size: int
    due_ms: int


@dataclass(slots=True)
class RefusedDelay:
    """A message whose delivery was refused: what it is, why, since when (wall ms), how often it was tried."""

    message: LevelMessage
    reason: str
    since_ms: int
    tries: int = 1


class Ranges:
    """A set of offsets, as sorted ranges [start, end) that do not touch."""

    __slots__ = ("ranges",)

    def __init__(self) -> None:
        self.ranges: list[list[int]] = []

    def __contains__(self, offset: int) -> bool:
        place = bisect_right(self.ranges, offset, key=_start) - 1
        return place >= 0 and offset < self.ranges[place][1]

    def __len__(self) -> int:
        return sum(end - start for start, end in self.ranges)

    def add(self, start: int, end: int) -> None:
        """Add the offsets [start, end)."""
        ranges = self.ranges
        first = bisect_right(ranges, start, key=_start)
        if first and ranges[first - 1][1] >= start:
            first -= 1
            start = ranges[first][0]
        last = first
        while last < len(ranges) and ranges[last][0] <= end:
            end = max(end, ranges[last][1])
            last += 1
        assert first == len(ranges) or start <= ranges[first][0], "ranges stay ascending"
        # All of [first, last) touch the new one and are one range with it.
        ranges[first:last] = [[start, end]]

    def after(self, offset: int) -> int:
        """Return the first offset from `offset` on that is not in it."""
        place = bisect_right(self.ranges, offset, key=_start) - 1
        return max(offset, self.ranges[place][1]) if place >= 0 else offset

    def within(self, start: int, end: int) -> int:
        """How many of the offsets [start, end) are in it."""
        ranges = self.ranges
        begin, stop = bisect_right(ranges, start, key=_start), bisect_left(ranges, end, key=_start)
        before = min(ranges[begin - 1][1], end) - start if begin else 0
        beyond = ranges[stop - 1][1] - end if begin < stop else 0
        return max(0, before) - max(0, beyond) + sum([last - first for first, last in ranges[begin:stop]])

    def cut(self, start: int) -> int:
        """Drop everything below `start`; return the end of the range that begins there, or `start`."""
        ranges = self.ranges
        while ranges and ranges[0][1] <= start:
            del ranges[0]
        if ranges and ranges[0][0] <= start:
            return ranges.pop(0)[1]
        return start


def _start(found: list[int]) -> int:
    return found[0]


_due_ms = attrgetter("due_ms")


class _DueRun:
    """Offsets of a queue from `start` to `end` whose due times do not fall; those below `next` were tried."""

    __slots__ = ("end", "next", "start")

    def __init__(self, start: int, following: int) -> None:
        self.start, self.next, self.end = start, following, _NO_END


class DelayLevel:
    """The state of one level.

    Attributes:
        level: Its number, 1 or more.
        delay_ms: Its delay.
        queue: Its queue in the schedule topic.
        position: Everything below is completed.
        completed: Offsets from `position` on that are completed.
        refused: Refused messages by offset, all of them tried.
        held: Offsets that a cancel, or a copy of the message, is about to take the place of: not delivered meanwhile.
    """

    def __init__(self, level: int, delay_ms: int, queue: ConsumeQueue, clock: Clock) -> None:
        self.level = level
        self.delay_ms = delay_ms
        self.queue = queue
        self.position = queue.min_offset
        self.completed = Ranges()
        self.refused: dict[int, RefusedDelay] = {}
        self.held: set[int] = set()
        self._clock = clock
        self._runs = [_DueRun(self.position, self.position)]
        self._caps: deque[tuple[int, float]] = deque()
        """(end offset, monotonic seconds), both rising: what is before has waited for its delay by then."""
        self._seen = self.position
        self._last_due = 0

    @property
    def pending(self) -> int:
        """Messages that are not completed."""
        return max(0, self.queue.max_offset - self.position - len(self.completed))

    def pending_in(self, start: int, end: int) -> int:
        """Return how many messages of the offsets [start, end) are not completed."""
        return max(0, end - max(start, self.position)) - self.completed.within(start, end)

    def begin_at(self, position: int) -> None:
        """Settle everything below an offset, as far as the queue goes."""
        position = max(self.queue.min_offset, min(position, self.queue.max_offset))
        if position > self.position:
            self.position = self.completed.cut(position)
        self._advance()
        self._seen = max(self._seen, self.position)
        for offset in [each for each in self.refused if each < self.position]:
            del self.refused[offset]

    def look_again(self) -> None:
        """Look at everything that is not completed: nothing was tried."""
        for run in self._runs:
            run.next = max(run.start, self.position)

    def give_back(self, offsets: Sequence[int]) -> None:
        """Look at these once more: the broker takes nothing now. They were taken last."""
        for offset in reversed(offsets):
            run = self._run_of(offset)
            run.next = min(run.next, offset)
            for each in [each for each in self.refused if offset <= each < run.end]:
                del self.refused[each]

    def is_tried(self, offset: int) -> bool:
        """Whether a message was taken, and not given back."""
        return offset < self._run_of(offset).next

    def _run_of(self, offset: int) -> _DueRun:
        return next(run for run in self._runs if offset < run.end)

    def _advance(self) -> None:
        """Leave what is completed: also what was completed before it was looked at."""
        runs = self._runs
        while runs[0].end <= self.position:
            del runs[0]
        runs[0].next = max(runs[0].next, self.position)

    def complete(self, offset: int) -> None:
        """Note that a message needs nothing any more."""
        self.refused.pop(offset, None)
        if offset == self.position:
            self.position = self.completed.cut(offset + 1)
            self._advance()
        elif offset > self.position:
            self.completed.add(offset, offset + 1)

    def complete_all(self, messages: Sequence[LevelMessage]) -> None:
        """`complete` for messages in the order of their offsets."""
        # A run without a gap, as nearly always, is one range: no look at each.
        first, end = messages[0].offset, messages[-1].offset + 1
        if self.refused or end - first != len(messages):
            for message in messages:
                self.complete(message.offset)
        elif first > self.position:
            self.completed.add(first, end)
        elif end > self.position:
            self.position = self.completed.cut(end)
            self._advance()

    # When they are due

    def look(self, units_max: int = 1 << 62) -> bool:
        """Look at the due times of what came; return whether all of it was looked at."""
        while self._seen < self.queue.max_offset and units_max > 0:
            units = self.queue.read(self._seen, min(CHUNK_UNITS, units_max))
            units_max -= len(units)
            for place, (_, size, due) in enumerate(units):
                if size == FILLER_SIZE:
                    continue
                # Due times ascend but where a clock was set back or a level changed: there a run of its own begins.
                if due < self._last_due:
                    self._begin_run(self._seen + place)
                self._last_due = due
            self._seen += len(units)
        return self._seen >= self.queue.max_offset

    def _begin_run(self, start: int) -> None:
        self._cap(start)
        last = self._runs[-1]
        if start > last.start and len(self._runs) < _RUNS_MAX:
            self._runs.append(_DueRun(start, max(start, last.next)))
            last.end, last.next = start, min(last.next, start)

    def _cap(self, end: int) -> None:
        if end > self.position and (not self._caps or self._caps[-1][0] < end):
            self._caps.append((end, self._clock.monotonic() + self.delay_ms / 1000))

    def check_clock(self) -> None:
        """Notice that the clock was set back: something is due more than the delay from now (D35)."""
        if self._last_due > self._clock.wall_ms() + self.delay_ms:
            self._cap(self._seen)

    def _due(self, offset: int, due: int) -> int:
        caps = self._caps
        while caps and caps[0][0] <= self.position:
            caps.popleft()
        for end, moment in caps:
            if offset < end:
                # At each look again, since the wall clock may be set again meanwhile.
                left_ms = ceil((moment - self._clock.monotonic()) * 1000)
                return min(due, self._clock.wall_ms() + left_ms)
        return due

    def waiting(self, offset: int, chunk: int = CHUNK_UNITS) -> Iterator[LevelMessage]:
        """Yield what is not completed from an offset on, in the queue's order; completes fillers on the way."""
        while (offset := self.completed.after(offset)) < self.queue.max_offset:
            for physical, size, due in self.queue.read(offset, chunk):
                if size == FILLER_SIZE:
                    self.complete(offset)
                elif offset >= self.position and offset not in self.completed:
                    # (A filler may have moved the position beyond what is completed behind it.)
                    yield LevelMessage(self.level, offset, physical, size, self._due(offset, due))
                offset += 1

    def head(self) -> LevelMessage | None:
        """Return the message that was not tried and is due first, None when there is none."""
        heads = [head for run in self._runs if (head := self._head(run)) is not None]
        return min(heads, key=_due_ms, default=None)

    def _head(self, run: _DueRun) -> LevelMessage | None:
        end = min(run.end, self.queue.max_offset)
        if run.next >= end:
            return None
        head = next((each for each in self.waiting(run.next, _HEAD_UNITS) if each.offset not in self.held), None)
        if head is not None and head.offset < end:
            run.next = head.offset
            return head
        run.next = end
        return None

    def take(self, now_ms: int, count_max: int, bytes_max: int) -> list[LevelMessage]:
        """Return messages that are due, at least one if one is, and have them tried."""
        found: list[LevelMessage] = []
        held = self.held
        for run in list(self._runs):
            if run.next >= min(run.end, self.queue.max_offset):
                continue
            for each in self.waiting(run.next, count_max):
                if each.offset >= run.end:
                    break
                if held and each.offset in held:
                    continue
                if each.due_ms > now_ms or len(found) >= count_max or (found and each.size > bytes_max):
                    break
                found.append(each)
                bytes_max -= each.size
                run.next = each.offset + 1
        return found
