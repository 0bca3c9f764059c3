"""Async and blocking actions in a group: what becomes of their jobs, their keys, and what is left behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from actions.registry import BUILT_IN, Registry
from proxy.operate.live_node import stuck_messages
from pyddmq.actions import Action, Failed, Job, RetryLater, Status, Unprocessable
from tests.fakes.virtual_threads import VirtualThreads
from tests.unit.calls_world import CallsWorld
from tests.unit.upstream_world import Client
from upstream.operate.heads import find_head, skip

Act = Callable[[Job], Any]


def world_of(
    act: Act, *, blocking: bool = False, last: bool = True, order_key: str | None = "KEY", **how: Any
) -> CallsWorld:
    """A node whose group runs one action on topic `t`: async, or blocking."""

    class Async(Action):
        may_be_last = True

        async def act(self, job: Job) -> Status:
            answer = act(job)
            return cast("Status", await answer if asyncio.iscoroutine(answer) else answer)

    class Blocking(Action):
        may_be_last = True
        blocking = True

        def act(self, job: Job) -> Status:
            return cast("Status", act(job))

    subscription = {"topic": "t", "actions": ["Async", "Work", *([] if last else ["PullServer"])]}
    if order_key is not None:
        subscription["orderKey"] = order_key
    subscription |= how.pop("subscription", {})
    registry = Registry({**BUILT_IN, "Work": Blocking if blocking else Async})
    return CallsWorld(subscription, registry=registry, queues=1, **how)


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("answer", [Status.FINISH, Status.CONTINUE])
def test_call_that_answers_ends_its_message(blocking: bool, answer: Status) -> None:
    """A last action that finishes a message, or goes on past the end, has consumed it."""
    world = world_of(lambda job: answer, blocking=blocking)
    world.publish("a", "b", "a", None)
    world.advance(0.1)
    assert world.unfinished() == 0
    assert world.count("pyddmq_action_calls") == 0


@pytest.mark.parametrize("blocking", [False, True])
def test_messages_go_on_to_the_next_action_with_what_the_call_made(blocking: bool) -> None:
    """CONTINUE hands the job, its data and what was gathered to the next action."""

    def act(job: Job) -> Status:
        job.data = {"was": bytes(job.body).decode()}
        job.outgoing.headers.append(("x", "1"))
        return Status.CONTINUE

    world = world_of(act, blocking=blocking, last=False)
    world.publish("a")
    world.advance(0.1)
    client = Client()
    (job,) = world.pull_all(client)
    assert world.body(job) == 1
    world.answer(client, job)
    assert world.unfinished() == 0


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Unprocessable("never"), "never"),
        (ValueError("odd"), "ValueError: odd"),
        (Failed("no stock"), "no stock"),
        (None, "ActionMisbehaved: an action returned None, not a Status"),
    ],
)
def test_failures_of_calls_end_in_the_dead_letters_with_type_and_text(
    blocking: bool, answer: object, reason: str
) -> None:
    """What a call raises means what it means of a plain action."""

    def act(job: Job) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    world = world_of(act, blocking=blocking, subscription={"maxRetry": 0, "retryIntervals": []})
    world.publish("a")
    world.advance(1)
    (letter,) = world.dead_letters()
    assert reason in letter["DLQ_REASON"]


@pytest.mark.parametrize("blocking", [False, True])
def test_retry_later_keeps_the_place_and_counts_nothing(blocking: bool) -> None:
    """A message that is to come later comes in its place of the key, as often as it wishes."""
    seen: list[int] = []

    def act(job: Job) -> Status:
        number = int(bytes(job.body))
        seen.append(number)
        if number == 1 and seen.count(1) < 8:
            raise RetryLater(500)
        return Status.FINISH

    world = world_of(act, blocking=blocking, subscription={"maxRetry": 0})
    world.publish("a", "a", "b")
    world.advance(3.4)
    assert seen == [1, 3, 1, 1, 1, 1, 1, 1]
    world.advance(0.3)
    assert seen[-2:] == [1, 2]
    assert world.unfinished() == 0


def test_async_call_is_cancelled_and_awaited_at_its_time_limit() -> None:
    """The next attempt begins after the call has cleaned up; the error says how long it was given."""
    order: list[str] = []

    async def act(job: Job) -> Status:
        order.append("begin")
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(3)
            order.append("end")
        return Status.FINISH

    world = world_of(act, subscription={"timeout": 1000, "maxRetry": 1, "options": {"Work": {"timeLimit": 2000}}})
    world.publish("a", "a")
    world.advance(2.5)
    assert order == ["begin"]
    assert world.count("pyddmq_action_calls_stuck") == 1
    world.advance(5)
    assert order[:3] == ["begin", "end", "begin"]
    world.advance(60)
    assert len(world.dead_letters()) == 2
    assert "TimedOut: no answer within 2000 ms" in world.dead_letters()[0]["DLQ_REASON"]
    assert order == ["begin", "end"] * 4
    assert world.count("pyddmq_action_calls_stuck") == 0
    assert world.count("pyddmq_action_time_limits_total") == 4


def test_blocking_call_beyond_its_limit_keeps_its_key_and_counts_when_it_returns() -> None:
    """It cannot be stopped: nothing of its key runs meanwhile, and its success is one."""
    seen: list[int] = []

    def act(job: Job) -> Status:
        seen.append(int(bytes(job.body)))
        return Status.FINISH

    world = world_of(act, blocking=True)
    world.thread_seconds = 100.0
    world.publish("a", "a")
    world.advance(50)
    assert seen == [1]
    assert world.count("pyddmq_action_calls_stuck") == 1
    world.thread_seconds = 0.0
    world.advance(51)
    assert seen == [1, 2]
    assert world.unfinished() == 0
    assert world.count("pyddmq_action_calls_stuck") == 0
    assert not world.dead_letters()


@pytest.mark.parametrize("success", [True, False])
@pytest.mark.parametrize("blocking", [True, False])
def test_call_left_behind_by_its_generation_is_not_overlapped(blocking: bool, success: bool) -> None:
    """A new generation waits for it: a success has consumed the message, after anything else it is run again."""
    log: list[str] = []

    async def stubborn(job: Job) -> Status:
        log.append("begin")
        done = asyncio.get_running_loop().time() + 100
        while (left := done - asyncio.get_running_loop().time()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(left)
        log.append("end")
        return Status.FINISH if success else Status.FAIL

    def act(job: Job) -> Any:
        if not blocking:
            return stubborn(job)
        log.append("begin")
        world.loop.call_later(100 - 1e-6, log.append, "end")
        return Status.FINISH if success else Status.FAIL

    world = world_of(act, blocking=blocking, subscription={"timeout": 1000})
    world.thread_seconds = 100.0
    world.publish("a", "a")
    world.advance(1)
    world.group.reconfigure(world.config({**world.subscriptions[0], "tags": ["*"]}))
    world.advance(60)
    assert log == ["begin"]
    generation = world.group_queue().subscription
    assert generation is not None
    world.thread_seconds = 0.0
    log_before = list(log)
    assert log_before == ["begin"]
    world.advance(41)
    assert log[:2] == ["begin", "end"]
    world.advance(500)
    assert log == (["begin", "end"] * 2 if success else log)
    assert world.unfinished() == 0 or not success


def test_pool_shares_threads_so_that_a_hanging_topic_starves_no_other() -> None:
    """While all calls of one topic hang, another one's get threads at once."""
    done: list[str] = []

    class Work(Action):
        may_be_last = True
        blocking = True

        def act(self, job: Job) -> Status:
            done.append(job.topic)
            return Status.FINISH

    world = CallsWorld(
        {"topic": "slow", "actions": ["Work"]},
        {"topic": "t", "actions": ["Work"]},
        registry=Registry({**BUILT_IN, "Work": Work}),
        calls_max=8,
    )
    world.thread_seconds = 1e6
    world.publish(*[None] * 100, topic="slow")
    world.advance(0.1)
    # Half of eight is for everybody, and two are its own.
    assert done.count("slow") == 6
    world.thread_seconds = 0.01
    world.publish(*[None] * 100, topic="t")
    world.advance(1)
    assert done.count("t") == 100
    assert world.threads.most == 8


def test_message_for_which_there_is_no_thread_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system refuses more threads it waits, uncounted, with its key, until there are."""

    def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    world = world_of(lambda job: Status.FINISH, blocking=True, subscription={"maxRetry": 0})
    with monkeypatch.context() as patched:
        patched.setattr(VirtualThreads, "run", refused)
        world.publish("a", "a", "b")
        world.advance(5)
        assert world.unfinished() == 3
    world.advance(5)
    assert world.unfinished() == 0
    assert not world.dead_letters()
    assert world.calls is not None
    assert world.calls.pool.running == 0


def test_batches_of_an_async_action_gather_while_calls_are_out() -> None:
    """`act_many` gets what is at hand, and few calls at a time."""
    sizes: list[int] = []

    class Many(Action):
        may_be_last = True

        async def act_many(self, jobs: Sequence[Job]) -> Sequence[Status | Exception]:
            sizes.append(len(jobs))
            await asyncio.sleep(1)
            return [Status.FINISH] * len(jobs)

    world = CallsWorld({"topic": "t", "actions": ["Many"]}, registry=Registry({**BUILT_IN, "Many": Many}), queues=1)
    for _ in range(10):
        world.publish(*[None] * 10)
    world.advance(0.5)
    assert sizes == [10] * 4
    world.advance(1)
    assert sizes[4:] == [60]
    world.advance(1)
    assert world.unfinished() == 0


def test_async_open_comes_before_the_first_message_and_close_after_the_last_call() -> None:
    """A subscription begins to read when its actions are open; what one raises is shown and tried again."""
    life: list[str] = []

    class Slow(Action):
        may_be_last = True
        tries = 0

        async def open(self) -> None:
            await asyncio.sleep(1)
            Slow.tries += 1
            life.append("open")
            if Slow.tries == 1:
                raise OSError("server is away")

        async def act(self, job: Job) -> Status:
            life.append("act")
            await asyncio.sleep(20)
            life.append("acted")
            return Status.FINISH

        async def close(self) -> None:
            await asyncio.sleep(1)
            life.append("close")

    world = CallsWorld(
        {"topic": "t", "actions": ["Slow"], "timeout": 30_000}, registry=Registry({**BUILT_IN, "Slow": Slow}), queues=1
    )
    world.publish("a")
    world.advance(0.5)
    assert world.group.stats().topics[0].state == "starting"
    world.advance(1)
    assert "server is away" in (world.group.stats().topics[0].problem or "")
    world.advance(7)
    assert life == ["open", "open", "act"]
    assert world.group.stats().topics[0].state == "running"
    world.group.reconfigure(world.config({"topic": "t", "actions": ["Slow"], "tags": ["*"], "timeout": 30_000}))
    world.advance(25)
    assert life == ["open", "open", "act", "acted", "close", "open"] or life[:5] == [
        "open",
        "open",
        "act",
        "acted",
        "open",
    ]
    assert world.unfinished() == 0


def test_stuck_call_is_shown_and_can_be_passed_over() -> None:
    """Who looks sees action, message and since when; forced, its key goes on without it."""
    world = world_of(lambda job: Status.FINISH, blocking=True, subscription={"options": {"Work": {"timeLimit": 700}}})
    world.thread_seconds = 1000.0
    world.publish("a", "a")
    world.advance(5)
    view = world.group.stats().topics[0]
    assert (view.in_calls, view.calls_stuck_total) == (1, 1)
    (stuck,) = view.calls_stuck
    assert (stuck.action, stuck.offset, stuck.limit_ms) == ("Work", 0, 700)
    (message,), _ = stuck_messages(world.group, clock=world.clock, count_max=10)
    assert (message.offset, message.state) == (0, "running")
    world.thread_seconds = 0.0
    head = find_head(world.group, world.group_queue(), 0)
    skip(head, force=True, progress=world.progress)
    world.advance(1)
    assert world.unfinished() == 0
    world.advance(1000)
    assert world.group.stats().topics[0].in_calls == 0


def test_a_thousand_keys_of_one_queue_are_in_calls_at_once() -> None:
    """Ten messages of each of 1,000 keys, 5 ms each: as long as ten in a row, not ten thousand."""
    busy = most = 0
    seen: dict[str, list[int]] = {}

    async def act(job: Job) -> Status:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await asyncio.sleep(0.005)
        busy -= 1
        seen.setdefault(job.message.key or "", []).append(job.offset)
        return Status.FINISH

    world = world_of(act)
    start = world.clock.monotonic()
    world.publish(*(f"k{number % 1000}" for number in range(10_000)))
    while world.unfinished() and world.clock.monotonic() - start < 1:
        world.advance(0.001)
    assert world.clock.monotonic() - start < 0.06
    assert most == 1000
    assert all(offsets == sorted(offsets) and len(offsets) == 10 for offsets in seen.values())


@pytest.mark.parametrize("blocking", [False, True])
def test_poison_key_raises_nobody_elses_wait(blocking: bool) -> None:
    """One key fails on and on: the others take as long as without it."""

    def took(poison: bool) -> float:
        def act(job: Job) -> Status:
            if poison and job.message.key == "k0":
                raise ValueError("poison")
            return Status.FINISH

        world = world_of(act, blocking=blocking, subscription={"maxRetry": -1})
        world.thread_seconds = 0.001
        start: float = world.clock.monotonic()
        world.publish(*(f"k{number % 50}" for number in range(500)))
        left = 10 if poison else 0
        tracker = world.group_queue().tracker
        while sum(not tracker.is_finished(offset) for offset in range(500)) > left:
            world.advance(0.001)
        return float(world.clock.monotonic()) - start

    assert took(True) <= took(False) * 1.1


@pytest.mark.parametrize("blocking", [False, True])
def test_calls_that_end_while_their_generation_drains_leave_the_next_one_its_room(blocking: bool) -> None:
    """What a call of a draining generation lets pass to PullServer is read again, and holds no place in the buffer."""
    subscription = {"timeout": 100_000, "concurrency": 300}

    async def slowly(job: Job) -> Status:
        await asyncio.sleep(5)
        return Status.CONTINUE

    def act(job: Job) -> Any:
        return Status.CONTINUE if blocking else slowly(job)

    world = world_of(act, blocking=blocking, last=False, order_key=None, subscription=subscription, calls_max=1000)
    world.thread_seconds = 5.0
    world.publish(*[None] * 300)
    world.advance(1)
    world.group.reconfigure(world.config({**world.subscriptions[0], "tags": ["*"]}))
    world.advance(20)
    client = Client()
    assert len(world.pull_all(client)) == 300


def test_shorter_time_limit_holds_beside_calls_that_began_with_a_longer_one() -> None:
    """Who shortens `timeout` because calls hang is not made to wait for these."""
    began: list[float] = []

    async def hangs(job: Job) -> Status:
        began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(3600)
        return Status.FINISH

    settings = {"timeout": 600_000, "maxRetry": 0, "concurrency": 2}
    world = world_of(hangs, order_key=None, subscription=settings)
    world.publish(None)
    world.advance(1)
    world.group.reconfigure(world.config({**world.subscriptions[0], "timeout": 1000}))
    world.publish(None)
    world.advance(2)
    assert len(began) == 2
    assert world.count("pyddmq_action_time_limits_total") == 1
    assert len(world.dead_letters()) == 1
    world.advance(600)
    assert len(world.dead_letters()) == 2
