"""Every place gives the same verdict and cause on a staged situation, and nothing is left when it ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from proxy.recording import verdicts
from tests.simulation.staged import STAGES, Stage
from tests.simulation.test_troubles import fits, rows
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


def faults(name: str, shown: list[Shown], wanted: Situation, words: Iterable[str]) -> Iterator[str]:
    """Say what a place that judges lag shows beside the verdict that was staged."""
    if wanted.status == "OK" or (name == "pyddmq lag check" and wanted.level == "OK"):
        yield from map(str, shown)
    elif {(each.kind, each.group) for each in shown} != {(wanted.status, "by-key")}:
        yield str(shown)
    else:
        [each] = shown
        if each.level not in ("", wanted.level):
            yield f"level {each.level}"
        if each.cause not in (None, wanted.cause):
            yield f"cause {each.cause}: {each.text}"
        if each.cause is not None and each.text and not all(word in each.text for word in words):
            yield f"evidence {each.text}"


def differences(places: Places, wanted: Situation, words: Iterable[str]) -> dict[str, list[str]]:
    """Return what is shown that is not the verdict that was staged, and where."""
    found: dict[str, list[str]] = {}
    for name, ask in places.lag.items():
        for fault in faults(name, list(ask()), wanted, words):
            found.setdefault(fault, []).append(name)
    for name, ask in places.findings.items():
        shown = {each.kind for each in ask()}
        if shown != set(wanted.findings):
            found.setdefault(f"findings {sorted(shown)}", []).append(name)
    return found


def left(places: Places) -> dict[Shown, list[str]]:
    """Return everything that any place shows, and where."""
    found: dict[Shown, list[str]] = {}
    for name, ask in (*places.findings.items(), *places.lag.items()):
        for each in ask():
            found.setdefault(each, []).append(name)
    return found


@pytest.mark.parametrize("wanted", SITUATIONS.values(), ids=list(SITUATIONS))
def test_every_place_gives_the_staged_verdict_and_cause(wanted: Situation, tmp_path: Path) -> None:
    """A healthy node shows nothing anywhere; then all places show the staged verdict; then nothing is left."""
    ward = Ward(wanted.prepare)
    places = Places(ward, tmp_path)
    ward.run(40)
    assert left(places) == {}
    staging = wanted.run(ward)
    words = next(staging)
    ward.run(ROUND_SECONDS)
    found = differences(places, wanted, words)
    assert not found, "\n".join(f"{fault} <- {', '.join(names)}" for fault, names in found.items())
    assert next(staging, "ended") == "ended"
    ward.run(wanted.over_seconds)
    assert left(places) == {}


@pytest.mark.parametrize("wanted", STAGES.values(), ids=list(STAGES))
def test_every_place_shows_the_staged_finding(wanted: Stage, tmp_path: Path) -> None:
    """A healthy node shows nothing anywhere; then all places show the staged finding; then none does."""
    ward = Ward(wanted.prepare)
    places = Places(ward, tmp_path)
    ward.run(5)
    assert not any(list(ask()) for ask in places.findings.values())
    staging = wanted.run(ward)
    next(staging)
    found = ward.appears(wanted.kind)
    assert fits(found.text, rows()[wanted.kind][1]), found.text
    for name, ask in places.findings.items():
        shown = [each for each in ask() if each.kind == wanted.kind]
        assert {each.group for each in shown} >= {found.group or ""}, name
        assert {each.level for each in shown} <= {"", "ERR" if found.bad else "WARN"}, name
    assert next(staging, "ended") == "ended"
    ward.goes(wanted.kind, seconds=wanted.over_seconds)
    for name, ask in places.findings.items():
        assert wanted.kind not in {each.kind for each in ask()}, name
