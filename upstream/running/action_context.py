"""What the actions of one subscription are given of their surroundings."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeGuard, runtime_checkable

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from conf.models import SubscriptionConfig
from pyddmq.actions import Action
from upstream.calls.user_code import plain_facts, text_of
from upstream.views import PushView, SinkView

EVENTS = declare(
    "pyddmq_action_events_total",
    "Events counted by actions, by the event's name: docs/actions.md lists those of the built-in actions",
    ("group", "topic", "action", "event"),
)


@runtime_checkable
class Pushes(Protocol):
    """An action that pushes to servers of others."""

    def view(self) -> PushView:
        """Return what an operator is shown; may be called before it is open."""


@runtime_checkable
class WaitsForServers(Protocol):
    """An action that writes into servers of others, and waits while they are away."""

    def servers_away(self) -> Sequence[SinkView]:
        """Return the servers that it waits for now; may be called before it is open."""


def pushes(action: Action) -> TypeGuard[Pushes]:
    """Whether an action is one of `Pushes`, by its class: to look at each instance takes 50 times as long."""
    return issubclass(type(action), Pushes)


def waits_for_servers(action: Action) -> TypeGuard[WaitsForServers]:
    """Whether an action is one of `WaitsForServers`, likewise."""
    return issubclass(type(action), WaitsForServers)


def give_contexts(
    actions: Sequence[Action], runtime: Runtime, group: str, config: Callable[[], SubscriptionConfig]
) -> Pushes | None:
    """Give each action of a subscription its context.

    Args:
        actions: Its actions.
        runtime: Clock, counts and log lines of the node.
        group: Name of the group.
        config: Tells the subscription's configuration in force.

    Returns:
        The one that pushes, if one does.
    """
    for action in actions:
        context = ThreadContext if action.blocking else SubscriptionContext
        action.context = context(runtime, group, action.name, config)
    return next((action for action in actions if pushes(action)), None)


class SubscriptionContext:
    """The `pyddmq.actions.Context` of one action in one subscription."""

    def __init__(self, runtime: Runtime, group: str, action: str, config: Callable[[], SubscriptionConfig]) -> None:
        self.group = group
        self.topic = config().topic
        self._runtime = runtime
        self._action = action
        self._config = config

    @property
    def timeout_ms(self) -> int:
        """The subscription's `timeout` in force."""
        return self._config().timeout

    @property
    def tps_max(self) -> float | None:
        """The subscription's rate in force, messages per second; None for no limit (R66)."""
        return self._config().tps_max

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
        example: dict[str, Any] = {"topic": self.topic, "action": self._action, "what": event, **plain_facts(facts)}
        kind = f"{self.topic} {self._action} {event}"
        self._runtime.limited_log.note("action_event", self.group, kind=kind, **example)


class ThreadContext(SubscriptionContext):
    """That of a blocking action: what its threads count and note is done in the loop's thread, by `flush`."""

    def __init__(self, runtime: Runtime, group: str, action: str, config: Callable[[], SubscriptionConfig]) -> None:
        super().__init__(runtime, group, action, config)
        self._events: deque[Callable[[], None]] = deque()

    def count(self, event: str, amount: int = 1) -> None:
        """Count an event of the action, soon."""
        self._events.append(partial(super().count, text_of(event), int(amount)))

    def note(self, event: str, **facts: object) -> None:
        """Write a rate-limited log line, soon."""
        self._events.append(partial(super().note, text_of(event), **plain_facts(facts)))

    def flush(self) -> None:
        """Do what was asked for since; in the loop's thread."""
        while self._events:
            self._events.popleft()()
