"""The one driver of work in steps: from a thread, a coroutine, and the calls of a loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator

import pytest

from broker.runtime.async_steps import run_async
from broker.runtime.steps import StepRunner, StepsEnd, noted, run_now, step
from pyddmq.testing import ManualClock, ManualScheduler, VirtualLoop

Work = Generator["Disk | None", None, int]


class Disk:
    """What a step waits for: it happens when the disk ends, or when somebody waits for it."""

    def __init__(self) -> None:
        self.waited_for = 0
        self.waiting: list[Callable[[], object]] = []

    def now(self) -> None:
        """Happen at once."""
        self.waited_for += 1

    def then(self, callback: Callable[[], object]) -> None:
        """Have a callback called by `end`."""
        self.waiting.append(callback)

    def end(self) -> None:
        """Happen."""
        for callback in self.waiting:
            callback()


def work(notes: list[str], disk: Disk) -> Work:
    """Two steps, the second of which waits for the disk."""
    notes.append("one")
    yield None
    notes.append("two")
    yield disk
    notes.append("durable")
    return 7


def test_step_tells_the_end_from_what_is_yielded() -> None:
    """What is sent and what is raised reaches the work; its own errors reach the caller."""

    def asking() -> Generator[str, int, str]:
        got = yield "a number"
        try:
            yield f"{got}?"
        except ValueError as error:
            return str(error)
        return "no"

    asked = asking()
    assert step(asked) == "a number"
    assert step(asked, 5) == "5?"
    ended = step(asked, error=ValueError("thrown"))
    assert isinstance(ended, StepsEnd)
    assert ended.result == "thrown"
    other = asking()
    step(other)
    with pytest.raises(KeyError):
        step(other, error=KeyError("not its own"))


def test_whoever_has_nothing_else_to_do_waits_for_the_disk() -> None:
    """In its thread, and gets the result."""
    notes, disk = list[str](), Disk()
    assert run_now(work(notes, disk)) == 7
    assert (notes, disk.waited_for) == (["one", "two", "durable"], 1)


def test_steps_of_a_coroutine_let_the_loop_do_other_things() -> None:
    """Between any two, and while one waits for the disk."""
    notes, disk, loop = list[str](), Disk(), VirtualLoop()

    async def other() -> None:
        for _ in range(3):
            notes.append("other")
            await asyncio.sleep(0)
        disk.end()

    async def both() -> int:
        beside = asyncio.ensure_future(other())
        result = await run_async(work(notes, disk))
        await beside
        return result

    assert loop.run_task(both()) == 7
    assert notes == ["one", "other", "two", "other", "other", "durable"]
    assert not disk.waited_for


def test_cancelled_coroutine_closes_its_steps() -> None:
    """What they hold is given back at once, also through `noted`; a late end of the disk harms nothing."""
    closed, disk, loop = list[bool](), Disk(), VirtualLoop()

    def holding() -> Work:
        try:
            yield disk
        finally:
            closed.append(True)
        return 0

    task = loop.create_task(run_async(noted(holding(), lambda _: None), pause_seconds=1))
    other = loop.create_task(run_async(holding()))
    loop.run(seconds=0.5)
    for each in (task, other):
        each.cancel()
        loop.run(each.done)
    disk.end()
    assert closed == [True, True]


def test_runner_makes_each_step_in_a_call_of_its_own() -> None:
    """The first one at once; what waits for the disk goes on by a call after it."""
    notes, disk, results = list[str](), Disk(), list[int]()
    scheduler = ManualScheduler(ManualClock())

    def reported() -> Generator[Disk | None, None, None]:
        results.append((yield from work(notes, disk)))

    StepRunner(scheduler.call_soon).run(reported())
    assert notes == ["one"]
    scheduler.run_until_idle()
    assert notes == ["one", "two"]
    disk.end()
    assert notes == ["one", "two"]
    scheduler.run_until_idle()
    assert (notes[-1], results) == ("durable", [7])


def test_stopped_runner_makes_no_step_any_more() -> None:
    """Neither of what waits nor of what comes."""
    notes, disk = list[str](), Disk()
    scheduler = ManualScheduler(ManualClock())
    runner = StepRunner(scheduler.call_soon)

    def quiet() -> Generator[Disk | None, None, None]:
        yield from work(notes, disk)

    runner.run(quiet())
    runner.stop()
    scheduler.run_until_idle()
    runner.run(quiet())
    assert notes == ["one"]


def test_noted_steps_show_what_they_yield_and_keep_their_result() -> None:
    """Whoever drives them sees steps only."""
    shown: list[object] = []

    def scanning() -> Generator[int, None, str]:
        yield 10
        yield 20
        return "done"

    assert run_now(noted(scanning(), shown.append)) == "done"
    assert shown == [10, 20]
