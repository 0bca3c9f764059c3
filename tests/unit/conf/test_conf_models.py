"""The models: defaults, bounds, derived values, names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from conf import (
    Config,
    GroupConfig,
    NodeConfig,
    SubscriptionConfig,
    TopicConfig,
    check_group_name,
    check_topic_name,
    is_json_path,
    is_system_topic,
)
from conf.base import GROUP_BYTES_MAX, TOPIC_BYTES_MAX, Model, Reload, reload_of
from conf.order_key import check_order_key

MODELS: list[type[Model]] = [NodeConfig, TopicConfig, SubscriptionConfig, GroupConfig]


def test_config_without_anything_is_complete() -> None:
    """The defaults alone are a configuration that binds the loopback and syncs publishes (W99)."""
    config = Config()

    assert (config.node.host, config.node.admin_host) == ("127.0.0.1", "127.0.0.1")
    assert (config.node.producer_port, config.node.consumer_port, config.node.admin_port) == (9613, 9713, 9813)
    assert config.node.flush == "sync"
    assert config.topics == {}
    assert config.groups == {}


def test_subscription_defaults_are_ddmqs_where_ddmq_has_sane_ones() -> None:
    """The defaults of reference 2.5 hold, and a listed topic is enabled."""
    subscription = SubscriptionConfig(topic="orders")

    assert subscription.enabled
    assert subscription.retry_intervals == [100, 150, 300]
    assert (subscription.concurrency, subscription.timeout, subscription.max_retry) == (1024, 5000, 2)
    assert (subscription.max_pull_batch_size, subscription.max_consume_lag) == (8, -1)


def test_models_are_frozen() -> None:
    """No field of a configuration in force can be set."""
    with pytest.raises(ValidationError, match="frozen"):
        Config().node.producer_port = 1


@pytest.mark.parametrize("model", MODELS)
def test_every_field_is_described_and_says_what_a_change_takes(model: type[Model]) -> None:
    """docs/configuration.md and the reload are made from the fields, so each has what they need."""
    for name, field in model.model_fields.items():
        assert field.description, f"{model.__name__}.{name} has no description"
        assert isinstance(reload_of(model, name), Reload)


def test_tps_max_takes_the_total_of_one_node_first() -> None:
    """R66: one node owns all queues, so totalMaxTps is its rate."""
    assert SubscriptionConfig(topic="t").tps_max is None
    assert SubscriptionConfig(topic="t", max_tps=5.0).tps_max == 5.0
    assert SubscriptionConfig(topic="t", max_tps=5.0, total_max_tps=7.0).tps_max == 7.0


@pytest.mark.parametrize(("lag", "expected"), [(-1, None), (0, 30), (7, 7)])
def test_consume_lag_max_follows_ddmqs_special_values(lag: int, expected: int | None) -> None:
    """-1 is off and 0 three times concurrency (reference 2.5)."""
    assert SubscriptionConfig(topic="t", concurrency=10, max_consume_lag=lag).consume_lag_max == expected


@pytest.mark.parametrize(
    ("tags", "wanted"), [([], None), (["a", "*"], None), (["a", "b"], frozenset({"a", "b"})), (None, None)]
)
def test_wanted_tags_is_none_for_all(tags: list[str] | None, wanted: frozenset[str] | None) -> None:
    """No tags, or a star among them, means every message."""
    subscription = SubscriptionConfig.model_validate({"topic": "t", "tags": tags})

    assert subscription.wanted_tags == wanted


def test_queue_count_falls_back_to_the_node() -> None:
    """A topic that does not say has defaultQueues."""
    config = Config(node=NodeConfig(default_queues=3), topics={"said": TopicConfig(queues=5), "unsaid": TopicConfig()})

    assert (config.queue_count("said"), config.queue_count("unsaid")) == (5, 3)


def test_enabled_topics_leaves_out_the_disabled() -> None:
    """W24: a group whose last topic is disabled has nothing left to consume."""
    group = GroupConfig(group="g", topics=[SubscriptionConfig(topic="t", enabled=False)])

    assert group.enabled_topics == []


@pytest.mark.parametrize("intervals", [[], [0], [100, 200], [100, -1], [5, 6, -1]])
def test_retry_intervals_accepts_what_has_a_meaning(intervals: list[int]) -> None:
    """Waits, and a -1 that repeats the one before it."""
    assert SubscriptionConfig(topic="t", retry_intervals=intervals).retry_intervals == intervals


@pytest.mark.parametrize(
    ("intervals", "words"),
    [([-1], "cannot be first"), ([5, -1, 6], "never used"), ([5, -2], "not a valid interval"), ([86_400_001], "a day")],
)
def test_retry_intervals_refuses_what_ddmq_misreads(intervals: list[int], words: str) -> None:
    """W20: unreachable entries, a leading -1 and other negatives are errors."""
    with pytest.raises(ValidationError, match=words):
        SubscriptionConfig(topic="t", retry_intervals=intervals)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("QID", "QID"),
        ("KEY", "KEY"),
        ("$.a", "$.a"),
        ("a.b", "$.a.b"),
        ("x[0]", "$.x[0]"),
        ("['a b']", "$['a b']"),
        ("$['case:concept:name']", "$['case:concept:name']"),
    ],
)
def test_order_key_comes_back_in_its_full_spelling(text: str, expected: str) -> None:
    """QID, KEY and singular JSON paths, also DDMQ's without the `$`."""
    assert check_order_key(text) == expected
    assert is_json_path(expected) == expected.startswith("$")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("key", "ambiguous"),
        ("Qid", "ambiguous"),
        ("", "not a valid order key"),
        (" $.a", "not a valid order key"),
        ("$.a[", "not a valid JSON path"),
        ("$.a b", "not a valid JSON path"),
        ("$..a", "several values"),
        ("$.a[*]", "several values"),
        ("$.a[?@.b]", "several values"),
        ("$.a[0:2]", "several values"),
        ("$", "whole body"),
    ],
)
def test_order_key_refuses_what_cannot_name_one_key(text: str, words: str) -> None:
    """W56: what DDMQ would silently leave unordered is an error."""
    with pytest.raises(ValueError, match=words):
        check_order_key(text)


def test_consume_timestamp_reads_iso_8601_with_a_zone() -> None:
    """A point in time is text with a zone, or ms."""
    for value in ("2024-05-01T02:00:00+02:00", "2024-05-01T00:00:00Z", 1_714_521_600_000):
        subscription = SubscriptionConfig.model_validate(
            {"topic": "t", "consumeFromWhere": "timestamp", "consumeTimestamp": value}
        )
        assert subscription.consume_timestamp == 1_714_521_600_000


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"consumeFromWhere": "timestamp"}, "is missing"),
        ({"consumeTimestamp": 1_714_521_600_000}, "only with"),
        ({"consumeFromWhere": "timestamp", "consumeTimestamp": "2024-05-01T00:00:00"}, "zone"),
        (
            {"consumeFromWhere": "timestamp", "consumeTimestamp": 20_240_501},
            "looks like a day: write 2024-05-01T00:00:00Z",
        ),
        (
            {"consumeFromWhere": "timestamp", "consumeTimestamp": 1_760_000_000},
            "looks like seconds: write 1760000000000",
        ),
        ({"consumeFromWhere": "timestamp", "consumeTimestamp": "soon"}, "not a valid point in time"),
        ({"consumeFromWhere": "timestamp", "consumeTimestamp": 20_240_501_000_000}, "less than or equal"),
    ],
)
def test_consume_timestamp_refuses_what_is_ambiguous(values: dict[str, object], words: str) -> None:
    """A start that cannot be meant is an error, RocketMQ's 14 digits without a zone included."""
    with pytest.raises(ValidationError, match=words):
        SubscriptionConfig.model_validate({"topic": "t", **values})


@given(st.text(alphabet="abcXYZ019_-|%", min_size=1, max_size=TOPIC_BYTES_MAX))
def test_names_of_allowed_characters_are_topics_unless_the_brokers_own(name: str) -> None:
    """A name is refused exactly when the broker owns it."""
    if is_system_topic(name):
        with pytest.raises(ValueError, match="reserved by the broker"):
            check_topic_name(name)
    else:
        assert check_topic_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "a b", "ä", "a\n", "a" * (TOPIC_BYTES_MAX + 1), "%DLQ%g", "%RETRY%g", "TBW102", "rmq_sys_wheel_timer"]
)
def test_topic_name_refuses_others(name: str) -> None:
    """D6, D34: wrong characters, too long, or a name of the reserved by the broker."""
    with pytest.raises(ValueError, match=r"choose|letters|the maximum"):
        check_topic_name(name)


def test_group_name_leaves_room_for_its_dead_letter_topic() -> None:
    """D6: `%DLQ%` and the longest group fit into a topic."""
    longest = "g" * GROUP_BYTES_MAX

    assert check_group_name(longest) == longest
    assert len("%DLQ%" + longest) <= TOPIC_BYTES_MAX
    assert SubscriptionConfig(topic="%DLQ%" + longest).topic == "%DLQ%" + longest
    with pytest.raises(ValueError, match="the maximum for a group is 120"):
        check_group_name(longest + "g")


def test_subscription_refuses_system_topics_other_than_dead_letters() -> None:
    """D34: half messages, delays and retries are not for consumers."""
    for name in ("%RETRY%g", "RMQ_SYS_TRANS_HALF_TOPIC", "%DLQ%%DLQ%g"):
        with pytest.raises(ValidationError):
            SubscriptionConfig(topic=name)
