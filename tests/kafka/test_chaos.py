"""A minute of chaos; `make chaos` runs ten."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.chaos import Chaos, said
from tests.kafka.chaos_changing import said as said_of_changes
from tests.kafka.chaos_waiting import said as said_of_waiting

pytestmark = pytest.mark.long

SECONDS = 30
NEAR_SECONDS = 30.0
"""On a machine with more to do than it has processors commits take seconds; `make chaos` allows them one."""


def test_chaos_loses_nothing_and_keeps_the_order(jars: str, tmp_path: Path) -> None:
    """Nodes killed, standing still, added and removed, Kafka killed: each once at least.

    Answers that came again are judged by `make chaos` alone (`NEAR_SECONDS`).
    """
    chaos = Chaos(tmp_path / "chaos", Path(jars), 5, print, near_seconds=NEAR_SECONDS)
    verdict = chaos.run(SECONDS)
    print(said(verdict, chaos.faults))
    changes = chaos.changes.account.verdict()
    print(said_of_changes(changes))
    assert ([each for each in verdict.faults if not each.startswith("undone")], verdict.after_loss) == ([], [])
    assert verdict.unsent == 0
    assert changes.faults == []
    waits = chaos.waits.account.verdict()
    print(said_of_waiting(waits))
    assert (waits.faults, waits.lost, waits.wrong) == ([], [], [])
    assert verdict.sent > 500
    assert verdict.looks >= 5
