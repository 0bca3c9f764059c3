"""Why a queue is in trouble: one cause with its evidence and one advice, or none where none fits.

A cause is looked for where the status is none of OK, CATCHING_UP, UNKNOWN and INCOMPLETE. The first that fits is taken;
causes that need action come before those that only describe the traffic.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter
from typing import Final

from lag.rules.expression import (
    Facts,
    RuleExpression,
    Value,
    all_of,
    any_of,
    coalesce,
    compiled,
    fact,
    first_of,
    if_else,
    surely,
)
from lag.spans import span


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
    rule: RuleExpression
    evidence: str
    advice: str


_status = fact("status")
_behind = fact("lag") > 0
_flat = fact("still_ms") >= fact("stop_ms")
_present = any_of(fact("holders") > 0, fact("in_flight") > 0, fact("client_silent_ms") < fact("absent_ms"))
_slower = any_of(
    fact("velocity") > 0,
    coalesce(fact("time_lag_ms"), fact("time_lag_low_ms")) > fact("target_ms"),
    fact("growing"),
    _flat,
)

CAUSES: Final = (
    Cause(
        name="topic_deleted",
        meaning="The topic was deleted or emptied before the group had finished its messages.",
        rule=all_of(fact("lost_recently") > 0, fact("base") > fact("earlier_committed")),
        evidence="the topic now begins at offset {base}; {lost_recently} messages were deleted unfinished",
        advice="Send the messages again if they are needed. The audit trail says who deleted the topic.",
    ),
    Cause(
        name="paused",
        meaning="An operator has disabled the group or subscription.",
        rule=surely(fact("paused")),
        evidence="paused by an operator, with a lag of {lag}",
        advice="Resume it when the reason for the pause is resolved.",
    ),
    Cause(
        name="rewind",
        meaning="The committed offset was set back, and no reset was recorded.",
        rule=fact("rewound") > 0,
        evidence="the committed offset fell from {peak_committed} to {committed}, without a recorded reset; {lag} "
        "messages are behind",
        advice="Find out who set the offset; the messages are redelivered.",
    ),
    Cause(
        name="sink_waits",
        meaning="A sink waits for its server.",
        rule=all_of(_behind, fact("sink_waits_ms").is_known()),
        evidence="a sink has waited {sink_waits_ms} for {sink_server}; last failure: {sink_reason}; {lag} messages "
        "are behind",
        advice="Repair that server; then the sink continues without a restart.",
    ),
    Cause(
        name="push_target_failing",
        meaning="The target of a push action fails or does not respond.",
        rule=all_of(
            fact("pushing"),
            _behind,
            any_of(fact("none_succeeds"), _flat & any_of(fact("retrying") > 1, fact("idle_ms") >= fact("stop_ms"))),
        ),
        evidence="{retrying} messages wait for another attempt, {in_flight} are in flight, and no progress for "
        "{still_ms}; last failure: {held_reason}",
        advice="Repair the target of the push action; then the messages continue.",
    ),
    Cause(
        name="all_fail",
        meaning="Every message of the subscription fails.",
        rule=all_of(fact("none_succeeds")),
        evidence="{failing} messages have failed, and none has succeeded for {no_success_ms}; last failure: "
        "{held_reason}",
        advice="Fix the cause in the reason. Skipping messages does not help: the next ones fail too.",
    ),
    Cause(
        name="poison_message",
        meaning="One message fails repeatedly, while others succeed.",
        rule=all_of(fact("poisoned")),
        evidence="offset {held_offset} was tried {held_attempts} times, {waiting} messages wait and {finished} "
        "above it are finished; last failure: {held_reason}",
        advice="Skip or dead-letter that message, or fix the cause of its failure.",
    ),
    Cause(
        name="unanswered",
        meaning="A client or action has held one message for longer than the stop limit, and blocks the messages "
        "behind it.",
        rule=all_of(_behind, _flat, fact("unanswered_ms") >= fact("stop_ms")),
        evidence="offset {out_offset} has been in flight with {out_client} for {unanswered_ms} without an answer; "
        "{lag} messages are behind",
        advice="Check that client: stop it if it hangs, or lower its timeout.",
    ),
    Cause(
        name="no_consumer",
        meaning="No client of the group has pulled, answered or held a message recently.",
        rule=all_of(
            ~fact("pushing"),
            any_of(_behind, fact("committed").is_null()),
            fact("holders").equals(0),
            fact("in_flight").equals(0),
            coalesce(fact("client_silent_ms") >= fact("absent_ms"), True),
        ),
        evidence="no client of the group has pulled, answered or held a message for {client_silent_ms}; "
        "{lag} messages are behind",
        advice="Start the group's consumers, or check why they do not pull.",
    ),
    # Behind what is out of order besides: a reset says where a lag comes from, and none of these goes by itself.
    Cause(
        name="operator_reset",
        meaning="An operator has just reset the offset; the messages behind it are being consumed.",
        rule=all_of(fact("reset"), _behind),
        evidence="an operator reset the offset {reset_ago_s} s ago, when it was {committed_before}; it is {committed} "
        "now, and {lag} messages are behind",
        advice="No problem: wait, or add consumers temporarily. The audit trail shows who reset it.",
    ),
    Cause(
        name="rate_limit",
        meaning="A rate limit delays messages.",
        rule=all_of(fact("limited"), _behind),
        evidence="a rate limit delayed messages; produced {produce_rate}/s, consumed {consume_rate}/s",
        advice="Raise the group's rate limit, if the consumers can process more.",
    ),
    Cause(
        name="hot_queue",
        meaning="This queue receives far more messages than the topic's other queues.",
        rule=all_of(fact("hot")),
        evidence="lag {lag} against a mean of {others_lag_mean} of the other queues; produced {produce_rate}/s against "
        "{others_rate_mean}/s",
        advice="Spread the keys over more queues.",
    ),
    Cause(
        name="producer_surge",
        meaning="The produce rate has risen sharply.",
        rule=all_of(
            _behind,
            fact("produce_second") > fact("produce_first") * fact("surge"),
            fact("produce_second") > fact("consume_second"),
            fact("consume_second") >= fact("consume_first") * (fact("produce_first") / fact("produce_second")),
        ),
        evidence="produced {produce_second}/s in the window's second half after {produce_first}/s in its first; "
        "consumed {consume_second}/s",
        advice="Wait if it is a burst; add consumers if it continues.",
    ),
    Cause(
        name="slow_consumer",
        meaning="Consumers are active, but finish less than is produced, or less than is due.",
        rule=all_of(_behind, _present, _slower),
        evidence="clients: {holders}, messages in flight: {in_flight}, last client activity {client_silent_ms} ago; "
        "produced {produce_rate}/s, consumed {consume_rate}/s",
        advice="Make the consumers faster, or add consumers.",
    ),
)
"""The first that fits is the cause."""
_NAMED: Final = {
    each.name: sorted({name for _, name, _, _ in Formatter().parse(each.evidence) if name is not None})
    for each in CAUSES
}
EVIDENCE: Final = tuple(sorted(frozenset().union(*_NAMED.values())))
"""Facts and quantities that sentences of evidence name."""

BY_NAME: Final = {each.name: each for each in CAUSES}

RULE: Final = if_else(
    any_of(*(_status.equals(name) for name in ("OK", "CATCHING_UP", "UNKNOWN", "INCOMPLETE"))),
    None,
    first_of({each.name: each.rule for each in CAUSES}, None),
)
COMPILED: Final = compiled(RULE)


def evidence(cause: str, facts: Facts) -> str:
    """Return the figures that speak for a cause, as a sentence; a value that is not known reads `unknown`.

    Args:
        cause: Name of the cause.
        facts: Facts and quantities by name.

    Raises:
        KeyError: There is no such cause, or a fact that its sentence names was not given.
    """
    shown = {name: _shown(name, facts[name]) for name in _NAMED[cause]}
    if cause == "no_consumer" and facts["client_silent_ms"] is None:
        shown["client_silent_ms"] = "as long as is known"
    return BY_NAME[cause].evidence.format_map(shown)


def _shown(name: str, value: Value) -> str | int:
    """Return a value as the sentences have it; what ends with `_ms` is a duration in them."""
    if value is None:
        return "an unknown time" if name.endswith("_ms") else "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float) and name.endswith("_ms"):
        return span(value / 1000)
    return f"{value:.1f}" if isinstance(value, float) else value
