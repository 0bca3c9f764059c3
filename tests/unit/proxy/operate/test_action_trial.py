"""Actions tried without a node, as `pyddmq.testing.actions` and `pyddmq actions try` do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from actions.registry import ActionError
from conf.problems import ConfigError
from proxy.operate.action_trial import TrialMissing, meaning_of
from pyddmq.actions import Action, Failed, Job, RetryLater, Status, TimedOut, Unprocessable, action
from pyddmq.testing.actions import try_action, try_pipeline

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
        (Unprocessable("never"), "a dead letter immediately: never"),
        (Failed("no stock"), "a dead letter: no stock"),
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
    assert try_pipeline(YAML, "g", "plain").last.meaning == "waits for a pull client, whose result decides"
    assert isinstance(try_pipeline(YAML, "g", "orders", b"no").last.answer, Unprocessable)
    really = try_pipeline(YAML, "g", "orders", b"{}", run=True).last
    assert isinstance(really.answer, Exception)
    with pytest.raises(TrialMissing, match="no topic 'other'; its topics are orders, plain"):
        try_pipeline(YAML, "g", "other")
    with pytest.raises(ConfigError, match="nope"):
        try_pipeline("nope: 1", "g", "orders")


def test_blocking_action_runs_beside_the_loop() -> None:
    """Its thread may sleep while the limit's clock runs."""

    @action(blocking=True, time_limit_ms=5000)
    def sleepy(job: Job) -> None:
        time.sleep(0)

    assert try_action(sleepy).answer is Status.CONTINUE
