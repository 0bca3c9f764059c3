"""What fails again and again on the loop: a traceback, then a line a minute with the count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from broker.runtime.bundle import runtime_of
from broker.runtime.rate_limited_log import RateLimitedLog
from proxy.node.node import PeriodicWork
from proxy.process.serve import report_faults
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.loops import LOOPS, LoopFactory


def test_periodic_work_that_fails_goes_on_and_shows_once_a_minute() -> None:
    """Work of two names has lines of its own; one that does not fail is not disturbed."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    runtime = runtime_of(SimDisk(), clock, scheduler=scheduler)
    work = PeriodicWork(runtime)
    made: list[str] = []

    def failing(name: str) -> Callable[[], None]:
        def run() -> None:
            made.append(name)
            raise ValueError(name)

        return run

    work.repeat("sweep", 1, failing("sweep"))
    work.repeat("commit", 1, failing("commit"))
    with capture_logs() as lines:
        for _ in range(150):
            scheduler.advance(1)
            runtime.limited_log.flush()
    assert (made.count("sweep"), made.count("commit")) == (150, 150)
    of_one = [line for line in lines if line["work"] == "sweep"]
    assert [(line["event"], line["log_level"], line["count"]) for line in of_one] == [
        ("periodic_work_failed", "error", 1),
        ("periodic_work_failed", "error", 60),
        ("periodic_work_failed", "error", 60),
    ]
    assert ["exc_info" in line for line in of_one] == [True, False, False]
    assert len(lines) == 6


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_callbacks_that_raise_show_once_a_minute_for_each_place(loop_factory: LoopFactory) -> None:
    """However many connections fail in one line of code; another line is another fault."""
    limited_log = RateLimitedLog(ManualClock())

    def one() -> None:
        raise ValueError("one")

    def other() -> None:
        raise ValueError("other")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        report_faults(loop, limited_log)
        for callback in [one] * 50 + [other]:
            loop.call_soon(callback)
        loop.call_exception_handler({"message": "something without an exception"})
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    with capture_logs() as lines:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(scenario())
        limited_log.flush(everything=True)
    reported = [(line["event"], line["count"], str(line.get("exc_info", line.get("fault")))) for line in lines]
    assert sorted(reported) == [
        ("loop_callback_failed", 1, "one"),
        ("loop_callback_failed", 1, "other"),
        ("loop_callback_failed", 1, "something without an exception"),
        ("loop_callback_failed", 49, "ValueError: one"),
    ]
