"""Actions of simulated groups that await, and that block: some time passes, and now and then a message is put off."""

from __future__ import annotations

import asyncio
from random import Random

from pyddmq.actions import Action, Job, RetryLater, Status


class Awaits(Action):
    """Goes on after up to 30 ms, or has the message come again in 20."""

    def __init__(self) -> None:
        self._calls = 0

    async def act(self, job: Job) -> Status:
        """Wait."""
        self._calls += 1
        random = Random(f"{job.topic} {job.qid} {job.offset} {self._calls}")
        await asyncio.sleep(random.random() * 0.03)
        if random.random() < 0.1:
            raise RetryLater(20)
        return Status.CONTINUE


class Blocks(Action):
    """Goes on when its thread has had its time."""

    blocking = True

    def act(self, job: Job) -> Status:
        """Read the message, in the thread."""
        assert job.message.born_ms > 0
        return Status.CONTINUE
