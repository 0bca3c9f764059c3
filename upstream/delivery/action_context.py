"""What the actions of one subscription are given of their surroundings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare

EVENTS = declare(
    "pyddmq_action_events_total",
    "What an action counts of its own, by the event's name: see docs/actions.md for those of the built-in ones",
    ("group", "topic", "action", "event"),
)


class SubscriptionContext:
    """The `pyddmq.actions.Context` of one action in one subscription.

    Args:
        runtime: Clock, counts and log lines of the node.
        group: Name of the group.
        topic: Name of the topic.
        action: Name of the action in the configuration.
        timeout_ms: Tells the subscription's timeout in force.
    """

    def __init__(self, runtime: Runtime, group: str, topic: str, action: str, timeout_ms: Callable[[], int]) -> None:
        self.group = group
        self.topic = topic
        self._runtime = runtime
        self._action = action
        self._timeout_ms = timeout_ms

    @property
    def timeout_ms(self) -> int:
        """The subscription's `timeout` in force."""
        return self._timeout_ms()

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._runtime.clock.wall_ms()

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        return self._runtime.clock.monotonic()

    def count(self, event: str, amount: int = 1) -> None:
        """Count an event of the action."""
        self._runtime.metrics.counter(EVENTS, self.group, self.topic, self._action, event).add(amount)

    def note(self, event: str, **facts: object) -> None:
        """Write a rate-limited log line."""
        example: dict[str, Any] = {"topic": self.topic, "action": self._action, "what": event, **facts}
        kind = f"{self.topic} {self._action} {event}"
        self._runtime.limited_log.note("action_event", self.group, kind=kind, **example)
