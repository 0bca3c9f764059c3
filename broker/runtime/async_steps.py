"""The driver of work in steps (`broker.runtime.steps`) for coroutines; apart, as programs without asyncio load none."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from functools import partial
from typing import Any, TypeVar

from broker.runtime.steps import StepsEnd, StepWait, step

Result = TypeVar("Result")


async def run_async(steps: Generator[StepWait | None, Any, Result], *, pause_seconds: float = 0.0) -> Result:
    """Make all steps, with a turn of the loop after each; return what they return. Raises what they raise.

    Closes them when it is cancelled.
    """
    try:
        while not isinstance(made := step(steps), StepsEnd):
            if made is not None:
                reported = asyncio.get_running_loop().create_future()
                made.then(partial(_end, reported))
                await reported
            await asyncio.sleep(pause_seconds)
        return made.result
    finally:
        steps.close()


def _end(reported: asyncio.Future[None]) -> None:
    if not reported.done():
        reported.set_result(None)
