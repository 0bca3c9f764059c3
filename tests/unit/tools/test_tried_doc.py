"""The account of what campaigns tried: written by runs, added up, and shown with what never was."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.tried import NOTHING, Tried, add, tried
from tools.tried_doc import Combination, never


def test_runs_write_what_they_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fault with all that was under way and all states; nothing is written where nobody asked for it."""
    monkeypatch.delenv("PYDDMQ_TRIED", raising=False)
    tried("c", "kill", operations=["acks"], states=[])
    monkeypatch.setenv("PYDDMQ_TRIED", str(tmp_path / "tried"))
    tried("c", "kill", operations=["acks", "loops"], states=["synced"])
    tried("c", "stop", operations=[], states=[])
    found: Counter[Tried] = Counter()
    add([tmp_path / "tried"], found)
    assert found == {
        Tried("c", "acks", "synced", "kill"): 1,
        Tried("c", "loops", "synced", "kill"): 1,
        Tried("c", NOTHING, NOTHING, "stop"): 1,
    }


def test_the_likely_of_what_never_was_come_first() -> None:
    """What its parts were tried with most often; unknown parts of a campaign's words come last."""
    counts = Counter(
        {Combination("a", "s", "kill"): 5, Combination("b", "s", "kill"): 1, Combination("b", "s", "stop"): 1}
    )
    known = {"operations": ["a", "b"], "states": ["s"], "faults": ["kill", "stop", "never seen"]}
    left = never(known, counts)
    assert left[0] == Combination("a", "s", "stop")
    assert {each.fault for each in left[1:]} == {"never seen"}
