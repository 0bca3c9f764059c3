"""Every place gives the same verdict and cause on a staged situation, and nothing is left when it ended."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from proxy.recording import verdicts
from tests.simulation.ward import Ward
from tests.verdicts.of_lag import SITUATIONS, Situation
from tests.verdicts.places import Places, Posts, Shown

ROUND_SECONDS = 15.0
"""Within which every place knows what a round of samples said."""


@pytest.fixture(autouse=True)
def posts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what the webhook gets."""
    monkeypatch.setattr(verdicts, "Webhook", Posts)
    monkeypatch.setattr(Posts, "made", [])


def differences(places: Places, wanted: Situation, words: Iterable[str]) -> list[str]:
    """Say what each place shows that is not the verdict that was staged."""
    found = []
    for name, ask in places.lag.items():
        shown = list(ask())
        if name == "pyddmq lag check" and wanted.level == "OK" and not shown:
            continue
        if {(each.kind, each.group) for each in shown} != {(wanted.status, "by-key")}:
            found.append(f"{name}: {shown}")
            continue
        [each] = shown
        if each.level not in ("", wanted.level):
            found.append(f"{name}: level {each.level}")
        if each.cause not in (None, wanted.cause):
            found.append(f"{name}: cause {each.cause}: {each.text}")
        if each.cause is not None and each.text and not all(word in each.text for word in words):
            found.append(f"{name}: evidence {each.text}")
    for name, ask in places.findings.items():
        shown = list(ask())
        if {each.kind for each in shown} != set(wanted.findings):
            found.append(f"{name}: {shown}")
    return found


def left(places: Places) -> list[Shown]:
    """Everything that any place shows."""
    return [each for ask in (*places.findings.values(), *places.lag.values()) for each in ask()]


@pytest.mark.parametrize("wanted", SITUATIONS.values(), ids=list(SITUATIONS))
def test_every_place_gives_the_staged_verdict_and_cause(wanted: Situation, tmp_path: Path) -> None:
    """A healthy node shows nothing anywhere; then all places show the staged verdict; then nothing is left."""
    ward = Ward(wanted.prepare)
    places = Places(ward, tmp_path)
    ward.run(40)
    assert left(places) == []
    staging = wanted.run(ward)
    words = next(staging)
    ward.run(ROUND_SECONDS)
    found = differences(places, wanted, words)
    assert not found, "\n".join(found)
    assert next(staging, "ended") == "ended"
    ward.run(wanted.over_seconds)
    assert left(places) == []
