"""What waits in a node for its own time: timers, delay levels and half messages, as quantities with a status.

Shape: a *waiting row* (`lag.samples.ScheduledSample`) is kept beside the rows of queues, in a round, in the journal and
in exports (`scheduled`). It is of the node and of no group or queue: its name is kind, topic and level. It is judged by
itself, without a window, so that a live node and a report over old rows come to the same verdict.

| kind | pending | overdue |
| --- | --- | --- |
| `timer`, `delay` | messages that are not delivered yet | those whose moment has passed |
| `half` | transactions that are not decided | those for which a check is due |
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from lag.rules.expression import RuleExpression, Value, all_of, compiled, compiled_all, fact, first_of, highest, if_else
from lag.rules.limits import LagLimits
from lag.rules.quantities import Quantity
from lag.rules.statuses import LagStatus, Level
from lag.samples import ScheduledSample

DEFAULTS: Final = LagLimits()
_IS_HALF: Final = fact("kind").equals("half")


def _age(moment: RuleExpression) -> RuleExpression:
    return highest(fact("now_ms") - moment, 0)


WAITING: Final = {
    each.name: each
    for each in (
        Quantity(
            name="scheduled",
            unit="messages",
            meaning="Timers and delayed messages that are not due yet; transactions for which no check is due.",
            rule=highest(fact("pending") - fact("overdue"), 0),
            advice="No action: they wait as their producers requested.",
        ),
        Quantity(
            name="overdue",
            unit="messages",
            meaning="Timers and delayed messages that are due and not delivered; transactions for which a check is "
            "due.",
            rule=fact("overdue"),
            advice="Check lateness_ms: a few that are overdue for less than a second are normal.",
        ),
        Quantity(
            name="lateness_ms",
            unit="ms",
            meaning="How long the earliest overdue timer or delayed message has been due; 0 without any.",
            rule=if_else(_IS_HALF, None, if_else(fact("overdue") > 0, _age(fact("oldest_due_ms")), 0)),
            advice="Above late_ms, see the status of the timers and the free space of the store's disk.",
        ),
        Quantity(
            name="undecided_since_ms",
            unit="Unix ms",
            meaning="When the oldest undecided transaction was sent; null without any, or if unknown.",
            rule=if_else(all_of(_IS_HALF, fact("pending") > 0), fact("oldest_ms"), None),
            advice="Find the producer group of that time.",
        ),
        Quantity(
            name="undecided_for_ms",
            unit="ms",
            meaning="How long the oldest undecided transaction has waited for a decision; null without any.",
            rule=if_else(all_of(_IS_HALF, fact("pending") > 0), _age(fact("oldest_ms")), None),
            advice="Above undecided_ms, no producer of its group answers the checks.",
        ),
    )
}
"""Quantities of a waiting row."""

WAITING_STATUSES: Final = (
    LagStatus(
        name="LATE",
        level=Level.ERR,
        meaning="Timers or delayed messages are delivered too late.",
        rule=fact("lateness_ms") >= fact("late_ms"),
        advice="Check the findings of the node: a paused stage, a full disk or an overloaded node.",
    ),
    LagStatus(
        name="UNDECIDED",
        level=Level.WARN,
        meaning="A transaction has waited for its decision for longer than several checks take.",
        rule=fact("undecided_for_ms") >= fact("undecided_ms"),
        advice="Start a process of its producer group, or decide it with `pyddmq transactions`.",
    ),
    LagStatus(
        name="IN_TIME",
        level=Level.OK,
        meaning="All waiting messages of the node are in time.",
        rule=all_of((fact("lateness_ms") < fact("late_ms")) | _IS_HALF),
        advice="Nothing.",
    ),
)
"""Statuses of a waiting row, worst first; UNKNOWN where none holds, as where an overdue one has no known moment."""

WAITING_RULE: Final = first_of({each.name: each.rule for each in WAITING_STATUSES}, "UNKNOWN")
_add_quantities: Final = compiled_all({name: each.rule for name, each in WAITING.items()})
_STATUS: Final = compiled(WAITING_RULE)
_BY_NAME: Final = {each.name: each for each in WAITING_STATUSES}


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingLag:
    """What the rules say of one waiting row.

    Attributes:
        figures: Each quantity of `WAITING` by its name.
        status: LATE, UNDECIDED, IN_TIME or UNKNOWN.
        level: `OK`, `WARN`, `ERR` or `UNKNOWN`.
        advice: What to do.
    """

    figures: dict[str, Any]
    status: str
    level: str
    advice: str


def judge_waiting(sample: ScheduledSample, now_ms: int, limits: LagLimits = DEFAULTS) -> WaitingLag:
    """Judge one waiting row.

    Args:
        sample: The row.
        now_ms: The moment that is judged, in Unix ms; not before the sample, or taken as that.
        limits: Thresholds: `late_ms` and `undecided_ms`.
    """
    facts: dict[str, Value] = {**asdict(sample), **asdict(limits), "now_ms": max(now_ms, sample.time_ms)}
    _add_quantities(facts)
    status = str(_STATUS(facts))
    known = _BY_NAME.get(status)
    return WaitingLag(
        figures={name: facts[name] for name in WAITING},
        status=status,
        level="UNKNOWN" if known is None else known.level.name,
        advice="Check whether the node can read its store." if known is None else known.advice,
    )
