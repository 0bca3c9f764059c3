"""What a report makes of the few rows of an engine."""

from __future__ import annotations

from typing import Any

import pytest

from lag.report.engine.parts import GAPS_MAX, assemble
from lag.report.options import Input, Reduced, ReportOptions, ReportWindow
from lag.rules.limits import LagLimits
from lag.rules.statuses import SEVERITY
from tests.unit.lag.report.examples import FROM_MS, HOUR_MS, TO_MS

OPTIONS = ReportOptions(
    given=Input(journals=["j"]), window=ReportWindow(from_ms=FROM_MS, to_ms=TO_MS), limits=LagLimits()
)


def reduced(**given: Any) -> Reduced:
    """Return rows of one group with one queue, of which nothing is special."""
    names = {"cluster": "c", "group": "g"}
    objective = {
        "samples": 100, "kept": 90, "known_ms": 12 * HOUR_MS, "over_ms": 5_000, "ended": 50, "ended_kept": 40,
        "lost": 7, "queues": 1, "pause_ms": 10_000,
    }  # fmt: skip
    last = {
        "node": "n", "topic": "t", "queue": 0, "place": 1, "status": "OK", "severity": 1, "cause": None,
        "left_ms": None,
        "lag": 0, "unfinished": 0, "time_lag_ms": 0, "time_lag_high_ms": 0, "time_lag_method": "message",
        "committed": 5, "end": 5, "produce_rate": 1.0, "consume_rate": 1.0, "catch_up_s": None, "lost": 7,
        "group_queues": 1, "group_lag": 0, "group_unfinished": 0, "group_age_ms": 0, "group_catch_up_s": None,
    }  # fmt: skip
    bucket = {
        "bucket": 0,
        "lag": 3,
        "age_ms": 20.0,
        "severity": SEVERITY["OK"],
        "produced": 2_500_000,
        "consumed": None,
    }
    usual: dict[str, Any] = {
        "objectives": [{**names, **objective}],
        "earlier": [],
        "buckets": [{**names, **bucket}],
        "last": [{**names, **last}],
        "heat": [],
        "incidents": [],
        "events": [],
        "gaps": [],
        "refused": {},
        "pause_ms": 10_000,
    }
    return Reduced(**{**usual, **given})


def incident(queue: int, begin: int, end: int | None, **given: Any) -> dict[str, Any]:
    """Return the row of an incident of a queue, from one hour to another."""
    usual = {
        "cluster": "c", "group": "g", "node": "n", "topic": "t", "queue": queue, "severity": SEVERITY["STOP"],
        "from_ms": FROM_MS + begin * HOUR_MS, "until_ms": None if end is None else FROM_MS + end * HOUR_MS,
        "cause": None, "facts": {}, "lag": 10, "age_ms": 5_000.0, "lost": 2, "last_ms": 0,
    }  # fmt: skip
    return {**usual, **given}


def test_shares_have_their_counts_and_coverage() -> None:
    """Half a day is known; rates are millionths in the rows, and a bucket without samples is not known."""
    report = assemble(OPTIONS, reduced())
    [part] = report.groups
    objective = part.objective
    assert (objective.samples_share, objective.messages_share, objective.samples) == (0.9, 0.8, 100)
    assert objective.coverage == pytest.approx(0.5)
    assert (objective.earlier_samples_share, objective.earlier_samples) == (None, 0)
    assert (part.lost, part.line.produced[0], part.line.consumed[0], part.line.lag[1]) == (7, 2.5, None, None)
    assert [span.status for span in part.spans] == ["OK", "UNKNOWN"]


def test_incidents_of_queues_at_one_time_are_one() -> None:
    """With the losses of all of them; what began later is another."""
    rows = [incident(0, 1, 3), incident(1, 2, 4), incident(1, 6, None)]
    [part] = assemble(OPTIONS, reduced(incidents=rows)).groups
    assert [(each.queue, each.lost) for each in part.incidents] == [(None, 4), (1, 2)]
    assert part.incidents[0].to_ms == FROM_MS + 4 * HOUR_MS
    assert part.incidents[1].to_ms is None


def test_gaps_and_refused_times_are_said_and_bounded() -> None:
    """What is left out is counted."""
    report = assemble(OPTIONS, reduced(refused={"n": 12}, gaps=[f"gap {number}" for number in range(30)]))
    assert report.gaps[0].startswith("n: 12 samples have message times before the year 2000")
    assert len(report.gaps) == GAPS_MAX + 1
    assert report.gaps[-1] == "and 11 more"


def test_contacts_are_those_of_the_options() -> None:
    """In the group and in its findings."""
    options = ReportOptions(
        given=OPTIONS.given, window=OPTIONS.window, limits=OPTIONS.limits, contacts={"g": ("night-desk",)}
    )
    report = assemble(options, reduced(incidents=[incident(0, 1, 3)]))
    assert report.groups[0].contacts == report.findings[0].contacts == ("night-desk",)
