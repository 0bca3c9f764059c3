"""Consumer groups, their stuck messages and their offsets; the records in these answers are `upstream.views`."""

from __future__ import annotations

from collections.abc import Sequence

from broker.views import View
from proxy.operate.views.findings import Finding
from upstream.views import GroupView, Position, StuckMessage


class GroupsAnswer(View, frozen=True, kw_only=True):
    """Groups.

    Attributes:
        now_ms: Now, by the node's wall clock.
        groups_total: How many there are.
        groups: By name.
        findings: What needs attention.
    """

    now_ms: int
    groups_total: int
    groups: Sequence[GroupView]
    findings: Sequence[Finding]


class StuckAnswer(View, frozen=True, kw_only=True):
    """Stuck messages.

    Attributes:
        now_ms: Now, by the node's wall clock.
        stuck_total: How many there are.
        stuck: The longest stuck first.
        findings: What needs attention.
    """

    now_ms: int
    stuck_total: int
    stuck: Sequence[StuckMessage]
    findings: Sequence[Finding]


class OffsetsAnswer(View, frozen=True, kw_only=True):
    """Offsets of groups, also of groups that are no longer configured.

    Attributes:
        now_ms: Now, by the node's wall clock.
        offsets_total: How many queues that are.
        offsets: By group, topic and queue.
    """

    now_ms: int
    offsets_total: int
    offsets: Sequence[Position]
