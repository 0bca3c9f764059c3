"""Answers about a node, its topics and its groups, made of the node's view; docs/admin-shapes.md has their shapes."""

from __future__ import annotations

from msgspec.structs import asdict, replace

from broker.runtime.histogram import quantile_seconds
from broker.runtime.metrics import SPECS, Metrics
from proxy.operate.attention.findings import DETAILS_MAX
from proxy.operate.attention.judgement import Judgement
from proxy.operate.live_node import LiveNode
from proxy.operate.views.findings import AttentionAnswer
from proxy.operate.views.groups import GroupsAnswer, OffsetsAnswer, StuckAnswer
from proxy.operate.views.node import LatencyView, ReadinessAnswer, StatsAnswer
from proxy.operate.views.topics import TopicsAnswer, TopicView
from upstream.views import GroupView

# How long things took lately, as the status page, the admin port and the command line show it.


def latencies(metrics: Metrics, *, group: str | None = None) -> list[LatencyView]:
    """Return those with something to report, the node's own first, then the slowest first.

    Args:
        metrics: The node's.
        group: Those of one group; "": the node's own alone.
    """
    found = []
    for spec, labels, histogram in metrics.histograms(group=group):
        counts = histogram.recent()
        p50, p99 = quantile_seconds(counts, 0.5), quantile_seconds(counts, 0.99)
        named = dict(zip(spec.labels, labels, strict=True))
        if p50 is None or p99 is None:
            continue
        found.append(
            LatencyView(
                name=spec.name.removeprefix("pyddmq_").removesuffix("_seconds").replace("_", " "),
                labels=named,
                count=sum(counts),
                p50_seconds=round(p50, 6),
                p99_seconds=round(p99, 6),
            )
        )
    return sorted(found, key=lambda each: ("group" in each.labels, -each.p99_seconds))


LIMIT_DEFAULT = 100
LIMIT_MAX = 10_000


def topics_of(node: LiveNode) -> list[TopicView]:
    """Return all topics in the order in which they are shown."""
    return sorted(node.topics(), key=lambda topic: (topic.system, topic.kind, topic.topic))


def topics(node: LiveNode, *, limit: int, name: str | None = None) -> TopicsAnswer | None:
    """Return the topics, or None when `name` is given and there is none of that name."""
    found = [topic for topic in topics_of(node) if name in (None, topic.topic)]
    in_kafka = [topic for topic in node.topics_in_kafka() if name in (None, topic.topic)]
    if name is not None and not found and not in_kafka:
        return None
    now_ms = node.clock.wall_ms()
    return TopicsAnswer(
        now_ms=now_ms, topics_total=len(found) + len(in_kafka), topics=found[:limit], in_kafka=in_kafka[:limit]
    )


def groups(node: LiveNode, judged: Judgement, *, limit: int, name: str | None = None) -> GroupsAnswer | None:
    """Return the groups by name, or None when `name` is given and there is none of that name."""
    found = groups_of(node, max(limit, DETAILS_MAX), name)
    if name is not None and not found:
        return None
    return GroupsAnswer(
        now_ms=node.clock.wall_ms(),
        groups_total=len(found),
        groups=[_cut(group, limit) for group in found[:limit]],
        findings=judged.about(name),
    )


def groups_of(node: LiveNode, details_max: int, name: str | None = None) -> list[GroupView]:
    """Return the groups by name, or those of one name."""
    return sorted(node.groups(details_max=details_max, name=name), key=lambda group: group.group)


def _cut(group: GroupView, limit: int) -> GroupView:
    """Return a group with so many details at most; rules over it look at more."""
    topics = [
        replace(
            topic, stuck_keys=topic.stuck_keys[:limit], failing=topic.failing[:limit], stopped=topic.stopped[:limit]
        )
        for topic in group.topics
    ]
    return replace(group, topics=topics, in_flight=group.in_flight[:limit])


def stuck(node: LiveNode, judged: Judgement, *, limit: int, name: str | None = None) -> StuckAnswer | None:
    """Return the stuck messages, the oldest first, or None when a group's name is given and there is none of it."""
    found = node.stuck(group=name, count_max=limit)
    if found is None:
        return None
    messages, total = found
    return StuckAnswer(
        now_ms=node.clock.wall_ms(),
        stuck_total=total,
        stuck=messages,
        findings=judged.about(name),
    )


def attention(judged: Judgement) -> AttentionAnswer:
    """Return what needs attention."""
    return AttentionAnswer(now_ms=judged.now_ms, level=judged.level, findings=judged.findings)


def offsets(node: LiveNode, *, limit: int, name: str | None = None) -> OffsetsAnswer | None:
    """Return where groups stand by queue, or None when a group's name is given and it is nowhere."""
    found = node.positions(group=name)
    if name is not None and not found:
        return None
    return OffsetsAnswer(now_ms=node.clock.wall_ms(), offsets_total=len(found), offsets=found[:limit])


def readiness(node: LiveNode, judged: Judgement) -> ReadinessAnswer:
    """Return whether the node is ready, why not, how far its recovery is, and what needs attention."""
    return ReadinessAnswer(
        ready=node.state == "ready",
        state=node.state,
        reasons=node.reasons,
        memory=node.memory(),
        publishes_refused=node.troubles().publishes_refused,
        level=judged.level,
        findings=judged.findings,
        **({} if node.recovery is None else asdict(node.recovery)),
    )


def stats(node: LiveNode, judged: Judgement, *, limit: int) -> StatsAnswer:
    """Return what is known of the node itself."""
    connections = sorted(node.connections(), key=lambda connection: connection.since_ms)
    return StatsAnswer(
        now_ms=node.clock.wall_ms(),
        version=node.version,
        access=node.access,
        state=node.state,
        reasons=node.reasons,
        recovery=node.recovery,
        uptime_seconds=round(node.clock.monotonic() - node.started_monotonic, 3),
        event_loop_lag_seconds=round(node.loop_lag(), 6),
        store=node.store(),
        memory=node.memory(),
        findings=judged.findings,
        counters=counter_sums(node),
        latencies=latencies(node.metrics),
        connections_total=len(connections),
        connections=connections[:limit],
    )


def counter_sums(node: LiveNode) -> dict[str, int]:
    """Return the sum of every counter over its labels, by name."""
    return {name: node.metrics.value(name) for name, spec in sorted(SPECS.items()) if spec.kind == "counter"}
