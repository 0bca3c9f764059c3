"""What a reload would change, and whether it may (D22): live, a new generation, or refused until a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from conf.base import Model, Reload, reload_of
from conf.models import Config, GroupConfig, SubscriptionConfig, TopicConfig
from conf.places import Path
from conf.sections.access import AccessConfig
from conf.sections.admin import AdminConfig
from conf.sections.kafka import KafkaClusterConfig
from conf.sections.lag import LagConfig, LagRules
from conf.sections.limits import AddressLimits, LimitsConfig, PrincipalLimits
from conf.sections.node import NodeConfig
from conf.sections.tls import TlsConfig

_RESTART_FOR_IT = "cannot change while the node runs; restart it for that, or leave it as it was"


class ReloadRefusal(NamedTuple):
    """Why nothing of a reload may be applied.

    Attributes:
        path: The key, from the top of the file; a group by its place in the list.
        text: The sentence, without the key.
    """

    path: Path
    text: str

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path))}: {self.text}"


class ChangeKind(Enum):
    """What happens to a topic or a group."""

    ADDED = "added"
    REMOVED = "removed"
    LIVE = "live"
    GENERATION = "new generation"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """A topic that differs: `fields` by their YAML names; REMOVED stops serving it and deletes nothing (D6)."""

    kind: ChangeKind
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """A group that differs.

    Attributes:
        kind: The strongest of what its subscriptions need.
        live: `topic.field` of what changes at once.
        generations: Topics whose subscription starts, stops, or starts again.
    """

    kind: ChangeKind
    live: tuple[str, ...] = ()
    generations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChanges:
    """All differences of two configurations. Groups and topics that are equal do not appear.

    Attributes:
        refusals: With any of them nothing of the reload may be applied.
        sections: YAML names of fields that change live, by their section; one without any does not appear.
        topics: Changed topics by name.
        groups: Changed groups by name.
    """

    refusals: tuple[ReloadRefusal, ...] = ()
    sections: dict[str, tuple[str, ...]] = field(default_factory=dict)
    topics: dict[str, TopicChange] = field(default_factory=dict)
    groups: dict[str, GroupChange] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do and nothing to refuse."""
        return not (self.refusals or self.sections or self.topics or self.groups)

    def sentences(self) -> list[str]:
        """Say the changes line by line, for the log and for `config check`; refusals first."""
        lines = [str(refusal) for refusal in self.refusals]
        for section, names in self.sections.items():
            lines += [f"{section}.{name}: changes at once" for name in names]
        for name, topic in self.topics.items():
            what = f"changes at once: {', '.join(topic.fields)}" if topic.fields else topic.kind.value
            lines.append(f"topic {name}: {what}")
        for name, group in self.groups.items():
            if group.kind in (ChangeKind.ADDED, ChangeKind.REMOVED):
                lines.append(f"group {name}: {group.kind.value}")
                continue
            if group.live:
                lines.append(f"group {name}: changes at once: {', '.join(group.live)}")
            if group.generations:
                lines.append(f"group {name}: starts a new generation: {', '.join(group.generations)}")
        return lines


def diff(old: Config, new: Config, *, queues: Mapping[str, int] | None = None) -> ConfigChanges:
    """Compare the running configuration with the one that is to take its place.

    Args:
        old: What is in force.
        new: What was read.
        queues: Queues that topics have in the store, where they may have more than either configuration says.
    """
    node = _changed(old.node, new.node)
    restart = [name for name, attribute in node if reload_of(NodeConfig, attribute) is Reload.RESTART]
    refusals = [_restart_needed(old, new, name, attribute) for name, attribute in node if name in restart]
    refusals += _come_or_gone_access(old, new)
    tls = _changed(old.tls, new.tls)
    fixed = [name for name, attribute in tls if reload_of(TlsConfig, attribute) is Reload.RESTART]
    refusals += [ReloadRefusal(("tls", name), _RESTART_FOR_IT) for name in fixed]
    refusals += _changed_clusters(old, new)
    refusals += lowered_queues(old, new, queues or {})
    sections = {
        "node": [each for each in node if each[0] not in restart],
        "lag": _changed(old.lag, new.lag),
        "access": _changed(old.access, new.access) if old.access and new.access else [],
        "limits": _changed(old.limits, new.limits),
        "admin": _changed(old.admin, new.admin),
        "tls": [each for each in tls if each[0] not in fixed],
    }
    return ConfigChanges(
        refusals=tuple(refusals),
        sections={name: tuple(alias for alias, _ in fields) for name, fields in sections.items() if fields},
        topics=_topic_changes(old, new),
        groups=_group_changes(old, new),
    )


def _restart_needed(old: Config, new: Config, name: str, attribute: str) -> ReloadRefusal:
    before, after = (_as_written(getattr(config.node, attribute)) for config in (old, new))
    text = f"cannot change while the node runs; restart it for {after}, or leave it at {before}"
    return ReloadRefusal(("node", name), text)


def _come_or_gone_access(old: Config, new: Config) -> list[ReloadRefusal]:
    if (old.access is None) == (new.access is None):
        return []
    if new.access is None:
        text = (
            "cannot be removed while the node runs, since every client would be allowed everything; restore "
            "it, or restart the node"
        )
    else:
        text = "cannot be added while the node runs; restart the node, or remove it"
    return [ReloadRefusal(("access",), text)]


def _changed_clusters(old: Config, new: Config) -> list[ReloadRefusal]:
    """All of `kafka` takes a restart, and so does a topic or a group that moves from one cluster to another."""
    refusals = []
    for name in old.kafka.keys() | new.kafka.keys():
        before, after = old.kafka.get(name), new.kafka.get(name)
        if before is None or after is None:
            text = "cannot be added or removed while the node runs; restart the node, or leave it unchanged"
            refusals.append(ReloadRefusal(("kafka", name), text))
            continue
        # Values are not shown: some say where secrets are.
        refusals += [ReloadRefusal(("kafka", name, alias), _RESTART_FOR_IT) for alias, _ in _changed(before, after)]
    for name in old.topics.keys() & new.topics.keys():
        clusters = [config.cluster_of(name) or config.node.broker_cluster for config in (old, new)]
        if clusters[0] != clusters[1] and old.node.broker_cluster == new.node.broker_cluster:
            text = f"cannot move to {clusters[1]} while the node runs; restart the node, or leave it in {clusters[0]}"
            refusals.append(ReloadRefusal(("topics", name, "brokerCluster"), text))
    for name in old.groups.keys() & new.groups.keys():
        source, target = (config.cluster_of_group(name) or config.node.broker_cluster for config in (old, new))
        if source != target and old.node.broker_cluster == new.node.broker_cluster:
            text = (
                f"cannot change from {source} to {target} while the node runs; restart the node, or create "
                "another group"
            )
            refusals.append(ReloadRefusal(("groups", list(new.groups).index(name)), text))
    return sorted(refusals)


def _as_written(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def lowered_queues(old: Config, new: Config, queues: Mapping[str, int]) -> list[ReloadRefusal]:
    """Return the topics that would have fewer queues than before, or than in `queues`, which has those of the store."""
    refusals = []
    for name, topic in new.topics.items():
        before = old.queue_count(name) if name in old.topics else 0
        before = max(before, queues.get(name, 0))
        # A topic without `queues` takes what it has; only a number that was written can be too small.
        if topic.queues is not None and topic.queues < before:
            text = f"{topic.queues} is less than the present {before}; the number of queues can only grow"
            refusals.append(ReloadRefusal(("topics", name, "queues"), text))
    return refusals


def _topic_changes(old: Config, new: Config) -> dict[str, TopicChange]:
    changes = {name: TopicChange(kind=ChangeKind.REMOVED) for name in old.topics if name not in new.topics}
    for name, topic in new.topics.items():
        if name not in old.topics:
            changes[name] = TopicChange(kind=ChangeKind.ADDED)
        elif fields := _changed(old.topics[name], topic):
            changes[name] = TopicChange(kind=ChangeKind.LIVE, fields=tuple(alias for alias, _ in fields))
    return changes


def _group_changes(old: Config, new: Config) -> dict[str, GroupChange]:
    changes = {name: GroupChange(kind=ChangeKind.REMOVED) for name in old.groups if name not in new.groups}
    for name, group in new.groups.items():
        if name not in old.groups:
            changes[name] = GroupChange(kind=ChangeKind.ADDED)
        elif group != old.groups[name]:
            change = diff_group(old.groups[name], group)
            if change.live or change.generations:
                changes[name] = change
    return changes


def diff_group(old: GroupConfig, new: GroupConfig) -> GroupChange:
    """Compare two configurations of one group; the order in which it lists its topics does not matter."""
    live = [alias for alias, attribute in _changed(old, new) if attribute != "topics"]
    before = {subscription.topic: subscription for subscription in old.topics}
    after = {subscription.topic: subscription for subscription in new.topics}
    generations = [topic for topic in before if topic not in after and before[topic].enabled]
    for topic, subscription in after.items():
        was = before.get(topic)
        if was == subscription:
            continue
        if was is None or was.enabled != subscription.enabled:
            if subscription.enabled or was is not None:
                generations.append(topic)
            continue
        fields = _changed(was, subscription)
        renewed = any(reload_of(SubscriptionConfig, name) is Reload.GENERATION for _, name in fields)
        if renewed and subscription.enabled:
            generations.append(topic)
        live += [f"{topic}.{alias}" for alias, name in fields if reload_of(SubscriptionConfig, name) is Reload.LIVE]
    kind = ChangeKind.GENERATION if generations else ChangeKind.LIVE
    return GroupChange(kind=kind, live=tuple(live), generations=tuple(generations))


def _changed(old: Model, new: Model) -> list[tuple[str, str]]:
    """Return YAML name and attribute of the fields whose values differ."""
    if old == new:
        return []
    return [
        (str(info.alias), name)
        for name, info in type(new).model_fields.items()
        if getattr(old, name) != getattr(new, name)
    ]


assert all(reload_of(KafkaClusterConfig, name) is Reload.RESTART for name in KafkaClusterConfig.model_fields)
assert reload_of(TopicConfig, "queues") is Reload.LIVE, (
    "but for their cluster topic fields are live; _topic_changes relies on it"
)
for _model in (AccessConfig, LimitsConfig, PrincipalLimits, AddressLimits, AdminConfig, LagConfig, LagRules):
    assert all(reload_of(_model, name) is Reload.LIVE for name in _model.model_fields), "nothing of it is refused"
