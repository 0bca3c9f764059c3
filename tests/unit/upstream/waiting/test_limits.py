"""Permits and token bucket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyddmq.testing import ManualClock
from upstream.waiting.limits import Permits, TokenBucket


@given(
    rate=st.floats(0.5, 1000), steps=st.lists(st.tuples(st.floats(0, 3), st.integers(0, 50)), min_size=1, max_size=50)
)
def test_bucket_never_gives_more_than_rate_and_burst(rate: float, steps: list[tuple[float, int]]) -> None:
    """Over any time t at most rate x t + one second's worth are taken."""
    clock = ManualClock()
    bucket = TokenBucket(rate, clock)
    taken = 0
    for pause, wanted in steps:
        clock.advance(pause)
        available = bucket.available()
        assert available is not None
        count = min(wanted, available)
        bucket.take(count)
        taken += count
    assert taken <= rate * clock.monotonic() + max(1.0, rate) + 1e-3


def test_bucket_wait_is_enough_for_one_token() -> None:
    """After `wait_seconds` a token is there."""
    clock = ManualClock()
    bucket = TokenBucket(0.3, clock)
    assert bucket.available() == 1
    bucket.take(1)
    assert bucket.available() == 0
    clock.advance(bucket.wait_seconds())
    assert bucket.available() == 1


def test_bucket_without_rate_is_unlimited_until_one_is_set() -> None:
    """No rate is no limit; a rate set live starts with its burst."""
    bucket = TokenBucket(None, ManualClock())
    assert bucket.available() is None
    bucket.configure(10)
    assert bucket.available() == 10
    bucket.take(10)
    bucket.configure(20)
    assert bucket.available() == 0


def test_permit_released_twice_trips_an_assertion() -> None:
    """A release without a permit is a bug that must not grow the limit (W36)."""
    permits = Permits(2)
    permits.used = 1
    permits.release(1)
    assert permits.free == 2
    with pytest.raises(AssertionError):
        permits.release(1)
