"""What a lag journal says of a span: how lag went, and how objectives were kept (docs/lag.md)."""

from __future__ import annotations

from collections.abc import Sequence

from broker.views import View


class LagLine(View, frozen=True, kw_only=True):
    """How the lag of a group, or of a queue of it, went over a span.

    Attributes:
        group: The group.
        topic: The topic; null: all of the group.
        queue: The queue; null: all of the group.
        first: Messages behind where that is first known; null, as all that follows: not known.
        last: Where it is last known.
        slope: Messages per second by which it rose.
        parts: The most messages behind in each of the equal parts of the span, the oldest first.
    """

    group: str
    topic: str | None
    queue: int | None
    first: int | None
    last: int | None
    slope: float | None
    parts: Sequence[int | None]


class LagTrend(View, frozen=True, kw_only=True):
    """How lag went, by the node's lag journal.

    Attributes:
        since_ms: Begin of the span.
        until_ms: Its end.
        width_ms: How long a part is.
        shortened: Whether the span is shorter than was asked for: the node reads a million rows at most.
        lines: A line per group or, where one is asked for, per queue of it.
    """

    since_ms: int
    until_ms: int
    width_ms: int
    shortened: bool
    lines: Sequence[LagLine]


class ObjectiveKept(View, frozen=True, kw_only=True):
    """How a group, or a queue of it, kept an objective.

    Attributes:
        group: The group.
        topic: The topic; null: all of the group.
        queue: The queue; null: all of the group.
        share: Share of the time within the objective, 0.0 to 1.0; null: nothing is recorded.
        messages_share: Share of the messages that came while it was kept; null: none came.
        kept_ms: Time within it, over all queues.
        over_ms: Time over it, likewise.
        unknown_ms: Time of which it cannot be told, likewise; it counts as not kept.
    """

    group: str
    topic: str | None
    queue: int | None
    share: float | None
    messages_share: float | None
    kept_ms: int
    over_ms: int
    unknown_ms: int


class ObjectivesAnswer(View, frozen=True, kw_only=True):
    """For which share of a span groups kept an objective.

    Attributes:
        objective_ms: The age that the oldest unfinished message is to stay under.
        since_ms: Begin of the span.
        until_ms: Its end.
        shortened: Whether the span is shorter than was asked for: a node reads a million rows at most.
        kept: By group or, where one is asked for, by its queues.
    """

    objective_ms: int
    since_ms: int
    until_ms: int
    shortened: bool
    kept: Sequence[ObjectiveKept]
