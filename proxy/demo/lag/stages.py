"""What is staged: a group each, what becomes of it in the twelve minutes, and the status and cause to be found.

The same events go to all groups. A consumer works off what it is given at its own pace; what distinguishes the groups
is that pace, a case that is never worked off, and what an operator does.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from proxy.demo.events import DemoEvent

TOPIC: Final = "permits"
QUEUES: Final = 2
EVENTS_PER_SECOND: Final = 5
SECONDS: Final = 720
TARGET_MS: Final = 60_000
QUICK: Final = math.inf
AWAY: Final = 0.0

SLOW_FROM: Final = 240
POISON_FROM: Final = 240
PAUSE_AT: Final = 360
RESET_AT: Final = 480
AWAY_FROM, BACK_AT = 60, 400
"""Moments, in seconds from the first event on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoGroupStage:
    """What is staged of one group.

    Attributes:
        group: Its name.
        story: What becomes of it, for people.
        status: What must be said of it at the end.
        cause: Why; null: nothing.
        earlier: Status and cause that must have been there before the end, and be over.
    """

    group: str
    story: str
    status: str
    cause: str | None = None
    earlier: tuple[str, str] | None = None


STAGES: Final = (
    DemoGroupStage(group="well", story="consumers keep up", status="OK"),
    DemoGroupStage(
        group="behind", story="consumers become slower than events come", status="WARN", cause="slow_consumer"
    ),
    DemoGroupStage(group="poison", story="a case fails again and again", status="BLOCKED", cause="poison_message"),
    DemoGroupStage(
        group="reset", story="an operator resets it to the beginning", status="WARN", cause="operator_reset"
    ),
    DemoGroupStage(group="paused", story="an operator pauses it", status="PAUSED", cause="paused"),
    DemoGroupStage(
        group="back",
        story="consumers stopped, returned and caught up",
        status="OK",
        earlier=("STOP", "no_consumer"),
    ),
)
BY_GROUP: Final = {each.group: each for each in STAGES}


def pace_of(group: str, seconds: float, broken: Collection[str] = ()) -> float:
    """Return how many messages per second the consumer of a group works off at a moment; `AWAY`: it does not ask.

    Args:
        group: The group.
        seconds: The moment, from the first event on.
        broken: Groups whose staging is left out; of `well` that is that it keeps up.
    """
    if group in broken:
        return AWAY if group == "well" and seconds >= SLOW_FROM else QUICK
    if group == "behind" and seconds >= SLOW_FROM:
        return EVENTS_PER_SECOND / 3
    if group == "reset" and seconds >= RESET_AT:
        return EVENTS_PER_SECOND / 2
    if group == "back" and AWAY_FROM <= seconds < BACK_AT:
        return AWAY
    return QUICK


def poison_case(events: Sequence[DemoEvent]) -> str:
    """Return the case that fails: that with the most events between the moments of poison and pause.

    Raises:
        ValueError: There are too few events for that.
    """
    between = events[POISON_FROM * EVENTS_PER_SECOND : PAUSE_AT * EVENTS_PER_SECOND]
    if not between:
        raise ValueError(f"{len(events)} events end before a case can fail")
    [(case, _)] = Counter(event.case for event in between).most_common(1)
    return case


def is_poisoned(event: DemoEvent, case: str) -> bool:
    """Whether the consumers of group `poison` fail an event."""
    return event.case == case and event.sequence >= POISON_FROM * EVENTS_PER_SECOND


def configuration(data: str) -> str:
    """Return the node's configuration, as YAML: one topic, and a group per stage with the same subscription."""
    lines = ["node:", "  producerPort: 0", "  consumerPort: 0", f"  data: {data!r}", "  flush: async"]
    lines += ["topics:", f"  {TOPIC}: {{queues: {QUEUES}}}", "groups:"]
    for stage in STAGES:
        lines += [
            f"  - group: {stage.group}",
            "    topics:",
            f"      - topic: {TOPIC}",
            "        orderKey: KEY",
            "        actions: [Async, PullServer]",
            "        concurrency: 4096",
            "        maxPullBatchSize: 16",
            "        maxRetry: -1",
            "        retryIntervals: [20000, -1]",
            "        timeout: 120000",
            f"        delayTimeThreshold: {TARGET_MS}",
        ]
    return "\n".join(lines) + "\n"
