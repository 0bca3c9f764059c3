"""The account of memory: levels, their way back, and jobs that are counted only when it matters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from upstream.budget import JOB_BYTES, Budget, Pressure


def test_levels_begin_at_their_shares_and_end_an_eighth_below() -> None:
    """Up at 4/8, 5/8, 6/8, 7/8; down at 6/8, 5/8, 4/8, 3/8."""
    seen: list[tuple[int, int]] = []
    budget = Budget(800, count_jobs=lambda: 0, changed=lambda old, new: seen.append((budget.used, int(new))))
    for _ in range(8):
        budget.add(100)
    while budget.used:
        budget.add(-50)
        budget.recount()
    assert seen == [(400, 1), (500, 2), (600, 3), (700, 4), (550, 3), (450, 2), (350, 1), (250, 0)]


def test_jobs_are_counted_before_they_cause_a_measure() -> None:
    """Those that ended since are taken off first; what is left decides."""
    alive = 10
    budget = Budget(1000 * JOB_BYTES, count_jobs=lambda: alive, changed=lambda old, new: None)
    budget.add_jobs(499)
    assert budget.used == 499 * JOB_BYTES
    budget.add_jobs(1)
    assert (budget.used, budget.level) == (10 * JOB_BYTES, Pressure.NONE)
    alive = 600
    budget.add_jobs(590)
    assert (budget.used, budget.level) == (600 * JOB_BYTES, Pressure.EASED)


def test_staged_publishes_leave_with_the_flush() -> None:
    """What a turn staged is off the account when the turn has ended."""
    budget = Budget(1000)
    budget.stage(300)
    budget.stage(300)
    assert (budget.used, budget.level) == (600, Pressure.EASED)
    budget.flushed()
    budget.recount()
    assert (budget.used, budget.level) == (0, Pressure.NONE)


def test_publishes_of_a_flush_that_has_begun_leave_with_its_end() -> None:
    """Those staged meanwhile stay; a flush that waits for the disk takes all off."""
    budget = Budget(1000)
    budget.stage(300)
    budget.begin()
    budget.stage(100)
    assert budget.used == 400
    budget.end(1)
    assert budget.used == 100
    budget.begin()
    budget.stage(50)
    budget.flushed()
    budget.end(1)
    assert budget.used == 0


def test_flushes_that_have_begun_leave_in_their_order() -> None:
    """A flush may be under way while one before it waits for its moment."""
    budget = Budget(1000)
    for count in (300, 50):
        budget.stage(count)
        budget.begin()
    budget.end(1)
    assert budget.used == 50
    budget.end(2)
    assert budget.used == 0


@given(st.lists(st.integers(-300, 300), max_size=50), st.integers(64, 5000))
def test_level_always_fits_the_use(steps: list[int], limit: int) -> None:
    """After any history: not below a level that the use calls for, not above one that it allows to end."""
    budget = Budget(limit)
    for step in steps:
        budget.add(max(step, -budget.used))
        budget.recount()
        assert all(budget.used < budget.begins(level) for level in Pressure if level > budget.level)
        if budget.level:
            assert budget.used >= budget.begins(budget.level) - limit // 8
