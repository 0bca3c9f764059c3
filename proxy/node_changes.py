"""What the admin port may change on a running node: one list, put together from a module per subject."""

from __future__ import annotations

from proxy.admin.changes import Change
from proxy.dead_letter_changes import dead_letter_changes
from proxy.delay_changes import delay_changes
from proxy.group_changes import group_changes
from proxy.node import Node
from proxy.offset_changes import offset_changes
from proxy.timer_changes import timer_changes
from proxy.topic_changes import topic_changes
from proxy.transaction_changes import transaction_changes


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
