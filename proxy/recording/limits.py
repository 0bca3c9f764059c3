"""What the configuration of a group says about its lag: thresholds, whether it alarms, and whom."""

from __future__ import annotations

from conf import GroupConfig, SubscriptionConfig
from lag.rules.limits import Limits


def limits_of_config(config: GroupConfig | None, topic: str) -> Limits:
    """Return the limits of a group on a topic: `delayTimeThreshold`, `committedLagThreshold`, and the rules' own."""
    usual, found = Limits(), _subscription(config, topic)
    if found is None:
        return usual
    target_ms, messages = found.delay_time_threshold, found.committed_lag_threshold
    return Limits(
        target_ms=target_ms,
        target_messages=usual.target_messages if messages < 0 else messages,
        floor_ms=min(usual.floor_ms, target_ms),
    )


def is_alarmed(config: GroupConfig | None, topic: str) -> bool:
    """Whether a group wants alarms about a topic (`enableAlarm` of both)."""
    found = _subscription(config, topic)
    return (config is None or config.enable_alarm) and (found is None or found.enable_alarm)


def recipients_of(config: GroupConfig | None) -> tuple[str, ...]:
    """Return whom its alarms are for (`alarmGroup`)."""
    return () if config is None else tuple(config.alarm_group or ())


def _subscription(config: GroupConfig | None, topic: str) -> SubscriptionConfig | None:
    return None if config is None else next((each for each in config.topics if each.topic == topic), None)
