"""Actions tried without a node, as `pyddmq.action_testing` and `pyddmq actions try` do."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from actions.registry import ActionError
from conf.problems import ConfigError
from proxy.cli.app import run
from proxy.operate.action_trial import TrialMissing, meaning_of
from proxy.process.exit_codes import ExitCode
from pyddmq.action_testing import try_action, try_pipeline
from pyddmq.actions import Action, Failed, Job, RetryLater, Status, TimedOut, Unprocessable, action

YAML = """
topics: {orders: {}, plain: {}}
groups:
  - group: g
    topics:
      - topic: orders
        orderKey: $.case
        actions: [Json, Async, QueryParams, AsyncHttp]
        options: {AsyncHttp: {urls: ["http://127.0.0.1:1/never"]}, QueryParams: {fields: {amount: $.amount}}}
      - topic: plain
        actions: [PullServer]
"""


class Hooks(Action):
    """Remembers its life."""

    blocking = True
    life: Sequence[str] = ()

    def open(self) -> None:
        """Begin."""
        self.life = ["open"]

    def act(self, job: Job) -> Status:
        """Count, and gather."""
        self.context.count("seen", 2)
        self.context.note("odd", key=job.message.key)
        job.data = self.life
        return Status.CONTINUE


def test_function_class_and_name_are_tried_alike() -> None:
    """A step has the answer, the data, what was gathered and what was counted."""
    step = try_action(Hooks, b"x", key="k")
    assert (step.action, step.answer, step.data) == ("Hooks", Status.CONTINUE, ["open"])
    assert [(each.name, each.amount) for each in step.events] == [("seen", 2), ("odd", 0)]
    assert step.events[1].facts == {"key": "k"}
    assert try_action("Json", b'{"a": 1}').data == {"a": 1}
    assert try_action(lambda job: Status.FINISH).answer is Status.FINISH
    with pytest.raises(ActionError, match="name a class derived"):
        try_action(7)
    with pytest.raises(ActionError, match="no options"):
        try_action(Hooks, options={"a": 1})


def test_calls_end_at_their_time_limits() -> None:
    """An async call is cancelled, one that is kept and never answered too."""

    @action(time_limit_ms=10)
    async def slow(job: Job) -> None:
        await asyncio.sleep(60)

    async def kept(job: Job) -> Status:
        asyncio.get_running_loop().call_soon(job.answer, Failed("later"))
        return Status.ASYNCHRONIZED

    assert isinstance(try_action(slow).answer, TimedOut)
    assert str(try_action(kept).answer) == "later"


@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        (Status.FINISH, "consumed"),
        (Status.FAIL, "a business failure"),
        (Unprocessable("never"), "to the dead letters at once: never"),
        (Failed("no stock"), "dead letters: no stock"),
        (RetryLater(70), "again after 70 ms"),
        (KeyError("x"), "an error: .* KeyError: 'x'"),
    ],
)
def test_meaning_of_an_answer_is_said(answer: Any, meaning: str) -> None:
    """Each answer says what it leads to."""
    import re

    assert re.search(meaning, meaning_of(answer, last=False))


def test_pipeline_is_run_up_to_what_reaches_other_servers() -> None:
    """The step that would send shows what it would have been given; the key of the order is found."""
    trial = try_pipeline(YAML, "g", "orders", b'{"case": 7, "amount": 3}')
    assert [step.action for step in trial.steps] == ["Json", "Async", "QueryParams", "AsyncHttp"]
    assert (trial.last.answer, trial.last.outgoing.query, trial.order_key) == (None, [("amount", "3")], "7")
    assert trial.steps[0].outgoing.query == []
    assert try_pipeline(YAML, "g", "plain").last.meaning == "waits for a pull client, whose answer decides"
    assert isinstance(try_pipeline(YAML, "g", "orders", b"no").last.answer, Unprocessable)
    really = try_pipeline(YAML, "g", "orders", b"{}", run=True).last
    assert isinstance(really.answer, Exception)
    with pytest.raises(TrialMissing, match="no topic 'other'; there are orders, plain"):
        try_pipeline(YAML, "g", "other")
    with pytest.raises(ConfigError, match="nope"):
        try_pipeline("nope: 1", "g", "orders")


def test_command_shows_each_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As text and as JSON; a wrong file, group or property has its exit code."""
    file = tmp_path / "node.yaml"
    file.write_text(YAML)
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
    assert run(["actions", f"{__name__}:Hooks"]) == ExitCode.OK
    assert "process (bool, default False)" in capsys.readouterr().out
    assert run(["actions", "Nope"]) == ExitCode.NOT_FOUND


def test_blocking_action_runs_beside_the_loop() -> None:
    """Its thread may sleep while the limit's clock runs."""

    @action(blocking=True, time_limit_ms=5000)
    def sleepy(job: Job) -> None:
        time.sleep(0)

    assert try_action(sleepy).answer is Status.CONTINUE
