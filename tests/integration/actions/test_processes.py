"""`process: true`: blocking actions in worker processes, which are killed at the time limit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from actions.processes import ProcessAction, WorkerEnded, in_processes
from actions.registry import ActionError, Registry
from conf.models import SubscriptionConfig
from pyddmq.actions import Action, Failed, Message, Outgoing, Status, TimedOut
from tests.integration.actions import in_process

PLACE = "tests.integration.actions.in_process:"


class Context:
    """Remembers what was counted."""

    group, topic, timeout_ms, tps_max = "g", "t", 60_000, None

    def __init__(self) -> None:
        self.counted: list[str] = []

    def count(self, event: str, amount: int = 1) -> None:
        self.counted.append(event)

    def note(self, event: str, **facts: object) -> None:
        self.counted.append(event)


def job(what: str) -> Any:
    """A copy of a job with this body."""
    message = Message("k", None, what.encode(), {}, 0)
    return SimpleNamespace(body=message.body, message=message, data=message.body, outgoing=Outgoing())


def made(name: str, **options: Any) -> ProcessAction:
    """Make an action of `in_process` as a configuration does."""
    config = SubscriptionConfig.model_validate(
        {"topic": "t", "actions": [PLACE + name], "options": {PLACE + name: {"process": True, **options}}}
    )
    (action,) = Registry().make(config)
    assert isinstance(action, ProcessAction)
    action.context = Context()  # type: ignore[assignment]
    return action


@pytest.fixture
def work() -> Iterator[ProcessAction]:
    """An open `Work`."""
    action = made("Work", factor=7)
    action.open()
    yield action
    action.close()


def test_call_in_a_process_answers_with_what_it_made(work: ProcessAction) -> None:
    """Options reach it; its data, what it gathered, what it counted and what it raised come back."""
    first = job("a")
    assert work.act(first) is Status.CONTINUE
    assert first.data["pid"] != os.getpid()
    assert (first.data["factor"], first.data["key"]) == (7, "k")
    assert first.outgoing.headers == [("x", "a")]
    assert work.context.counted == ["worked"]  # type: ignore[attr-defined]
    with pytest.raises(Failed, match="no stock"):
        work.act(job("fail"))
    with pytest.raises(Exception, match="Unportable: odd"):
        work.act(job("odd"))
    with pytest.raises(Exception, match="its result cannot be sent"):
        work.act(job("lock"))
    with pytest.raises(Exception, match="it raised SystemExit: 3"):
        work.act(job("leave"))
    with pytest.raises(Exception, match="it raised Own: <Own that cannot be shown: KeyboardInterrupt>"):
        work.act(job("own"))
    assert work.act(job("note")) is Status.CONTINUE
    second = job("b")
    work.act(second)
    assert second.data["pid"] == first.data["pid"], "whatever it raised, the process is the same"


def test_call_beyond_its_limit_is_killed_and_the_next_one_runs_elsewhere(work: ProcessAction) -> None:
    """A worker that hangs, or ends, costs its call an error and no other one anything."""
    before = job("a")
    work.act(before)
    work.limit_ms = 50
    with pytest.raises(TimedOut, match="no answer within 50 ms; its process was killed"):
        work.act(job("hang"))
    with pytest.raises(ProcessLookupError):
        os.kill(before.data["pid"], 0)
    work.limit_ms = 60_000
    with pytest.raises(WorkerEnded, match="code 3"):
        work.act(job("exit"))
    after = job("a")
    assert work.act(after) is Status.CONTINUE
    assert after.data["pid"] != before.data["pid"]


def test_batches_go_to_a_process_together() -> None:
    """One call for all of them, one answer each."""
    action = made("Batches")
    action.open()
    answers: Any = action.act_many([job("a"), job("b"), job("c")])
    assert [str(each) for each in answers] == ["3", "Status.FINISH", "3"]
    action.close()


def test_action_that_cannot_be_opened_says_so_from_its_process() -> None:
    """What `open` raises there is raised here, with its type."""
    with pytest.raises(OSError, match="server is away"):
        made("NoOpen").open()


def test_process_needs_an_action_that_can_be_imported() -> None:
    """A class that another interpreter cannot find is refused with the configuration."""

    class Local(in_process.Batches):
        pass

    with pytest.raises(TypeError, match="process: true needs an action that can be imported"):
        in_processes(Local, {}, None)
    registry = Registry({"Local": Local})
    config = SubscriptionConfig.model_validate(
        {"topic": "t", "actions": ["Local"], "options": {"Local": {"process": True}}}
    )
    with pytest.raises(ActionError, match="can be imported"):
        registry.make(config)


def test_plain_and_async_actions_take_no_process() -> None:
    """The option is one of blocking actions alone."""

    class Async(Action):
        async def act(self, job: Any) -> Status:
            return Status.FINISH

    assert Registry({"A": Async})["A"].call_options.names() == {"timeLimit"}  # type: ignore[union-attr]
    assert Registry()["Json"].call_options is None
