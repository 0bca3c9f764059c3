"""The configuration as a whole: topics, consumer groups, their subscriptions, and the node.

The names in YAML are DDMQ's where DDMQ has the field (its GroupConfig, UpstreamTopic and TopicConfig). Where a default
or a rule differs, the description says so, and docs/configuration.md lists all differences.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from conf.base import (
    GroupName,
    ListedTopicName,
    Model,
    PlainName,
    Reload,
    SubscribedTopicName,
    check_topic_name,
    setting,
)
from conf.json_path import parse_path
from conf.moments import check_moment
from conf.order_key import check_order_key
from conf.sections.access import AccessConfig
from conf.sections.admin import AdminConfig
from conf.sections.kafka import KafkaClusterConfig
from conf.sections.lag import AckShare, LagConfig, LagRules
from conf.sections.limits import LimitsConfig
from conf.sections.node import NodeConfig
from conf.sections.tls import TlsConfig

DAY_MS = 86_400_000
_LIVE = Reload.LIVE
_GENERATION = Reload.GENERATION

OnExhausted = Literal["deadLetter", "stopKey", "stopQueue"]
ConsumeFrom = Literal["first", "last", "timestamp"]
TopicMessageType = Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"]


def _check_retry_intervals(intervals: list[int]) -> list[int]:
    """W20: what follows a -1 is unreachable, a leading -1 has nothing to repeat, other negatives mean nothing."""
    for index, interval in enumerate(intervals):
        if interval < -1:
            raise ValueError(
                f"{interval} is not a valid interval; use ms of 0 or more, or -1 at the end to repeat the last one"
            )
        if interval > DAY_MS:
            raise ValueError(f"{interval} ms is more than a day; use at most {DAY_MS}")
        if interval == -1 and index == 0:
            raise ValueError("-1 repeats the interval before it and cannot be first; write for example [1000, -1]")
        if interval == -1 and index + 1 < len(intervals):
            raise ValueError("entries after -1 are never used; put -1 last or remove it")
    return intervals


def _read_timestamp(value: Any) -> Any:
    """Turn ISO 8601 text with a zone into ms since the epoch; everything else is left to the type check."""
    if not isinstance(value, str):
        return value
    wanted = "write ISO 8601 with a zone, such as 2024-05-01T00:00:00Z, or ms since 1970"
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise ValueError(f"{value!r} is not a valid point in time; {wanted}") from error
    if moment.tzinfo is None:
        raise ValueError(f"{value!r} has no time zone; {wanted}")
    return round(moment.timestamp() * 1000)


def _read_actions(values: Any) -> Any:
    """Refuse a mapping, as which other systems write a step with its options."""
    for each in values if isinstance(values, list) else ():
        if isinstance(each, Mapping):
            name = next(iter(each), "NAME")
            raise ValueError(f"write only names, and options beside `actions`, as options: {{{name}: {{...}}}}")
    return values


Timestamp = Annotated[int, BeforeValidator(_read_timestamp), AfterValidator(check_moment), Field(le=4_102_444_800_000)]


def _check_retry_max(count: int) -> int:
    if count < -1:
        raise ValueError(f"{count} is not a valid count; use 0 or more, or -1 for no limit")
    return count


def _check_tags(tags: list[str]) -> list[str]:
    for tag in tags:
        if not tag or tag != tag.strip() or "|" in tag:
            raise ValueError(
                f"{tag!r} is not a valid tag; use one tag per entry, without spaces around it and without `|`"
            )
    return tags


def _check_mask(text: str) -> str:
    """Return an entry of `mask`. Raises ValueError."""
    if text.startswith("$"):
        parse_path(text)
    elif not text or not text.isprintable():
        raise ValueError(f"{text!r} is not the name of a property; write a name, or a JSON path such as $.card.number")
    return text


class TopicConfig(Model):
    """One entry of `topics`, whose key is the topic's name. Taking it out stops serving it and deletes nothing (D6)."""

    broker_cluster: PlainName | None = setting(
        None,
        "Where it is stored: a cluster under `kafka`, or the node's own store.",
        reload=Reload.RESTART,
        absent="node.brokerCluster",
    )
    queues: Annotated[int, Field(ge=1, le=1024)] | None = setting(
        None,
        "Number of queues. It can only grow: a smaller number than the topic has is refused (D6). Not for "
        "a topic in Kafka, whose queues are its partitions.",
        reload=_LIVE,
        absent="node.defaultQueues",
    )
    enabled: bool = setting(
        True,
        "`false` refuses publishes (code 13) and pauses the subscriptions to it; nothing is deleted.",
        reload=_LIVE,
    )
    message_type: TopicMessageType | None = setting(
        None,
        "Accepted kind of message; others are refused (docs/protocol.md). `NORMAL`: no delay, no hashId or "
        "partitionId. `FIFO`: with a key, a hashId or a partitionId, and no delay. `DELAY`: with a delay. "
        "`TRANSACTION`: messages of transactions. `MIXED`: all. Stored messages stay. A topic in Kafka is "
        "NORMAL or FIFO, or accepts both.",
        reload=_LIVE,
        absent="unchanged; a new one: MIXED",
    )
    max_tps: Annotated[float, Field(gt=0)] | None = setting(
        None,
        "Maximum publishes per second; more are refused with code 15 (R94). DDMQ's 1,024 is not a default here.",
        reload=_LIVE,
        absent="no limit",
    )
    limiter_failure_retry_interval: int = setting(
        -1,
        "Ms after which a send above maxTps, the topic's or the node's, is retried once before it is "
        "refused; 0 means no retry; -1: 10 ms before its own timeout ends, after 100 ms at the latest, if "
        "its timeout is above 20 ms (R95).",
        reload=_LIVE,
        ge=-1,
        le=60_000,
    )
    mask: list[Annotated[str, AfterValidator(_check_mask)]] = setting(
        [],
        "What the console, the admin port and its commands do not show of the topic's messages: JSON paths of the "
        "body such as `$.card.number`, and names of properties (`KEYS`: the key). Shown as `***`. Of a body that is "
        "not JSON, nothing is shown where there are paths. Consumers get everything.",
        reload=_LIVE,
        max_length=64,
    )
    alarm_group: list[str] | None = setting(None, "Accepted for DDMQ's files; has no effect.", reload=_LIVE)


LOW_LEVEL = "LowLevel"
"""The action of a topic that clients fetch, with offsets that they keep."""


class SubscriptionConfig(Model):
    """One entry of a group's `topics`: what the group reads from one topic, and how (DDMQ's UpstreamTopic)."""

    topic: SubscribedTopicName = setting(
        ..., "The topic: one of `topics`, or a dead-letter topic `%DLQ%<group>`.", reload=_GENERATION
    )
    enabled: bool = setting(
        True,
        "`false` stops consuming it. DDMQ's default is false; here every listed topic is consumed.",
        reload=_GENERATION,
    )
    broker_cluster: PlainName | None = setting(
        None, "If set, it must be the topic's.", reload=_LIVE, absent="the topic's"
    )
    actions: Annotated[list[str], BeforeValidator(_read_actions)] = setting(
        ["Async", "PullServer"],
        "The pipeline, in order: built-in names, entry points of `pyddmq.actions`, or "
        "`package.module:Class`. The last action must be able to end a pipeline, like PullServer.",
        reload=_GENERATION,
        min_length=1,
        max_length=32,
    )
    options: dict[str, dict[str, Any]] = setting(
        {}, "Settings per action: a mapping of an action's name to its own options.", reload=_GENERATION
    )
    order_key: Annotated[str, AfterValidator(check_order_key)] | None = setting(
        None,
        "One message at a time and in order per value of this: `QID` (the queue), `KEY` (the message key), "
        "or a JSON path to one value, such as `$['case:concept:name']` (R30, D14). A path needs `Json` "
        "before the order gate, which is `Async` or, without it, the last action.",
        reload=_GENERATION,
        absent="unordered",
    )
    tags: Annotated[
        list[str], BeforeValidator(lambda tags: [] if tags is None else tags), AfterValidator(_check_tags)
    ] = setting([], "Only messages with one of these tags; all messages if empty or with `*`.", reload=_GENERATION)
    pressure_traffic: bool = setting(
        False,
        "`false` skips (and counts) messages whose property isPressureTraffic is `true` (R14).",
        reload=_GENERATION,
    )
    consume_from_where: ConsumeFrom = setting(
        "first",
        "Where a new group starts on this topic: at the first message, after the last, or at "
        "consumeTimestamp. Fixed when the group is first seen; later changes have no effect (D6). "
        "Queues that the topic gets later are read from their first message; on Kafka, topics that appear later, too.",
        reload=_LIVE,
    )
    consume_timestamp: Timestamp | None = setting(
        None,
        "With consumeFromWhere `timestamp`: store time of the first message, as ISO 8601 with a zone or ms since 1970.",
        reload=_LIVE,
    )
    max_tps: Annotated[float, Field(gt=0)] | None = setting(
        None,
        "Maximum messages per second read for this subscription (R66). DDMQ requires it; here it is optional.",
        reload=_LIVE,
        absent="no limit",
    )
    total_max_tps: Annotated[float, Field(gt=0)] | None = setting(
        None,
        "DDMQ's rate over all proxies, which replaces maxTps (R66). For a topic in Kafka each node takes a "
        "share in proportion to its partitions; for the store, which has one node, it applies as it is.",
        reload=_LIVE,
        absent="maxTps",
    )
    concurrency: int = setting(
        1024,
        "Unfinished jobs past the order gate, in the buffer or in flight (R67; jobs that wait for their "
        "key do not count, D15).",
        reload=_LIVE,
        ge=1,
        le=1_000_000,
    )
    max_consume_lag: int = setting(
        -1,
        "How far reading may run ahead of the committed offset, per queue, in messages; 0 means three "
        "times concurrency; -1 means no limit (R69).",
        reload=_LIVE,
        ge=-1,
    )
    timeout: int = setting(
        5_000,
        "After this number of ms without an answer a delivered message is redelivered.",
        reload=_LIVE,
        ge=1,
        le=DAY_MS,
    )
    max_retry: Annotated[int, AfterValidator(_check_retry_max)] = setting(
        2,
        "How often an error or a timeout is retried before the message goes to the dead-letter topic; -1 "
        "means without limit (D17). DDMQ drops the message instead (W14).",
        reload=_LIVE,
    )
    retry_intervals: Annotated[list[int], AfterValidator(_check_retry_intervals)] = setting(
        [100, 150, 300],
        "Waits in ms before a failed message is delivered again, one per failure; then it goes to the "
        "dead-letter topic. A -1 at the end repeats the last wait without end; `[]` disables retries (R45, "
        "W20).",
        reload=_LIVE,
        max_length=1000,
    )
    on_exhausted: OnExhausted = setting(
        "deadLetter",
        "Action for a message that is out of attempts. `deadLetter`: it goes to the group's dead-letter "
        "topic, and its key continues. `stopKey`: it stays, and its key waits until an operator retries, "
        "skips or dead-letters it (`pyddmq groups retry | skip | dead-letter`). `stopQueue`: the same with "
        "its whole queue.",
        reload=_LIVE,
    )
    retry_topic: bool = setting(
        False,
        "`true`: a failed message moves to the group's retry topic and is delivered again from there "
        "(docs/retries.md). Not with orderKey: order needs retries in place (D37).",
        reload=_GENERATION,
    )
    max_pull_batch_size: int = setting(
        8, "Maximum messages of one pull reply; a pull may request fewer (R40).", reload=_LIVE, ge=1, le=10_000
    )
    enable_alarm: bool = setting(True, "Whether the group's verdict counts this subscription.", reload=_LIVE)
    delay_time_threshold: int = setting(
        60_000,
        "Lag: age in ms of the oldest unfinished message above which a queue is late.",
        reload=_LIVE,
        absent="the group's",
        ge=0,
    )
    committed_lag_threshold: int = setting(
        -1, "Lag: number of unfinished messages above which a queue is late; -1 sets no limit.", reload=_LIVE, ge=-1
    )

    @property
    def is_low_level(self) -> bool:
        """Whether clients fetch it by offsets of their own, and nothing is pulled (R79)."""
        return self.actions == [LOW_LEVEL]

    @property
    def tps_max(self) -> float | None:
        """Messages per second, or None for no limit (R66: totalMaxTps first, then maxTps)."""
        return self.max_tps if self.total_max_tps is None else self.total_max_tps

    @property
    def consume_lag_max(self) -> int | None:
        """Messages per queue that reading may be ahead of the committed offset, or None for no limit (R69)."""
        if self.max_consume_lag < 0:
            return None
        return self.max_consume_lag or 3 * self.concurrency

    @property
    def wanted_tags(self) -> frozenset[str] | None:
        """Tags to hand out, or None for all."""
        return None if not self.tags or "*" in self.tags else frozenset(self.tags)

    @model_validator(mode="after")
    def _check_start(self) -> SubscriptionConfig:
        if self.consume_from_where == "timestamp" and self.consume_timestamp is None:
            raise ValueError(
                "consumeFromWhere is `timestamp` and consumeTimestamp is missing; add for example "
                "`consumeTimestamp: 2024-05-01T00:00:00Z`"
            )
        if self.consume_timestamp is not None and self.consume_from_where != "timestamp":
            raise ValueError(
                "consumeTimestamp has an effect only with `consumeFromWhere: timestamp`; add that, or remove it"
            )
        return self


class GroupConfig(Model):
    """One entry of `groups`: a consumer group and the topics that it reads."""

    group: GroupName = setting(..., "Name of the group.", reload=_GENERATION)
    topics: list[SubscriptionConfig] = setting(
        [], "What it subscribes to, one entry per topic; may be empty.", reload=_GENERATION
    )
    alarm_group: list[str] | None = setting(
        None, "Names that changes of the group's verdict carry, for routing.", reload=_LIVE
    )
    enable_alarm: bool = setting(True, "Whether changes of the group's verdict are logged and posted.", reload=_LIVE)
    delay_time_threshold: int = setting(
        60_000,
        "Lag: default of the group's subscriptions, in ms; without it, `target` of `lagRules` and `lag.rules`.",
        reload=_LIVE,
        ge=0,
    )
    committed_lag_threshold: int = setting(
        -1, "Lag: default of the group's subscriptions; -1 sets no limit.", reload=_LIVE, ge=-1
    )
    lag_rules: LagRules = setting(
        LagRules(), "Thresholds by which the group's lag is judged, before those of `lag.rules`.", reload=_LIVE
    )
    ack_log: AckShare = setting(
        "off",
        "Messages recorded in the group's ack log, with their outcome: `all`, none (`off`), or a share, "
        "such as 0.01 for one percent.",
        reload=_LIVE,
    )

    @property
    def enabled_topics(self) -> list[SubscriptionConfig]:
        """The subscriptions that are consumed; an empty list stops the group's consumption (W24)."""
        return [subscription for subscription in self.topics if subscription.enabled]

    @cached_property
    def by_topic(self) -> dict[str, SubscriptionConfig]:
        """The subscriptions by their topics."""
        return {subscription.topic: subscription for subscription in reversed(self.topics)}

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> GroupConfig:
        """Return a copy with other values; `by_topic` is of the copy's topics."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("by_topic", None)
        return copied

    @property
    def ack_log_one_in(self) -> int:
        """One of so many messages is recorded in the ack log; 1: all, 0: none."""
        if isinstance(self.ack_log, float):
            return max(1, round(1 / self.ack_log))
        return int(self.ack_log == "all")

    @property
    def is_low_level(self) -> bool:
        """Whether its clients fetch and ack; its topics all do or none (R79)."""
        return any(subscription.is_low_level for subscription in self.enabled_topics)

    @model_validator(mode="after")
    def _check_levels(self) -> GroupConfig:
        kinds = {subscription.is_low_level for subscription in self.enabled_topics}
        if len(kinds) > 1:
            pulled = ", ".join(each.topic for each in self.enabled_topics if not each.is_low_level)
            raise ValueError(
                f"{pulled} of group {self.group!r} is pulled and its other topics are fetched; write "
                f"actions: [{LOW_LEVEL}] for all enabled topics of a group or for none, or split the group "
                "into two"
            )
        return self


class Config(Model):
    """A whole configuration, as the loader hands it out: `topics` by name and `groups` by name."""

    node: NodeConfig = NodeConfig()
    access: AccessConfig | None = None
    admin: AdminConfig = AdminConfig()
    limits: LimitsConfig = LimitsConfig()
    lag: LagConfig = LagConfig()
    tls: TlsConfig = TlsConfig()
    kafka: dict[PlainName, KafkaClusterConfig] = Field(default_factory=dict)
    topics: dict[ListedTopicName, TopicConfig] = Field(default_factory=dict)
    groups: dict[GroupName, GroupConfig] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_names(self) -> Config:
        for name in self.topics:
            if self.cluster_of(name) is None:
                check_topic_name(name)
        return self

    def cluster_of(self, topic: str) -> str | None:
        """Return the name under `kafka` of the cluster that has a topic.

        Args:
            topic: A listed topic, by the name under `topics`. Any other, a dead-letter topic of the store's among them,
                counts as one of the node's own store.

        Returns:
            None: It is in the node's own store.
        """
        settings = self.topics.get(topic)
        if settings is None or settings.broker_cluster in (None, self.node.broker_cluster):
            return None
        return settings.broker_cluster

    def cluster_of_group(self, group: str) -> str | None:
        """Return the name under `kafka` of the cluster from which a group reads; None: it reads the node's own store.

        The loader has seen to it that its enabled topics stand in one; where none is enabled, all topics count.

        Raises:
            KeyError: The group is not in `groups`.
        """
        config = self.groups[group]
        if not self.kafka:
            return None
        topics = config.enabled_topics or config.topics
        return next((cluster for each in topics if (cluster := self.cluster_of(each.topic)) is not None), None)

    def queue_count(self, topic: str) -> int:
        """Queues that the topic is to have.

        Raises:
            KeyError: The topic is not in `topics`.
        """
        return self.topics[topic].queues or self.node.default_queues
