"""Virtual loop: time jumps, order holds, and a killed process falls silent."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import pytest

from pyddmq.testing import Process, TurnsExceeded, VirtualClock, VirtualLoop


def test_two_hours_of_sleep_end_exactly_two_hours_later() -> None:
    """A long sleep takes its virtual time to the second and no turn per second."""
    loop = VirtualLoop(start=5.0)
    loop.run_task(asyncio.sleep(7_200))
    assert loop.time() == 7_205.0
    assert loop.turns < 20


def test_timers_run_in_order_of_their_due_times() -> None:
    """Whatever order timers are set in, they run by due time, and never before it."""
    loop = VirtualLoop()
    seen: list[tuple[float, float]] = []

    def note(due: float) -> None:
        seen.append((due, loop.time()))

    for delay in (0.3, 0.1, 0.2, 0.0, 86_400.5):
        due = loop.time() + delay
        loop.call_later(delay, note, due)
    loop.run()
    assert [due for due, _ in seen] == sorted(due for due, _ in seen)
    assert all(due == at for due, at in seen)


def test_call_soon_keeps_the_order_of_the_calls() -> None:
    """First called, first run, as asyncio promises."""
    loop = VirtualLoop()
    seen: list[int] = []
    for number in range(100):
        loop.call_soon(seen.append, number)
    loop.run()
    assert seen == list(range(100))


def test_run_stops_at_its_deadline_and_leaves_later_timers() -> None:
    """A bounded run ends with time at the bound; a timer beyond it still comes in the next run."""
    loop = VirtualLoop(start=0.0)
    seen: list[str] = []
    loop.call_later(10, seen.append, "late")
    loop.run(seconds=4)
    assert (loop.time(), seen) == (4.0, [])
    loop.run(seconds=6)
    assert (loop.time(), seen) == (10.0, ["late"])


def test_run_without_end_is_stopped_by_its_turns() -> None:
    """Callbacks that schedule themselves for ever are an error and no hang."""
    loop = VirtualLoop()

    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(TurnsExceeded):
        loop.run(turns_max=50)


def test_unhandled_exception_is_kept_for_the_test() -> None:
    """A callback that raises does not stop the loop, and the test can see it."""
    loop = VirtualLoop()
    loop.call_soon(lambda: 1 // 0)
    loop.run()
    assert [type(context["exception"]) for context in loop.errors] == [ZeroDivisionError]


def test_task_that_never_ends_times_out() -> None:
    """A wait for nothing ends when nothing is left to happen."""
    loop = VirtualLoop()
    with pytest.raises(TimeoutError):
        loop.run_task(asyncio.Event().wait())


def test_killed_process_runs_nothing_more() -> None:
    """Timers, callbacks and tasks of a killed process vanish, those of others go on."""
    loop = VirtualLoop()
    process = Process("victim")
    seen: list[str] = []

    async def tick(name: str) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(1)
                seen.append(name)

    kept = [process.run(loop.create_task, tick("victim")), loop.create_task(tick("other"))]
    process.run(loop.call_later, 3.5, seen.append, "never")
    loop.run(seconds=2.5)
    process.kill()
    loop.run(seconds=2)
    assert seen == ["victim", "other", "victim", "other", "other", "other"]
    kept.pop().cancel()
    loop.run()
    kept.clear()
    gc.collect()
    assert loop.errors == []


def test_killed_process_does_not_clean_up_when_it_is_collected() -> None:
    """What a killed process had begun is never ended, also not by the collector while the next process runs."""
    loop = VirtualLoop()
    process = Process("victim")
    seen: list[str] = []

    async def hold() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            seen.append("cleaned up")

    process.run(loop.create_task, hold())
    loop.run(seconds=0.5)
    process.kill()
    loop.run(seconds=2)
    gc.collect()
    assert seen == []


def test_wall_clock_steps_and_monotonic_does_not() -> None:
    """A stepped wall clock leaves the monotonic one alone, and both go on from there."""
    loop = VirtualLoop(start=1.0)
    clock = VirtualClock(loop, wall_ms=50_000)
    loop.run(seconds=0.25)
    assert (clock.wall_ms(), clock.monotonic()) == (50_250, 1.25)
    clock.step(-40_000)
    loop.run(seconds=1)
    assert (clock.wall_ms(), clock.monotonic()) == (11_250, 2.25)


def test_threads_are_refused() -> None:
    """A thread would make runs differ, so there is none."""
    loop = VirtualLoop()
    with pytest.raises(RuntimeError, match="thread"):
        loop.run_in_executor(None, int)


def test_process_that_stands_still_does_later_what_was_due() -> None:
    """In its order, but for what was cancelled meanwhile; a killed one never."""
    for killed in (False, True):
        loop, process, done = VirtualLoop(), Process("p"), list[str]()
        process.run(loop.call_later, 1, done.append, "first")
        process.run(loop.call_later, 2, done.append, "second")
        never = process.run(loop.call_later, 3, done.append, "cancelled")
        process.stand_still()
        loop.call_later(4, never.cancel)
        loop.run(seconds=5)
        assert done == []
        if killed:
            process.kill()
        process.go_on(loop)
        process.run(loop.call_soon, done.append, "last")
        loop.run(seconds=1)
        assert done == ([] if killed else ["first", "second", "last"])
