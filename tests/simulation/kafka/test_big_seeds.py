"""Seeded runs in which messages of up to a megabyte wait in a simulated Kafka, with small ones between them."""

from __future__ import annotations

import pytest

from tests.simulation.kafka.plan import run_big_seed


def test_big_messages_that_wait_come_once_and_on_time() -> None:
    """In transactions that the cluster takes in their time, and nothing else waits for them."""
    assert run_big_seed(0, faults=2).events["waited"]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 1_040))
def test_many_seeds_break_no_promise(seed: int) -> None:
    """The same over more of them, with all faults."""
    run_big_seed(seed)
