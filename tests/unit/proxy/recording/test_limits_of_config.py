"""DDMQ's thresholds of a subscription are limits of the lag rules."""

from __future__ import annotations

from conf import GroupConfig
from lag.rules.limits import NO_LIMIT, Limits
from proxy.recording.limits import limits_of_config


def test_thresholds_of_a_subscription_are_its_limits() -> None:
    """`delayTimeThreshold` in ms and `committedLagThreshold` in messages; -1 sets no limit."""
    group = GroupConfig.model_validate(
        {
            "group": "g",
            "topics": [
                {"topic": "a", "delayTimeThreshold": 500, "committedLagThreshold": 70},
                {"topic": "b", "committedLagThreshold": -1},
            ],
        }
    )
    assert limits_of_config(group, "a") == Limits(target_ms=500, target_messages=70, floor_ms=500)
    assert limits_of_config(group, "b").target_messages == NO_LIMIT
    assert limits_of_config(group, "other") == limits_of_config(None, "a") == Limits()
