"""Whatever actions do, every message leaves its pipeline once, and in the order of its key.

Messages of a few keys go through pipelines of plain, async and blocking actions that answer, raise, hang, answer later
and misbehave as a drawn script says, while generations are replaced. Held at every call and at the end:

- a message is in one call at a time, also across generations, and so is a key;
- when a message is called, every earlier one of its key is finished;
- at the end each message is finished, and it has one dead letter or none, as its script says.
"""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actions.registry import BUILT_IN, Registry
from pyddmq.actions import Action, Failed, Job, RetryLater, Status, Unprocessable
from tests.unit.calls_world import CallsWorld

TIMEOUT_MS = 1000

Behaviour = tuple[str, float]
"""What a call does, and after how many seconds."""

_WAYS = ("finish", "continue", "fail", "failed", "error", "never", "later", "none", "keep")
_behaviours = st.tuples(st.sampled_from(_WAYS), st.sampled_from([0.0, 0.003, 0.4, 1.5, 70.0]))
_scripts = st.lists(st.lists(_behaviours, max_size=4), min_size=1, max_size=12)
_kinds = st.lists(st.sampled_from(["Plain", "Async", "Blocking", "Many"]), min_size=1, max_size=3)


class Model:
    """The account: what runs, what may run, and what became of it."""

    def __init__(self, scripts: list[list[Behaviour]], keys: list[str | None]) -> None:
        self.scripts = [list(script) for script in scripts]
        self.keys = keys
        self.in_call: dict[int, str] = {}
        self.broken: list[str] = []
        self.world: CallsWorld

    def number(self, job: Job) -> int:
        """Which message it is."""
        return int(bytes(job.body)) - 1

    def begin(self, job: Job, action: str) -> Behaviour:
        """A call begins; the promises are looked at."""
        number = self.number(job)
        key = self.keys[number]
        # What is raised here would be an error of the action: it is told at the end.
        if number in self.in_call:
            self.broken.append(f"message {number} is in {self.in_call[number]} and {action} at once")
        tracker = self.world.group_queue().tracker
        if key is not None:
            running = [each for each in self.in_call if self.keys[each] == key]
            if running:
                self.broken.append(f"messages {running} and {number} of key {key} run at once")
            earlier = [each for each in range(number) if self.keys[each] == key and not tracker.is_finished(each)]
            if earlier:
                self.broken.append(f"message {number} of key {key} runs before {earlier} are finished")
        if tracker.is_finished(number):
            self.broken.append(f"message {number} runs though it is finished")
        self.in_call[number] = action
        return self.scripts[number].pop(0) if self.scripts[number] else ("continue", 0.0)

    def end(self, number: int) -> None:
        """The call is over."""
        del self.in_call[number]

    def answer(self, way: str, job: Job) -> Any:
        """What the call answers."""
        if way == "failed":
            raise Failed("as scripted")
        if way == "error":
            raise ValueError("as scripted")
        if way == "never":
            raise Unprocessable("as scripted")
        if way == "later":
            raise RetryLater(150)
        if way == "keep":
            return Status.ASYNCHRONIZED
        return {"finish": Status.FINISH, "continue": Status.CONTINUE, "fail": Status.FAIL, "none": None}[way]


def actions_of(model: Model) -> dict[str, type[Action]]:
    """One class of each kind, on one account."""

    def keep(job: Job, way: str) -> None:
        if way == "keep":
            model.world.loop.call_soon(job.answer, Status.CONTINUE)

    class Plain(Action):
        may_be_last = True

        def act(self, job: Job) -> Status:
            way, _ = model.begin(job, "Plain")
            model.end(model.number(job))
            keep(job, way)
            return model.answer(way, job)  # type: ignore[no-any-return]

    class Async(Action):
        may_be_last = True

        async def act(self, job: Job) -> Status:
            way, seconds = model.begin(job, "Async")
            try:
                await asyncio.sleep(seconds)
            finally:
                model.end(model.number(job))
            keep(job, way)
            return model.answer(way, job)  # type: ignore[no-any-return]

    class Blocking(Action):
        may_be_last = True
        blocking = True

        def act(self, job: Job) -> Status:
            way, seconds = model.begin(job, "Blocking")
            model.world.thread_seconds = seconds
            # It is over when its thread is, a moment before that is told.
            model.world.loop.call_later(seconds, model.end, model.number(job))
            return model.answer("finish" if way == "keep" else way, job)  # type: ignore[no-any-return]

    class Many(Action):
        may_be_last = True

        async def act_many(self, jobs: Any) -> Any:
            begun = [(job, *model.begin(job, "Many")) for job in jobs]
            try:
                await asyncio.sleep(max(seconds for _, _, seconds in begun))
            finally:
                for job in jobs:
                    model.end(model.number(job))
            answers = []
            for job, way, _ in begun:
                try:
                    answers.append(model.answer("continue" if way == "keep" else way, job))
                except Exception as error:
                    answers.append(error)
            return answers

    return {"Plain": Plain, "Async": Async, "Blocking": Blocking, "Many": Many}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    scripts=_scripts,
    kinds=_kinds,
    spread=st.integers(0, 4),
    reloads=st.lists(st.sampled_from([0.001, 0.2, 2.0, 31.0]), max_size=3),
    calls_max=st.sampled_from([1, 4]),
)
def test_every_message_leaves_its_pipeline_once_and_in_order(
    scripts: list[list[Behaviour]],
    kinds: list[str],
    spread: int,
    reloads: list[float],
    calls_max: int,
) -> None:
    """See the module."""
    keys = [f"k{number % spread}" if spread else None for number in range(len(scripts))]
    model = Model(scripts, keys)
    made = actions_of(model)
    names = [f"A{place}" for place in range(len(kinds))]
    subscription: dict[str, Any] = {"topic": "t", "actions": names, "timeout": TIMEOUT_MS, "maxRetry": -1}
    subscription["retryIntervals"] = [50, -1]
    if spread:
        subscription["orderKey"] = "KEY"
    registry = Registry({**BUILT_IN, **{name: made[kind] for name, kind in zip(names, kinds, strict=True)}})
    model.world = world = CallsWorld(subscription, registry=registry, queues=1, calls_max=calls_max)
    for key in keys:
        world.stage(key)
    world.turn_end()
    for number, seconds in enumerate(reloads):
        world.advance(seconds)
        # Another list of tags is another generation, and lets the same messages through.
        world.group.reconfigure(world.config({**subscription, "tags": ["*"] * (number + 1)}))
    world.advance(4000)
    assert not model.broken
    assert not world.loop.errors
    assert world.unfinished() == 0
    assert not model.in_call
    assert world.group.stats().topics[0].in_calls == 0
    assert world.count("pyddmq_action_calls") == 0
    assert world.count("pyddmq_action_calls_stuck") == 0
    letters = [int(letter["body"]) for letter in world.dead_letters()]
    assert len(letters) == len(set(letters))
    allowed = {number + 1 for number, script in enumerate(scripts) if any(way == "never" for way, _ in script)}
    assert set(letters) <= allowed
