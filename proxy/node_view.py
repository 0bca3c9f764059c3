"""The node as the admin port sees it: plain records made from live objects when somebody asks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version

from broker.metrics import Metrics
from broker.seams import Clock
from proxy.admin.view import (
    ConnectionView,
    Delivery,
    GroupView,
    QueueLag,
    QueueRange,
    ReloadOutcome,
    State,
    StoreView,
    StuckKey,
    SubscriptionView,
    TopicView,
)
from proxy.node import Node
from proxy.reload import Reloader
from upstream.stats import GroupStats, TopicStats

_STATES: dict[str, State] = {"starting": "starting", "ready": "ready", "failed": "failed"}


def product_version() -> str:
    """Version of the installed distribution."""
    try:
        return version("pyddmq")
    except PackageNotFoundError:
        return "unknown"


class LiveNode:
    """Adapts a node to `proxy.admin.view.NodeView`."""

    def __init__(self, node: Node, reloader: Reloader) -> None:
        self._node = node
        self._reloader = reloader
        self._version = product_version()

    @property
    def state(self) -> State:
        """Where the node is in its life; a stopped one still shows as draining while its port closes."""
        return _STATES.get(self._node.state, "draining")

    @property
    def reasons(self) -> Sequence[str]:
        """Why the node is not ready."""
        state = self.state
        if state == "ready":
            return ()
        if state == "failed":
            return (self._node.failure or "the write side is down",)
        return (
            "the store is being opened and recovered"
            if state == "starting"
            else "the node was told to stop and drains",
        )

    @property
    def version(self) -> str:
        """Version of pyddmq."""
        return self._version

    @property
    def clock(self) -> Clock:
        """The node's clocks."""
        return self._node.seams.clock

    @property
    def started_monotonic(self) -> float:
        """When the node was started."""
        return self._node.started_monotonic

    @property
    def metrics(self) -> Metrics:
        """The node's counters."""
        return self._node.metrics

    def topics(self) -> Sequence[TopicView]:
        """Every topic of the store."""
        if self._node.state == "starting":
            return ()
        return [
            TopicView(
                topic=topic.name,
                queues=[QueueRange(queue=q.queue_id, min=q.min_offset, max=q.max_offset) for q in topic.queues],
                system=topic.system,
            )
            for topic in self._node.store.topics.values()
        ]

    def groups(self, *, details_max: int) -> Sequence[GroupView]:
        """Every group, those that leave included."""
        return [_group(group.stats(), details_max) for group in [*self._node.groups.values(), *self._node.leaving]]

    def connections(self) -> Sequence[ConnectionView]:
        """Every open connection."""
        if self._node.state == "starting":
            return ()
        return [
            ConnectionView(
                address=each.address, service=service, since_ms=each.since_ms, requests=each.requests, state=each.doing
            )
            for service, each in self._node.connections()
        ]

    def store(self) -> StoreView | None:
        """What is known of the data directory."""
        node = self._node
        if node.state == "starting":
            return None
        path = node.config.node.data
        return StoreView(
            path=path,
            used_bytes=node.store.used_bytes,
            free_bytes=node.seams.disk.free_bytes(path),
            flush=node.config.node.flush,
        )

    async def reload(self) -> ReloadOutcome:
        """Do what SIGHUP does; the file is read and applied in one turn of the loop."""
        await asyncio.sleep(0)
        result = self._reloader.reload()
        return ReloadOutcome(
            accepted=result.accepted, changes=result.changes, problems=result.problems, warnings=result.warnings
        )


def _group(stats: GroupStats, details_max: int) -> GroupView:
    return GroupView(
        group=stats.group,
        topics=[_subscription(topic, details_max) for topic in stats.topics],
        in_flight=[
            Delivery(topic=d.topic, qid=d.qid, offset=d.offset, holder=d.holder, since_ms=d.since_ms)
            for d in stats.in_flight[:details_max]
        ],
        in_flight_total=stats.in_flight_total,
    )


def _subscription(stats: TopicStats, details_max: int) -> SubscriptionView:
    return SubscriptionView(
        topic=stats.topic,
        state=stats.state,
        in_flight=stats.in_flight,
        waiting=stats.waiting,
        queues=[
            QueueLag(qid=q.qid, committed=q.committed, produced=q.produced, lag=q.lag, lag_seconds=q.lag_seconds)
            for q in stats.queues
        ],
        stuck_keys=list(_keys(stats, details_max)),
        stuck_keys_total=stats.stuck_keys_total,
    )


def _keys(stats: TopicStats, details_max: int) -> Iterator[StuckKey]:
    for each in stats.stuck_keys[:details_max]:
        yield StuckKey(
            key=each.key,
            topic=each.topic,
            qid=each.qid,
            offset=each.offset,
            attempts=each.attempts,
            holder=each.holder,
            since_ms=each.since_ms,
            waiting=each.waiting,
        )
