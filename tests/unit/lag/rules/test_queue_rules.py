"""Queues judged: the table of cases, and what holds for all windows."""

from __future__ import annotations

import pytest

from lag.rules import causes, quantities, statuses
from tests.unit.lag.rules.cases import CASES, Case
from tests.unit.lag.rules.judged import judge


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: Case) -> None:
    """Status, cause and figures are those of the table."""
    verdict = judge(case.samples, case.now_ms, case.limits, case.reset_ms)

    assert (verdict.status, verdict.cause) == (case.status, case.cause)
    known = {name: pytest.approx(value) if isinstance(value, float) else value for name, value in case.figures.items()}
    assert {name: verdict.figures[name] for name in case.figures} == known
    assert tuple(verdict.figures) == tuple(quantities.ALL)
    assert bool(verdict.evidence) == (verdict.cause is not None)
    assert "{" not in verdict.evidence
    assert case.evidence is None or verdict.evidence == case.evidence


def test_each_status_and_cause_has_a_case() -> None:
    """Nothing is in the tables that no case shows; a hot queue needs others beside it."""
    assert {case.status for case in CASES} == {status.name for status in statuses.STATUSES}
    assert {case.cause for case in CASES} == {cause.name for cause in causes.CAUSES} - {"hot_queue"} | {None}
