"""What the admin port may change on a running node: one list, put together from a module per subject."""

from __future__ import annotations

from proxy.node.node import Node
from proxy.operate.changes import Change
from proxy.operate.dead_letter_changes import dead_letter_changes
from proxy.operate.delay_changes import delay_changes
from proxy.operate.group_changes import group_changes
from proxy.operate.offset_changes import offset_changes
from proxy.operate.timer_changes import timer_changes
from proxy.operate.topic_changes import topic_changes
from proxy.operate.transaction_changes import transaction_changes


def node_changes(node: Node) -> list[Change]:
    """Return all changes of a node, a reload excepted; each module of changes adds its own here."""
    return [
        *dead_letter_changes(node),
        *delay_changes(node),
        *group_changes(node),
        *offset_changes(node),
        *topic_changes(node),
        *transaction_changes(node),
        *timer_changes(node),
    ]
