"""The world of `upstream_world` in a virtual event loop, so that async and blocking actions run in it."""

from __future__ import annotations

from typing import Any

from pyddmq.testing import VirtualClock, VirtualLoop
from tests.fakes.virtual_threads import VirtualThreads
from tests.unit.upstream_world import World
from upstream.calls.node_calls import NodeCalls


class CallsWorld(World):
    """A node in virtual time; `thread_seconds` is how long the next blocking call takes."""

    def __init__(self, *subscriptions: dict[str, Any], calls_max: int = 8, **how: Any) -> None:
        self.loop = VirtualLoop()
        self.calls_max = calls_max
        self.thread_seconds = 0.0
        super().__init__(*subscriptions, **how)

    def open(self) -> None:
        """Start the node on what the disk holds."""
        self.threads = VirtualThreads(self.loop, lambda: self.thread_seconds)
        self.clock: Any = VirtualClock(self.loop)
        self.scheduler: Any = self.loop
        self.calls = NodeCalls(
            clock=self.clock, scheduler=self.loop, tasks=self.loop, threads=self.threads, calls_max=self.calls_max
        )
        super().open()

    def kill(self) -> None:
        """End the process: what is out is forgotten."""
        assert self.calls is not None
        self.calls.closed = True
        self.group.stop()
        self.sim.kill()
        self.open()

    def advance(self, seconds: float) -> None:
        """Let time pass, turn by turn."""

        def turn() -> bool:
            self.turn_end()
            return False

        self.loop.run(turn, seconds=seconds)
        self.turn_end()

    def unfinished(self, topic: str = "t") -> int:
        """Messages of a topic that the group has not finished."""
        return sum(
            each.queue.max_offset - each.tracker.watermark
            for each in self.group.queues_by_topic.get(topic, {}).values()
        )
