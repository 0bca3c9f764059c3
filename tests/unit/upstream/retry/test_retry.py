"""Retry intervals."""

from __future__ import annotations

import pytest

from upstream.retry.retry import error_delay_ms, may_retry_error, next_interval_ms


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ([100, 150, 300], [100, 150, 300, None, None]),
        ([], [None, None]),
        ([0], [0, None]),
        ([100, -1], [100, 100, 100, 100]),
        ([100, 500, -1], [100, 500, 500, 500]),
        ([-1], [1000, 1000, 1000]),
    ],
)
def test_next_interval_walks_the_list_and_repeats_at_minus_one(
    intervals: list[int], expected: list[int | None]
) -> None:
    """Entries are used one after the other, -1 repeats the one before it for ever, the end means dead letter (W20)."""
    assert [next_interval_ms(intervals, fails) for fails in range(len(expected))] == expected


def test_error_retries_are_counted_against_max_retry() -> None:
    """MaxRetry errors are retried, one more is not; -1 is no limit."""
    assert [may_retry_error(errors, 2) for errors in range(4)] == [True, True, False, False]
    assert not may_retry_error(0, 0)
    assert may_retry_error(10**6, -1)


def test_error_delay_doubles_up_to_128_seconds() -> None:
    """Waits after exceptions double seven times (R55)."""
    assert [error_delay_ms(errors) for errors in (0, 1, 2, 7, 8, 100)] == [1000, 2000, 4000, 128000, 128000, 128000]
