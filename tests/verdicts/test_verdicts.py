"""Every place gives the same verdict and cause on a staged situation, and nothing is left when it ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.operate.views.findings import Finding
from proxy.recording import verdicts
from tests.simulation.staged import STAGES, Stage
from tests.simulation.ward import Ward
from tests.verdicts.of_lag import SITUATIONS, Situation, send, work
from tests.verdicts.places import AS_JSON, Observer, Places, Posts, Shown

ROUND_SECONDS = 15.0
"""Within which every place knows what a round of samples said."""


@pytest.fixture(autouse=True)
def posts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what the webhook gets."""
    monkeypatch.setattr(verdicts, "Webhook", Posts)
    monkeypatch.setattr(Posts, "made", [])


def everything(*places: Places) -> dict[Shown, list[str]]:
    """Return everything that places show, and which of them does."""
    found: dict[Shown, list[str]] = {}
    for name, ask in (each for some in places for each in some.items()):
        for shown in ask():
            found.setdefault(shown, []).append(name)
    return found


def nothing_is_left(observer: Observer) -> None:
    """No place shows anything, and every level is OK."""
    observer.look()
    assert not everything(observer.findings, observer.queues, observer.worst)
    assert set(observer.levels().values()) == {"OK"}


def faults(shown: Shown, wanted: Situation, words: tuple[str, ...]) -> Iterator[str]:
    """Say what of a finding, or of the verdict on a queue, is not what was staged."""
    # Beside a status that is OK the finding is not of the lag rules.
    is_alone = shown.kind is not None and wanted.lag_level == "OK"
    staged = {
        "group": "by-key",
        "status": "" if is_alone else wanted.status,
        "level": wanted.lag_level if shown.kind is None else wanted.level,
        "cause": "" if is_alone else wanted.cause,
    }
    for name, value in staged.items():
        if getattr(shown, name) not in (None, value):
            yield f"{name} is {getattr(shown, name)!r}: {shown.text}"
    if shown.cause and shown.text:
        yield from (f"{word!r} is not in: {shown.text}" for word in words if word not in shown.text)


def faults_of_worst(shown: Shown, wanted: Situation, words: tuple[str, ...]) -> Iterator[str]:
    """Say what of the worst of a group is not what was staged: it is the status, or a finding beside it."""
    if shown.status == wanted.kind:
        if (shown.group, shown.level or wanted.level) != ("by-key", wanted.level):
            yield f"{shown} is not the finding"
    else:
        yield from faults(shown._replace(kind=wanted.kind), wanted, words)


def differences(observer: Observer, wanted: Situation, words: tuple[str, ...]) -> dict[str, list[str]]:
    """Return what is not the verdict that was staged, and which places show it."""
    observer.look()
    found: dict[str, list[str]] = {}
    kinds = set() if wanted.kind is None else {wanted.kind, *wanted.also}
    for name, ask in observer.findings.items():
        shown = ask()
        if {each.kind for each in shown} != kinds:
            found.setdefault(f"findings {shown}", []).append(name)
        # One of several findings of a kind has the status.
        of_kind = [list(faults(each, wanted, words)) for each in shown if each.kind == wanted.kind]
        for said in min(of_kind, key=len, default=[]):
            found.setdefault(said, []).append(name)
    for places, rule in ((observer.queues, faults), (observer.worst, faults_of_worst)):
        for name, ask in places.items():
            shown = ask()
            if len(shown) != (wanted.kind is not None):
                found.setdefault(f"{len(shown)} verdicts: {shown}", []).append(name)
            for said in (said for each in shown for said in rule(each, wanted, words)):
                found.setdefault(said, []).append(name)
    for name, level in observer.levels().items():
        if level != wanted.level:
            found.setdefault(f"level {level}", []).append(name)
    return found


@pytest.mark.parametrize("wanted", SITUATIONS.values(), ids=list(SITUATIONS))
def test_every_place_gives_the_staged_verdict_and_cause(wanted: Situation, tmp_path: Path) -> None:
    """A healthy node shows nothing anywhere; then all places show the staged verdict; then nothing is left."""
    ward = Ward(wanted.prepare)
    observer = Observer(ward, tmp_path)
    ward.run(40)
    nothing_is_left(observer)
    staging = wanted.run(ward)
    words = next(staging)
    ward.run(ROUND_SECONDS)
    found = differences(observer, wanted, words)
    texts = [each.text or "" for each in observer.findings["console"]() if each.kind == wanted.kind]
    assert wanted.kind is None or texts
    assert not found, "\n".join(f"{said} <- {', '.join(names)}" for said, names in found.items())
    assert next(staging, "ended") == "ended"
    ward.run(wanted.over_seconds)
    nothing_is_left(observer)
    ended = {(each.group, each.status, each.cause) for each in observer.reported(is_open=False)}
    assert wanted.kind is None or wanted.lag_level == "OK" or ("by-key", wanted.status, wanted.cause) in ended


def is_posted(finding: Finding) -> bool:
    """Whether the last change that the webhook got about a group, or the node, is as bad as a finding."""
    last = {each["group"]: each["level"] for each in Posts.made}
    return last.get(finding.group or "") in (finding.level, "ERR")


@pytest.mark.parametrize("wanted", STAGES.values(), ids=list(STAGES))
def test_every_place_shows_the_staged_finding(wanted: Stage, tmp_path: Path) -> None:
    """A healthy node shows nothing anywhere; then all places show the staged finding; then none does."""

    def prepare(settings: dict[str, Any]) -> None:
        wanted.prepare(settings)
        settings["lag"] = {"webhook": "http://127.0.0.1:1/lag"}

    ward = Ward(prepare)
    observer = Observer(ward, tmp_path)
    ward.run(5)
    assert not everything(observer.findings)
    staging = wanted.run(ward)
    words = next(staging)
    found = ward.appears(wanted.kind)
    assert [word for word in words if word not in found.text] == [], found.text
    observer.look()
    for name, ask in observer.findings.items():
        shown = [each for each in ask() if each.kind == wanted.kind]
        assert {each.group for each in shown} >= {found.group or ""}, name
        assert {each.level for each in shown} <= {None, "ERR" if found.bad else "WARN"}, name
    levels = observer.levels()
    assert len(set(levels.values())) == 1, levels
    assert set(levels.values()) <= ({"ERR"} if found.bad else {"ERR", "WARN", "UNKNOWN"}), levels
    if ward.view.state == "ready":
        ward.wait(lambda: is_posted(found) or not ward.shown(wanted.kind), "the webhook has nothing", 45)
    assert next(staging, "ended") == "ended"
    ward.goes(wanted.kind, seconds=wanted.over_seconds)
    observer.look()
    for name, ask in observer.findings.items():
        assert wanted.kind not in {each.kind for each in ask()}, name


def test_missing_consumer_is_named_within_ninety_seconds(tmp_path: Path) -> None:
    """A producer goes on and the consumer went: the stop limit of three minutes need not pass before it is named."""
    ward = Ward(SITUATIONS["slow_consumer"].prepare)
    observer = Observer(ward, tmp_path)
    work(ward, 100, sent=1, done=1)
    ward.finish()
    work(ward, 90, sent=1, done=0)
    observer.look()
    for name, ask in observer.findings.items():
        assert [(each.kind, each.level) for each in ask() if each.kind != "poison"] == [("no_puller", "WARN")], name


def test_busy_consumer_is_never_called_absent(tmp_path: Path) -> None:
    """It is slower than the producer, and has no message out at most moments; asked at every moment of its work."""
    ward = Ward(SITUATIONS["slow_consumer"].prepare)
    observer = Observer(ward, tmp_path)
    seen = set()
    for number in range(50):
        send(ward, 10)
        for place in ward.pull(linger_ms=1, count=1 + number % 2):
            ward.answer(place, success=True)
        for _ in range(4):
            ward.run(1.3)
            observer.look()
            seen |= {each.cause for each in observer.queues["queues of /api/lag"]()}
    assert "slow_consumer" in seen
    assert "no_consumer" not in seen


@pytest.mark.parametrize(
    "name", ["retention_takes_messages_without_a_consumer", "topic_deleted", "operator_reset_to_the_end"]
)
def test_what_is_deleted_or_passed_over_is_not_consumed(name: str, tmp_path: Path) -> None:
    """No place shows a rate of consumption, nor when the group will have caught up."""
    ward = Ward(SITUATIONS[name].prepare)
    observer = Observer(ward, tmp_path)
    staging = SITUATIONS[name].run(ward)
    next(staging)
    rates = {(each["consumeRate"], each["catchUpS"]) for each in observer.port.json("/api/lag")["queues"]}
    assert rates <= {(0, None), (None, None)}
    for text in (observer.port.text("/group?group=by-key"), observer.port.command("lag").out):
        assert "caught up" not in text


def test_rates_are_those_of_the_last_minute(tmp_path: Path) -> None:
    """A minute after the producer and the consumer stopped, both are 0."""
    ward = Ward(SITUATIONS["slow_consumer"].prepare)
    observer = Observer(ward, tmp_path)
    work(ward, 240, sent=4, done=4)
    [queue] = observer.port.json("/api/lag")["queues"]
    assert (round(queue["produceRate"]), round(queue["consumeRate"])) == (4, 4)
    ward.run(60)
    [queue] = observer.port.json("/api/lag")["queues"]
    assert (queue["produceRate"], queue["consumeRate"]) == (0, 0)


def test_report_keeps_two_nodes_of_one_name_apart(tmp_path: Path) -> None:
    """The queue of the node without a consumer is stopped, and that of the other one is not."""
    folders = []
    for name, stage in (("well", "group_at_rest_after_a_restart"), ("stopped", "consumers_went")):
        ward = Ward(SITUATIONS[stage].prepare)
        (tmp_path / name).mkdir()
        observer = Observer(ward, tmp_path / name)
        ward.run(40)
        next(SITUATIONS[stage].run(ward))
        ward.run(ROUND_SECONDS)
        folders += ["--journal", str(observer.copy_journal())]
    done = observer.port.command("lag", "report", *folders, "--since", "1h", "--engine", "local", *AS_JSON)
    [group] = json.loads(done.out)["groups"]
    found = {each["node"]: (each["status"], each["lag"]) for each in group["queues"]}
    assert found == {f"broker-0 ({tmp_path}/well)": ("OK", 0), f"broker-0 ({tmp_path}/stopped)": ("STOP", 20)}
