"""The last judgement: made anew when it is due, and seldom where it takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from proxy.admin.lag_verdicts import SECONDS_MAX, SECONDS_MIN, SHARE, LastLag
from proxy.operate.views.lag import LagAnswer
from tests.admin_node import PlainNode
from tests.lag_answers import lag_answer, lag_queue


class Slow(PlainNode):
    """Judges in three steps that take so many seconds each, by its own clock."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.now = 0.0
        self.seconds = seconds
        self.judged = 0
        self.clock.monotonic = lambda: self.now  # type: ignore[method-assign]

    def lag(self, *, group: str | None, limit: int) -> Generator[None, None, LagAnswer | None]:
        self.judged += 1
        for _ in range(2):
            self.now += self.seconds
            yield
        self.now += self.seconds
        return self.lag_answer


def judged_after(node: Slow, *seconds: float) -> list[int]:
    """Return how often was judged by each of these moments, counted from the end of the first judgement."""

    async def ask() -> list[int]:
        last = LastLag(node)
        await last.answer()
        begin, found = node.now, []
        for moment in seconds:
            node.now = begin + moment
            await last.answer()
            found.append(node.judged)
        return found

    return asyncio.run(ask())


def test_quick_judgement_is_kept_for_some_seconds() -> None:
    """Page and scrape share it."""
    assert judged_after(Slow(0.0), 0.0, SECONDS_MIN - 0.1, SECONDS_MIN) == [1, 1, 2]


def test_slow_judgement_takes_its_share_of_the_loop_at_most() -> None:
    """Three steps of 0.1 s: every 30 s."""
    due = 0.3 / SHARE
    assert judged_after(Slow(0.1), due - 1, due + 1) == [1, 2]


def test_judgement_is_never_older_than_its_bound() -> None:
    """However long it takes."""
    assert judged_after(Slow(5.0), SECONDS_MAX - 1, SECONDS_MAX + 1) == [1, 2]


def test_answer_of_a_node_that_takes_no_samples_is_none() -> None:
    """So that its page does not show groups without lag."""
    node = Slow(0.0)
    node.lag_answer = lag_answer([lag_queue()], enabled=False)
    assert asyncio.run(LastLag(node).answer()) is None
    other = Slow(0.0)
    other.lag_answer = lag_answer([lag_queue()])
    assert asyncio.run(LastLag(other).answer()) is other.lag_answer
