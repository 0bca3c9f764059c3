"""Every figure of a queue's lag: what it means, its unit, and the rule that computes it.

A rule looks at the facts of `lag.rules.facts` (the newest sample's fields and what the window says), at the limits by
their names, and at quantities that stand above its own.

**Time lag** is the age of the oldest unfinished message, by one of these methods, and never extrapolated:

- `message`: its own message time was read (or nothing is unfinished: 0);
- `interpolated`: the ends of two samples enclose its offset; it came between them, which gives the bounds;
- `bounded`: it is at least as old as the lower bound, and at most as the upper one where there is one; no figure;
- `none`: nothing is known.

**Rates** are those of the last half minute (`recent_ms`). **Trends** are medians of slopes over pairs of samples that
are half the window apart (Theil's incomplete method): a single odd sample moves them little, and traffic that comes in
bursts is seen over several of them; verdicts use these. After an offset fell (a rewind, a reset, a topic made again)
only the samples since count. What expired, was skipped or was reset over is not consumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lag.rules.expression import (
    RuleExpression,
    all_of,
    any_of,
    coalesce,
    compiled_all,
    fact,
    first_of,
    highest,
    if_else,
    latest,
    surely,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One figure of a queue.

    Attributes:
        name: Its name in answers, files and columns.
        unit: `messages`, `ms`, `s`, `messages/s`, `percent`, `factor`, or what else it is.
        meaning: What it says, in a sentence.
        rule: How it is computed.
        advice: What to do about it.
        kind: Type of its values: `int`, `float`, `bool` or `str`.
    """

    name: str
    unit: str
    meaning: str
    rule: RuleExpression
    advice: str
    kind: str = "int"


def _not_below_0(value: RuleExpression) -> RuleExpression:
    return highest(value, 0)


def _age(moment: RuleExpression) -> RuleExpression:
    return _not_below_0(fact("now_ms") - moment)


_position = highest(fact("committed"), fact("start"))
"""Where the group continues: messages that retention deleted count as lost, not as lag."""
_method = fact("time_lag_method")
_caught_up = fact("lag").equals(0)
_enclosed = fact("below_ms").is_known() & fact("above_ms").is_known()
_interpolated = fact("above_ms") - (fact("above_end") - _position) * (fact("above_ms") - fact("below_ms")) / (
    fact("above_end") - fact("below_end")
)
_moved = latest(coalesce(fact("moved_ms"), fact("flat_since_ms")), fact("paused_until_ms"))
_offered = coalesce(fact("committed_ms"), fact("behind_since_ms"))
_gaining = fact("consume_rate") - fact("produce_rate")
_nearing = fact("start_slope") - fact("consume_trend")
_behind = fact("lag") > 0
_held_ms = _age(fact("held_since_ms"))

_QUANTITIES = (
    Quantity(
        name="lag",
        unit="messages",
        meaning="Messages from the committed offset to the end of the queue that are still stored; null if the "
        "group never committed or the queue could not be read.",
        rule=_not_below_0(fact("end") - _position),
        advice="Check the status: a lag that shrinks needs no action.",
    ),
    Quantity(
        name="unfinished",
        unit="messages",
        meaning="Unfinished messages of the lag: messages above the committed offset that are already finished are "
        "not counted.",
        rule=_not_below_0(fact("lag") - fact("finished")),
        advice="Far below lag, a few messages block the committed offset: check the held key.",
    ),
    Quantity(
        name="ready",
        unit="messages",
        meaning="Messages that were not delivered yet.",
        rule=_not_below_0(fact("end") - highest(fact("started"), fact("start"))),
        advice="High with few in flight: add consumers, or pull larger batches.",
    ),
    Quantity(
        name="in_flight",
        unit="messages",
        meaning="Messages in flight with clients or in actions.",
        rule=fact("in_flight"),
        advice="High without finished messages: consumers receive messages and do not answer.",
    ),
    Quantity(
        name="filtered_lag",
        unit="messages",
        meaning="The part of the lag that passes the subscription's filter, estimated; null without a filter.",
        rule=fact("lag") * fact("matched"),
        advice="Size consumers by this, not by lag.",
        kind="float",
    ),
    Quantity(
        name="time_lag_method",
        unit="name",
        meaning="How the time lag was determined: message, interpolated, bounded or none.",
        rule=first_of(
            {
                "none": fact("lag").is_null(),
                "message": any_of(_caught_up, fact("committed_ms").is_known()),
                "interpolated": _enclosed,
            },
            "bounded",
        ),
        advice="If the time lag is bounded, use the bounds instead of a value.",
        kind="str",
    ),
    Quantity(
        name="time_lag_ms",
        unit="ms",
        meaning="Age of the oldest unfinished message, 0 without any; null if only bounds are known.",
        rule=if_else(
            _method.equals("message"),
            if_else(_caught_up, 0, _age(fact("committed_ms"))),
            if_else(_method.equals("interpolated"), _age(_interpolated), None),
        ),
        advice="Compare it with the target: this is the delay of the consumers.",
        kind="float",
    ),
    Quantity(
        name="time_lag_low_ms",
        unit="ms",
        meaning="Lower bound of the time lag.",
        rule=if_else(
            _method.equals("message"),
            fact("time_lag_ms"),
            if_else(
                _method.equals("interpolated"),
                _age(fact("above_ms")),
                if_else(
                    _method.equals("bounded"),
                    latest(_age(fact("above_ms")), _age(fact("end_ms")), _age(fact("started_ms")), 0),
                    None,
                ),
            ),
        ),
        advice="Above the target, consumers are certainly late.",
        kind="float",
    ),
    Quantity(
        name="time_lag_high_ms",
        unit="ms",
        meaning="Upper bound of the time lag; null if no bound is known.",
        rule=if_else(
            _method.equals("message"),
            fact("time_lag_ms"),
            if_else(
                _method.equals("interpolated"),
                _age(fact("below_ms")),
                if_else(_method.equals("bounded"), highest(_age(fact("start_ms")), fact("time_lag_low_ms")), None),
            ),
        ),
        advice="Below the target, consumers are certainly in time.",
        kind="float",
    ),
    Quantity(
        name="queueing_ms",
        unit="ms",
        meaning="How long the next message to be delivered has waited; 0 if all are delivered.",
        rule=if_else(fact("ready").equals(0), 0, if_else(fact("ready").is_known(), _age(fact("started_ms")), None)),
        advice="Near the time lag, messages wait for consumers; far below it, consumers hold them for long.",
    ),
    Quantity(
        name="produce_rate",
        unit="messages/s",
        meaning="Messages produced to the queue, over the last half minute.",
        rule=fact("produce_recent"),
        advice="Compare it with the consume rate.",
        kind="float",
    ),
    Quantity(
        name="consume_rate",
        unit="messages/s",
        meaning="Messages that the group finished in order, over the last half minute. Expired, skipped and reset "
        "messages are not counted.",
        rule=highest(fact("consume_recent"), 0.0),
        advice="Below the produce rate for long: add consumers, or make them faster.",
        kind="float",
    ),
    Quantity(
        name="produce_trend",
        unit="messages/s",
        meaning="The produce rate over the whole window, as the median of slopes.",
        rule=fact("produce_slope"),
        advice="Compare it with the consume trend: this is what verdicts use.",
        kind="float",
    ),
    Quantity(
        name="consume_trend",
        unit="messages/s",
        meaning="The consume rate over the whole window, as the median of slopes.",
        rule=highest(fact("consume_slope"), 0.0),
        advice="Below the produce trend, consumers do not keep up: add consumers, or make them faster.",
        kind="float",
    ),
    Quantity(
        name="velocity",
        unit="messages/s",
        meaning="Produce trend minus consume trend; negative when the group catches up.",
        rule=fact("produce_trend") - fact("consume_trend"),
        advice="Positive for long: consumers will never catch up.",
        kind="float",
    ),
    Quantity(
        name="retention_ratio",
        unit="percent",
        meaning="Share of the stored messages that is lag; null for an empty queue.",
        rule=fact("lag") * 100.0 / (fact("end") - fact("start")),
        advice="Near 100, retention will soon delete messages that the group has not read: keep messages longer "
        "or speed up.",
        kind="float",
    ),
    Quantity(
        name="margin",
        unit="messages",
        meaning="Messages between the oldest stored one and the committed offset, which retention may delete "
        "without loss.",
        rule=_not_below_0(fact("committed") - fact("start")),
        advice="Compare it with the speed of retention.",
    ),
    Quantity(
        name="lost",
        unit="messages",
        meaning="Messages that retention deleted before the group finished them, since the queue was created "
        "(durable).",
        rule=if_else(fact("start").is_known(), fact("expired"), None),
        advice="These messages are lost. Keep messages longer, and check when the figure rose.",
    ),
    Quantity(
        name="lost_recently",
        unit="messages",
        meaning="Increase of lost within the window, counted from the sample before it.",
        rule=_not_below_0(fact("lost") - fact("earlier_expired")),
        advice="Stop the loss first: raise retention, or reset the group to an offset where it can keep up.",
    ),
    Quantity(
        name="catch_up_s",
        unit="s",
        meaning="Time until the group has caught up: at the present rates if they differ by more than the dead band, "
        "or else by the trends. Null if it does not shrink by consumption, or messages were lost within the window.",
        rule=if_else(
            fact("lost_recently").equals(0),
            coalesce(
                if_else(_gaining > fact("dead_band") * fact("produce_rate"), fact("lag") / _gaining, None),
                if_else(fact("velocity") < 0, fact("lag") / (fact("consume_trend") - fact("produce_trend")), None),
            ),
            None,
        ),
        advice="If that is too long, add consumers.",
        kind="float",
    ),
    Quantity(
        name="loss_eta_s",
        unit="s",
        meaning="Time until retention reaches the committed offset at present rates; null if it does not approach it.",
        rule=if_else(_nearing > 0, fact("margin") / _nearing, None),
        advice="Act before this time has passed.",
        kind="float",
    ),
    Quantity(
        name="still_ms",
        unit="ms",
        meaning="How long the committed offset has not moved although there was something to finish; 0 without lag.",
        rule=if_else(_caught_up, 0, if_else(fact("lag").is_known(), _age(latest(_moved, _offered)), None)),
        advice="Beyond the stop limit, see status: the queue is stopped, stalled or blocked.",
    ),
    Quantity(
        name="idle_ms",
        unit="ms",
        meaning="How long there was no progress and no answer of a client although there was lag; 0 without lag.",
        rule=if_else(
            _caught_up,
            0,
            if_else(fact("lag").is_known(), _age(latest(_moved, _offered, fact("answered_ms"))), None),
        ),
        advice="Check whether consumers run.",
    ),
    Quantity(
        name="client_silent_ms",
        unit="ms",
        meaning="How long no client of the group pulled, answered or held a message of the subscription; null: never.",
        rule=_age(latest(fact("asked_ms"), fact("answered_ms"))),
        advice="Beyond absent_ms the group has no consumer: start one.",
    ),
    Quantity(
        name="unanswered_ms",
        unit="ms",
        meaning="How long a client or action has held the oldest message in flight, if for a minute or more.",
        rule=_age(fact("out_since_ms")),
        advice="Check that client: its processing takes long, or it hangs.",
    ),
    Quantity(
        name="sink_waits_ms",
        unit="ms",
        meaning="How long a sink of the subscription has waited for its server; null if it does not wait.",
        rule=_age(fact("sink_since_ms")),
        advice="Check the sink's server.",
    ),
    Quantity(
        name="poisoned",
        unit="yes or no",
        meaning="Whether one message fails repeatedly: it failed poison_attempts times, or it has failed and "
        "blocked others for longer than the stop limit.",
        rule=all_of(
            _behind,
            any_of(
                fact("held_attempts") >= fact("poison_attempts"),
                all_of(
                    fact("held_attempts") >= fact("blocked_attempts"),
                    _held_ms >= fact("stop_ms"),
                    any_of(fact("waiting") > 0, fact("finished") > 0, fact("still_ms") >= fact("stop_ms")),
                ),
            ),
        ),
        advice="Check the held message and its reason.",
        kind="bool",
    ),
    Quantity(
        name="no_success_ms",
        unit="ms",
        meaning="How long no message of the subscription has succeeded; null if none did since the start of the node.",
        rule=_age(fact("succeeded_ms")),
        advice="With failing messages it means that all fail.",
    ),
    Quantity(
        name="none_succeeds",
        unit="yes or no",
        meaning="Whether several messages of the subscription fail, and none has succeeded for all_fail_ms.",
        rule=all_of(
            _behind,
            fact("failing") > 1,
            coalesce(fact("no_success_ms") >= fact("all_fail_ms"), True),
        ),
        advice="Check the reason: it is probably the same for all messages.",
        kind="bool",
    ),
    Quantity(
        name="growing",
        unit="yes or no",
        meaning="Whether the lag has only risen for growing_ms or longer, by more than the dead band. It must be above "
        "the floor and above its earlier values in the window.",
        rule=all_of(
            fact("time_ms") - fact("growing_since_ms") >= fact("growing_ms"),
            fact("grown") > fact("dead_band") * _not_below_0(fact("grown_produced")),
            fact("grown") > 0,
            fact("unfinished") > fact("floor_messages"),
            coalesce(fact("unfinished") > fact("peak_before"), True),
        ),
        advice="Add consumers, make them faster, or wait if it is a burst.",
        kind="bool",
    ),
    Quantity(
        name="rewound",
        unit="messages",
        meaning="How far the committed offset is below its peak in the window; resets by an operator are not counted.",
        rule=_not_below_0(fact("peak_committed") - fact("committed")),
        advice="Messages are redelivered: find out who set the offset.",
    ),
    Quantity(
        name="reset",
        unit="yes or no",
        meaning="Whether an operator reset the offset within the window.",
        rule=fact("reset_ms").is_known(),
        advice="No action: this explains an offset that fell or jumped.",
        kind="bool",
    ),
    Quantity(
        name="samples",
        unit="samples",
        meaning="Samples in the window that could be read.",
        rule=fact("readable"),
        advice="If few: the recording was interrupted, or has just started.",
    ),
)

QUANTITIES: Final[Mapping[str, Quantity]] = {each.name: each for each in _QUANTITIES}
"""Figures of one queue, each after those that its rule looks at."""

TOPIC_QUANTITIES: Final[Mapping[str, Quantity]] = {
    each.name: each
    for each in (
        Quantity(
            name="skew",
            unit="factor",
            meaning="Highest lag of the topic's queues divided by their mean; null if no queue has lag.",
            rule=fact("lag_max") / fact("lag_mean"),
            advice="Far above 1, one queue has most of the lag: check its keys.",
            kind="float",
        ),
        Quantity(
            name="hot",
            unit="yes or no",
            meaning="Whether the queue's lag or produce rate is much higher than in the topic's other queues: "
            "above their mean by two standard deviations, and above twice their mean. Only for topics with "
            "at least queues_min queues.",
            rule=surely(fact("lag_queues") >= fact("queues_min"))
            & any_of(
                (fact("lag") > fact("others_lag_mean") + fact("others_lag_deviation") * 2.0)
                & (fact("lag") > fact("others_lag_mean") * 2.0)
                & (fact("lag") > fact("floor_messages")),
                (fact("produce_trend") > fact("others_rate_mean") + fact("others_rate_deviation") * 2.0)
                & (fact("produce_trend") > fact("others_rate_mean") * 2.0)
                & (fact("lag") > fact("floor_messages")),
            ),
            advice="Distribute the keys: few keys have most of the messages.",
            kind="bool",
        ),
    )
}
"""Figures that need the other queues of the topic at the same moment."""

ALL: Final[Mapping[str, Quantity]] = {**QUANTITIES, **TOPIC_QUANTITIES}

add_quantities: Final = compiled_all({name: each.rule for name, each in QUANTITIES.items()})
add_topic_quantities: Final = compiled_all({name: each.rule for name, each in TOPIC_QUANTITIES.items()})
