"""The node as the admin port sees it: plain records made from live objects when somebody asks."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from broker.metrics import Metrics
from broker.seams import Clock
from proxy.admin.view import (
    ConnectionView,
    GroupView,
    QueueRange,
    ReloadOutcome,
    State,
    StoreView,
    TopicView,
)
from proxy.node import Node
from proxy.reload import Reloader


def product_version() -> str:
    """Version of the installed distribution."""
    try:
        return version("pyddmq")
    except PackageNotFoundError:
        return "unknown"


class LiveNode:
    """Adapts a node to `proxy.admin.view.NodeView`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.reloader: Reloader | None = None
