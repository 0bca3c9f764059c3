"""Whatever an action raises or answers is an outcome of its message, and stops no other (D74)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from actions.registry import BUILT_IN, Registry
from broker.runtime.bundle import runtime_of
from conf.models import GroupConfig
from conf.sections.tracing import TracingConfig
from pyddmq.actions import Action, Failed, Job, RetryLater, RetryNotBefore, Status
from tests.contract.grounds import KafkaGround
from tests.unit.calls_world import CallsWorld
from upstream.delivery.group import ConsumerGroup
from upstream.figures.tracing import GroupTraces, Tracing


class CallsOverKafka(CallsWorld, KafkaGround):
    """A node over a simulated Kafka."""


class OwnBase(BaseException):
    """What no `except Exception` catches."""


class Unshowable(Exception):
    """Raises when it is shown."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


class UnshowableExit(SystemExit):
    """Ends the program when it is raised, and when it is shown."""

    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


class Surrogates(Exception):
    """Has a text that no encoding takes."""

    def __str__(self) -> str:
        return "\ud800 broken"


class Endless(Exception):
    """Has a text of 10 MB."""

    def __str__(self) -> str:
        return "x" * 10_000_000


RAISED: dict[str, tuple[Callable[[], BaseException], str]] = {
    "CancelledError": (asyncio.CancelledError, "it raised CancelledError"),
    "SystemExit": (lambda: SystemExit(3), "it raised SystemExit: 3"),
    "GeneratorExit": (GeneratorExit, "it raised GeneratorExit"),
    "KeyboardInterrupt": (KeyboardInterrupt, "it raised KeyboardInterrupt"),
    "StopIteration": (lambda: StopIteration("end"), "StopIteration"),
    "BaseException": (lambda: OwnBase("own"), "it raised OwnBase: own"),
    "group": (lambda: BaseExceptionGroup("two", [SystemExit(), ValueError()]), "it raised BaseExceptionGroup: two"),
    "unshowable": (Unshowable, "<Unshowable that cannot be shown: ValueError>"),
    "unshowable exit": (UnshowableExit, "<UnshowableExit that cannot be shown: KeyboardInterrupt>"),
    "surrogates": (Surrogates, r"Surrogates: \ud800 broken"),
    "endless": (Endless, "Endless: xxx"),
}
FORMS = ("plain", "plain batch", "async", "async batch", "blocking", "blocking batch", "answered", "answered batch")


def action_of(form: str, make: Callable[[], Any]) -> type[Action]:
    """An action that raises, or answers, what `make` returns for the first message, and finishes all others."""
    answers = form.startswith("answered")

    def one(job: Job) -> Status:
        if bytes(job.body) != b"1":
            return Status.FINISH
        if answers:
            return cast("Status", make())
        raise make()

    def many(jobs: Any) -> list[Any]:
        return [one(job) for job in jobs]

    async def one_awaited(self: Action, job: Job) -> Status:
        await asyncio.sleep(0)
        return one(job)

    async def many_awaited(self: Action, jobs: Any) -> list[Any]:
        await asyncio.sleep(0)
        return many(jobs)

    attributes: dict[str, Any] = {"may_be_last": True, "blocking": form.startswith("blocking")}
    if form.startswith("async"):
        attributes |= {"act_many": many_awaited} if form.endswith("batch") else {"act": one_awaited}
    elif form.endswith("batch"):
        attributes["act_many"] = lambda self, jobs: many(jobs)
    else:
        attributes["act"] = lambda self, job: one(job)
    return type("Work", (Action,), attributes)


def world_of(action: type[Action], **subscription: Any) -> CallsWorld:
    """A node whose group runs the action on topic `t`, with one attempt."""
    config = {"topic": "t", "actions": ["Async", "Work"], "orderKey": "KEY", "maxRetry": 0, "retryIntervals": []}
    return CallsWorld(config | subscription, registry=Registry({**BUILT_IN, "Work": action}), queues=1)


@pytest.mark.parametrize("form", FORMS)
def test_dead_letter_names_the_action_that_failed_and_no_other(form: str) -> None:
    """Of several, whichever way they are called, and not the one that failed in an earlier attempt."""
    late = action_of(form, lambda: Failed("late"))
    answers = iter([Status.FAIL, *[Status.CONTINUE] * 3])
    early = type("Early", (Action,), {"act": lambda self, job: next(answers)})
    config: dict[str, Any] = {"topic": "t", "actions": ["Async", "Early", "Work"], "retryIntervals": [100]}
    world = CallsWorld(config, registry=Registry({**BUILT_IN, "Early": early, "Work": late}), queues=1)
    world.publish("a")
    world.advance(5)
    assert [letter["DLQ_ACTION"] for letter in world.dead_letters()] == ["Work"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", RAISED)
def test_whatever_is_raised_or_answered_is_an_outcome_with_its_reason(form: str, kind: str) -> None:
    """The message ends in the dead letters with the reason; the messages after it, of its key and others, go on."""
    make, reason = RAISED[kind]
    world = world_of(action_of(form, make))
    world.publish("a", "a", "b")
    world.advance(5)
    world.publish("c")
    world.advance(5)
    letters = world.dead_letters()
    assert letters, "the message has an outcome"
    assert any(reason in letter["DLQ_REASON"] for letter in letters)
    assert max(len(letter["DLQ_REASON"]) for letter in letters) < 3_000
    assert {letter["DLQ_ACTION"] for letter in letters} == {"Work"}
    assert len(letters) == 1 or form.endswith("batch"), "one message's fault is no other's"
    assert world.unfinished() == 0


class TracedWorld(CallsWorld):
    """A node that traces all messages."""

    def make_group(self, config: GroupConfig) -> ConsumerGroup:
        """Make a group, which hands its endings to the traces."""
        group = super().make_group(config)
        wanted = TracingConfig(endpoint="http://127.0.0.1:4318", sample=1.0)
        self.tracing = Tracing(wanted, runtime_of(self.disk, self.clock, random=self.random_numbers))
        traces, endings = GroupTraces(group.name, self.tracing), group.node.endings
        endings.acted, endings.failed = traces.acted, traces.failed
        endings.put("traces", traces)
        return group


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["unshowable", "unshowable exit", "surrogates", "endless"])
def test_traced_message_has_its_outcome_whatever_is_raised(form: str, kind: str) -> None:
    """Its span says what it was, in a text that can be sent."""
    config: dict[str, Any] = {"topic": "t", "actions": ["Async", "Work"], "orderKey": "KEY", "maxRetry": 0}
    action = action_of(form, RAISED[kind][0])
    world = TracedWorld(config, registry=Registry({**BUILT_IN, "Work": action}), queues=1)
    world.publish("a", properties=[("UNIQ_KEY", "0" * 31 + "1")])
    world.advance(5)
    assert len(world.dead_letters()) == 1
    texts = [each.error for each in world.tracing.take(100)]
    assert any(texts)
    for text in texts:
        assert text.encode() is not None


@pytest.mark.parametrize("kind", RAISED)
@pytest.mark.parametrize("form", ["plain", "async", "blocking"])
def test_open_that_raises_is_a_start_that_failed_and_is_tried_again(form: str, kind: str) -> None:
    """The topic says why it does not run, and runs as soon as `open` returns."""
    raised = [RAISED[kind][0]()]

    def hook() -> None:
        if raised:
            raise raised.pop()

    world = world_of(with_hooks(form, open=hook))
    world.publish("a")
    world.advance(0.5)
    assert world.unfinished() == 1
    world.advance(60)
    assert world.unfinished() == 0


@pytest.mark.parametrize("form", ["plain", "async"])
def test_starts_that_fail_leave_nothing_behind(form: str) -> None:
    """Each has a source of its own, which a group over Kafka would keep; and a share of the threads."""

    class Blocking(Action):
        blocking = True

        def act(self, job: Job) -> Status:
            return Status.CONTINUE

    def hook() -> None:
        raise ConnectionError("the server is away")

    registry = Registry({**BUILT_IN, "Blocking": Blocking, "Work": with_hooks(form, open=hook)})
    ground = CallsOverKafka({"actions": ["Async", "Blocking", "Work"]}, queues=1, registry=registry)
    ground.advance(600)
    assert "server is away" in (ground.group.stats().topics[0].problem or "")
    assert len(vars(ground.member)["_sources"]) <= 1
    assert ground.calls is not None
    lines = vars(ground.calls.pool)["_lines"].values()
    assert sum(line.users for line in lines) <= 1


@pytest.mark.parametrize("kind", RAISED)
@pytest.mark.parametrize("form", ["plain", "async", "blocking"])
def test_close_and_drain_that_raise_end_nothing_but_themselves(form: str, kind: str) -> None:
    """The generation ends, the other actions are closed, and the log says what was raised."""
    closed: list[str] = []

    def hook() -> None:
        raise RAISED[kind][0]()

    act = {"act": lambda self, job: Status.CONTINUE, "close": lambda self: closed.append("first")}
    first = type("First", (Action,), act)
    work = with_hooks(form, close=hook, drain=hook)
    config = {"topic": "t", "actions": ["Async", "First", "Work"], "orderKey": "KEY"}
    world = CallsWorld(config, registry=Registry({**BUILT_IN, "First": first, "Work": work}), queues=1)
    world.publish("a")
    world.advance(1)
    with capture_logs() as logs:
        world.group.stop()
        world.advance(1)
    assert closed == ["first"]
    assert any(each.get("what") == "action_close_failed" for each in logs)


def with_hooks(form: str, **hooks: Callable[[], None]) -> type[Action]:
    """An action that finishes every message, with hooks of its own form; `drain` is always plain."""

    async def awaited(hook: Callable[[], None]) -> None:
        await asyncio.sleep(0)
        hook()

    attributes: dict[str, Any] = {"may_be_last": True, "blocking": form == "blocking"}
    for name, hook in hooks.items():
        if form == "async" and name != "drain":

            async def of_action(self: Action, hook: Callable[[], None] = hook) -> None:
                await awaited(hook)

            attributes[name] = of_action
        else:
            attributes[name] = lambda self, hook=hook: hook()

    async def act_awaited(self: Action, job: Job) -> Status:
        return Status.FINISH

    attributes["act"] = act_awaited if form == "async" else lambda self, job: Status.FINISH
    return type("Work", (Action,), attributes)


@pytest.mark.parametrize("form", ["plain", "blocking"])
def test_facts_that_cannot_be_shown_end_no_log_line(form: str) -> None:
    """What an action notes is written as text, whatever its `__repr__` does."""

    class Noting(Action):
        may_be_last = True
        blocking = form == "blocking"

        def act(self, job: Job) -> Status:
            self.context.note("odd", fact=UnshowableExit(), text="\ud800", much="x" * 10_000_000)
            return Status.FINISH

    world = world_of(Noting)
    with capture_logs() as logs:
        world.publish("a", "b")
        world.advance(70)
    (line, *_) = [each for each in logs if each.get("what") == "odd"]
    assert line["fact"] == "<UnshowableExit that cannot be shown: KeyboardInterrupt>"
    assert line["text"] == r"\ud800"
    assert len(line["much"]) < 3_000
    assert world.unfinished() == 0


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), "soon", None])
def test_wait_that_is_none_is_an_error_with_its_reason(delay: Any) -> None:
    """`RetryLater` with an impossible delay uses up an attempt instead of being run again without a pause."""
    runs = 0

    class Waiting(Action):
        may_be_last = True

        def act(self, job: Job) -> Status:
            nonlocal runs
            runs += 1
            raise RetryLater(delay)

    world = world_of(Waiting)
    world.publish("a")
    world.advance(5)
    (letter,) = world.dead_letters()
    assert "RetryLater needs 0 or more milliseconds" in letter["DLQ_REASON"]
    assert runs == 1


def test_first_line_about_an_error_has_its_traceback() -> None:
    """A bug in an action can be found by the log alone: file, line and function, once a minute."""

    class Buggy(Action):
        may_be_last = True

        def act(self, job: Job) -> Status:
            return cast("dict[str, Status]", {})["nokey"]

    world = world_of(Buggy)
    with capture_logs() as logs:
        world.publish("a", "b", "c")
        world.advance(5)
    (line,) = [each for each in logs if each["event"] == "action_error"]
    assert "KeyError: 'nokey'" in line["traceback"]
    assert "in act" in line["traceback"]


@pytest.mark.parametrize(("delay", "wait"), [(0, 1.0), (30_000, 30.0), (10**12, 300.0), (float("nan"), 1.0)])
def test_error_waits_as_long_as_it_says_within_a_bound(delay: Any, wait: float) -> None:
    """`RetryNotBefore` counts as an error; the next attempt comes after its wait, five minutes at most."""
    at: list[float] = []

    class Busy(Action):
        may_be_last = True

        def act(self, job: Job) -> Status:
            at.append(self.context.monotonic())
            raise RetryNotBefore(delay, "busy")

    world = world_of(Busy, maxRetry=1)
    world.publish("a")
    world.advance(400)
    assert at[1] - at[0] == pytest.approx(wait, abs=0.01)
    (letter,) = world.dead_letters()
    assert "RetryNotBefore: busy" in letter["DLQ_REASON"]


@pytest.mark.parametrize("how", ["restart", "reload"])
def test_wait_that_an_error_asks_for_holds_over_a_restart_and_a_reload(how: str) -> None:
    """A receiver that is to be left alone for a minute is left alone for a minute."""
    at: list[float] = []

    class Busy(Action):
        may_be_last = True

        def act(self, job: Job) -> Status:
            at.append(world.clock.wall_ms() / 1000)
            raise RetryNotBefore(60_000, "busy")

    world = world_of(Busy, maxRetry=5)
    world.publish("a")
    world.advance(5)
    if how == "restart":
        world.kill()
    else:
        world.group.reconfigure(world.config({**world.subscriptions[0], "tags": ["*"]}))
    world.advance(100)
    assert at[1] - at[0] == pytest.approx(60, abs=0.1)
