"""What is raised where nobody awaits it, in a callback or a task of the loop: a line per place and minute."""

from __future__ import annotations

import asyncio
from typing import Any

from broker.runtime.rate_limited_log import RateLimitedLog, place_of


def report_faults(loop: asyncio.AbstractEventLoop, limited_log: RateLimitedLog) -> None:
    """Have the loop report through `limited_log`: a connection's callback may fail as often as something arrives."""

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error, what = context.get("exception"), context.get("message")
        if isinstance(error, Exception):
            # The loop's words hold addresses of objects; the line of the code tells one fault from another.
            limited_log.fault("loop_callback_failed", error, kind=place_of(error), what=what)
        elif error is None:
            limited_log.note("loop_callback_failed", fault=what)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(report)
