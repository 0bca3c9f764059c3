"""What of a cluster does not fit a configuration, each with one sentence: what, where, and what would be right.

Pure rules over `upstream.kafka.cluster_facts`. An error (`bad`) is what keeps messages from being read, sent or kept; a
warning what will do so one day, or takes a promise its ground.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from conf.models import Config, GroupConfig, SubscriptionConfig
from upstream.kafka.cluster_facts import ClusterFacts, TopicFacts
from upstream.kafka.commits.metadata import TEXT_MAX
from upstream.kafka.group_protocol import AUTO, found_by
from upstream.kafka.membership import KEEP_SECONDS
from upstream.kafka.subscriptions import fits, is_expression
from upstream.kafka.waiting.topics import problem_of, settings_of

_DLQ = ".DLQ"
_DAY_MS = 86_400_000


class ClusterMismatch(NamedTuple):
    """One of them.

    Attributes:
        path: The key of the configuration that it is about.
        bad: An error, not a warning.
        text: The sentence.
    """

    path: tuple[str, ...]
    bad: bool
    text: str


def wanted_of(config: Config, cluster: str) -> tuple[set[str], set[str]]:
    """Return the topics, expressions among them, and the groups that a configuration has in a cluster."""
    groups = {name for name in config.groups if config.cluster_of_group(name) == cluster}
    topics = {name for name in config.topics if config.cluster_of(name) == cluster and not is_expression(name)}
    topics |= {each.topic for name in groups for each in config.groups[name].enabled_topics}
    topics |= {f"{name}{_DLQ}" for name in groups}
    if (waits := config.kafka[cluster].waiting) is not None:
        topics |= {waits.topic, waits.answers_topic}
    return topics | ({config.kafka[cluster].commit_topic} if groups else set()), groups


def mismatches(config: Config, cluster: str, facts: ClusterFacts) -> Iterator[ClusterMismatch]:
    """Yield all that does not fit, errors and warnings by their places."""
    settings = config.kafka[cluster]
    if facts.trouble:
        text = f"cannot be queried at {settings.bootstrap_servers}: {facts.trouble}; {_advice(facts.trouble)}"
        yield ClusterMismatch(("kafka", cluster), True, text)
        return
    yield from _of_sessions(config, cluster, facts)
    yield from _of_offsets(config, cluster, facts)
    _, groups = wanted_of(config, cluster)
    for name, topic in config.topics.items():
        if config.cluster_of(name) != cluster or not topic.enabled:
            continue
        path = ("topics", name)
        if is_expression(name):
            if not any(fits(name, each, whole=settings.group_protocol == "consumer") for each in facts.names):
                yield ClusterMismatch(
                    path, False, f"matches no visible topic of {cluster}; topics that are created later will be read"
                )
            continue
        found = facts.topics.get(name)
        if found is None:
            yield _missing(path, name, cluster, facts, bad=True, for_what="producers and groups here use it")
            continue
        yield from _of_copies(path, name, found, facts)
        yield from _of_sends(path, found, config)
    for name in sorted(groups):
        yield from _of_group(config, config.groups[name], cluster, facts)
    yield from _of_waiting(config, cluster, facts)
    if groups:
        yield from _of_commit_topic(config, cluster, facts)
        yield from _of_commit_texts(cluster, facts)


def _of_waiting(config: Config, cluster: str, facts: ClusterFacts) -> Iterator[ClusterMismatch]:
    """What keeps delays from being taken, or takes their ground."""
    settings = settings_of(config, cluster)
    if settings is None:
        return
    path = ("kafka", cluster, "waiting")
    topic = facts.topics.get(settings.topic)
    problem = problem_of(settings, topic, settings.answers_topic in facts.topics, facts.hidden)
    if problem:
        yield ClusterMismatch(path, True, problem)
    for name in (settings.topic, settings.answers_topic):
        if (found := facts.topics.get(name)) is not None:
            yield from _of_copies(path, name, found, facts)
            if not (_may(found, "READ") and _may(found, "WRITE")):
                yield ClusterMismatch(
                    path, True, f"this user may not read and write {name}; grant Read and Write on it"
                )


def _advice(trouble: str) -> str:
    if "AUTHENTICATION" in trouble:
        return "configure a user and a secret that the brokers accept (sasl.mechanism, sasl.username, sasl.password)"
    if "SSL" in trouble:
        return "configure security.protocol and certificates that match the brokers (ssl.ca.location)"
    return "configure bootstrapServers that respond, with the security.protocol of their port"


def _missing(
    path: tuple[str, ...], name: str, cluster: str, facts: ClusterFacts, *, bad: bool, for_what: str, more: str = ""
) -> ClusterMismatch:
    if name in facts.hidden:
        text = f"this user may not describe {name} ({facts.hidden[name]}); grant Describe, Read and Write on it"
        return ClusterMismatch(path, True, text)
    copies = min(3, facts.brokers)
    make = f"kafka-topics.sh --create --topic {name} --partitions 12 --replication-factor {copies}{more}"
    return ClusterMismatch(
        path, bad, f"{name} does not exist in {cluster}, or is not visible, and {for_what}; create it: {make}"
    )


def _may(found: TopicFacts, operation: str) -> bool:
    return found.allowed is None or operation in found.allowed


def _of_copies(path: tuple[str, ...], name: str, found: TopicFacts, facts: ClusterFacts) -> Iterator[ClusterMismatch]:
    if found.leaderless:
        text = (
            f"{found.leaderless} of {found.partitions} partitions of {name} have no leader, so they cannot be read or "
        )
        yield ClusterMismatch(path, True, text + "written; restart their brokers")
    if found.replicas < 2:
        why = "and the cluster has only one broker" if facts.brokers < 2 else "so losing one disk loses the topic"
        yield ClusterMismatch(path, False, f"{name} has one copy, {why}; use a replication factor of 3")
    if not found.settings:
        text = f"settings of {name} are not visible, so they are not checked; grant this user DescribeConfigs on it"
        yield ClusterMismatch(path, False, text)
        return
    least = _number(found, "min.insync.replicas", 1)
    if found.in_sync < least:
        text = f"{name} has a partition with {found.in_sync} copies in sync, and min.insync.replicas is {least}: every "
        yield ClusterMismatch(path, True, text + "send to it fails; restart its brokers")
    elif found.replicas > 1 and least < 2:
        text = f"min.insync.replicas of {name} is 1, so an acknowledged message may be on only one broker; set 2"
        yield ClusterMismatch(path, False, text)
    elif 1 < found.replicas <= least:
        text = f"min.insync.replicas of {name} is {least} of {found.replicas} copies, so sends fail when one "
        yield ClusterMismatch(path, False, text + f"broker is down; set {found.replicas - 1}")


def _of_sends(path: tuple[str, ...], found: TopicFacts, config: Config) -> Iterator[ClusterMismatch]:
    if not _may(found, "WRITE"):
        yield ClusterMismatch(
            path,
            False,
            "this user may not write to it (producers receive code 13); grant Write, unless this is intended",
        )
    if (largest := _number(found, "max.message.bytes", 0)) and largest < config.node.max_message_bytes:
        text = f"accepts messages up to {largest} bytes (max.message.bytes), and node.maxMessageBytes is "
        text += f"{config.node.max_message_bytes}; larger ones are refused with code 11; set both to the same value"
        yield ClusterMismatch(path, False, text)


def _of_group(config: Config, group: GroupConfig, cluster: str, facts: ClusterFacts) -> Iterator[ClusterMismatch]:
    path = ("groups", group.group)
    allowed = facts.groups.get(group.group)
    if allowed is not None and "READ" not in allowed:
        text = f"this user may not join group {group.group} in {cluster}; grant Read on that group"
        yield ClusterMismatch(path, True, text)
    whole = config.kafka[cluster].group_protocol == "consumer"
    buries = False
    for each in group.enabled_topics:
        buries |= each.on_exhausted == "deadLetter"
        for name in sorted(name for name in facts.topics if fits(each.topic, name, whole=whole)):
            yield from _of_reading((*path, each.topic), name, each, facts.topics[name])
    letters = group.group + _DLQ
    found = facts.topics.get(letters)
    if not buries:
        return
    if found is None:
        why = "messages out of attempts go there: until it exists, their keys wait"
        yield _missing(path, letters, cluster, facts, bad=True, for_what=why)
        return
    yield from _of_copies(path, letters, found, facts)
    if not _may(found, "WRITE"):
        text = f"this user may not write to {letters}, so keys of messages out of attempts wait; grant Write"
        yield ClusterMismatch(path, True, text)


def _of_reading(
    path: tuple[str, ...], name: str, subscription: SubscriptionConfig, found: TopicFacts
) -> Iterator[ClusterMismatch]:
    if not _may(found, "READ"):
        yield ClusterMismatch(path, True, f"this user may not read {name}; grant Read on that topic")
    kept = _number(found, "retention.ms", -1)
    if kept < 0 or "delete" not in found.settings.get("cleanup.policy", "delete"):
        return
    schedule = schedule_ms(subscription)
    if schedule is None:
        text = f"{name} keeps messages for {_span(kept)} (retention.ms), and failed messages are retried without end: "
        yield ClusterMismatch(path, False, text + "after that Kafka deletes them unfinished; limit the retries")
    elif schedule >= kept:
        text = (
            f"{name} keeps messages for {_span(kept)} (retention.ms), and retries here take up to {_span(schedule)}: "
        )
        yield ClusterMismatch(
            path, True, text + f"Kafka deletes messages that still fail; set retention.ms to {2 * schedule} or more"
        )


def schedule_ms(subscription: SubscriptionConfig) -> int | None:
    """Return how long a message may be retried at most before it is abandoned, in ms; None: without end."""
    intervals = subscription.retry_intervals
    if subscription.on_exhausted != "deadLetter" or -1 in intervals or subscription.max_retry < 0:
        return None
    by_fails = sum(intervals) + (len(intervals) + 1) * subscription.timeout
    return by_fails + subscription.max_retry * subscription.timeout


def _of_commit_topic(config: Config, cluster: str, facts: ClusterFacts) -> Iterator[ClusterMismatch]:
    path, name = ("kafka", cluster, "commitTopic"), config.kafka[cluster].commit_topic
    found = facts.topics.get(name)
    if found is None:
        why = "without it, commits that are too large are cut, so that some messages are delivered again after a crash"
        more = " --config cleanup.policy=compact"
        yield _missing(path, name, cluster, facts, bad=False, for_what=why, more=more)
        return
    yield from _of_copies(path, name, found, facts)
    if found.settings and "delete" in found.settings.get("cleanup.policy", "delete"):
        text = f"{name} deletes by age, including records that commits refer to; set its cleanup.policy to compact"
        yield ClusterMismatch(path, True, text)
    if not (_may(found, "READ") and _may(found, "WRITE")):
        yield ClusterMismatch(
            path, False, f"this user may not read and write {name}; grant both, or large commits are cut"
        )


def _of_commit_texts(cluster: str, facts: ClusterFacts) -> Iterator[ClusterMismatch]:
    key = "offset.metadata.max.bytes"
    limit = _whole(facts.settings.get(key))
    if limit is not None and limit <= TEXT_MAX:
        text = (
            f"the brokers accept {limit} bytes of metadata with a commit ({key}); larger metadata goes to the commit "
            f"topic, or messages are delivered again after a crash; set {TEXT_MAX + 1} on the brokers"
        )
        yield ClusterMismatch(("kafka", cluster), False, text)


def _whole(text: str | None) -> int | None:
    """Return what a broker's setting says; None where it is not a number."""
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,18}", text) else None


def _of_sessions(config: Config, cluster: str, facts: ClusterFacts) -> Iterator[ClusterMismatch]:
    path, settings = ("kafka", cluster, "sessionTimeout"), config.kafka[cluster]
    reported, ours = facts.settings, settings.session_timeout
    if settings.group_protocol == "consumer":
        theirs = _whole(reported.get("group.consumer.session.timeout.ms"))
        if theirs is not None and theirs != ours:
            text = f"is {ours} ms, but the brokers' {theirs} (group.consumer.session.timeout.ms) applies "
            yield ClusterMismatch(path, theirs < ours, text + f"with groupProtocol consumer; write {theirs}")
        return
    if settings.group_protocol == AUTO and (why := found_by(facts, ours).why):
        yield ClusterMismatch(("kafka", cluster, "groupProtocol"), False, f"stays classic: {why}")
    least = _whole(reported.get("group.min.session.timeout.ms"))
    most = _whole(reported.get("group.max.session.timeout.ms"))
    if least is not None and ours < least:
        yield ClusterMismatch(path, True, f"is {ours} ms, and the brokers accept at least {least}; set this or more")
    elif most is not None and ours > most:
        yield ClusterMismatch(path, True, f"is {ours} ms, and the brokers accept at most {most}; set this or less")


def _of_offsets(config: Config, cluster: str, facts: ClusterFacts) -> Iterator[ClusterMismatch]:
    minutes = _whole(facts.settings.get("offsets.retention.minutes"))
    always = config.kafka[cluster].membership == "always"
    if minutes is not None and minutes * 60 < 2 * KEEP_SECONDS and not always:
        text = (
            f"the brokers delete the offsets of a group without a member after {_span(minutes * 60_000)} "
            f"(offsets.retention.minutes), and a node joins an idle group every {_span(int(KEEP_SECONDS * 1000))}; set "
            f"it to {int(2 * KEEP_SECONDS / 60)} or more, or use membership `always`"
        )
        yield ClusterMismatch(("kafka", cluster, "membership"), False, text)


def _number(found: TopicFacts, key: str, absent: int) -> int:
    try:
        return int(found.settings.get(key, absent))
    except ValueError:
        return absent


def _span(ms: int) -> str:
    if ms >= _DAY_MS:
        return f"{ms / _DAY_MS:.3g} days"
    return f"{ms / 3_600_000:.3g} h" if ms >= 3_600_000 else f"{ms / 1000:.3g} s"
