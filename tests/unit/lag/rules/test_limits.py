"""Limits that would make rules say nonsense are refused, by name."""

from __future__ import annotations

from dataclasses import fields

import pytest

from lag.rules.limits import LagLimits, with_target
from tools.rules_doc import meanings_of_limits

BAD = {
    "target_ms": -1,
    "target_messages": -1,
    "floor_messages": -1,
    "floor_ms": 60_001,
    "dead_band": 1.0,
    "window_ms": 0,
    "samples_min": 1,
    "stale_ms": 0,
    "recent_ms": 0,
    "growing_ms": 0,
    "absent_ms": 0,
    "poison_attempts": 0,
    "all_fail_ms": 0,
    "stop_ms": 300_001,
    "blocked_attempts": 0,
    "retention_percent": 101.0,
    "loss_eta_limit_s": float("inf"),
    "late_ms": 0,
    "undecided_ms": 0,
    "surge": 1.0,
    "queues_min": 2,
}


@pytest.mark.parametrize("name", [field.name for field in fields(LagLimits)])
def test_each_limit_has_a_bound(name: str) -> None:
    """The text names the limit and the value."""
    with pytest.raises(ValueError, match=rf"{name} .*{BAD[name]}"):
        LagLimits(**{name: BAD[name]})  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), [("stop_ms", 1.5), ("stop_ms", True), ("dead_band", "0.1")])
def test_limit_of_another_type_is_refused(name: str, value: object) -> None:
    """A share is no text, and a count no yes."""
    with pytest.raises(ValueError, match=f"{name} must be an? (integer|number), got {value!r}"):
        LagLimits(**{name: value})  # type: ignore[arg-type]


def test_each_limit_is_described() -> None:
    """By the docstring, from which the page is made."""
    assert list(meanings_of_limits()) == [field.name for field in fields(LagLimits)]


@pytest.mark.parametrize(("seconds", "target_ms", "floor_ms"), [(60, 60_000, 1_000), (0.25, 250, 250), (0, 0, 0)])
def test_floor_is_below_a_target_of_less_than_a_second(seconds: float, target_ms: int, floor_ms: int) -> None:
    """Nobody has to set both."""
    found = with_target(seconds)
    assert (found.target_ms, found.floor_ms) == (target_ms, floor_ms)


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_target_that_is_no_time_is_refused(seconds: float) -> None:
    """With what it should be."""
    with pytest.raises(ValueError, match=f"the target must be a number of seconds of 0 or more, got {seconds}"):
        with_target(seconds)
