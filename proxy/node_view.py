"""The node as the admin port sees it: plain records made from live objects when somebody asks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from broker.metrics import Metrics
from broker.seams import Clock
from proxy.admin.groups import group_view
from proxy.admin.view import (
    ConnectionView,
    GroupView,
    MemoryView,
    QueueRange,
    ReloadOutcome,
    State,
    StoreView,
    TopicView,
)
from proxy.node import Node
from proxy.reload import Reloader

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
            return (self._node.failure or "The write side is down.",)
        return (
            "The store is being opened and recovered."
            if state == "starting"
            else "It was told to stop and waits for what is out with clients.",
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
        groups = [*self._node.groups.values(), *self._node.leaving]
        return [group_view(group.stats(), details_max=details_max) for group in groups]

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

    def memory(self) -> MemoryView:
        """What is held in memory, against the ceiling."""
        budget = self._node.budget
        return MemoryView(held_bytes=budget.used, max_bytes=budget.limit, pressure=budget.level.name.lower())

    async def reload(self) -> ReloadOutcome:
        """Do what SIGHUP does; the file is read and applied in one turn of the loop."""
        await asyncio.sleep(0)
        result = self._reloader.reload()
        return ReloadOutcome(
            accepted=result.accepted, changes=result.changes, problems=result.problems, warnings=result.warnings
        )
