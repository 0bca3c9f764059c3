"""Ages of records whose store timestamps are ahead of the wall clock: never too large, and they grow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.log import arrivals as module
from broker.log.arrivals import Arrivals
from pyddmq.testing import ManualClock
from tests.insides import most_kept

YEAR_MS = 365 * 86_400_000
NOW_MS = 1_700_000_000_000


def age_ms(arrivals: Arrivals, clock: ManualClock, physical: int, stamp_ms: int) -> int:
    """How old a record is."""
    return clock.wall_ms() - arrivals.stored_ms(physical, stamp_ms)


def test_stamps_are_believed_while_the_clock_is_right() -> None:
    """No mark is made, also for what is stored a moment before it is shown."""
    clock = ManualClock(NOW_MS)
    arrivals = Arrivals(clock)
    arrivals.note(0, 100, NOW_MS + 4)
    assert arrivals.stored_ms(50, NOW_MS - 9) == NOW_MS - 9
    assert arrivals.stored_ms(50, NOW_MS + 4) == NOW_MS
    assert arrivals.ahead_seconds(NOW_MS - 9) == 0.0
    assert arrivals.ahead_seconds(NOW_MS + 2_500) == 2.5


def test_ages_grow_though_all_stamps_are_the_same() -> None:
    """What is behind the last mark came since then; a record that has a true stamp keeps it."""
    clock, stamp_ms = ManualClock(NOW_MS), NOW_MS + YEAR_MS
    arrivals = Arrivals(clock)
    for second in range(10):
        arrivals.note(0, (second + 1) * 100, stamp_ms)
        clock.advance(1)
    assert [age_ms(arrivals, clock, physical, stamp_ms) for physical in (0, 99, 100, 999)] == [
        10_000,
        10_000,
        9_000,
        1_000,
    ]
    assert age_ms(arrivals, clock, 1_000, stamp_ms) == 0
    assert arrivals.stored_ms(0, NOW_MS - 77_000) == NOW_MS - 77_000


def test_clock_that_was_behind_ages_nothing_once_it_is_set_right() -> None:
    """Ages are counted by the clock that is never set: fifty years forward are not waited time."""
    clock = ManualClock(0)
    arrivals = Arrivals(clock)
    arrivals.note(0, 100, NOW_MS)
    clock.advance(30)
    assert age_ms(arrivals, clock, 50, NOW_MS) == 30_000
    clock.set_wall_ms(NOW_MS + 2_000)
    arrivals.note(0, 200, NOW_MS)
    assert age_ms(arrivals, clock, 50, NOW_MS) == 30_000
    assert age_ms(arrivals, clock, 150, NOW_MS + 1_000) == 1_000


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(2, 9), st.data())
def test_marks_are_bounded_and_make_nothing_older_than_it_is(
    appended: list[int], marks_max: int, data: st.DataObject
) -> None:
    """Each record has an offset; some seconds nothing is appended; what retention deleted has no marks."""
    clock, stamp_ms = ManualClock(NOW_MS), NOW_MS + YEAR_MS
    arrivals, stored_at = Arrivals(clock), list[float]()
    before, module.MARKS_MAX = module.MARKS_MAX, marks_max
    try:
        for count in appended:
            stored_at += [clock.monotonic()] * count
            clock.advance(0.5)
            start = data.draw(st.integers(0, len(stored_at)))
            arrivals.note(min(start, 3), len(stored_at), stamp_ms)
            clock.advance(0.5)
            assert most_kept(arrivals) <= marks_max
            for physical, at in enumerate(stored_at):
                assert 0 <= age_ms(arrivals, clock, physical, stamp_ms) <= (clock.monotonic() - at) * 1000
    finally:
        module.MARKS_MAX = before
