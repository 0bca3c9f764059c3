"""What the admin port may change on a running node: one list, put together from a module per subject."""

from __future__ import annotations

from proxy.node.node import Node
from proxy.operate.changes.dead_letters import dead_letter_changes
from proxy.operate.changes.delays import delay_changes
from proxy.operate.changes.desk import Change
from proxy.operate.changes.groups import group_changes
from proxy.operate.changes.offsets import offset_changes
from proxy.operate.changes.publish import publish_changes
from proxy.operate.changes.timers import timer_changes
from proxy.operate.changes.topics import topic_changes
from proxy.operate.changes.transactions import transaction_changes


def node_changes(node: Node) -> list[Change]:
    """Return all changes of a node, a reload excepted; each module of changes adds its own here."""
    return [
        *dead_letter_changes(node),
        *delay_changes(node),
        *group_changes(node),
        *offset_changes(node),
        *publish_changes(node),
        *topic_changes(node),
        *transaction_changes(node),
        *timer_changes(node),
    ]
