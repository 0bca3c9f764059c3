"""Seeded runs under `flush: async`: power losses take the end of the log, whose offsets then name other messages."""

from __future__ import annotations

import pytest

from tests.simulation.ledger import PromiseBroken
from tests.simulation.plan import run_unsynced_seed
from upstream.delivery import results

SEEDS = (1, 68, 95)
SEEDS_LONG = 300


@pytest.mark.parametrize("seed", SEEDS)
def test_power_losses_take_what_was_not_synced_and_nothing_else(seed: int) -> None:
    """No answer to what is gone counts for what has its offset now; `run_unsynced_seed(seed)` replays it."""
    assert run_unsynced_seed(seed).events["gone"]


@pytest.mark.parametrize(("seed", "promise"), [(68, 3), (95, 6)])
def test_answers_to_what_is_gone_would_release_keys_and_lose_messages(
    seed: int, promise: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that takes them as answers to the present messages is caught."""
    monkeypatch.setattr(results, "is_of_another", lambda *_: False)
    with pytest.raises(PromiseBroken) as found:
        run_unsynced_seed(seed)
    assert found.value.promise == promise


@pytest.mark.long
def test_many_seeds_break_no_promise() -> None:
    """The same over many more seeds."""
    assert sum(run_unsynced_seed(seed).events["gone"] for seed in range(SEEDS_LONG)) > SEEDS_LONG
