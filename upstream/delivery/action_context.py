"""What the actions of one subscription are given of their surroundings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from upstream.views import PushView

EVENTS = declare(
    "pyddmq_action_events_total",
    "What an action counts of its own, by the event's name: see docs/actions.md for those of the built-in ones",
    ("group", "topic", "action", "event"),
)


@runtime_checkable
class Pushes(Protocol):
    """An action that pushes to servers, and can say how these are."""

    def view(self) -> PushView:
        """Return what an operator is shown; called once it is open."""
        ...


class SubscriptionContext:
    """The `pyddmq.actions.Context` of one action in one subscription.

    Args:
        runtime: Clock, counts and log lines of the node.
        group: Name of the group.
        topic: Name of the topic.
        action: Name of the action in the configuration.
        timeout_ms: Tells the subscription's timeout in force.
        tps_max: Tells its rate in force; None for no limit.
    """

    def __init__(
        self,
        runtime: Runtime,
        group: str,
        topic: str,
        action: str,
        *,
        timeout_ms: Callable[[], int],
        tps_max: Callable[[], float | None],
    ) -> None:
        self.group = group
        self.topic = topic
        self._runtime = runtime
        self._action = action
        self._timeout_ms = timeout_ms
        self._tps_max = tps_max

    @property
    def timeout_ms(self) -> int:
        """The subscription's `timeout` in force."""
        return self._timeout_ms()

    @property
    def tps_max(self) -> float | None:
        """The subscription's rate in force, messages per second; None for no limit (R66)."""
        return self._tps_max()

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
