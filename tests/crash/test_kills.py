"""SIGKILL at random: what was acknowledged is there, and only what was not acknowledged comes again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.crash.campaign import Campaign, Outcome

KILLS = 20
KILLS_LONG = 1_000


def _run(folder: Path, seed: int, kills: int) -> Outcome:
    async def campaign() -> Outcome:
        return await Campaign(folder, seed=seed, kills=kills).run()

    outcome = asyncio.run(campaign())
    print(f"\n{outcome.table()}")
    for kill in outcome.kills:
        assert kill.publishes
        assert kill.deliveries
        assert kill.acks
        assert kill.pulls
    assert len(outcome.kills) == kills
    return outcome


def test_node_killed_at_random_loses_and_repeats_nothing_acknowledged(tmp_path: Path) -> None:
    """Twenty kills, each with publishes, deliveries, pulls and acks in the middle: promises 1, 2, 3 and 6 hold."""
    outcome = _run(tmp_path, seed=20, kills=KILLS)
    assert outcome.acknowledged > 500
    assert outcome.events["failed"]
    assert outcome.events["silent"]


@pytest.mark.long
def test_thousand_kills(tmp_path: Path) -> None:
    """The same with a thousand kills, in campaigns of a hundred."""
    for campaign in range(KILLS_LONG // 100):
        folder = tmp_path / str(campaign)
        folder.mkdir()
        _run(folder, seed=1_000 + campaign, kills=100)
