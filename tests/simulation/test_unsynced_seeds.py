"""Seeded runs under `flush: async`: power losses take the end of the log, whose offsets then name other messages.

Each seed of the short form finds a fault that was once in the node and that no other run found:

| fault | seed |
| --- | --- |
| a message is finished before its dead letter is durable | 2 |
| a loop ends where only its delivery is left, and not its successor | 21 |
"""

from __future__ import annotations

import pytest

from tests.simulation.ledger import PromiseBroken
from tests.simulation.plan import run_unsynced_seed
from upstream.embedded.queues import EmbeddedQueues

SEEDS = (2, 21, 28)
SEEDS_LONG = 300


@pytest.mark.parametrize("seed", SEEDS)
def test_power_losses_take_what_was_not_synced_and_nothing_else(seed: int) -> None:
    """No answer to what is gone counts for what has its offset now; `run_unsynced_seed(seed)` replays it."""
    assert run_unsynced_seed(seed).events["gone"]


def test_acks_ahead_of_the_log_would_lose_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose ack journal does not wait for what replaces a message is caught."""
    monkeypatch.setattr(EmbeddedQueues, "make_durable", lambda _: None)
    with pytest.raises(PromiseBroken, match="promise 6"):
        run_unsynced_seed(2)


@pytest.mark.long
def test_many_seeds_break_no_promise() -> None:
    """The same over many more seeds."""
    assert sum(run_unsynced_seed(seed).events["gone"] for seed in range(SEEDS_LONG)) > SEEDS_LONG
