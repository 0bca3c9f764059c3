"""A node that delivers timers, and whose group uses the retry topic, for tests."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from actions.registry import Registry
from broker.runtime.steps import run_now
from broker.scheduled.timer.names import TIMER_TOPIC
from broker.scheduled.timer.timers import Timers
from tests.unit.upstream_world import Client, World
from upstream.job import UpstreamJob

USED = {"retryTopic": True, "retryIntervals": [100, 2000]}


class RetryWorld(World):
    """A node that delivers timers, with one group whose subscriptions use the retry topic."""

    timers: Timers

    def __init__(self, *topics: str, made: bool = True, **settings: Any) -> None:
        subscriptions = tuple({"topic": each, **USED, **settings} for each in topics or ("t",))
        if made:
            super().__init__(*subscriptions)
            return
        # Whoever made clock and disk opens it.
        self.subscriptions, self.group_name, self.queues = subscriptions, "g", 4
        self.limits, self.waiting_max, self.registry, self.counter = None, 100_000, Registry(), 0

    def open(self) -> None:
        """Start the node, and the timers."""
        super().open()
        self.timers = run_now(self._opening())
        self.timers.start()
        self.turn_end()

    def _opening(self) -> Generator[None, None, Timers]:
        return Timers.opening(
            self.store,
            disk=self.disk,
            clock=self.clock,
            scheduler=self.scheduler,
            metrics=self.metrics,
            limited_log=self.limited_log,
        )

    def answer(self, client: Client, job: UpstreamJob, *, fail: bool = False) -> Any:
        """Answer as the client does, who knows the topic of the subscription and the qid of the reply."""
        offsets = [job.offset]
        topic = job.group_queue.line.topic
        applied = self.group.apply(topic, job.qid, [] if fail else offsets, offsets if fail else [], client)
        self.turn_end()
        return applied

    def failed(self, client: Client) -> UpstreamJob:
        """Pull one message and fail it."""
        batch = self.pull(client, count=1)
        assert batch is not None
        self.answer(client, batch.jobs[0], fail=True)
        return batch.jobs[0]

    @property
    def waiting(self) -> int:
        """Records in the timer topic."""
        topic = self.store.topics.get(TIMER_TOPIC)
        return 0 if topic is None else topic.queues[0].max_offset

    @property
    def pending(self) -> int:
        """Messages in the retry topic that are not finished."""
        group_queue = next(each for each in self.group.group_queues() if each.retries)
        return group_queue.tracker.unfinished(group_queue.queue.max_offset)
