"""The retry topic of a group over every stop: killed or cut from power at any change of the disk (D27, D37).

Nothing acknowledged comes again, nothing is lost, and no message is there twice: in its queue and in a retry.
"""

from __future__ import annotations

import contextlib
from random import Random

import pytest

from broker.errors import StoreError
from pyddmq.testing import PowerCut
from tests.unit.retry_world import RetryWorld
from tests.unit.upstream_world import Client
from upstream.job import UpstreamJob
from upstream.progress.progress import ProgressFailed

CLIENT = Client()


class Stopping(RetryWorld):
    """A node that is stopped, and what was answered to its clients by then."""

    segment_bytes = 1 << 16
    message_bytes_max = 1 << 15

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self.answered: set[int] = set()
        self.sent: set[int] = set()
        super().__init__("t", "u", concurrency=8)

    def send(self, topic: str, count: int) -> None:
        """Publish, and note what was answered."""
        first = self.counter + 1
        self.publish(*["k"] * count, topic=topic)
        self.sent.update(range(first, first + count))

    def work(self, random: Random) -> None:
        """Pull a batch and answer it, by chance."""
        batch = self.pull(CLIENT)
        for job in batch.jobs if batch is not None else ():
            number = self.body(job)
            fail = random.random() < 0.6
            if not fail:
                self.answered.add(number)
            self.answer(CLIENT, job, fail=fail)
            self.progress.sync()
            if not fail:
                self.acknowledged.add(number)

    def run(self, random: Random) -> None:
        """Publish, answer, let retries come."""
        for _ in range(3):
            self.send(random.choice("tu"), random.randrange(1, 4))
            for _ in range(3):
                self.work(random)
            self.advance(random.choice((0.05, 0.1, 2.1)))

    def restart(self, *, power: bool, random: Random) -> None:
        """Start on what the disk has kept."""
        self.group.stop()
        self.timers.stop()
        if power:
            self.sim.crash(random)
        else:
            self.sim.kill()
        self.scheduler = type(self.scheduler)(self.clock)
        self.open()

    def finish(self) -> list[int]:
        """Answer all that still comes with success; returns it, a time each."""
        found: list[int] = []
        for _ in range(4):
            jobs: list[UpstreamJob] = self.pull_all(CLIENT)
            for job in jobs:
                found.append(self.body(job))
                self.answer(CLIENT, job)
            self.advance(1)
        return found


@pytest.mark.parametrize("seed", range(2))
def test_stop_at_every_change_neither_loses_nor_doubles_a_retry(seed: int) -> None:
    """A kill or a power cut at each change of the disk around publish, send back, delivery and acknowledgement."""
    changes = 1
    while True:
        world, random = Stopping(), Random(seed)
        world.sim.stop_after(changes)
        whole = False
        with contextlib.suppress(PowerCut, StoreError, OSError, ProgressFailed):
            world.run(random)
            whole = True
        world.restart(power=changes % 2 == 1, random=Random(changes))
        came = world.finish()
        dead_lettered = {int(letter["body"]) for letter in world.dead_letters()}
        assert len(came) == len(set(came)), f"doubled at {changes}"
        assert not world.acknowledged & set(came), f"acknowledged and came again at {changes}"
        assert not world.sent - world.answered - set(came) - dead_lettered, f"lost at {changes}"
        assert world.pending == 0
        if whole:
            return
        changes += 3
