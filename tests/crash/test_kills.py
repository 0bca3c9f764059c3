"""SIGKILL at random and at every call of the write path: what was acknowledged stays, what was acked stays away."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.crash.by_syscall import SyscallReaper
from tests.crash.campaigns import run_campaign
from tests.crash.outcome import CAUGHT, Outcome

KILLS = 24
STRICT = 12
"""Of these so many at random, with all kinds of work in the middle."""
KILLS_LONG = 1_000
CAMPAIGN = 125


def _run(folder: Path, seed: int, kills: int, *, strace: bool | None = None) -> Outcome:
    outcome = run_campaign(folder, seed, kills, strace=strace)
    assert len(outcome.kills) == kills
    for kill in outcome.kills:
        if not kill.reaper:
            assert all(getattr(kill, each) for each in CAUGHT)
            assert kill.pulls
    return outcome


def test_killed_node_loses_and_repeats_nothing_acknowledged(tmp_path: Path) -> None:
    """Kills at random, at system calls and around disk operations, in recovery, work, reload and drain.

    Promises 1 to 6 hold over all of them; each at random catches publishes, deliveries, acks, waits, loops and halves.
    """
    outcome = _run(tmp_path, seed=20, kills=KILLS)
    print(f"\n{outcome.table()}")
    reached = Counter(kill.reaper for kill in outcome.kills if kill.reached)
    assert reached["disk operation"]
    assert outcome.strict >= STRICT
    assert reached["system call"] > KILLS // 5 or not SyscallReaper.available()
    assert {kill.moment.phase for kill in outcome.kills if kill.reaper and kill.reached} == {
        "recovery", "running", "reload", "drain",
    }  # fmt: skip
    assert outcome.acknowledged > 300
    assert outcome.events["failed"]
    assert outcome.events["silent"]


@pytest.mark.long
def test_thousand_kills(tmp_path: Path) -> None:
    """The same with a thousand kills, in campaigns with a data directory each; the last without strace."""
    total = Outcome(0)
    for campaign in range(KILLS_LONG // CAMPAIGN):
        folder = tmp_path / str(campaign)
        folder.mkdir()
        last = campaign == KILLS_LONG // CAMPAIGN - 1
        total += _run(folder, seed=1_000 + campaign, kills=CAMPAIGN, strace=False if last else None)
    print(f"\n{total.table()}")
