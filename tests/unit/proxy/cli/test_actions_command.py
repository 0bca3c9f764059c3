"""`pyddmq actions` and `pyddmq actions try`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.cli.app import run
from proxy.process.exit_codes import ExitCode
from tests.unit.proxy.operate import test_action_trial


def test_command_shows_each_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As text and as JSON; a wrong file, group or property has its exit code."""
    file = tmp_path / "node.yaml"
    file.write_text(test_action_trial.YAML)
    words = ["actions", "try", str(file), "g", "orders", "--body", '{"case": "7", "amount": 3}', "--property", "a=b"]
    assert run(words) == ExitCode.OK
    shown = capsys.readouterr().out
    assert "4. AsyncHttp: not run: it would have this message now" in shown
    assert "query: [('amount', '3')]" in shown
    assert run([*words, "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert told["orderKey"] == "7"
    assert [step["answer"] for step in told["steps"]] == ["CONTINUE", None, "CONTINUE", None]
    assert run(["actions", "try", str(file), "g", "nope"]) == ExitCode.NOT_FOUND
    assert run(["actions", "try", str(tmp_path / "none.yaml"), "g", "orders"]) == ExitCode.CONFIG_INVALID
    file.write_text("nope: 1")
    assert run(["actions", "try", str(file), "g", "orders"]) == ExitCode.CONFIG_INVALID


def test_command_lists_actions_with_options_and_places(capsys: pytest.CaptureFixture[str]) -> None:
    """All of them, or one, also by a dotted path."""
    assert run(["actions"]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert "PullServer: " in shown
    assert "missing ('fail' or 'skip' or 'null', default skip)" in shown
    assert run(["actions", "Redis", "--json"]) == ExitCode.OK
    (told,) = json.loads(capsys.readouterr().out)["actions"]
    assert "needs the extra redis" in (told["place"] or "") or "pip install" in (told["problem"] or "")
    assert run(["actions", f"{test_action_trial.__name__}:Hooks"]) == ExitCode.OK
    assert "process (bool, default False)" in capsys.readouterr().out
    assert run(["actions", "Nope"]) == ExitCode.NOT_FOUND
