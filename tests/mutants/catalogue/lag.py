"""Consumption lag: W92."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SAMPLER = "tests/unit/proxy/recording/test_cluster_samples.py"

MUTANTS = (
    Mutant(
        name="what was noted an hour ago counts as now",
        file="lag/rules/statuses.py",
        old='_fresh = fact("now_ms") - fact("time_ms") <= fact("stale_ms")',
        new='_fresh = fact("now_ms") - fact("time_ms") <= fact("stale_ms") * 60',
        caught_by=("tests/unit/lag/rules/test_statuses.py::test_missing_data_never_gives_ok",),
        rows=("W92",),
    ),
    Mutant(
        name="what a Kafka cluster does not tell is 0",
        file="proxy/recording/cluster_samples.py",
        old="        start, end = bounds or (None, None)\n",
        new="        start, end = bounds or (0, 0)\n",
        caught_by=(f"{SAMPLER}::test_group_that_is_not_told_is_not_known",),
    ),
    Mutant(
        name="a round reads as many records of a cluster as there are rows",
        file="proxy/recording/cluster_samples.py",
        old="        left = missing[:READS_MAX]\n",
        new="        left = missing\n",
        caught_by=(f"{SAMPLER}::test_reads_are_bounded_and_everyone_has_a_turn",),
    ),
    Mutant(
        name="a column that has changed is the one of the snapshot before",
        file="lag/journal/column_rows.py",
        old="column[first:end] if touched >> place & 1 else given",
        new="column[first:end] if False else given",
        caught_by=("tests/unit/lag/journal/test_column_rows.py::test_any_rows_are_those_of_the_other_decoder",),
    ),
)
"""What Python without Spark looks at."""
