"""Calls by themselves: who is told, when their time is over, what a node that has ended drops."""

from __future__ import annotations

import asyncio

from actions.registry import BUILT_IN, Registry
from pyddmq.actions import Action, Failed, Job, Status
from tests.unit.calls_world import CallsWorld

SUBSCRIPTION = {"topic": "t", "actions": ["Async", "Work"], "orderKey": "KEY", "timeout": 1000}


def world_of(work: type[Action], **settings: object) -> CallsWorld:
    """A group whose only action is this one."""
    return CallsWorld({**SUBSCRIPTION, **settings}, registry=Registry({**BUILT_IN, "Work": work}), queues=1)


def test_answer_by_hand_counts_and_what_its_call_answers_later_does_not() -> None:
    """An action that answers for a job before its call is over has decided; the call's own answer is of no job."""
    seen: list[int] = []

    class Work(Action):
        may_be_last = True

        async def act(self, job: Job) -> Status:
            seen.append(job.attempts)
            if not job.attempts:
                assert job.answer(Failed("by hand"))
                await asyncio.sleep(0.4)
                return Status.FINISH
            await asyncio.sleep(0.5)
            return Status.FAIL if job.attempts == 1 else Status.FINISH

    world = world_of(Work, retryIntervals=[100, 100])
    world.publish("a")
    world.advance(0.45)
    # The first call has ended, and answered nothing: the second one is out.
    assert seen == [0, 1]
    assert world.unfinished() == 1
    world.advance(2)
    assert seen == [0, 1, 2]
    assert world.unfinished() == 0


def test_shorter_timeout_of_a_reload_holds_for_calls_from_then_on() -> None:
    """Each call has the limit that was in force when it began."""

    class Work(Action):
        may_be_last = True

        async def act(self, job: Job) -> Status:
            await asyncio.sleep(0.9)
            return Status.FINISH

    world = world_of(Work, maxRetry=0)
    world.publish("a", "a")
    world.advance(0.1)
    world.group.reconfigure(world.config({**world.subscriptions[0], "timeout": 500}))
    world.advance(3)
    (letter,) = world.dead_letters()
    assert letter["body"] == "2"
    assert letter["DLQ_REASON"] == "TimedOut: no answer within 500 ms"


def test_node_that_has_ended_drops_what_calls_still_answer() -> None:
    """As after a kill: the message is there at the next start."""

    class Work(Action):
        may_be_last = True
        blocking = True

        def act(self, job: Job) -> Status:
            return Status.FINISH

    world = world_of(Work)
    world.thread_seconds = 50.0
    world.publish("a")
    world.advance(1)
    assert world.calls is not None
    world.group.stop()
    world.loop.run_task(world.calls.settle(lambda: False))
    assert world.calls.closed
    world.advance(60)
    assert world.unfinished() == 1


def test_stop_waits_for_what_it_cancelled_and_for_close() -> None:
    """A node ends when its actions have cleaned up, not after the whole bound."""
    life: list[str] = []

    class Work(Action):
        may_be_last = True

        async def act(self, job: Job) -> Status:
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(0.2)
                life.append("cleaned up")
            return Status.FINISH

        async def close(self) -> None:
            await asyncio.sleep(0.2)
            life.append("closed")

    world = world_of(Work, timeout=60_000)
    world.publish("a")
    world.advance(0.1)
    assert world.calls is not None
    start = world.loop.time()
    world.group.stop()
    world.loop.run_task(world.calls.settle(lambda: False))
    assert life == ["cleaned up", "closed"]
    assert world.loop.time() - start < 1
    assert world.unfinished() == 1
