"""Objectives and incidents over verdicts of one queue."""

from __future__ import annotations

import pytest

from lag.rules.history_rules import Incident, Objective, incidents, objective
from lag.rules.queue_rules import QueueLag
from lag.rules.statuses import BY_NAME
from tests.unit.lag.rules.cases import BEGIN


def verdict(at_s: int, status: str = "OK", late_s: float | None = 0, **more: object) -> QueueLag:
    """Return a verdict; by default in time, at 1 message/s."""
    late = None if late_s is None else late_s * 1000
    figures = {"lag": 5, "time_lag_ms": late, "time_lag_low_ms": late, "time_lag_high_ms": late, "produce_rate": 1.0}
    figures["lost"] = 0
    cause = str(more.pop("cause", "")) or None
    return QueueLag(
        time_ms=BEGIN + at_s * 1000,
        now_ms=BEGIN + at_s * 1000,
        figures=figures | more,
        status=status,
        level=BY_NAME[status].level.name,
        cause=cause,
        evidence="",
        advice="",
    )


def test_objective_counts_samples_messages_and_time() -> None:
    """Each sample weighs what came since the one before it; time over the target ends at the next sample."""
    period = [
        verdict(0),
        verdict(10),
        verdict(20, "WARN", 61, produce_rate=8.0),
        verdict(30, "WARN", 70),
        verdict(40),
    ]
    assert objective(period) == Objective(
        samples=5, unknown=0, samples_share=0.6, messages_share=20 / 110, over_ms=20_000
    )


def test_lost_messages_were_not_in_time() -> None:
    """Although the oldest message that is left is young; a loss of long ago counts no more."""
    period = [verdict(0, lost=100), verdict(10, lost=104), verdict(20, lost=134), verdict(30, lost=None), verdict(40)]
    assert objective(period).messages_share == (6 + 0 + 10 + 10) / 40


def test_what_cannot_be_told_from_the_target_is_not_kept() -> None:
    """A bound may suffice on either side; neither does, and UNKNOWN never does."""
    bounded = {"time_lag_ms": None, "time_lag_low_ms": 0, "time_lag_high_ms": 90_000}
    period = [
        verdict(0, "OK", None, **bounded),
        verdict(10, "OK", None, **{**bounded, "time_lag_high_ms": 59_000}),
        verdict(20, "WARN", None, **{**bounded, "time_lag_low_ms": 61_000}),
        verdict(30, "UNKNOWN", 0),
    ]
    found = objective(period)
    assert (found.unknown, found.samples_share, found.over_ms) == (2, 0.25, 10_000)


def test_objective_of_nothing_is_not_known() -> None:
    """And a gap counts for nothing."""
    assert objective([]) == Objective(samples=0, unknown=0, samples_share=None, messages_share=None, over_ms=0)
    gap = [verdict(0, "WARN", 61), verdict(100, "WARN", 61)]
    assert objective(gap) == Objective(samples=2, unknown=0, samples_share=0.0, messages_share=None, over_ms=0)


def test_incident_has_its_worst_status_with_cause_and_peaks() -> None:
    """From the first that is not OK to the next that is."""
    period = [
        verdict(0),
        verdict(10, "WARN", 61, lag=100, cause="slow_consumer"),
        verdict(20, "STOP", 200, lag=300, cause="no_consumer"),
        verdict(30, "WARN", 90, lag=900, cause="slow_consumer"),
        verdict(40, "CATCHING_UP", 80, lag=800),
        verdict(50, "STALL", 10),
    ]
    assert incidents(period) == [
        Incident(
            from_ms=BEGIN + 10_000,
            to_ms=BEGIN + 40_000,
            open=False,
            peak_lag=900,
            peak_time_lag_ms=200_000,
            status="STOP",
            cause="no_consumer",
        ),
        Incident(
            from_ms=BEGIN + 50_000,
            to_ms=BEGIN + 50_000,
            open=True,
            peak_lag=5,
            peak_time_lag_ms=10_000,
            status="STALL",
            cause=None,
        ),
    ]


def test_cause_of_an_incident_is_the_one_that_held_longest() -> None:
    """In its worst status; the first that was found may have been a guess."""
    period = [
        verdict(0, "WARN", 61, cause="producer_surge"),
        verdict(40, "STOP", 61, cause="slow_consumer"),
        verdict(50, "STOP", 61, cause="no_consumer"),
        verdict(70, "STOP", 61),
        verdict(110),
    ]
    assert [each.cause for each in incidents(period)] == ["no_consumer"]


def test_gap_ends_an_incident() -> None:
    """Nobody knows what was between."""
    found = incidents([verdict(0, "STOP"), verdict(10, "STOP"), verdict(71, "STOP")])
    assert [(each.from_ms - BEGIN, each.to_ms - BEGIN, each.open) for each in found] == [
        (0, 10_000, False),
        (71_000, 71_000, True),
    ]
    assert incidents([verdict(0), verdict(10)]) == []


def test_wrong_order_is_refused() -> None:
    """By either function."""
    for function in (objective, incidents):
        with pytest.raises(ValueError, match="the oldest comes first"):
            function([verdict(10), verdict(0)])
