"""One walk of the log for all who have to know at a start what was decided (D27).

Each of them (delays, timers, transactions, retries) has a checkpoint of its own and wants the decisions behind that;
without checkpoints each wants the whole log. An opening that is written for `together` therefore walks nothing itself:
it yields `DecisionsRequest`, and is sent the decisions piece by piece (`decided` does that), while the log is read
once, from the lowest offset that any of them wants on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol, TypeVar

from broker.log.decisions import Decided, DecisionRecord
from broker.runtime.steps import StepsEnd, step

T = TypeVar("T")


class DecisionsRequest(NamedTuple):
    """Yielded by an opening that wants the decisions from a commit-log offset on, `start`."""

    start: int


Reading = Generator["DecisionsRequest | None", "list[DecisionRecord] | None", T]
"""An opening: yields None after each step of bounded work, or `DecisionsRequest`; after that it is sent decisions in
the order
of the log, a list for each further None that it yields, and None once the log has ended."""


class Log(Protocol):
    """What is asked of the store."""

    def decisions(self, start: int) -> Generator[Decided, None, None]:
        """Walk the log, in steps of bounded work."""


def decided(start: int, take: Callable[[DecisionRecord], object]) -> Reading[None]:
    """Have `take` called with every decision from a commit-log offset on; to be delegated to by an opening."""
    found = yield DecisionsRequest(start)
    while found is not None:
        for decision in found:
            take(decision)
        found = yield None


def alone(log: Log, opening: Reading[T]) -> Generator[None, None, T]:
    """Run one opening, in steps of bounded work; returns what it returns. Raises what it raises."""
    [result] = yield from together(log, opening)
    returned: T = result
    return returned


def together(log: Log, *openings: Reading[Any]) -> Generator[None, None, list[Any]]:
    """Run openings with as few walks of the log as they allow, one when each asks once; in steps of bounded work.

    Args:
        log: The store.
        openings: Not begun yet. Each runs up to where it wants decisions before the next one begins.

    Returns:
        What each returned, in their order.

    Raises:
        Exception: What one of them raises, or the walk (OSError); the others are closed.
    """
    results: list[Any] = [None] * len(openings)
    wanted: dict[int, int] = {}

    def goes_on(each: int, found: list[DecisionRecord] | None) -> bool:
        """Have one do its next step; whether it has neither ended nor asked for decisions."""
        ask = step(openings[each], found)
        if isinstance(ask, StepsEnd):
            results[each] = ask.result
            return False
        if ask is not None:
            wanted[each] = ask.start
        return ask is None

    try:
        ready = set(range(len(openings)))
        while True:
            for each in sorted(ready):
                while goes_on(each, None):
                    yield
            if not wanted:
                return results
            # A call that comes while decisions are sent waits for the next walk.
            starts, wanted = wanted, {}
            ready = set(starts)
            for piece in log.decisions(min(starts.values())):
                for each in sorted(ready):
                    if piece.position > starts[each]:
                        found = [decision for decision in piece.decisions if decision.physical >= starts[each]]
                        if not goes_on(each, found):
                            ready.discard(each)
                yield
                if not ready:
                    break
    finally:
        for opening in openings:
            opening.close()
