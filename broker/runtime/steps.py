"""Work in steps: a generator that yields between pieces of bounded work, and what drives it.

Such a generator yields None where everything else may have its turn, and something that it waits for (`StepWait`, such
as `broker.log.durability.Awaited`) where its next step makes sense only after that. What it returns is the result; what
it raises ends it. It is driven from one of three places, each with one driver here:

- `run_now`: a program that has nothing else to do; the thread waits for the disk;
- `run_async` (`broker.runtime.async_steps`): a coroutine on asyncio's loop;
- `StepRunner`: callbacks of the loop, through the scheduler that is handed in.

Whoever makes single steps for reasons of its own (a share of a turn, another kind of what is yielded) calls `step`.
Callers never see StopIteration: a generator's end is a value, `StepsEnd`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

Yielded = TypeVar("Yielded")
Result = TypeVar("Result")
Result_co = TypeVar("Result_co", covariant=True)


class StepWait(Protocol):
    """What a step waits for."""

    def now(self) -> None:
        """Have it happen at once; the calling thread waits for the disk."""

    def then(self, callback: Callable[[], object]) -> None:
        """Have a callback called when it happened; at once when it has."""


class StepsEnd(Generic[Result_co]):
    """The end of work in steps, with what it returned."""

    __slots__ = ("result",)

    def __init__(self, result: Result_co) -> None:
        self.result = result


def step(
    steps: Generator[Yielded, Any, Result], sent: object = None, *, error: BaseException | None = None
) -> Yielded | StepsEnd[Result]:
    """Make one step; return what it yields, or the end. Raises what it raises.

    Args:
        steps: The work.
        sent: What its `yield` is to return; None in the first step.
        error: What its `yield` is to raise in the place of that.
    """
    try:
        return steps.send(sent) if error is None else steps.throw(error)
    except StopIteration as end:
        return StepsEnd(end.value)


def run_now(steps: Generator[StepWait | None, Any, Result]) -> Result:
    """Make all steps one after the other; return what they return. Raises what they raise."""
    while not isinstance(made := step(steps), StepsEnd):
        if made is not None:
            made.now()
    return made.result


class StepRunner:
    """Runs any number of changes in steps on a loop, each step in a call of its own.

    Args:
        soon: Has a callback called when the loop did something else, as `Scheduler.call_soon` does.
    """

    def __init__(self, soon: Callable[[Callable[[], object]], object]) -> None:
        self._soon = soon
        self._is_stopped = False

    def run(self, steps: Generator[StepWait | None, Any, None]) -> None:
        """Make steps from now on; they see to their results and errors themselves."""
        if self._is_stopped:
            return
        made = step(steps)
        if isinstance(made, StepsEnd):
            return
        go_on = partial(self._soon, partial(self.run, steps))
        if made is None:
            go_on()
        else:
            made.then(go_on)

    def stop(self) -> None:
        """Make no step any more; what waits stays where it is."""
        self._is_stopped = True


def noted(steps: Generator[Yielded, Any, Result], note: Callable[[Yielded], object]) -> Generator[None, None, Result]:
    """Show what each step yields, such as how far it is; the steps of this yield None."""
    try:
        while not isinstance(made := step(steps), StepsEnd):
            note(made)
            yield
        return made.result
    finally:
        steps.close()
