"""What a person on call should look at first: rules over the node's view, each giving findings.

They are made here alone: page, JSON, command line, readiness and the gauge show the same ones. A rule is over a state,
or over the last minute, so that a finding is gone when what it tells of is over.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.operate.attention import of_clients, of_groups, of_node
from proxy.operate.attention.kinds import KINDS
from proxy.operate.live_node import LiveNode
from proxy.operate.views.findings import Finding
from upstream.views import GroupView

DETAILS_MAX = 100
"""Deliveries and keys of a group that are enough for the rules: more are counted only."""
_PLACES = {kind: place for place, kind in enumerate(KINDS)}


def findings(node: LiveNode, groups: Sequence[GroupView], loop_lag_seconds: float) -> list[Finding]:
    """Return what needs attention, the bad first; empty when nothing does.

    Args:
        node: The node.
        groups: Those of its groups that are wanted, read with DETAILS_MAX details or more.
        loop_lag_seconds: How late its loop was.
    """
    troubles, now_ms = node.troubles(), node.clock.wall_ms()
    found = [*of_node.findings(node, troubles, loop_lag_seconds), *of_clients.findings(troubles)]
    for group in groups:
        found += of_groups.findings(group, troubles.risen, now_ms)
    return sorted(found, key=lambda finding: (not finding.bad, _PLACES[finding.finding]))
