"""What retention took from groups that had not finished it: counted, and kept for the status page (promise 6).

The ack journal keeps the counts of each queue (`upstream.progress`); here they are added up by topic.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.runtime.metrics import Metrics, declare
from broker.runtime.seams import Clock

MESSAGES_EXPIRED = declare(
    "pyddmq_messages_expired_total",
    "Messages lost to retention: deleted with their log file before the group received them.",
    ("group",),
)


class Loss(NamedTuple):
    """What a group lost on a topic, over restarts; `at_ms` is the wall clock of the last time, 0: never."""

    messages: int = 0
    at_ms: int = 0


NONE = Loss()


class Losses:
    """The losses of one node's groups."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._by_topic: dict[tuple[str, str], Loss] = {}

    def known(self, group: str, topic: str, count: int, at_ms: int) -> None:
        """Take over what one queue lost before this start."""
        before = self.of(group, topic)
        if count:
            self._by_topic[group, topic] = Loss(before.messages + count, max(before.at_ms, at_ms))

    def add(self, group: str, topic: str, count: int) -> int:
        """Count messages that are lost now; returns the moment that is noted for it, wall clock."""
        self._metrics.counter(MESSAGES_EXPIRED, group).add(count)
        now_ms = self._clock.wall_ms()
        self._by_topic[group, topic] = Loss(self.of(group, topic).messages + count, now_ms)
        return now_ms

    def of(self, group: str, topic: str) -> Loss:
        """Return what a group lost on a topic."""
        return self._by_topic.get((group, topic), NONE)
