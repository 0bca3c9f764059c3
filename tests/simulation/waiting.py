"""Actions of simulated groups that await, and that block: some time passes, and now and then a message is put off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import ClassVar

from pyddmq.actions import Action, Job, RetryLater, Status
from tests.simulation.facts import PromiseBroken


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


class Opens(Action):
    """Lets everything through while it is open; it takes up to three seconds to open and to close, or does not open."""

    run: ClassVar[tuple[Random, Callable[[PromiseBroken], None]]]
    """Its randomness, and who is told of messages that come while it is not open."""

    def __init__(self) -> None:
        self._is_open = False

    @classmethod
    def begin(cls, seed: int, report: Callable[[PromiseBroken], None]) -> None:
        """Begin a run."""
        cls.run = Random(f"opens {seed}"), report

    async def open(self) -> None:
        """Take a while. Raises RuntimeError."""
        await self._take_time()
        if self.run[0].random() < 0.2:
            raise RuntimeError("not now")
        self._is_open = True

    async def act(self, job: Job) -> Status:
        """Go on, seldom after a second."""
        if self.run[0].random() < 0.03:
            await asyncio.sleep(self.run[0].random() * 1.4)
        if not self._is_open:
            self.run[1](PromiseBroken(0, f"{job.topic} {job.qid} {job.offset} came to an action that is not open"))
        return Status.CONTINUE

    async def close(self) -> None:
        """Take a while."""
        self._is_open = False
        await self._take_time()

    async def _take_time(self) -> None:
        await asyncio.sleep(self.run[0].choice((0.0, 0.3, 3.0)) * self.run[0].random())
