"""The action of the measurement of async actions: 0-5 ms of waiting a message, and when each was done."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

from pydantic import BaseModel

from pyddmq.actions import Action, Job, Status


def work_seconds(offset: int) -> float:
    """Return how long a message is worked on: 0 to 5 ms, evenly spread."""
    return offset * 7919 % 501 / 100_000


class WorkOptions(BaseModel):
    """Options of `Working`: where the figures go, after how many messages; each how manieth fails always, 0: none."""

    file: str
    count: int
    poison: int = 0


class Working(Action):
    """Waits, and writes down when the last of `count` messages was done."""

    may_be_last = True
    needs_data = False
    options_model = WorkOptions

    def open(self) -> None:
        """Begin."""
        self.begun = 0.0
        self.done: list[float] = []

    async def act(self, job: Job) -> Status:
        """Work on a message."""
        assert isinstance(self.options, WorkOptions)
        self.begun = self.begun or time.monotonic()
        # The first of so many keys, without a look at the message, which would cost more than the rest.
        if self.options.poison and job.offset % self.options.poison == 0:
            raise ValueError("poison")
        await asyncio.sleep(work_seconds(job.offset))
        self.done.append(time.monotonic() - self.begun)
        if len(self.done) == self.options.count:
            target = Path(self.options.file)
            p99 = sorted(self.done)[len(self.done) * 99 // 100]
            part = target.with_suffix(".part")
            part.write_text(json.dumps({"seconds": self.done[-1], "p99": p99}))
            part.rename(target)
        return Status.FINISH
