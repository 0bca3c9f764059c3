"""Situations of a consumer group, each with the verdict on its lag that they must get.

Each is a generator: up to its `yield` it brings the situation about, and it yields the words that must be in the
evidence; afterwards it ends the situation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lag.rules.statuses import BY_NAME
from proxy.operate.changes.groups import PauseBody
from tests.simulation.operator import change
from tests.simulation.test_queue_samples import one_queue
from tests.simulation.ward import Ward

STOP_SECONDS = 200.0
"""Longer than the rules wait until they call something stopped."""
WINDOW_SECONDS = 320.0
"""Within which the rules have forgotten what a queue was like before."""

Staging = Iterator[tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A situation of the group `by-key` on one queue.

    Attributes:
        status: The status that its queue must have.
        cause: The cause that must be named.
        run: Brings it about, yields words of the evidence, and ends it.
        findings: Kinds of findings that must be there besides.
        by_key: Settings of the subscription.
        node: Settings of the node.
        over_seconds: How long after its end it may show.
    """

    status: str
    cause: str | None
    run: Callable[[Ward], Staging]
    findings: tuple[str, ...] = ()
    by_key: dict[str, Any] = field(default_factory=dict)
    node: dict[str, Any] = field(default_factory=dict)
    over_seconds: float = 100.0

    @property
    def level(self) -> str:
        """The level of the group."""
        return BY_NAME[self.status].level.name

    def prepare(self, wanted: dict[str, Any]) -> None:
        """Configure the node."""
        one_queue(wanted, **self.by_key)
        wanted["node"].update(self.node)
        wanted["lag"] = {"webhook": "http://127.0.0.1:1/lag"}


SITUATIONS: dict[str, Situation] = {}


def situation(
    status: str, cause: str | None, *findings: str, over_seconds: float = 100.0, node: Any = None, **by_key: Any
) -> Callable[[Callable[[Ward], Staging]], Callable[[Ward], Staging]]:
    """Enter a situation into the table."""

    def enter(run: Callable[[Ward], Staging]) -> Callable[[Ward], Staging]:
        SITUATIONS[run.__name__] = Situation(
            status=status,
            cause=cause,
            run=run,
            findings=findings,
            by_key=by_key,
            node=node or {},
            over_seconds=over_seconds,
        )
        return run

    return enter


def send(ward: Ward, count: int) -> None:
    """Publish messages with different keys."""
    for number in range(count):
        ward.send("orders", f"k{number}")


def work(ward: Ward, seconds: int, *, sent: int, done: int) -> None:
    """Let a producer and a consumer work at these rates per second; the consumer has a message out at all times."""
    for _ in range(seconds):
        send(ward, sent)
        places = ward.pull(linger_ms=1, count=done) if done else []
        ward.run(1)
        for place in places:
            ward.answer(place, success=True)


# Consumers.


@situation("NOT_CONSUMED", "no_consumer", "no_puller")
def nobody_reads(ward: Ward) -> Staging:
    """Messages, and no client ever."""
    send(ward, 20)
    ward.run(STOP_SECONDS)
    yield ("20 messages",)
    ward.finish()


@situation("STOP", "no_consumer", "no_puller")
def consumers_went(ward: Ward) -> Staging:
    """They worked, and then no client pulls any more."""
    send(ward, 5)
    ward.finish()
    send(ward, 20)
    ward.run(STOP_SECONDS)
    yield ("20 messages",)
    ward.finish()


@situation("STOP", "no_consumer", "no_puller")
def consumers_went_and_the_node_restarted(ward: Ward) -> Staging:
    """After a restart the group counts as one that read before."""
    send(ward, 5)
    ward.finish()
    send(ward, 20)
    ward.restart(kill=True)
    ward.run(STOP_SECONDS)
    yield ("20 messages",)
    ward.finish()


@situation("BLOCKED", "poison_message", "poison", retryIntervals=[20_000, -1], maxRetry=-1)
def poison_key(ward: Ward) -> Staging:
    """One message fails again and again, and its key waits."""
    for _ in range(15):
        ward.send("orders", "poison")
    for _ in range(9):
        ward.fail(1)
        ward.run(25)
    yield "offset 0", "10.9.0.1"
    ward.finish()


@situation("PAUSED", "paused", "paused")
def paused_group(ward: Ward) -> Staging:
    """An operator paused the group."""
    send(ward, 5)
    ward.finish()
    assert change(ward.world, "pause", PauseBody(group="by-key")) is not None
    send(ward, 20)
    ward.run(STOP_SECONDS)
    yield ("by an operator",)
    assert change(ward.world, "resume", PauseBody(group="by-key")) is not None
    ward.finish()


# Messages.


# Other consumers.


# Operators.


@situation("OK", None)
def group_at_rest_after_a_restart(ward: Ward) -> Staging:
    """A group that has read everything is well after a restart, too."""
    send(ward, 20)
    ward.finish()
    ward.run(30)
    ward.restart(kill=True)
    ward.run(STOP_SECONDS)
    yield ()
