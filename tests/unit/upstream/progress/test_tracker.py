"""OffsetTracker: what is finished, where the watermark stands, what is staged for the journal."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from upstream.progress.tracker import AHEAD_MAX, AttemptFailures, FailureKind, OffsetTracker

OFFSETS = st.integers(min_value=0, max_value=120)


def tracker_at(watermark: int) -> OffsetTracker:
    """Make a tracker of an arbitrary queue."""
    return OffsetTracker("group", "topic", 0, watermark=watermark)


class TrackerModel(RuleBasedStateMachine):
    """The tracker against a set of finished offsets.

    Invariants: the same offsets are finished; the watermark is the lowest unfinished one; staged ranges are sorted,
    disjoint, and cover exactly what was finished since they were last taken; failures are of unfinished offsets.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.tracker = OffsetTracker("group", "topic", 0)
        self.tracker.stage_to(self._note)
        self.finished: set[int] = set()
        self.fresh: set[int] = set()
        self.floor = 0

    def _note(self, tracker: OffsetTracker) -> None:
        assert tracker is self.tracker
        self.calls += 1

    def _finish(self, offsets: set[int]) -> int:
        new = {each for each in offsets if each >= self.floor} - self.finished
        self.finished |= new
        self.fresh |= new
        return len(new)

    @rule(offset=OFFSETS)
    def finish(self, offset: int) -> None:
        assert self.tracker.finish(offset) == bool(self._finish({offset}))

    @rule(offsets=st.lists(OFFSETS, max_size=40))
    def finish_many(self, offsets: list[int]) -> None:
        assert self.tracker.finish_many(offsets) == self._finish(set(offsets))

    @rule(start=OFFSETS, length=st.integers(min_value=-3, max_value=40))
    def finish_range(self, start: int, length: int) -> None:
        assert self.tracker.finish_range(start, start + length) == self._finish(set(range(start, start + length)))

    @rule(start=OFFSETS, length=st.integers(min_value=1, max_value=20))
    def finish_consecutive_batch(self, start: int, length: int) -> None:
        offsets = list(range(start, start + length))
        assert self.tracker.finish_many(offsets) == self._finish(set(offsets))

    @rule(offset=OFFSETS)
    def fail(self, offset: int) -> None:
        if not self.tracker.is_finished(offset):
            self.tracker.failures[offset] = AttemptFailures(fails=1)

    @precondition(lambda self: self.finished)
    @rule()
    def take(self) -> None:
        taken = self.tracker.take_staged()
        assert taken == sorted(taken)
        covered = set()
        for start, end in zip(taken[::2], taken[1::2], strict=True):
            assert start < end
            covered |= set(range(start, end))
        assert self.fresh <= covered <= self.finished | set(range(self.floor))
        assert self.calls == bool(taken)
        self.calls = 0
        self.fresh.clear()

    @rule(offset=OFFSETS)
    def reset(self, offset: int) -> None:
        self.tracker.take_staged()
        self.tracker.reset(offset)
        self.calls = 0
        self.fresh.clear()
        self.finished.clear()
        self.floor = offset

    @rule(end=OFFSETS)
    def clamp(self, end: int) -> None:
        self.tracker.take_staged()
        self.calls = 0
        self.fresh.clear()
        self.tracker.clamp(end)
        self.floor = min(self.floor, end)
        self.finished = {each for each in self.finished if each < end}

    @invariant()
    def same_offsets_are_finished(self) -> None:
        for offset in range(200):
            assert self.tracker.is_finished(offset) == (offset < self.floor or offset in self.finished), offset

    @invariant()
    def watermark_is_the_lowest_unfinished(self) -> None:
        lowest = self.floor
        while lowest in self.finished:
            lowest += 1
        assert self.tracker.watermark == lowest == self.tracker.next_unfinished(0)
        above = {each for each in self.finished if each > lowest}
        assert self.tracker.ahead == len(above)
        assert self.tracker.high == max(above, default=lowest - 1) + 1
        ranges = self.tracker.finished_ranges()
        assert {each for start, end in ranges for each in range(start, end)} == above

    @invariant()
    def next_unfinished_skips_exactly_the_finished(self) -> None:
        for offset in range(0, 200, 7):
            expected = max(offset, self.floor)
            while expected in self.finished:
                expected += 1
            assert self.tracker.next_unfinished(offset) == expected

    @invariant()
    def unfinished_counts_the_lag(self) -> None:
        for end in (0, 50, 130, 500):
            expected = sum(1 for each in range(self.floor, end) if each not in self.finished)
            assert self.tracker.unfinished(end) == expected

    @invariant()
    def failures_are_of_unfinished_offsets(self) -> None:
        assert not any(self.tracker.is_finished(offset) for offset in self.tracker.failures)


TrackerModel.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestTrackerModel = TrackerModel.TestCase


def test_watermark_when_the_gap_closes_jumps_over_a_million_and_frees_them() -> None:
    """A million offsets finished above one unfinished cost about a byte each, and nothing once it finishes."""
    tracker = tracker_at(7)
    for start in range(8, 1_000_008, 1000):
        tracker.finish_many(range(start, start + 1000))
    assert tracker.watermark == 7
    assert tracker.ahead == 1_000_000
    assert sys.getsizeof(tracker.marks) < 1_300_000
    assert tracker.finish(7)
    assert tracker.watermark == 1_000_008
    assert sys.getsizeof(tracker.marks) < 1000


def test_memory_in_order_stays_flat() -> None:
    """Offsets finished in order leave nothing behind."""
    tracker = tracker_at(0)
    for start in range(0, 100_000, 32):
        tracker.finish_many(range(start, start + 32))
    assert len(tracker.marks) == 0
    assert sys.getsizeof(tracker.marks) < 1000


def test_finish_far_above_the_watermark_is_refused_before_memory_is_taken() -> None:
    """An absurd offset raises, whichever way it comes, and changes nothing."""
    tracker = tracker_at(0)
    calls: list[Callable[[], object]] = [
        lambda: tracker.finish(AHEAD_MAX + 1),
        lambda: tracker.finish_many([5, AHEAD_MAX + 1]),
        lambda: tracker.finish_range(AHEAD_MAX, AHEAD_MAX + 3),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="above the watermark 0"):
            call()
    assert (tracker.watermark, tracker.ahead, len(tracker.marks)) == (0, 0, 0)


def test_range_from_the_watermark_may_be_of_any_length() -> None:
    """Moving the watermark takes no memory, so a queue's minimum may jump."""
    tracker = tracker_at(10)
    tracker.finish_many([12, 15])
    assert tracker.finish_range(10, 1 << 40) == (1 << 40) - 12
    assert tracker.watermark == 1 << 40
    assert tracker.ahead == 0


def test_neighbouring_acks_within_a_turn_become_one_range() -> None:
    """Contiguous acks are merged before they are written, in whatever order they came."""
    staged: list[OffsetTracker] = []
    tracker = OffsetTracker("group", "topic", 0)
    tracker.stage_to(staged.append)
    tracker.finish_many([5, 4])
    tracker.finish(3)
    tracker.finish_range(6, 9)
    tracker.finish(20)
    assert tracker.take_staged() == [3, 9, 20, 21]
    assert staged == [tracker]
    assert tracker.take_staged() == []


def test_failure_when_its_offset_finishes_is_forgotten() -> None:
    """Failed attempts are kept for unfinished offsets only."""
    tracker = tracker_at(0)
    tracker.failures.update(
        {
            3: AttemptFailures(fails=1),
            4: AttemptFailures(errors=2),
            9: AttemptFailures(timeouts=1),
            30: AttemptFailures(fails=3),
        }
    )
    tracker.finish(3)
    tracker.finish_many([9, 4, 1])
    assert list(tracker.failures) == [30]
    tracker.finish_range(0, 40)
    assert tracker.failures == {}


def test_failure_counts_each_kind_by_itself() -> None:
    """Business failures, errors and timeouts are independent counters (R45, D17)."""
    failure = AttemptFailures().with_count(FailureKind.FAIL, 2, 100).with_count(FailureKind.TIMEOUT, 1, 250)
    assert [failure.count(kind) for kind in FailureKind] == [2, 0, 1, 0]
    assert failure.due_wall_ms == 250


def test_load_with_untidy_marks_restores_the_invariants() -> None:
    """A snapshot whose marks begin with finished offsets or end with unfinished ones is read all the same."""
    tracker = tracker_at(0)
    tracker.load(100, b"\x01\x01\x00\x01\x00\x00")
    assert (tracker.watermark, tracker.ahead, tracker.high) == (102, 1, 104)
    assert tracker.finished_ranges() == [(103, 104)]
