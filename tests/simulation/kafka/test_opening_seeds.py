"""Seeded runs in which actions take seconds to open and to close, or do not open, while partitions change hands."""

from __future__ import annotations

import pytest

from tests.simulation.kafka.plan import run_opening_seed

# A node that is killed within the test's process leaves its connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
SEEDS = (2,)
SEEDS_LONG = range(1_000, 1_100)


@pytest.mark.parametrize("seed", SEEDS)
def test_partitions_that_come_and_go_meanwhile_are_read(seed: int) -> None:
    """All of them, in order, by actions that are open; `--opening --seed` replays it."""
    assert run_opening_seed(seed).published


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS_LONG)
def test_many_seeds_break_no_promise(seed: int) -> None:
    """The same, for `make simulate`."""
    run_opening_seed(seed)
