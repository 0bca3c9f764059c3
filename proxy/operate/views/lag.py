"""Consumption lag: what the rules say of each queue of each group (docs/lag.md)."""

from __future__ import annotations

from collections.abc import Sequence

from broker.views import View
from proxy.operate.views.findings import Finding
from proxy.operate.views.lag_history import LagTrend


class LagQueue(View, frozen=True, kw_only=True):
    """One queue of one group, judged. `pyddmq lag explain NAME` explains statuses, causes and figures.

    Attributes:
        group: The group.
        topic: The topic.
        queue: Number of the queue.
        time_ms: When its newest sample was read.
        status: What the rules say of it.
        level: `OK`, `WARN`, `ERR` or `UNKNOWN`: what that makes of the group.
        cause: Why, where one fits; null: none does.
        evidence: The figures that speak for the cause; "" without one.
        advice: What to do.
        lag: Messages from the committed offset to the end; null, like all later fields, means unknown.
        unfinished: What of that is really left.
        filtered_lag: What of the lag the subscription's filter takes.
        in_flight: Messages that are out.
        time_lag_ms: Age of the oldest unfinished message.
        time_lag_low_ms: Its lower bound.
        time_lag_high_ms: Its upper bound.
        time_lag_method: `message`, `interpolated`, `bounded` or `none`.
        produce_rate: Messages per second that come.
        consume_rate: Messages per second that are finished.
        velocity: Messages per second by which the lag rises.
        catch_up_s: Seconds until it is caught up at these rates.
        retention_ratio: Part of the kept messages that is lag, in percent.
        loss_eta_s: Seconds until retention takes what is not finished, at these rates.
        lost: Messages that retention took unfinished, of all time.
        committed: The committed offset.
        end: End of the queue.
        held_key: Order key whose first message holds others up, or has failed, for longest.
        held_offset: Offset of that message.
        samples: Samples in the window.
    """

    group: str
    topic: str
    queue: int
    time_ms: int
    status: str
    level: str
    cause: str | None
    evidence: str
    advice: str
    lag: int | None
    unfinished: int | None
    filtered_lag: int | None
    in_flight: int | None
    time_lag_ms: int | None
    time_lag_low_ms: int | None
    time_lag_high_ms: int | None
    time_lag_method: str
    produce_rate: float | None
    consume_rate: float | None
    velocity: float | None
    catch_up_s: float | None
    retention_ratio: float | None
    loss_eta_s: float | None
    lost: int | None
    committed: int | None
    end: int | None
    held_key: str | None
    held_offset: int | None
    samples: int | None


class LagGroup(View, frozen=True, kw_only=True):
    """A group over all its queues.

    Attributes:
        group: The group.
        status: The worst lag status of its queues and findings.
        level: The worst level of its queues and findings.
        finding: Kind of its worst finding; null: it has none.
        queues: Queues that were judged, whether they are listed or not.
        queues_unknown: Those of them whose lag is not known, so that the sums are without them.
        lag: Sum over the queues in which it is known; null: in none.
        unfinished: Likewise.
        time_lag_ms: The largest that is known; null: none is.
    """

    group: str
    status: str
    level: str
    finding: str | None
    queues: int
    queues_unknown: int
    lag: int | None
    unfinished: int | None
    time_lag_ms: int | None


class LagWaiting(View, frozen=True, kw_only=True):
    """Messages of one kind that wait in the node for their own time, judged (`lag.rules.waiting_rules`).

    Attributes:
        kind: `timer`, `delay` (one for each delay level) or `half`.
        topic: The topic; "" over all topics; `<cluster>:<waiting topic>` of what this node delivers on Kafka.
        delay_level: The delay level; 0 of other kinds.
        status: IN_TIME, LATE, UNDECIDED or UNKNOWN.
        level: `OK`, `WARN`, `ERR` or `UNKNOWN`.
        advice: What to do.
        scheduled: Messages whose moment has not come; of halves those for which no check is due.
        overdue: Messages whose moment has passed; of halves those for which a check is due.
        lateness_ms: How long the earliest overdue message has been due; null: not known, or halves.
        undecided_since_ms: When the oldest undecided transaction was sent; null without any, or if unknown.
        undecided_for_ms: How long that is.
    """

    kind: str
    topic: str
    delay_level: int
    status: str
    level: str
    advice: str
    scheduled: int | None
    overdue: int | None
    lateness_ms: int | None
    undecided_since_ms: int | None
    undecided_for_ms: int | None


class LagAnswer(View, frozen=True, kw_only=True):
    """Lag of groups, and its verdict.

    Attributes:
        now_ms: Now, by the node's wall clock.
        enabled: Whether the node samples at all (`lag.enabled`).
        every_ms: How far apart samples are.
        trouble: Why the last ones are not in the lag journal; null: they are.
        level: The worst of the groups' and of the node's own findings; UNKNOWN where none is ERR and something is not
            known. For one group: its own, and the worst of the node's findings that stop every group.
        findings: What that is made of, the bad first, as in `/api/attention`.
        groups: By name.
        queues_total: Number of judged queues; `queues` has fewer where `limit` was lower.
        queues_empty: Queues that were never written to; they are neither judged nor listed.
        queues: The worst first, then by group, topic and number.
        waiting: What waits in the node for its own time; empty for one group, and where nothing waits.
        trend: How lag went before; null: it was not asked for.
    """

    now_ms: int
    enabled: bool
    every_ms: int
    trouble: str | None
    level: str
    findings: Sequence[Finding]
    groups: Sequence[LagGroup]
    queues_total: int
    queues_empty: int
    queues: Sequence[LagQueue]
    waiting: Sequence[LagWaiting] = ()
    trend: LagTrend | None = None
