"""Messages that are to wait, as the checkers see it: when one is early, over all the steps of a wall clock."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

SLACK_MS = 1
"""The wall clock is read in whole milliseconds."""
BEGUN_MS = 4
"""What is stored so long before its moment is shown when that time has passed, though the clock is set back in it."""


class Wait(NamedTuple):
    """How a message is to wait: `level` and `delay`: `ms` after receipt; `at`: until the wall clock shows `ms`.

    `value` is what stands in the message.
    """

    kind: Literal["level", "at", "delay"]
    ms: int
    value: int


class _Step(NamedTuple):
    time: float
    before_ms: int
    after_ms: int


class Walls:
    """The history of a wall clock that is stepped.

    Args:
        wall_ms: Reads it.
        time: Reads the clock that is never stepped, in seconds.
    """

    def __init__(self, wall_ms: Callable[[], int], time: Callable[[], float]) -> None:
        self._wall_ms = wall_ms
        self._time = time
        self._steps: list[_Step] = []

    def stepped(self, before_ms: int, after_ms: int) -> None:
        """Note a step that is made now."""
        self._steps.append(_Step(self._time(), before_ms, after_ms))

    def history(self) -> list[tuple[float, int]]:
        """What the clock showed at its beginning and after each step, with the times."""
        return [(0.0, self.at(0.0)), *((step.time, step.after_ms) for step in self._steps)]

    def at(self, time: float) -> int:
        """What the clock showed at a time."""
        wall = self._wall_ms() - round((self._time() - time) * 1000)
        return wall - sum(step.after_ms - step.before_ms for step in self._steps if step.time > time)

    def highest(self, since: float, until: float) -> int:
        """The most that the clock showed between two times, or would have without a step of the last moments."""
        between = self._between(since, until)
        return max([self.at(until), *(step.before_ms + _begun_ms(until - step.time) for step in between)])

    def lowest(self, since: float, until: float) -> int:
        """The least; a step at the very beginning may have come before it or after it."""
        between = self._between(since, until)
        return min([self.at(since), *(min(step.before_ms, step.after_ms) for step in between)])

    def _between(self, since: float, until: float) -> list[_Step]:
        return [step for step in self._steps if since <= step.time <= until]

    def early(self, wait: Wait, *, sent: float, received: float, delivered: float) -> bool:
        """Whether a message came before its moment.

        Args:
            wait: What was asked for.
            sent: When it was sent.
            received: Until when the node had it: its answer, or its delivery.
            delivered: When it was delivered.
        """
        highest = self.highest(sent, delivered)
        if wait.kind == "at":
            return highest + SLACK_MS < wait.ms
        # The due time is an instant fixed at receipt (D35), some moment between these.
        lowest = self.lowest(sent, received)
        if highest + SLACK_MS >= lowest + wait.ms:
            return False
        # A level's message never waits longer than its delay because of a step back (D35), nor less.
        return wait.kind == "delay" or (delivered - sent) * 1000 + SLACK_MS < wait.ms


def _begun_ms(seconds: float) -> int:
    return min(BEGUN_MS, math.ceil(seconds * 1000))
