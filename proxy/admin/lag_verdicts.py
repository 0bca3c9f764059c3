"""The last judgement of all groups, for the status page and `/metrics`: neither judges anew each time it is asked for.

Judging takes about half a millisecond per queue, in steps between which the loop serves everybody else. It is done
when somebody asks and the last one is older than `SECONDS_MIN`, and so seldom that it takes `SHARE` of the loop at
most; after `SECONDS_MAX` at the latest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from broker.runtime.async_steps import run_async
from broker.runtime.steps import Ended, step
from proxy.operate.answers import LIMIT_MAX
from proxy.operate.live_node import LiveNode
from proxy.operate.views.lag import LagAnswer

SECONDS_MIN = 4.0
SECONDS_MAX = 60.0
SHARE = 0.01


class LastLag:
    """Judges one node now and then.

    Args:
        node: The node.
    """

    def __init__(self, node: LiveNode) -> None:
        self._node = node
        self._answer: LagAnswer | None = None
        self._again_at = 0.0
        self._judging = asyncio.Lock()

    async def answer(self) -> LagAnswer | None:
        """Return the last judgement, made anew where it is due; None: nothing is sampled yet, or not at all."""
        async with self._judging:
            if self._node.clock.monotonic() >= self._again_at:
                found = await run_async(self._timed())
                self._answer = found if found is not None and found.enabled else None
            return self._answer

    def _timed(self) -> Generator[None, None, LagAnswer | None]:
        clock, busy = self._node.clock, 0.0
        steps = self._node.lag(group=None, limit=LIMIT_MAX)
        while True:
            began = clock.monotonic()
            made = step(steps)
            busy += clock.monotonic() - began
            if isinstance(made, Ended):
                seconds = min(max(SECONDS_MIN, busy / SHARE), SECONDS_MAX)
                self._again_at = clock.monotonic() + seconds
                return made.result
            yield
