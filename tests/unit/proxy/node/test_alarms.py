"""Calls at a moment on a real loop: in order, never before the moment, and not when they were withdrawn."""

from __future__ import annotations

import asyncio

import pytest

from broker.runtime.seams import SystemClock
from proxy.node.alarms import Alarms, alarms_of
from tests.loops import LOOPS


@pytest.fixture(params=LOOPS)
def runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    """A runner of each kind of loop."""
    return asyncio.Runner(loop_factory=request.param)


class HeldClock(SystemClock):
    """The system's clock, which a test holds while it sets calls: so their order does not hang on how long it takes."""

    held: float | None = None

    def monotonic(self) -> float:
        """What is held, else the time."""
        return super().monotonic() if self.held is None else self.held


def test_calls_come_in_the_order_of_their_moments_and_never_before(runner: asyncio.Runner) -> None:
    """Set in any order, also while one runs; those of a fraction of a millisecond, too."""
    clock = HeldClock()
    made: list[str] = []
    early: list[float] = []

    async def run() -> None:
        alarms = Alarms(asyncio.get_running_loop(), clock)
        last = asyncio.Event()

        def call(name: str, due: float) -> None:
            early.append(clock.monotonic() - due)
            made.append(name)
            if name == "second":
                later(("third", 0.0001))
                alarms.call_soon(made.append, "soon")
            if name == "last":
                last.set()

        def later(*calls: tuple[str, float]) -> None:
            now = clock.held = clock.monotonic()
            for name, delay in calls:
                alarms.call_later(delay, call, name, now + delay)
            clock.held = None

        later(("last", 1.5), ("second", 0.0023), ("first", 0.0004), ("at once", 0.0))
        await last.wait()
        alarms.close()

    with runner:
        runner.run(run())
    # What is to run at once is the loop's, which may look at the timer first.
    assert [each for each in made if each not in ("soon", "at once")] == ["first", "second", "third", "last"]
    assert {"soon", "at once"} <= set(made)
    assert min(early) >= 0


def test_withdrawn_calls_are_not_made(runner: asyncio.Runner) -> None:
    """Also one that stood first, or was made already; what is left still comes."""
    made: list[str] = []

    async def run() -> None:
        alarms = Alarms(asyncio.get_running_loop(), SystemClock())
        last = asyncio.Event()
        gone = [alarms.call_later(delay, made.append, "gone") for delay in (0.0005, 0.001)]
        done = alarms.call_later(0.0002, made.append, "done")
        alarms.call_later(0.3, last.set)
        gone[0].cancel()
        gone[1].cancel()
        gone[0].cancel()
        await last.wait()
        done.cancel()
        alarms.close()

    with runner:
        runner.run(run())
    assert made == ["done"]


def test_failed_call_keeps_no_other_from_being_made(runner: asyncio.Runner) -> None:
    """What it raises goes to the loop's handler, as for the loop's own timers."""
    reported: list[object] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context.get("exception")))
        alarms = Alarms(loop, SystemClock())
        last = asyncio.Event()
        alarms.call_later(0.0005, [].pop)
        alarms.call_later(0.0005, last.set)
        await last.wait()
        alarms.close()

    with runner:
        runner.run(run())
    assert [type(each) for each in reported] == [IndexError]


def test_loop_without_readers_makes_the_calls_itself() -> None:
    """Where the system or the loop has no such timer, the loop's own do."""

    class Bare(asyncio.SelectorEventLoop):
        def add_reader(self, *_: object) -> None:
            raise NotImplementedError

    loop = Bare()
    alarms, end = alarms_of(loop, SystemClock())
    end()
    loop.close()
    assert alarms is loop
