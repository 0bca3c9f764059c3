"""Why a queue is in trouble: one cause with its evidence and one advice, or none where none fits.

A cause is looked for where the status is none of OK, CATCHING_UP, UNKNOWN and INCOMPLETE. The first that fits is taken;
what one must do something about stands before what only describes the traffic.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter
from typing import Final

from lag.rules.expression import Expression, Facts, all_of, any_of, compiled, fact, first_of, if_else, surely


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One cause.

    Attributes:
        name: Its name.
        meaning: What it says, in a sentence.
        rule: When it fits.
        evidence: The figures that speak for it, as a sentence with facts and quantities by name.
        advice: What to do.
    """

    name: str
    meaning: str
    rule: Expression
    evidence: str
    advice: str


_status = fact("status")
_behind = fact("lag") > 0
_flat = fact("still_ms") >= fact("stop_ms")
_present = any_of(fact("holders") > 0, fact("in_flight") > 0)
_slower = any_of(fact("velocity") > 0, fact("time_lag_low_ms") > fact("target_ms"), _flat)

CAUSES: Final = (
    Cause(
        name="paused",
        meaning="An operator has disabled the group or subscription.",
        rule=surely(fact("paused")),
        evidence="paused by an operator, with a lag of {lag}",
        advice="Resume it when the reason for the pause is gone.",
    ),
    Cause(
        name="rewind",
        meaning="The committed offset was set back, and not by a reset that was noted.",
        rule=fact("rewound") > 0,
        evidence="the committed offset fell from {peak_committed} to {committed}, by no reset that was noted; {lag} "
        "messages are behind",
        advice="Find out who set the offset; the messages come again.",
    ),
    Cause(
        name="push_target_failing",
        meaning="The target of a push action fails or does not answer.",
        rule=all_of(
            fact("pushing"),
            _behind,
            _flat,
            any_of(fact("retrying") > 1, fact("idle_ms") >= fact("stop_ms")),
        ),
        evidence="{retrying} messages wait for another attempt, {in_flight} are out, and nothing moved for "
        "{still_ms} ms; last failure: {held_reason}",
        advice="Mend the target of the push action; messages go on by themselves then.",
    ),
    Cause(
        name="poison_message",
        meaning="One message fails again and again and holds up what comes behind it.",
        rule=all_of(
            _behind,
            fact("held_attempts") >= fact("blocked_attempts"),
            any_of(fact("waiting") > 0, fact("finished") > 0, _flat),
        ),
        evidence="offset {held_offset} was tried {held_attempts} times, {waiting} messages wait and {finished} above "
        "it are finished; last failure: {held_reason}",
        advice="Skip or dead-letter that message, or mend what it needs.",
    ),
    Cause(
        name="no_consumer",
        meaning="No client holds a message or pulls.",
        rule=all_of(
            ~fact("pushing"),
            any_of(_behind, fact("committed").is_null()),
            fact("holders").equals(0),
            fact("in_flight").equals(0),
        ),
        evidence="no client holds a message or pulls; {lag} messages are behind",
        advice="Start the group's consumers, or look why they do not pull.",
    ),
    # Behind what is out of order besides: a reset says where a lag comes from, and none of these goes by itself.
    Cause(
        name="operator_reset",
        meaning="An operator has just reset the offset, on purpose: what lies behind it is worked off.",
        rule=all_of(fact("reset"), _behind),
        evidence="an operator reset the offset {reset_ago_s} s ago, when it was {committed_before}; it is {committed} "
        "now, and {lag} messages are behind",
        advice="Nothing is broken: wait, or add consumers for as long as it lasts. The audit trail says who did it.",
    ),
    Cause(
        name="rate_limit",
        meaning="A rate limit holds messages back.",
        rule=all_of(fact("limited"), _behind),
        evidence="a rate limit held messages back; produced {produce_rate}/s, consumed {consume_rate}/s",
        advice="Raise the group's rate limit, if the consumers can take more.",
    ),
    Cause(
        name="hot_queue",
        meaning="This queue gets far more than the topic's other queues.",
        rule=all_of(fact("hot")),
        evidence="lag {lag} against a mean of {others_lag_mean} of the other queues; produced {produce_rate}/s against "
        "{others_rate_mean}/s",
        advice="Spread the keys over more queues.",
    ),
    Cause(
        name="producer_surge",
        meaning="Far more is produced than a moment ago.",
        rule=all_of(
            _behind,
            fact("produce_second") > fact("produce_first") * fact("surge"),
            fact("produce_second") > fact("consume_second"),
            fact("consume_second") >= fact("consume_first") * (fact("produce_first") / fact("produce_second")),
        ),
        evidence="produced {produce_second}/s in the window's second half after {produce_first}/s in its first; "
        "consumed {consume_second}/s",
        advice="Wait if it is a burst; add consumers if it stays.",
    ),
    Cause(
        name="slow_consumer",
        meaning="Consumers are there, and finish less than comes, or less than is due.",
        rule=all_of(_behind, _present, _slower),
        evidence="clients: {holders}, messages out: {in_flight}; produced {produce_rate}/s, consumed {consume_rate}/s",
        advice="Make the consumers faster, or add some.",
    ),
)
"""The first that fits is the cause."""
EVIDENCE: Final = tuple(
    sorted({name for each in CAUSES for _, name, _, _ in Formatter().parse(each.evidence) if name is not None})
)
"""Facts and quantities that sentences of evidence name."""

BY_NAME: Final = {each.name: each for each in CAUSES}

RULE: Final = if_else(
    any_of(*(_status.equals(name) for name in ("OK", "CATCHING_UP", "UNKNOWN", "INCOMPLETE"))),
    None,
    first_of({each.name: each.rule for each in CAUSES}, None),
)
COMPILED: Final = compiled(RULE)


def evidence(cause: str, facts: Facts) -> str:
    """Return the figures that speak for a cause, as a sentence; what is not known reads `unknown`.

    Args:
        cause: Name of the cause.
        facts: Facts and quantities by name.

    Raises:
        KeyError: There is no such cause, or a fact that its sentence names was not given.
    """
    known = {
        name: "unknown"
        if value is None
        else ("yes" if value else "no")
        if isinstance(value, bool)
        else f"{value:.1f}"
        if isinstance(value, float)
        else value
        for name, value in facts.items()
    }
    return BY_NAME[cause].evidence.format_map(known)
