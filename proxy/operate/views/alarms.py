"""Alarms about consumption lag (docs/lag-alarms.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker.views import View


class LagAlarm(View, frozen=True, kw_only=True):
    """One open alarm.

    Attributes:
        id: Its id, the same wherever it is told.
        group: The group.
        status: The status that is its reason.
        severity: `critical`, `warning` or `unknown`.
        since_ms: Since when the status holds.
        opened_ms: When it became an alarm.
        gone_ms: Since when the status is gone; null: it holds.
        muted: Whether the group is muted now.
        told: How often it was told.
        queues: Queues of the group that have the status.
        topic: Topic of the one with the largest lag.
        queue: Its number.
        lag: Its lag; null: not known.
        time_lag_ms: It is behind by at least so much; null: not known.
        cause: Its cause; null: none fits.
        evidence: The figures that speak for that.
        advice: What to do.
        alarm_group: Whom it is for.
    """

    id: str
    group: str
    status: str
    severity: str
    since_ms: int
    opened_ms: int
    gone_ms: int | None
    muted: bool
    told: int
    queues: int
    topic: str
    queue: int
    lag: int | None
    time_lag_ms: int | None
    cause: str | None
    evidence: str
    advice: str
    alarm_group: Sequence[str]


class LagMute(View, frozen=True, kw_only=True):
    """A group whose alarms are not told.

    Attributes:
        group: The group.
        until_ms: Up to when.
        reason: Why.
        configured: Whether the configuration says so.
    """

    group: str
    until_ms: int
    reason: str
    configured: bool


class LagAlarmsAnswer(View, frozen=True, kw_only=True):
    """What is open, and what keeps it from being told.

    Attributes:
        now_ms: Now, by the node's wall clock.
        rules: How many rules there are; without one there are no alarms.
        alarms: The longest open first.
        mutes: By group.
        waiting: Tellings that a place has not taken yet.
        dropped: Tellings that were given up, of all time, since too many waited.
        troubles: By place, why its last try failed.
    """

    now_ms: int
    rules: int
    alarms: Sequence[LagAlarm]
    mutes: Sequence[LagMute]
    waiting: int
    dropped: int
    troubles: Mapping[str, str]


class MuteResult(View, frozen=True, kw_only=True):
    """What became of a mute.

    Attributes:
        group: The group.
        until_ms: Up to when its alarms are not told; null: they are.
    """

    group: str
    until_ms: int | None
