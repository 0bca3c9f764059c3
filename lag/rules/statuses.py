"""The statuses of a queue, worst first: when each holds, what it means, what to do.

The first whose condition holds is the status. None is taken for granted: OK too has a condition, which needs everything
known that it looks at, and what fits nothing is UNKNOWN. Over queues, topics and groups the worst wins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from lag.rules.expression import RuleExpression, all_of, any_of, coalesce, compiled, fact, first_of, highest, surely


class Level(IntEnum):
    """How bad a group is; the number is the exit code of a check."""

    OK = 0
    WARN = 1
    ERR = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LagStatus:
    """One status.

    Attributes:
        name: Its name.
        level: What it makes of its group.
        meaning: What it says, in a sentence.
        rule: When it holds, if no worse one does.
        advice: What to do.
    """

    name: str
    level: Level
    meaning: str
    rule: RuleExpression
    advice: str


_awake = ~fact("paused")
_fresh = fact("now_ms") - fact("time_ms") <= fact("stale_ms")
_complete = fact("samples") >= fact("samples_min")
_band = fact("dead_band") * highest(fact("produce_trend"), 0)
_rising = (fact("velocity") > _band) & (fact("least_unfinished") > fact("floor_messages"))
_falling = fact("velocity") + _band < 0
_late = any_of(
    coalesce(fact("time_lag_ms"), fact("time_lag_low_ms")) > fact("target_ms"),
    fact("unfinished") > fact("target_messages"),
)
_in_time = all_of(
    coalesce(fact("time_lag_ms"), fact("time_lag_high_ms")) <= fact("target_ms"),
    coalesce(fact("unfinished") <= fact("target_messages"), True),
)
_calm = any_of(fact("unfinished") <= fact("floor_messages"), fact("time_lag_high_ms") <= fact("floor_ms"))
_stands = fact("still_ms") >= fact("stop_ms")
_never_read = all_of(
    fact("asked_ms").is_null() & fact("answered_ms").is_null() & fact("moved_ms").is_null(),
    coalesce(fact("committed") <= fact("start"), True),
    fact("in_flight").equals(0),
)
_moves = any_of(
    fact("lag").equals(0),
    fact("in_flight") > 0,
    fact("time_lag_high_ms") < fact("stop_ms"),
    fact("now_ms") - fact("moved_ms") < fact("stop_ms"),
    fact("now_ms") - fact("answered_ms") < fact("stop_ms"),
    fact("now_ms") - fact("paused_until_ms") < fact("stop_ms"),
)

STATUSES: Final = (
    LagStatus(
        name="DATA_LOSS",
        level=Level.ERR,
        meaning="Unfinished messages of the group were deleted within the window: by retention, or with their topic.",
        rule=fact("lost_recently") > 0,
        advice="If retention deleted them: keep messages longer, or make consumers faster. Lost messages can only "
        "be produced again.",
    ),
    LagStatus(
        name="AHEAD",
        level=Level.ERR,
        meaning="The committed offset is above the end of the queue: the topic was created again, or the offset "
        "belongs to another store.",
        rule=fact("committed") > fact("end"),
        advice="Reset the group's offset on this topic; until then it receives no messages.",
    ),
    LagStatus(
        name="REWIND",
        level=Level.ERR,
        meaning="The committed offset fell and has not recovered, and no operator reset it.",
        rule=fact("rewound") > 0,
        advice="Find out who sets the offset; messages are redelivered.",
    ),
    LagStatus(
        name="BLOCKED",
        level=Level.ERR,
        meaning="A message fails repeatedly.",
        rule=all_of(_awake, _fresh, fact("poisoned")),
        advice="Check the held message and its reason: fix the cause, or skip or dead-letter the message.",
    ),
    LagStatus(
        name="STOP",
        level=Level.ERR,
        meaning="There is lag, no message is in flight, and for longer than the stop limit there was no progress "
        "and no answer of a client.",
        rule=all_of(
            _awake,
            _fresh,
            ~_never_read,
            fact("lag") > 0,
            fact("in_flight").equals(0),
            fact("idle_ms") >= fact("stop_ms"),
        ),
        advice="Start the consumers, or check why they do not pull.",
    ),
    LagStatus(
        name="NOT_CONSUMED",
        level=Level.ERR,
        meaning="There are messages, the group is subscribed, and no client has ever read one of them.",
        rule=all_of(
            _awake,
            _never_read,
            _fresh,
            _complete,
            fact("end") > fact("start"),
            fact("now_ms") - coalesce(fact("start_ms"), fact("behind_since_ms")) >= fact("stop_ms"),
            coalesce(fact("now_ms") - fact("paused_until_ms") >= fact("stop_ms"), True),
        ),
        advice="Start a consumer of the group, or remove the subscription.",
    ),
    LagStatus(
        name="STALL",
        level=Level.ERR,
        meaning="Clients answer, but the committed offset has not moved for longer than the stop limit.",
        rule=all_of(
            _awake,
            _fresh,
            fact("lag") > 0,
            _stands,
            fact("now_ms") - fact("answered_ms") < fact("stop_ms"),
        ),
        advice="Check the failures of the consumers: their messages do not succeed.",
    ),
    LagStatus(
        name="UNKNOWN",
        level=Level.UNKNOWN,
        meaning="The queue could not be read, the newest sample is too old, or a figure needed for the judgement "
        "is unknown.",
        rule=any_of(fact("start").is_null(), fact("end").is_null(), ~surely(_fresh)),
        advice="Check whether the node runs, records and can read the queue.",
    ),
    LagStatus(
        name="RETENTION_RISK",
        level=Level.WARN,
        meaning="Retention will soon delete messages that the group has not finished.",
        rule=any_of(
            (fact("retention_ratio") >= fact("retention_percent"))
            & (fact("start") > 0)
            & (fact("lag") > fact("floor_messages")),
            (fact("loss_eta_s") < fact("loss_eta_limit_s")) & (fact("lag") > fact("floor_messages")),
        ),
        advice="Keep messages longer, or add consumers, before messages are lost.",
    ),
    LagStatus(
        name="WARN",
        level=Level.WARN,
        meaning="The lag is above the floor and has risen for a minute or over the window. Or it is above the target "
        "and does not fall.",
        rule=all_of(
            _awake,
            _complete,
            fact("lag").is_known(),
            ~_calm,
            any_of(_rising, fact("growing"), _late & ~_falling),
        ),
        advice="Check the cause: add consumers, make them faster, or slow down the producer.",
    ),
    LagStatus(
        name="NO_OFFSET",
        level=Level.WARN,
        meaning="The group has not committed an offset on this queue yet.",
        rule=fact("committed").is_null(),
        advice="No action if it has just started; otherwise check whether its consumers finish messages.",
    ),
    LagStatus(
        name="INCOMPLETE",
        level=Level.UNKNOWN,
        meaning="The window has too few samples for a judgement, or is too short for it.",
        rule=any_of(
            ~surely(_complete) & ~surely(fact("paused")),
            ~_moves & fact("moved_ms").is_null() & fact("lag").is_known() & ~surely(fact("paused")),
            ~_calm & fact("velocity").is_null() & fact("lag").is_known() & ~surely(fact("paused")),
        ),
        advice="Wait until more is recorded.",
    ),
    LagStatus(
        name="CATCHING_UP",
        level=Level.OK,
        meaning="The lag is above the target, and shrinks; catch_up_s is the time that it will take.",
        rule=all_of(_awake, ~_calm, _late, _falling),
        advice="Wait, or add consumers if catch_up_s is too long.",
    ),
    LagStatus(
        name="PAUSED",
        level=Level.OK,
        meaning="An operator has disabled the group or the subscription.",
        rule=surely(fact("paused")),
        advice="Resume it when the reason for the pause is resolved.",
    ),
    LagStatus(
        name="OK",
        level=Level.OK,
        meaning="There is no significant lag, or it is within the target and does not rise.",
        rule=all_of(
            _awake,
            _fresh,
            _complete,
            fact("lag").is_known() & fact("unfinished").is_known(),
            _moves,
            any_of(_calm, _in_time & ~_rising & ~fact("growing")),
        ),
        advice="Nothing.",
    ),
)
"""Worst first."""

BY_NAME: Final = {each.name: each for each in STATUSES}
SEVERITY: Final = {each.name: len(STATUSES) - place for place, each in enumerate(STATUSES)}
"""How bad each is, from 1 on; the worst has the highest."""

RULE: Final = first_of({each.name: each.rule for each in STATUSES}, "UNKNOWN")
COMPILED: Final = compiled(RULE)


def worst(statuses: Iterable[str]) -> str:
    """Return the worst of statuses; of none at all UNKNOWN, since nothing is known of them.

    Raises:
        KeyError: One is no status.
    """
    return max(statuses, key=SEVERITY.__getitem__, default="UNKNOWN")


def level(statuses: Iterable[str]) -> Level:
    """Return what a group of such queues is."""
    return BY_NAME[worst(statuses)].level
