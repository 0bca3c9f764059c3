"""`pyddmq actions` and `pyddmq actions try`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.cli.app import run
from proxy.process.exit_codes import ExitCode
from pyddmq.actions import Action, Job, Status
from tests.unit.proxy.operate import test_action_trial


def test_command_shows_each_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As text and as JSON; a wrong file, group or property has its exit code."""
    file = tmp_path / "node.yaml"
    file.write_text(test_action_trial.YAML)
    words = ["actions", "try", str(file), "g", "orders", "--body", '{"case": "7", "amount": 3}', "--property", "a=b"]
    assert run(words) == ExitCode.OK
    shown = capsys.readouterr().out
    assert "4. AsyncHttp: not run: it would receive this message now" in shown
    assert "query: [('amount', '3')]" in shown
    assert run([*words, "--json"]) == ExitCode.OK
    reported = json.loads(capsys.readouterr().out)
    assert reported["orderKey"] == "7"
    assert [step["answer"] for step in reported["steps"]] == ["CONTINUE", None, "CONTINUE", None]
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
    assert run(["actions", "--json"]) == ExitCode.OK
    listed = {each["name"]: each["options"] for each in json.loads(capsys.readouterr().out)["actions"]}
    (breaker,) = [each for each in listed["AsyncHttp"] if each["name"] == "breaker"]
    assert isinstance(breaker["default"], dict), "a section within the options is JSON, too"
    assert run(["actions", "Redis", "--json"]) == ExitCode.OK
    (reported,) = json.loads(capsys.readouterr().out)["actions"]
    assert "needs the extra redis" in (reported["place"] or "") or "pip install" in (reported["problem"] or "")
    assert run(["actions", f"{test_action_trial.__name__}:Hooks"]) == ExitCode.OK
    assert "process (bool, default False)" in capsys.readouterr().out
    assert run(["actions", "Nope"]) == ExitCode.NOT_FOUND


def test_bug_in_an_action_is_shown_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`actions try` prints the traceback, whatever kind of exception it is."""
    file = tmp_path / "node.yaml"
    topic = f"{{topic: orders, actions: [Async, '{__name__}:Leaves']}}"
    file.write_text(f"topics: {{orders: {{}}}}\ngroups: [{{group: g, topics: [{topic}]}}]")
    words = ["actions", "try", str(file), "g", "orders", "--run"]
    assert run(words) == ExitCode.OK
    shown = capsys.readouterr().out
    assert "it raised SystemExit: 3" in shown
    assert "in act" in shown
    assert run([*words, "--json"]) == ExitCode.OK
    *_, step = json.loads(capsys.readouterr().out)["steps"]
    assert "in act" in step["traceback"]


class Leaves(Action):
    """Has a bug."""

    may_be_last = True

    def act(self, job: Job) -> Status:
        """See the class."""
        raise SystemExit(3)


PREVIEWED = """
topics: {orders: {}}
groups:
  - group: g
    topics:
      - topic: orders
        actions: [Async, ACTION]
        options: {ACTION: OPTIONS}
"""


@pytest.mark.parametrize(
    ("action", "options", "sent"),
    [
        (
            "AsyncHttp",
            "{urls: ['http://shop.internal/hook?x=1'], headers: {Authorization: {env: NOWHERE}}, "
            "signature: {keyId: k, secret: {env: NOWHERE}}}",
            ["POST http://shop.internal/hook?x=1", "Authorization: ***", "Pyddmq-Signature: ***", '{"n": 1}'],
        ),
        (
            "Redis",
            "{hosts: ['h:1'], once: true, password: {env: NOWHERE}, commands: [[INCR, 'of:${key}']]}",
            ["INCR of:k", "to h:1, once, by the marker pyddmq:once:g:orders:trial_0:0:0"],
        ),
        (
            "HBase",
            "{hosts: ['h:1'], tables: [{table: t, row: '${key}', columns: {'d:n': '${$.n}'}}]}",
            ["put t k d:n=1", "to h:1"],
        ),
        (
            "File",
            "{url: /archive, content: body}",
            ["/archive/orders/1970-01-01/g.orders.trial_0.00000000000000000000.0.jsonl", '{"n": 1}'],
        ),
    ],
)
def test_command_shows_what_the_last_action_would_send(
    action: str, options: str, sent: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody is connected to, no secret is read; what cannot be sent says what would become of it."""
    file = tmp_path / "node.yaml"
    file.write_text(PREVIEWED.replace("ACTION", action).replace("OPTIONS", options))
    words = ["actions", "try", str(file), "g", "orders"]
    assert run([*words, "--body", '{"n": 1}', "--key", "k", "--json"]) == ExitCode.OK
    preview = "\n".join(json.loads(capsys.readouterr().out)["steps"][-1]["preview"])
    assert all(each in preview for each in sent), preview
    if action in ("Redis", "HBase"):
        assert run(words) == ExitCode.OK
        assert "which would be a dead letter immediately" in capsys.readouterr().out
