"""One delay level: which of its messages are completed, and when the next one is due. No I/O but the queue's units.

All messages of a level have the same delay, so the order in which they came is that in which they are due: no heap is
needed, and what is pending is one offset and a few ranges, whatever number it is.

Offsets of the level's queue below `position` are completed: delivered, or lost. Above it, `completed` has those that
were delivered while an earlier one could not be, and `refused` those that were refused.

A unit says when its message is due. Within a queue that never falls, as all have the same delay, unless the clock was
set back (D35). Then what was stored before the step would be due after what came later: a *cap* says that everything
below an offset is due at a certain time at the latest, the time of the message there. What has been waiting longer is
not early by that. A due time more than the delay away is capped likewise, at now plus the delay.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker.queues.consume_queue import FILLER_SIZE, ConsumeQueue

CHUNK_UNITS = 1024
_HEAD_UNITS = 4


class Waiting(NamedTuple):
    """A message: number of its level, queue offset, commit-log offset, size, due time in ms since the epoch."""

    level: int
    offset: int
    physical: int
    size: int
    due_ms: int


@dataclass(slots=True)
class Refused:
    """A message whose delivery was refused: what it is, why, since when (wall ms), how often it was tried."""

    message: Waiting
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
        ranges[first:last] = [[start, end]]

    def after(self, offset: int) -> int:
        """Return the first offset from `offset` on that is not in it."""
        place = bisect_right(self.ranges, offset, key=_start) - 1
        return max(offset, self.ranges[place][1]) if place >= 0 else offset

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


class DelayLevel:
    """The state of one level.

    Attributes:
        level: Its number, 1 or more.
        delay_ms: Its delay.
        queue: Its queue in the schedule topic.
        position: Everything below is completed.
        next: The next offset to look at.
        completed: Offsets from `position` on that are completed.
        refused: Refused messages by offset, all below `next`.
        held: Offsets that a cancel, or a copy of the message, is about to take the place of: not delivered meanwhile.
    """

    def __init__(self, level: int, delay_ms: int, queue: ConsumeQueue) -> None:
        self.level = level
        self.delay_ms = delay_ms
        self.queue = queue
        self.position = self.next = queue.min_offset
        self.completed = Ranges()
        self.refused: dict[int, Refused] = {}
        self.held: set[int] = set()
        self._caps: deque[tuple[int, int]] = deque()
        """(end offset, due time), both rising."""
        self._seen = self.position
        self._last_due = 0

    @property
    def pending(self) -> int:
        """Messages that are not completed."""
        return max(0, self.queue.max_offset - self.position - len(self.completed))

    def begin_at(self, position: int) -> None:
        """Settle everything below an offset, as far as the queue goes."""
        position = max(self.queue.min_offset, min(position, self.queue.max_offset))
        if position > self.position:
            self.position = self.completed.cut(position)
        self.next = max(self.next, self.position)
        self._seen = max(self._seen, self.position)
        for offset in [each for each in self.refused if each < self.position]:
            del self.refused[offset]

    def back_to(self, offset: int) -> None:
        """Look at everything from an offset on once more: the broker takes nothing now."""
        self.next = offset
        for each in [each for each in self.refused if each >= offset]:
            del self.refused[each]

    def complete(self, offset: int) -> None:
        """Note that a message needs nothing any more."""
        self.refused.pop(offset, None)
        if offset == self.position:
            self.position = self.completed.cut(offset + 1)
            # What was completed before it was looked at is in `completed` no more.
            self.next = max(self.next, self.position)
        elif offset > self.position:
            self.completed.add(offset, offset + 1)

    def complete_all(self, messages: Sequence[Waiting]) -> None:
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
            self.next = max(self.next, self.position)

    # When they are due

    def look(self, units_max: int = 1 << 62) -> bool:
        """Look at the due times of what came; return whether all of it was looked at."""
        while self._seen < self.queue.max_offset and units_max > 0:
            units = self.queue.read(self._seen, min(CHUNK_UNITS, units_max))
            units_max -= len(units)
            for place, (_, size, due) in enumerate(units):
                if size == FILLER_SIZE:
                    continue
                if due < self._last_due:
                    self._cap(self._seen + place, due)
                self._last_due = due
            self._seen += len(units)
        return self._seen >= self.queue.max_offset

    def _cap(self, end: int, due: int) -> None:
        while self._caps and self._caps[-1][1] >= due:
            self._caps.pop()
        self._caps.append((end, due))

    def check_clock(self, now_ms: int) -> None:
        """Bring what is due more than the delay from now to that (D35): the clock was set back."""
        if self._last_due > now_ms + self.delay_ms:
            self._last_due = now_ms + self.delay_ms
            self._cap(self._seen, self._last_due)

    def _due(self, offset: int, due: int) -> int:
        caps = self._caps
        while caps and caps[0][0] <= self.position:
            caps.popleft()
        for end, latest in caps:
            if offset < end:
                return min(due, latest)
        return due

    def waiting(self, offset: int, chunk: int = CHUNK_UNITS) -> Iterator[Waiting]:
        """Yield what is not completed from an offset on, in the queue's order; completes fillers on the way."""
        while (offset := self.completed.after(offset)) < self.queue.max_offset:
            for physical, size, due in self.queue.read(offset, chunk):
                if size == FILLER_SIZE:
                    self.complete(offset)
                elif offset not in self.completed:
                    yield Waiting(self.level, offset, physical, size, self._due(offset, due))
                offset += 1

    def head(self) -> Waiting | None:
        """Return the next message that was not tried, None when there is none."""
        if self.next >= self.queue.max_offset:
            return None
        head = next((each for each in self.waiting(self.next, _HEAD_UNITS) if each.offset not in self.held), None)
        self.next = self.queue.max_offset if head is None else head.offset
        return head

    def take(self, now_ms: int, count_max: int, bytes_max: int) -> list[Waiting]:
        """Return messages that are due, at least one if one is, and move `next` past them."""
        found: list[Waiting] = []
        if self.next < self.queue.max_offset:
            held = self.held
            for each in self.waiting(self.next, count_max):
                if held and each.offset in held:
                    continue
                if each.due_ms > now_ms or len(found) >= count_max or (found and each.size > bytes_max):
                    break
                found.append(each)
                bytes_max -= each.size
            if found:
                self.next = found[-1].offset + 1
        return found
