"""Trend and objective of a running node, from the journal that it writes, and as its commands print them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from broker.runtime.steps import run_now
from proxy.cli.admin_client import given
from proxy.cli.errors import CliError
from proxy.cli.lag import lag_commands, lag_objective_command
from proxy.operate.lookups.lag import lag_of
from proxy.operate.moments import parse_duration
from proxy.operate.views.lag import LagAnswer
from proxy.operate.views.lag_history import ObjectivesAnswer
from tests.simulation.test_queue_samples import ward_of
from tests.simulation.ward import Ward


def grown() -> Ward:
    """Return a node whose group falls behind: a message every 20 s, for four minutes, after a minute of rest."""
    ward = ward_of()
    ward.run(60)
    for number in range(12):
        ward.send("orders", f"k{number}")
        ward.run(20)
    return ward


def test_trend_and_objective_are_told_from_the_journal() -> None:
    """By group, or by queue of one; of a node that was killed meanwhile, too."""
    ward = grown()
    ward.restart(kill=True)
    trend = run_now(ward.view.trend(group=None, span_ms=360_000))
    [line] = trend.lines
    assert (line.group, line.topic, line.queue, line.last) == ("by-key", None, None, 12)
    known = [each for each in line.parts if each is not None]
    assert known == sorted(known)
    assert known[0] == 0
    assert line.slope is not None
    assert 0.03 < line.slope < 0.07
    assert not trend.shortened
    [queue] = run_now(ward.view.trend(group="by-key", span_ms=360_000)).lines
    assert (queue.topic, queue.queue) == ("orders", 0)
    [kept] = run_now(ward.view.objectives(group=None, span_ms=360_000, target_ms=60_000)).kept
    assert kept.share is not None
    assert 0.3 < kept.share < 0.55, "two minutes of five"
    assert 0.75 < kept.coverage < 0.95, "five minutes of six"
    assert kept.unknown_ms == 360_000 - kept.kept_ms - kept.over_ms


def test_commands_print_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A sparkline per group; a share that is too low ends with 1."""
    ward = grown()

    def get(_: str, path: str, kind: type[Any], *, parameters: dict[str, Any], **__: float) -> Any:
        if kind is ObjectivesAnswer:
            assert path == "/api/lag/objectives"
            assert given(parameters) in (
                {"objective": "60s", "since": "6m"},
                {"objective": "60s", "since": "6m", "atLeast": "99.9"},
            )
            share = 0.999 if "atLeast" in given(parameters) else None
            return run_now(ward.view.objectives(group=None, span_ms=360_000, target_ms=60_000, at_least=share))
        assert kind is LagAnswer
        assert (path, parameters["trend"]) == ("/api/lag", "6m")
        answer = lag_of(ward.node, limit=10)
        assert answer is not None
        return replace(answer, trend=run_now(ward.view.trend(group=None, span_ms=360_000)))

    monkeypatch.setattr(lag_commands, "get", get)
    monkeypatch.setattr(lag_objective_command, "get", get)
    assert lag_commands.show(trend="6m") == 0
    shown = capsys.readouterr().out
    assert "last 6m" in shown
    assert "█" in shown
    assert lag_objective_command.slo(objective="60s", since="6m", coverage=75.0) == 0
    assert "No unfinished message older than 1 min, over the last 6 min" in capsys.readouterr().out
    assert lag_objective_command.slo(objective="60s", since="6m", coverage=75.0, at_least=99.9) == 1
    assert "--at-least is 99.9 %" in (shown := capsys.readouterr().out)
    assert "Error budget: 0.1 % of the messages of 6 min" in shown


def test_span_of_which_little_is_known_ends_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Thirty days of which minutes were recorded are no success, and the command says how much is known."""
    ward = grown()

    def get(_: str, __: str, ___: type[Any], *, parameters: dict[str, Any], **____: float) -> Any:
        span_ms = parse_duration(parameters["since"])
        return run_now(ward.view.objectives(group=None, span_ms=span_ms, target_ms=600_000))

    monkeypatch.setattr(lag_objective_command, "get", get)
    assert lag_objective_command.slo(objective="10m", since="30d", at_least=99.9) == 3
    assert "by-key: known 4 min 5" in (shown := capsys.readouterr().out)
    assert "of 30 d, too little for a result: --coverage is 90 %" in shown
    monkeypatch.setattr(
        lag_objective_command,
        "_of_files",
        lambda _, target_ms, span_ms, group, __: run_now(
            ward.view.objectives(group=group, span_ms=span_ms, target_ms=target_ms)
        ),
    )
    assert lag_objective_command.slo(objective="10m", since="30d", journal="there") == 3
    assert lag_objective_command.slo(objective="10m", since="30d", journal="there", coverage=0.0) == 0


@pytest.mark.parametrize(("objective", "since"), [("soon", "1d"), ("60s", "ever"), ("0s", "1d")])
def test_wrong_spans_are_refused(objective: str, since: str) -> None:
    """With what would be right."""
    with pytest.raises(CliError, match="such as"):
        lag_objective_command.slo(objective=objective, since=since)
    with pytest.raises(CliError, match="--trend"):
        lag_commands.show(trend="soon")
