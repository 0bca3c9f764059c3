"""The rate of pushes, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from actions.http.pace import Pace
from pyddmq.testing.loop import VirtualLoop


def run(story: Callable[[VirtualLoop], Awaitable[None]]) -> None:
    """Run a story on a loop whose time is a number."""
    loop = VirtualLoop()

    async def reported() -> None:
        await story(loop)

    loop.run_task(reported())


async def take(pace: Pace, loop: VirtualLoop, times: list[float], count: int) -> None:
    """Take tokens, and note when each was given."""
    for _ in range(count):
        if pace.try_take() or await pace.take():
            times.append(loop.time())


def test_rate_is_kept_from_the_first_request_on() -> None:
    """A new bucket is empty, so that a reload gives no burst."""

    async def story(loop: VirtualLoop) -> None:
        pace = Pace(lambda: 10.0, loop.time)
        times: list[float] = []
        start = loop.time()
        await asyncio.gather(*(take(pace, loop, times, 5) for _ in range(8)))
        assert len(times) == 40
        assert 3.99 <= times[-1] - start <= 4.01
        assert times == sorted(times)
        assert pace.waiting == 0
        assert pace.waiting_since is None

    run(story)


def test_a_tenth_of_a_second_gathers() -> None:
    """And no more, however long nobody pushes."""

    async def story(loop: VirtualLoop) -> None:
        pace = Pace(lambda: 100.0, loop.time)
        await asyncio.sleep(60)
        assert sum(pace.try_take() for _ in range(100)) == 10

    run(story)


def test_changed_rate_holds_for_who_stands_in_line() -> None:
    """Within a second."""

    async def story(loop: VirtualLoop) -> None:
        rate: list[float | None] = [0.01]
        pace = Pace(lambda: rate[0], loop.time)
        times: list[float] = []
        start = loop.time()
        line = asyncio.gather(*(take(pace, loop, times, 1) for _ in range(20)))
        await asyncio.sleep(5)
        assert not times
        assert pace.waiting == 20
        assert pace.waiting_since == start
        rate[0] = 10.0
        await line
        assert times[-1] - start <= 5 + 1 + 2 + 0.01
        rate[0] = None
        assert all(pace.try_take() for _ in range(10_000))

    run(story)


def test_slow_down_costs_ten_tokens_for_as_many_requests_as_the_rate() -> None:
    """R58: a count of requests, one more for each reply that asks again."""

    async def story(loop: VirtualLoop) -> None:
        pace = Pace(lambda: 20.0, loop.time)
        assert pace.slow_down()
        assert pace.slow_down()
        assert pace.slow == 21
        times: list[float] = []
        start = loop.time()
        await take(pace, loop, times, 41)
        assert pace.slow == 0
        # 21 requests of ten tokens, 20 of one.
        assert abs((times[20] - start) - 21 * 10 / 20) < 0.01
        assert abs((times[-1] - times[20]) - 20 / 20) < 0.01

    run(story)


def test_slow_down_without_a_rate_slows_nothing() -> None:
    """There is nothing to take from."""

    async def story(loop: VirtualLoop) -> None:
        pace = Pace(lambda: None, loop.time)
        assert not pace.slow_down()
        assert pace.try_take()

    run(story)


def test_who_was_cancelled_costs_nothing_and_the_end_sends_the_rest_away() -> None:
    """A call that is cancelled leaves the line; after the end nobody may send."""

    async def story(loop: VirtualLoop) -> None:
        pace = Pace(lambda: 1.0, loop.time)
        waiting = [asyncio.ensure_future(pace.take()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(1.05)
        assert waiting[1].done()
        pace.end()
        assert await waiting[2] is False
        assert await pace.take() is False
        assert pace.waiting == 0

    run(story)
