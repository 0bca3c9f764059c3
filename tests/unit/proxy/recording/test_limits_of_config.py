"""DDMQ's thresholds of a subscription are limits of the lag rules."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from conf import Config, GroupConfig, LagConfig, LagRules, SubscriptionConfig
from conf.durations import duration_ms
from lag.rules.limits import NAMES, NO_LIMIT, LagLimits, limits_from, values_of
from proxy.cli.lag.lag_objective_command import slo
from proxy.cli.lag.lag_report_command import report_lag
from proxy.recording.limits import limits_of_config, window_ms_of


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
    assert limits_of_config(group, "a") == LagLimits(target_ms=500, target_messages=70, floor_ms=500)
    assert limits_of_config(group, "b").target_messages == NO_LIMIT
    assert limits_of_config(group, "other") == limits_of_config(None, "a") == LagLimits()


def test_copy_of_a_group_has_the_limits_of_its_own_topics() -> None:
    """Also where those of the first were looked up before: the table of its subscriptions is not the copy's."""
    group = GroupConfig.model_validate({"group": "g", "topics": [{"topic": "a", "committedLagThreshold": 70}]})
    assert group.by_topic is group.by_topic
    changed = group.topics[0].model_copy(update={"committed_lag_threshold": 80})
    copy = group.model_copy(update={"topics": [changed]})
    assert (limits_of_config(group, "a").target_messages, limits_of_config(copy, "a").target_messages) == (70, 80)


def test_defaults_are_those_of_the_rules() -> None:
    """One default target, and one of each limit: in `lag.rules`, in DDMQ's thresholds, and in the rules themselves."""
    rules = LagRules()
    written = {str(info.alias): getattr(rules, name) for name, info in LagRules.model_fields.items()}
    assert written.keys() == NAMES.keys()
    assert limits_from({name: value for name, value in written.items() if value is not None}) == LagLimits()
    for model in (GroupConfig, SubscriptionConfig):
        assert model.model_fields["delay_time_threshold"].default == LagLimits().target_ms
    assert inspect.signature(report_lag).parameters["target"].default * 1000 == LagLimits().target_ms
    assert duration_ms(inspect.signature(slo).parameters["objective"].default) == LagLimits().target_ms


def group_of(**settings: Any) -> GroupConfig:
    """Return a group on topic `t`."""
    topic = {"topic": "t", **settings.pop("topic", {})}
    return GroupConfig.model_validate({"group": "g", "topics": [topic], **settings})


def test_what_is_nearer_to_a_subscription_goes_first() -> None:
    """The subscription's threshold, the group's, `lagRules` of the group, `lag.rules`, the default."""
    lag = LagConfig.model_validate({"rules": {"target": "10s", "stop": "4m", "deadBand": 0.2}})
    assert limits_of_config(None, "t", lag) == LagLimits(target_ms=10_000, stop_ms=240_000, dead_band=0.2)
    group = group_of(lagRules={"target": "20s", "stop": "2m"})
    assert limits_of_config(group, "t", lag) == LagLimits(target_ms=20_000, stop_ms=120_000, dead_band=0.2)
    group = group_of(lagRules={"target": "20s", "targetMessages": 7}, delayTimeThreshold=30_000)
    assert limits_of_config(group, "t", lag).target_ms == 30_000
    assert limits_of_config(group, "t", lag).target_messages == 7
    group = group_of(delayTimeThreshold=30_000, topic={"delayTimeThreshold": 40_000, "committedLagThreshold": -1})
    assert limits_of_config(group, "t", lag).target_ms == 40_000
    assert limits_of_config(group, "t", lag).target_messages == NO_LIMIT


def test_window_is_as_long_as_stop_and_the_floor_no_more_than_the_target() -> None:
    """Also where they come from different sections."""
    lag = LagConfig.model_validate({"rules": {"window": "6m", "floor": "30s"}})
    group = group_of(lagRules={"stop": "10m"}, delayTimeThreshold=5_000)
    limits = limits_of_config(group, "t", lag)
    assert (limits.window_ms, limits.stop_ms, limits.floor_ms) == (600_000, 600_000, 5_000)
    assert window_ms_of(Config(groups={"g": group})) == 600_000


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stopp": "3m"}, "stopp is not a limit of the lag rules; use one of target, "),
        ({"stop": "3"}, "invalid stop '3'; write a number and one of ms, s, m, h, d, such as 90s or 3m"),
        ({"samplesMin": "2.5"}, "samplesMin must be an integer, got '2.5'"),
        ({"deadBand": "wide"}, "deadBand must be a number, got 'wide'"),
        ({"stop": "10m"}, "stop_ms is 600000 and window_ms 300000"),
    ],
)
def test_wrong_limit_is_refused_with_what_would_be_right(given: dict[str, str], said: str) -> None:
    """As an option has it, `--rule NAME=VALUE`."""
    with pytest.raises(ValueError, match=re.escape(said)):
        limits_from(given)


def test_limits_are_read_from_texts_and_numbers() -> None:
    """In the units of the rules; the others stay."""
    found = limits_from(
        {"stop": "90s", "lossEtaLimit": "2h", "surge": "2", "floorMessages": 5}, LagLimits(window_ms=90_000, stop_ms=1)
    )
    assert found == LagLimits(window_ms=90_000, stop_ms=90_000, loss_eta_limit_s=7_200.0, surge=2.0, floor_messages=5)
    assert values_of({}) == {}


def test_samples_that_come_seldom_have_longer_times() -> None:
    """Three within `stale` and five within `window`; what is written goes first."""
    for every, stale_ms, window_ms in (
        ("10s", 60_000, 300_000),
        ("2m", 360_000, 600_000),
        ("1h", 10_800_000, 18_000_000),
    ):
        found = limits_of_config(None, "t", LagConfig.model_validate({"every": every}))
        assert (found.stale_ms, found.window_ms) == (stale_ms, window_ms)
    lag = LagConfig.model_validate({"every": "2m", "rules": {"stale": "3m"}})
    found = limits_of_config(group_of(lagRules={"window": "8m"}), "t", lag)
    assert (found.stale_ms, found.window_ms) == (180_000, 480_000)
