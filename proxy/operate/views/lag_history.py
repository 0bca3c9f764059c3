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
        first: Messages behind at the first known time; null, like all later fields, means unknown.
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


class EventView(View, frozen=True, kw_only=True):
    """What happened to a node or a group.

    Attributes:
        at_ms: When.
        event: Its kind: start, stop, reload, pause, resume, reset, retention, left or clock.
        group: The group; "" the node.
        topic: The topic; "" all.
        queue: The queue; -1 all.
        detail: One line: who requested it, or from which offset to which.
    """

    at_ms: int
    event: str
    group: str
    topic: str
    queue: int
    detail: str


class LagCourse(View, frozen=True, kw_only=True):
    """How a group went over a span, in equal parts, the oldest first; null: not known.

    Attributes:
        since_ms: Begin of the span.
        width_ms: Length of a part.
        published: Messages per second that were stored in its topics.
        finished: Messages per second that it finished.
        lag: Messages behind, the most of each part.
        events: What happened to it or to the node, the oldest first.
    """

    since_ms: int
    width_ms: int
    published: Sequence[float | None]
    finished: Sequence[float | None]
    lag: Sequence[float | None]
    events: Sequence[EventView] = ()


class LagTrend(View, frozen=True, kw_only=True):
    """How lag went, by the node's lag journal.

    Attributes:
        since_ms: Begin of the span.
        until_ms: Its end.
        width_ms: How long a part is.
        shortened: Whether the span is shorter than requested: the node reads at most a million rows.
        lines: A line per group or, for a requested group, per queue.
    """

    since_ms: int
    until_ms: int
    width_ms: int
    shortened: bool
    lines: Sequence[LagLine]


class BurnRate(View, frozen=True, kw_only=True):
    """How fast an error budget is used up over one of the last windows of a span.

    Attributes:
        window_ms: How long the window is.
        burn_rate: Missed share of its messages over the budget: 1.0 uses up the budget of the span in the span; null:
            no messages.
        messages: Messages as of the span, of this window.
        missed: Those of them that were finished late or lost, or wait over the objective.
        coverage: Share of the window that is known, 0.0 to 1.0.
    """

    window_ms: int
    burn_rate: float | None
    messages: int
    missed: int
    coverage: float


class ObjectiveKept(View, frozen=True, kw_only=True):
    """How a group, or a queue of it, kept an objective.

    Attributes:
        group: The group.
        topic: The topic; null: all of the group.
        queue: The queue; null: all of the group.
        share: Share of the known time within the objective, 0.0 to 1.0; null: nothing is known.
        messages_share: Share of the messages that were finished in time; null without messages.
        coverage: Share of the span that is known, 0.0 to 1.0; the other shares are of this part alone.
        messages: Messages that were finished or lost, or waited over the objective at the end.
        lost: Those of them that retention took unfinished; they count as missed.
        queues: Queues that this is the sum of.
        kept_ms: Time within the objective, over all queues.
        over_ms: Time over it, likewise.
        unknown_ms: The rest of the span, likewise: nothing was recorded, or the age is not known.
        burn_rates: With a goal: of the whole span, and of the last 3 d, 6 h, 1 h, 30 min and 5 min, if shorter.
        budget_left: Share of the error budget that is left, 1.0 all of it; below 0: used up; null: not known.
    """

    group: str
    topic: str | None
    queue: int | None
    share: float | None
    messages_share: float | None
    coverage: float
    messages: int
    lost: int
    queues: int
    kept_ms: int
    over_ms: int
    unknown_ms: int
    burn_rates: Sequence[BurnRate] = ()
    budget_left: float | None = None


class ObjectivesAnswer(View, frozen=True, kw_only=True):
    """For which share of a span groups kept an objective.

    Attributes:
        objective_ms: The age that the oldest unfinished message is to stay under.
        since_ms: Begin of the span.
        until_ms: Its end.
        asked_ms: The requested length; the part that was not read counts as unknown.
        shortened: Whether the span is shorter than requested: a node reads at most a million rows.
        kept: By group or, for a requested group, by its queues.
        at_least: The goal: share of the messages to be finished in time, 0.0 to 1.0; null: none was given.
    """

    objective_ms: int
    since_ms: int
    until_ms: int
    asked_ms: int
    shortened: bool
    kept: Sequence[ObjectiveKept]
    at_least: float | None = None
