"""What retention took from groups that had not finished it: counted, and kept for the status page (promise 6)."""

from __future__ import annotations

from typing import NamedTuple

from broker.runtime.metrics import Metrics, declare
from broker.runtime.seams import Clock

MESSAGES_EXPIRED = declare(
    "pyddmq_messages_expired_total",
    "Messages lost to retention: deleted with their log file before the group was given them.",
    ("group",),
)


class Loss(NamedTuple):
    """What a group lost on a topic since the node was started; `at_ms` is the wall clock of the last time, 0: never."""

    messages: int = 0
    at_ms: int = 0


NONE = Loss()


class Losses:
    """The losses of one node's groups."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._by_topic: dict[tuple[str, str], Loss] = {}

    def add(self, group: str, topic: str, count: int) -> None:
        """Count messages that are lost now."""
        self._metrics.counter(MESSAGES_EXPIRED, group).add(count)
        self._by_topic[group, topic] = Loss(self.of(group, topic).messages + count, self._clock.wall_ms())

    def of(self, group: str, topic: str) -> Loss:
        """Return what a group lost on a topic."""
        return self._by_topic.get((group, topic), NONE)
