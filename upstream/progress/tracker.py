"""OffsetTracker: which messages of one (group, topic, queue) are finished, at a byte per offset.

The watermark is the committed offset: every offset below it is finished, and it is the next one to read (R72). Acks
may come in any order; those above the watermark are kept in a bytearray, one byte per offset from the watermark on,
so that

- finishing is O(1), and a batch is one loop over integers;
- when the watermark's own offset finishes, `bytearray.find` jumps over everything that was finished ahead of it, and
  the bytes behind are given back;
- a million offsets finished above one unfinished cost a megabyte, and nothing per ack (D10).

Positions never move back by finishing (R72); only `reset` (an operator's wish) and `clamp` (the log lost its tail,
D11) do that.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

AHEAD_MAX = 1 << 30
"""Furthest an offset may lie above the watermark; a byte each, so this bounds a tracker's memory to 1 GiB."""

_ONE = b"\x01"
_ZERO = b"\x00"


class FailureKind(enum.IntEnum):
    """Why an attempt counts as failed (D17); the value is the one in the ack journal."""

    FAIL = 1
    """A business failure: a client's fail or an action's FAIL. Walks retryIntervals."""
    ERROR = 2
    """An action raised an exception. Counts against maxRetry."""
    TIMEOUT = 3
    """The holder did not answer in time. Counts against maxRetry."""
    STOPPED = 4
    """Out of attempts, and an operator decides (onExhausted). Its count says what waits: see `Stop`."""


class Stop(enum.IntEnum):
    """What waits for an operator with a message that is out of attempts."""

    NOTHING = 0
    KEY = 1
    QUEUE = 2


class AttemptFailures(NamedTuple):
    """Failed attempts of one offset so far, by kind, and when it may be tried again."""

    fails: int = 0
    errors: int = 0
    timeouts: int = 0
    stopped: int = 0
    """A `Stop`."""
    due_wall_ms: int = 0
    """Wall clock, milliseconds since the epoch; not in the future means at once."""

    def with_count(self, kind: FailureKind, count: int, due_wall_ms: int) -> AttemptFailures:
        """Return a copy whose count of `kind` is `count`, due at `due_wall_ms`."""
        counts = [self.fails, self.errors, self.timeouts, self.stopped]
        counts[kind - 1] = count
        return AttemptFailures(counts[0], counts[1], counts[2], counts[3], due_wall_ms)

    def count(self, kind: FailureKind) -> int:
        """Return how many attempts failed in this way."""
        return self[kind - 1]


@dataclass(slots=True, eq=False, repr=False)
class OffsetTracker:
    """Finished offsets of one (group, topic, queue).

    Every call that finishes something stages the newly finished range for the ack journal: the first one of a turn
    calls what `stage_to` was given, and `take_staged` hands all of them over, merged. Before that nothing is staged.
    """

    group: str
    topic: str
    queue_id: int
    watermark: int = field(default=0, kw_only=True)
    tracker_id: int = field(default=0, kw_only=True)
    ahead: int = 0
    """Offsets finished above the watermark."""
    started: int = field(init=False)
    """One past the highest offset handed to the pipeline; the source moves it, nothing here depends on it."""
    place: tuple[int, int] | None = None
    """Offset and commit-log offset of a message that finished since the last flush, from one who had both."""
    expired: int = 0
    """Messages that retention took before they were finished, over restarts and resets."""
    expired_ms: int = 0
    """When that last happened, wall clock; 0: never."""
    dead_letters: int = 0
    """Messages that became dead letters, likewise."""
    reset_end: int = 0
    """Where the queue ended at the last reset: a position up to there may be one that a client had before it."""
    counts_staged: bool = False
    """Whether `expired` is to be journaled, with what finished in the same turn."""
    expiring: set[int] = field(default_factory=set)
    """Offsets whose dead letter retention has appended and which are finished when it is durable."""
    undecided: dict[int, bool] = field(default_factory=dict)
    """Offsets whose retry (True) or dead letter (False) was appended and is not known to be durable: of a failed
    disk the log decides after a restart, so this process makes no other attempt at them."""
    failures: dict[int, AttemptFailures] = field(default_factory=dict)
    """Unfinished offsets that failed at least once; an offset leaves when it finishes."""
    marks: bytearray = field(default_factory=bytearray)
    """Byte i is 1 when offset watermark + i is finished. Empty, or the first is 0 and the last one 1; not to be changed
    from outside."""
    # Flat pairs start, end of what finished since the last take; neighbours in call order are merged.
    _staged: list[int] = field(default_factory=list)
    _mixed: bool = False  # whether `_staged` may be out of order
    _on_staged: Callable[[OffsetTracker], object] | None = None

    def __post_init__(self) -> None:
        self.started = self.watermark

    def finish(self, offset: int) -> bool:
        """Mark one offset as finished.

        Returns:
            False when it was finished already.

        Raises:
            ValueError: The offset is more than AHEAD_MAX above the watermark.
        """
        # `marks[0]` is the watermark's own offset and always 0, or the watermark would have moved on.
        index = offset - self.watermark
        marks = self.marks
        if index < 0:
            return False
        if index < len(marks):
            if marks[index]:
                return False
            marks[index] = 1
            self.ahead += 1
            if index == 0:
                self._advance()
        elif index == 0:
            self.watermark = offset + 1
        else:
            self._extend(index)
            marks.append(1)
            self.ahead += 1
        if self.failures:
            self.failures.pop(offset, None)
        if self._on_staged is not None:
            self._stage(offset, offset + 1)
        return True

    def finish_many(self, offsets: Sequence[int]) -> int:
        """Mark a batch as finished, in any order and with repetitions.

        Returns:
            How many were not finished before.

        Raises:
            ValueError: An offset is more than AHEAD_MAX above the watermark; then none was marked.
        """
        count = len(offsets)
        if count < 2:
            return int(self.finish(offsets[0])) if count else 0
        first = offsets[0]
        # The ends alone would take 1, 5, 2, 4 for a range.
        if offsets[-1] - first == count - 1 and list(offsets) == list(range(first, first + count)):
            return self.finish_range(first, first + count)
        return self._finish_sorted(sorted(offsets))

    def _finish_sorted(self, offsets: list[int]) -> int:
        base = self.watermark
        marks = self.marks
        size = len(marks)
        if offsets[-1] - base > AHEAD_MAX:
            self._extend(offsets[-1] - base)
        new = 0
        start = end = -1
        runs: list[int] = []
        for offset in offsets:
            index = offset - base
            if index < 0:
                continue
            if index < size:
                if marks[index]:
                    continue
                marks[index] = 1
            else:
                if index > size:
                    marks.extend(bytes(index - size))
                marks.append(1)
                size = index + 1
            new += 1
            if offset != end:
                if start >= 0:
                    runs.append(start)
                    runs.append(end)
                start = offset
            end = offset + 1
        assert len(marks) == size, "`size` follows the marks without a call per offset"
        if new:
            runs.append(start)
            runs.append(end)
            self.ahead += new
            if marks[0]:
                self._advance()
            self._stage_runs(runs)
        return new

    def _stage_runs(self, runs: list[int]) -> None:
        """Drop the failures of newly finished offsets and stage their ranges."""
        failures = self.failures
        if failures:
            for start, end in zip(runs[::2], runs[1::2], strict=True):
                self._forget_failures(start, end)
        if self._on_staged is None:
            return
        if self._staged:
            self._staged += runs
            self._mixed = True
        else:
            # The common case, one batch per turn: it is sorted and merged as it is.
            self._on_staged(self)
            self._staged = runs

    def finish_range(self, start: int, end: int) -> int:
        """Mark [start, end) as finished.

        Returns:
            How many of them were not finished before.

        Raises:
            ValueError: The range ends more than AHEAD_MAX above a watermark that it does not move.
        """
        base = self.watermark
        start = max(start, base)
        if start >= end:
            return 0
        marks = self.marks
        if start == base and end >= base + len(marks):
            # Everything above the watermark is within the range, so what is ahead was finished before.
            new = end - start - self.ahead
            self.watermark = end
            self.ahead = 0
            marks.clear()
        else:
            low, high = start - base, end - base
            new = high - low - marks.count(1, low, high)
            if new == 0:
                return 0
            if high > len(marks):
                if high > AHEAD_MAX:
                    self._extend(high)
                if low > len(marks):
                    self._extend(low)
            # A range that begins behind the marks would otherwise close the gap before it.
            assert low <= len(marks), "the marks reach to where the range begins"
            marks[low:high] = _ONE * (high - low)
            self.ahead += new
            if low == 0:
                self._advance()
        if self.failures:
            self._forget_failures(start, end)
        if self._on_staged is not None:
            self._stage(start, end)
        return new

    def lose(self, count: int, at_ms: int) -> None:
        """Count messages that retention took; they are finished in the same turn, and journaled in the same write.

        So a kill leaves both or neither, and the next start counts what it finds gone again.
        """
        assert count > 0, "only what is lost is counted"
        self.expired += count
        self.expired_ms = at_ms
        self.counts_staged = True
        if not self._staged and self._on_staged is not None:
            self._on_staged(self)

    def is_finished(self, offset: int) -> bool:
        """Whether this offset is finished."""
        index = offset - self.watermark
        return index < 0 or (index < len(self.marks) and self.marks[index] == 1)

    def next_unfinished(self, offset: int) -> int:
        """Return the first unfinished offset >= `offset`."""
        index = offset - self.watermark
        marks = self.marks
        if index >= len(marks):
            return offset
        found = marks.find(_ZERO, max(index, 0))
        return self.watermark + (len(marks) if found < 0 else found)

    def unfinished(self, end: int) -> int:
        """Return how many offsets below `end` (for the queue's maximum: the lag) are unfinished."""
        span = end - self.watermark
        if span <= 0:
            return 0
        if span >= len(self.marks):
            return span - self.ahead
        return span - self.marks.count(1, 0, span)

    @property
    def high(self) -> int:
        """One past the highest finished offset; equal to the watermark when nothing is finished above it."""
        return self.watermark + len(self.marks)

    def finished_ranges(self) -> list[tuple[int, int]]:
        """Return the finished ranges above the watermark as (start, end) pairs, end exclusive, ascending."""
        marks, base = self.marks, self.watermark
        ranges = []
        start = marks.find(_ONE)
        while start >= 0:
            end = marks.find(_ZERO, start)
            if end < 0:
                end = len(marks)
            ranges.append((base + start, base + end))
            start = marks.find(_ONE, end)
        return ranges

    def load(self, watermark: int, row: bytes | bytearray) -> None:
        """Take the position of a snapshot; stages nothing. `row` starts at the watermark and may be untidy."""
        self.watermark = watermark
        marks = self.marks
        marks[:] = row
        # What is promised of it holds again.
        del marks[marks.rfind(_ONE) + 1 :]
        self.ahead = marks.count(1)
        if marks and marks[0]:
            self._advance()
        self.started = max(self.started, self.watermark)

    def reset(self, offset: int) -> None:
        """Stand at `offset` with nothing finished above it, whatever was known before; stages nothing."""
        self.load(offset, b"")
        self.started = offset
        self.failures.clear()
        self.undecided.clear()
        self._staged.clear()

    def clamp(self, end: int) -> int:
        """Forget everything from offset `end` on: the log ends there (D11). Stages nothing.

        Returns:
            By how many offsets the watermark moved back, plus how many finished ones above it were forgotten.
        """
        if self.high <= end:
            return 0
        # `load` counts again what is left ahead: the difference was behind `end`.
        lost, before = max(0, self.watermark - end), self.ahead
        if self.watermark >= end:
            self.load(end, b"")
        else:
            self.load(self.watermark, self.marks[: end - self.watermark])
        self.started = min(self.started, end)
        for offset in [each for each in self.failures if each >= end]:
            del self.failures[offset]
        assert self.high <= end, "nothing behind the end of the log is finished"
        return lost + before - self.ahead

    def stage_to(self, on_staged: Callable[[OffsetTracker], object]) -> None:
        """From now on stage what finishes, calling `on_staged` for the first of a turn."""
        self._staged.clear()
        self._on_staged = on_staged

    def take_staged(self) -> list[int]:
        """Return what finished since the last call as flat pairs start, end: ascending and merged."""
        staged = self._staged
        self._staged = []
        if self._mixed:
            self._mixed = False
            staged = _merged(staged)
        return staged

    def _stage(self, start: int, end: int) -> None:
        staged = self._staged
        if staged:
            if staged[-1] == start:
                staged[-1] = end
                return
            self._mixed = True
        elif self._on_staged is not None:
            self._on_staged(self)
        staged.append(start)
        staged.append(end)

    def _advance(self) -> None:
        """Move the watermark over the finished offsets that it now touches."""
        marks = self.marks
        run = marks.find(_ZERO)
        if run < 0:
            run = len(marks)
        del marks[:run]
        self.watermark += run
        self.ahead -= run
        assert self.ahead >= 0, "each mark counts once"

    def _extend(self, index: int) -> None:
        if index > AHEAD_MAX:
            raise ValueError(
                f"offset {self.watermark + index} of {self.group}/{self.topic}-{self.queue_id} is more than "
                f"{AHEAD_MAX} above the watermark {self.watermark}"
            )
        self.marks.extend(bytes(index - len(self.marks)))

    def _forget_failures(self, start: int, end: int) -> None:
        failures = self.failures
        if end - start < len(failures):
            for offset in range(start, end):
                failures.pop(offset, None)
        else:
            for offset in [each for each in failures if start <= each < end]:
                del failures[offset]


def _merged(staged: list[int]) -> list[int]:
    merged: list[int] = []
    for start, end in sorted(zip(staged[::2], staged[1::2], strict=True)):
        if merged and start <= merged[-1]:
            merged[-1] = max(merged[-1], end)
        else:
            merged.append(start)
            merged.append(end)
    return merged
