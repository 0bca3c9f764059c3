"""Timers, delay levels and half messages: what is scheduled, overdue, late, and undecided since when."""

from __future__ import annotations

from typing import Any

import pytest

from lag.rules.limits import LagLimits
from lag.rules.waiting_rules import WAITING, judge_waiting
from lag.samples import ScheduledSample

NOW = 1_700_000_000_000


def row(kind: str, **values: Any) -> ScheduledSample:
    """Return a row."""
    return ScheduledSample(time_ms=NOW, kind=kind, **values)


CASES: dict[str, tuple[ScheduledSample, dict[str, Any], str, str]] = {
    "nothing is due": (row("timer", pending=5), {"scheduled": 5, "overdue": 0, "lateness_ms": 0}, "IN_TIME", "OK"),
    "due a moment ago": (
        row("delay", level=3, pending=5, overdue=2, oldest_due_ms=NOW - 2_999),
        {"scheduled": 3, "overdue": 2, "lateness_ms": 2_999, "undecided_since_ms": None},
        "IN_TIME",
        "OK",
    ),
    "late": (
        row("timer", pending=5, overdue=5, oldest_due_ms=NOW - 3_000),
        {"scheduled": 0, "lateness_ms": 3_000},
        "LATE",
        "ERR",
    ),
    "overdue since when is not known": (
        row("timer", pending=5, overdue=5),
        {"overdue": 5, "lateness_ms": None},
        "UNKNOWN",
        "UNKNOWN",
    ),
    "asked for once": (
        row("half", pending=2, overdue=1, oldest_due_ms=NOW - 60_000, oldest_ms=NOW - 66_000),
        {"scheduled": 1, "overdue": 1, "lateness_ms": None, "undecided_for_ms": 66_000},
        "IN_TIME",
        "OK",
    ),
    "undecided": (
        row("half", pending=2, overdue=2, oldest_ms=NOW - 240_000),
        {"undecided_since_ms": NOW - 240_000, "undecided_for_ms": 240_000},
        "UNDECIDED",
        "WARN",
    ),
    "all are decided": (
        row("half", oldest_ms=NOW - 240_000),
        {"undecided_since_ms": None, "undecided_for_ms": None},
        "IN_TIME",
        "OK",
    ),
    "a moment from the future": (
        row("timer", pending=1, overdue=1, oldest_due_ms=NOW + 5),
        {"lateness_ms": 0},
        "IN_TIME",
        "OK",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_row_is_judged_by_itself(name: str) -> None:
    """Figures, status and level."""
    sample, figures, status, level = CASES[name]
    found = judge_waiting(sample, NOW)
    assert (found.status, found.level) == (status, level)
    assert {key: found.figures[key] for key in figures} == figures
    assert found.figures.keys() == WAITING.keys()
    assert found.advice


def test_limits_are_those_of_the_rules_and_time_goes_on() -> None:
    """An old row is judged as of now where that is asked for."""
    sample = row("timer", pending=1, overdue=1, oldest_due_ms=NOW - 10)
    assert judge_waiting(sample, NOW, LagLimits(late_ms=10)).status == "LATE"
    assert judge_waiting(sample, NOW + 3_000).status == "LATE"
    assert judge_waiting(sample, NOW - 10_000).figures["lateness_ms"] == 10
