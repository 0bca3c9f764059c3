"""Consumption lag: W92."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="what was noted an hour ago counts as now",
        file="lag/rules/statuses.py",
        old='_fresh = fact("now_ms") - fact("time_ms") <= fact("stale_ms")',
        new='_fresh = fact("now_ms") - fact("time_ms") <= fact("stale_ms") * 60',
        caught_by=("tests/unit/lag/rules/test_statuses.py::test_missing_data_never_gives_ok",),
        rows=("W92",),
    ),
)
"""What Python without Spark looks at."""
