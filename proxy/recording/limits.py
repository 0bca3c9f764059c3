"""What the configuration says about lag: thresholds, whether a group alarms, and who receives that."""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from typing import Any

from conf import Config, GroupConfig, LagConfig, SubscriptionConfig
from lag.rules.limits import NO_LIMIT, LagLimits, for_samples, values_of


def limits_of_config(config: GroupConfig | None, topic: str, lag: LagConfig | None = None) -> LagLimits:
    """Return the limits of a group on a topic.

    A subscription goes before its group, both before `lagRules` of the group, and these before `lag.rules` of the node.
    Where nothing is said of them, `stale` and `window` are long enough for samples that come seldom (`lag.every`).

    Args:
        config: The group; None: it is not configured.
        topic: The topic.
        lag: The section of the node.
    """
    given: dict[str, Any] = {} if lag is None else values_of(lag.rules.given)
    if config is not None:
        given |= values_of(config.lag_rules.given)
    for section in (config, _subscription(config, topic)):
        if section is not None and "delay_time_threshold" in section.model_fields_set:
            given["target_ms"] = section.delay_time_threshold
        if section is not None and "committed_lag_threshold" in section.model_fields_set:
            messages = section.committed_lag_threshold
            given["target_messages"] = NO_LIMIT if messages < 0 else messages
    return _limits(tuple(given.items()), 0 if lag is None else lag.every_ms)


@lru_cache(maxsize=1024)
def _limits(given: tuple[tuple[str, Any], ...], every_ms: int) -> LagLimits:
    """Return the limits of all groups that have these values."""
    values = asdict(for_samples(LagLimits(), every_ms)) | dict(given)
    # These may come from different sections.
    values["window_ms"] = max(values["window_ms"], values["stop_ms"])
    values["floor_ms"] = min(values["floor_ms"], values["target_ms"])
    return LagLimits(**values)


def window_ms_of(config: Config) -> int:
    """Return how far back the rules of any group look."""
    own = (group for group in config.groups.values() if group.lag_rules.model_fields_set)
    return max(limits_of_config(group, "", config.lag).window_ms for group in (None, *own))


def is_alarmed(config: GroupConfig | None, topic: str) -> bool:
    """Whether a group wants alarms about a topic (`enableAlarm` of both)."""
    found = _subscription(config, topic)
    return (config is None or config.enable_alarm) and (found is None or found.enable_alarm)


def recipients_of(config: GroupConfig | None) -> tuple[str, ...]:
    """Return the names for routing that its alarms carry (`alarmGroup`)."""
    return () if config is None else tuple(config.alarm_group or ())


def _subscription(config: GroupConfig | None, topic: str) -> SubscriptionConfig | None:
    return None if config is None else config.by_topic.get(topic)
