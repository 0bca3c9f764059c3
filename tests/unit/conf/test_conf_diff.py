"""What a reload may change, and what it takes (D22)."""

from __future__ import annotations

import pytest

from conf import Config, GroupConfig, NodeConfig, SubscriptionConfig, TopicConfig
from conf.diff import ChangeKind, diff, diff_group


def group(**fields: object) -> GroupConfig:
    """Return a group `g` that reads `t` with these fields."""
    return GroupConfig(group="g", topics=[SubscriptionConfig.model_validate({"topic": "t", **fields})])


def config(*groups: GroupConfig, **topics: TopicConfig) -> Config:
    """Return a configuration of groups and topics."""
    return Config(topics=topics, groups={each.group: each for each in groups})


def test_equal_configurations_have_no_changes() -> None:
    """A file that was saved without a change does nothing."""
    changes = diff(config(group(), t=TopicConfig()), config(group(), t=TopicConfig()))

    assert changes.empty
    assert changes.sentences() == []


@pytest.mark.parametrize("field", ["producer_port", "segment_bytes", "max_message_bytes", "backlog"])
def test_listeners_and_store_are_refused(field: str) -> None:
    """What needs a restart is refused with that sentence."""
    old = Config()
    node = old.node.model_copy(update={field: getattr(old.node, field) + 1})
    changes = diff(old, Config(node=node))

    (refusal,) = changes.refusals
    assert "restart" in refusal.text
    assert "node" not in changes.sections


def test_flush_is_refused() -> None:
    """D22 names flush beside the listeners."""
    assert diff(Config(), Config(node=NodeConfig(flush="async"))).refusals


def test_node_limits_change_live() -> None:
    """Limits of the node have effect at once."""
    changes = diff(Config(), Config(node=NodeConfig(max_linger_time=5, drain_seconds=1)))

    assert changes.refusals == ()
    assert changes.sections["node"] == ("maxLingerTime", "drainSeconds")


def test_topics_come_go_and_grow() -> None:
    """Each topic that differs is named with what happens to it."""
    old = config(stays=TopicConfig(), goes=TopicConfig(), grows=TopicConfig(queues=4))
    new = config(stays=TopicConfig(), comes=TopicConfig(), grows=TopicConfig(queues=8))
    changes = diff(old, new)

    assert {name: change.kind for name, change in changes.topics.items()} == {
        "goes": ChangeKind.REMOVED,
        "comes": ChangeKind.ADDED,
        "grows": ChangeKind.LIVE,
    }
    assert changes.topics["grows"].fields == ("queues",)
    assert changes.refusals == ()


def test_fewer_queues_are_refused() -> None:
    """D6: the number of queues can only grow, against the configuration and against what the store has."""
    old = config(t=TopicConfig(queues=4))

    assert "the number of queues can only grow" in diff(old, config(t=TopicConfig(queues=3))).refusals[0].text
    assert "less than the present 16" in diff(old, config(t=TopicConfig(queues=8)), queues={"t": 16}).refusals[0].text
    assert diff(config(), config(t=TopicConfig(queues=8)), queues={"t": 16}).refusals
    assert diff(old, config(t=TopicConfig()), queues={"t": 16}).refusals == ()


def test_groups_come_and_go() -> None:
    """A group that is new or gone is named as such."""
    assert diff(config(), config(group())).groups["g"].kind is ChangeKind.ADDED
    assert diff(config(group()), config()).groups["g"].kind is ChangeKind.REMOVED


def test_untouched_group_does_not_appear() -> None:
    """D22: what did not change is not disturbed."""
    other = GroupConfig(group="other", topics=[SubscriptionConfig(topic="t")])
    changes = diff(config(group(), other), config(group(timeout=9), other))

    assert set(changes.groups) == {"g"}


@pytest.mark.parametrize(
    "fields",
    [
        {"timeout": 9},
        {"concurrency": 9},
        {"maxTps": 9.0},
        {"retryIntervals": [9]},
        {"maxRetry": 9},
    ],
)
def test_limits_timeouts_and_intervals_change_live(fields: dict[str, object]) -> None:
    """D22's first sentence."""
    change = diff_group(group(), group(**fields))

    assert change.kind is ChangeKind.LIVE
    assert change.live == tuple(f"t.{name}" for name in fields)
    assert change.generations == ()


@pytest.mark.parametrize("fields", [{"actions": ["PullServer"]}, {"orderKey": "KEY"}, {"tags": ["a"]}])
def test_what_shapes_delivery_starts_a_generation(fields: dict[str, object]) -> None:
    """D22's second sentence."""
    change = diff_group(group(), group(**fields))

    assert change.kind is ChangeKind.GENERATION
    assert change.generations == ("t",)


def test_alarm_thresholds_leave_delivery_alone() -> None:
    """W46: an edited threshold is live, and no generation starts for it."""
    change = diff_group(group(), group(delayTimeThreshold=1, enableAlarm=False))

    assert change.kind is ChangeKind.LIVE


def test_disabling_the_last_topic_stops_it() -> None:
    """W24: the subscription is among those that stop."""
    assert diff_group(group(), group(enabled=False)).generations == ("t",)
    assert diff_group(group(enabled=False), group()).generations == ("t",)


def test_topics_of_a_group_come_and_go() -> None:
    """The set of topics is part of what starts and stops; the order of the list is not."""
    one, two = SubscriptionConfig(topic="one"), SubscriptionConfig(topic="two")
    both = GroupConfig(group="g", topics=[one, two])

    assert diff_group(both, GroupConfig(group="g", topics=[one])).generations == ("two",)
    assert diff_group(GroupConfig(group="g", topics=[one]), both).generations == ("two",)
    assert not diff(config(both), config(GroupConfig(group="g", topics=[two, one]))).groups


def test_disabled_subscription_that_changes_starts_nothing() -> None:
    """What does not run has no generation to replace."""
    change = diff_group(group(enabled=False), group(enabled=False, orderKey="KEY"))

    assert change.generations == ()


def test_sentences_say_every_change() -> None:
    """The lines of the log and of the check name what happens, refusals first."""
    old = Config(topics={"t": TopicConfig(queues=2)}, groups={"g": group()})
    new = Config(
        node=NodeConfig(producer_port=1, log_level="debug"),
        topics={"t": TopicConfig(queues=3), "u": TopicConfig()},
        groups={"g": group(timeout=9, orderKey="KEY"), "h": GroupConfig(group="h")},
    )

    assert diff(old, new).sentences() == [
        "node.producerPort: cannot change while the node runs; restart it for 1, or leave it at 9613",
        "node.logLevel: changes at once",
        "topic t: changes at once: queues",
        "topic u: added",
        "group g: changes at once: t.timeout",
        "group g: starts a new generation: t",
        "group h: added",
    ]
