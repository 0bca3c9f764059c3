"""SIGKILL of a real node under clients that behave as DDMQ's libraries do: answered acks never come again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.sdk_campaign import run_sdks
from tests.fakes.sdk import Account

OF_THE_CLIENTS = {"in hand", "failed", "skipped", "unanswered"}
"""What a client, or the death of the node, did with a delivery that came again; not `answered`, not `thrown away`."""


def _check(account: Account, messages: int) -> None:
    print("\n".join(["", *account.lines()]))
    assert account.faults == []
    assert len(account.acknowledged) == messages
    # An answer that crosses with the next delivery of its message is possible; it may not be the rule.
    assert account.repeats.keys() <= OF_THE_CLIENTS | {"answered"}
    assert account.events["send TApplicationException"] == account.events["pull TApplicationException"] == 0


def test_kills_under_imitated_libraries(tmp_path: Path) -> None:
    """Two thousand messages over three kills: 0 lost, 0 out of order, 0 acked again."""
    account = run_sdks(tmp_path, seed=1, messages=2_000, kills=3)
    _check(account, 2_000)
    assert account.events["pull unanswered"]


def test_kills_under_producers_that_number_their_messages(tmp_path: Path) -> None:
    """The same with deduplicating producers (D39): what they send again is not stored again."""
    account = run_sdks(tmp_path, seed=2, messages=2_000, kills=3, numbered=True)
    _check(account, 2_000)
    assert account.events["sent again"]
    assert account.duplicates == 0
    assert account.events["send code 48"] == 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_kills_under_imitated_libraries(tmp_path: Path, seed: int) -> None:
    """Thirty thousand messages over thirty kills, several times."""
    _check(run_sdks(tmp_path, seed=seed, messages=30_000, kills=30), 30_000)
