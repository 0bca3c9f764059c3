"""Seeded runs under `flush: async`: power losses take the end of the log, whose offsets then name other messages.

Each seed of the short form finds a fault that was once in the node and that no other run found:

| fault | seed |
| --- | --- |
| an answer to a message that is gone finishes the one that has its offset now | 23 |
| a loop ends where only its delivery is left, and not its successor | 57 |
| a message of a level that was delivered comes again where it stands behind a filler | 52 |
| a commit counts by its op record where its message is gone | 44 |
"""

from __future__ import annotations

import pytest

from tests.simulation.ledger import PromiseBroken
from tests.simulation.plan import run_unsynced_seed
from upstream.delivery import results

SEEDS = (23, 44, 52, 57)
SEEDS_LONG = 300


@pytest.mark.parametrize("seed", SEEDS)
def test_power_losses_take_what_was_not_synced_and_nothing_else(seed: int) -> None:
    """No answer to what is gone counts for what has its offset now; `run_unsynced_seed(seed)` replays it."""
    assert run_unsynced_seed(seed).events["gone"]


def test_answers_to_what_is_gone_would_lose_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that takes them as answers to the present messages is caught."""
    monkeypatch.setattr(results, "is_of_another", lambda *_: False)
    with pytest.raises(PromiseBroken, match="promise 6"):
        run_unsynced_seed(23)


@pytest.mark.long
def test_many_seeds_break_no_promise() -> None:
    """The same over many more seeds."""
    assert sum(run_unsynced_seed(seed).events["gone"] for seed in range(SEEDS_LONG)) > SEEDS_LONG
