"""The JSON documents of the admin port; docs/admin.md describes their shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.queues.topics import kind_of
from broker.runtime.metrics import SPECS
from proxy.node.startup import RecoveryView
from proxy.operate import attention
from proxy.operate.view import (
    Delivery,
    GroupView,
    NodeView,
    PositionView,
    ReloadOutcome,
    StuckKey,
    StuckView,
    SubscriptionView,
    TopicView,
)

LIMIT_DEFAULT = 100
LIMIT_MAX = 10_000

Document = dict[str, Any]


def topics(node: NodeView, *, limit: int, name: str | None = None) -> Document | None:
    """Return the topics by name, or None when `name` is given and there is none of that name."""
    found: Sequence[TopicView] = sorted(
        node.topics(), key=lambda topic: (topic.system, kind_of(topic.topic), topic.topic)
    )
    if name is not None:
        found = [topic for topic in found if topic.topic == name]
        if not found:
            return None
    return {
        "nowMs": node.clock.wall_ms(),
        "topicsTotal": len(found),
        "topics": [
            {
                "topic": topic.topic,
                "system": topic.system,
                "kind": kind_of(topic.topic),
                "messageType": topic.message_type,
                "queues": [{"queue": queue.queue, "min": queue.min, "max": queue.max} for queue in topic.queues],
            }
            for topic in found[:limit]
        ],
    }


def memory(node: NodeView) -> Document:
    """Return what the node holds in memory and how near its ceiling is."""
    view = node.memory()
    return {"heldBytes": view.held_bytes, "maxBytes": view.max_bytes, "pressure": view.pressure}


def groups(node: NodeView, *, limit: int, name: str | None = None, loop_lag_seconds: float = 0.0) -> Document | None:
    """Return the groups by name, or None when `name` is given and there is none of that name."""
    details_max = max(limit, attention.DETAILS_MAX)
    found: Sequence[GroupView] = sorted(node.groups(details_max=details_max), key=lambda group: group.group)
    if name is not None:
        found = [group for group in found if group.group == name]
        if not found:
            return None
    return {
        "nowMs": node.clock.wall_ms(),
        "groupsTotal": len(found),
        "groups": [_group(group, limit) for group in found[:limit]],
        "findings": attention.documents(node, found, loop_lag_seconds),
    }


def _group(group: GroupView, limit: int) -> Document:
    return {
        "group": group.group,
        "parkedPulls": group.parked,
        "topics": [_subscription(topic, limit) for topic in group.topics],
        "inFlightTotal": max(group.in_flight_total, len(group.in_flight)),
        "inFlight": [_delivery(each) for each in sorted(group.in_flight, key=lambda each: each.since_ms)[:limit]],
    }


def _subscription(topic: SubscriptionView, limit: int) -> Document:
    return {
        "topic": topic.topic,
        "state": topic.state,
        "lag": topic.lag,
        "lagSeconds": round(topic.lag_seconds, 3),
        "inFlight": topic.in_flight,
        "waiting": topic.waiting,
        "buffered": topic.buffered,
        "retrying": topic.retrying,
        "readingStopped": topic.reading_stopped,
        "owner": topic.owner,
        "pausedSinceMs": topic.paused_since_ms,
        "pausedBy": topic.paused_by,
        "lost": topic.lost,
        "lostAtMs": topic.lost_at_ms or None,
        "expiresSeconds": None if topic.expires_seconds is None else round(topic.expires_seconds, 3),
        "expiresBytes": topic.expires_bytes,
        "queues": [
            {
                "qid": queue.qid,
                "committed": queue.committed,
                "produced": queue.produced,
                "lag": queue.lag,
                "lagSeconds": round(queue.lag_seconds, 3),
            }
            for queue in topic.queues
        ],
        "failingTotal": topic.failing_total,
        "problem": topic.problem or None,
        "stuckKeysTotal": max(topic.stuck_keys_total, len(topic.stuck_keys)),
        "stuckKeys": [_stuck(key) for key in sorted(topic.stuck_keys, key=lambda key: key.since_ms)[:limit]],
    }


def _stuck(key: StuckKey) -> Document:
    return {
        "key": key.key,
        "offset": key.offset,
        "qid": key.qid,
        "attempts": key.attempts,
        "holder": key.holder,
        "state": key.state,
        "sinceMs": key.since_ms,
        "waiting": key.waiting,
        "reason": key.reason or None,
    }


def stuck(node: NodeView, *, limit: int, name: str | None = None, loop_lag_seconds: float = 0.0) -> Document | None:
    """Return the stuck messages, the oldest first, or None when a group's name is given and there is none of it."""
    found = node.stuck(group=name, count_max=limit)
    if found is None:
        return None
    messages, total = found
    return {
        "nowMs": node.clock.wall_ms(),
        "stuckTotal": total,
        "stuck": [_stuck_message(each) for each in messages],
        "findings": _findings(node, loop_lag_seconds, group=name),
    }


def findings(node: NodeView, *, loop_lag_seconds: float) -> Document:
    """Return what needs attention."""
    return {"nowMs": node.clock.wall_ms(), "findings": _findings(node, loop_lag_seconds)}


def _findings(node: NodeView, loop_lag_seconds: float, *, group: str | None = None) -> list[Document]:
    wanted = [each for each in node.groups(details_max=attention.DETAILS_MAX) if group in (None, each.group)]
    return attention.documents(node, wanted, loop_lag_seconds)


def _stuck_message(message: StuckView) -> Document:
    return {
        "group": message.group,
        "topic": message.topic,
        "key": message.key,
        "queue": message.queue,
        "qid": message.qid,
        "offset": message.offset,
        "id": message.message_id,
        "state": message.state,
        "attempts": message.attempts,
        "holder": message.holder,
        "sinceMs": message.since_ms,
        "dueMs": message.due_ms,
        "waiting": message.waiting,
        "reason": message.reason or None,
    }


def offsets(node: NodeView, *, limit: int, name: str | None = None) -> Document | None:
    """Return where groups stand by queue, or None when a group's name is given and it stands nowhere."""
    found: Sequence[PositionView] = node.positions(group=name)
    if name is not None and not found:
        return None
    return {
        "nowMs": node.clock.wall_ms(),
        "offsetsTotal": len(found),
        "offsets": [
            {
                "group": each.group,
                "topic": each.topic,
                "queue": each.queue,
                "min": each.min,
                "committed": each.committed,
                "finishedAbove": each.finished_above,
                "next": each.next,
                "max": each.max,
                "lag": each.lag,
                "oldestMs": each.oldest_ms,
            }
            for each in found[:limit]
        ],
    }


def _delivery(delivery: Delivery) -> Document:
    return {
        "topic": delivery.topic,
        "qid": delivery.qid,
        "offset": delivery.offset,
        "holder": delivery.holder,
        "sinceMs": delivery.since_ms,
    }


def readiness(node: NodeView, *, loop_lag_seconds: float) -> Document:
    """Return whether the node is ready, why not, how far its recovery is, and what needs attention."""
    document: Document = {
        "ready": node.state == "ready",
        "state": node.state,
        "reasons": list(node.reasons),
        "memory": memory(node),
        "findings": _findings(node, loop_lag_seconds),
    }
    return document | (_recovery(node.recovery) or {})


def _recovery(recovery: RecoveryView | None) -> Document | None:
    if recovery is None:
        return None
    return {
        "phase": recovery.phase,
        "scannedBytes": recovery.scanned_bytes,
        "totalBytes": recovery.total_bytes,
        "percent": recovery.percent,
        "etaSeconds": recovery.eta_seconds,
    }


def stats(node: NodeView, *, limit: int, loop_lag_seconds: float) -> Document:
    """Return what is known of the node itself; connections the oldest first."""
    connections = sorted(node.connections(), key=lambda connection: connection.since_ms)
    store = node.store()
    return {
        "nowMs": node.clock.wall_ms(),
        "version": node.version,
        "state": node.state,
        "reasons": list(node.reasons),
        "recovery": _recovery(node.recovery),
        "uptimeSeconds": round(node.clock.monotonic() - node.started_monotonic, 3),
        "eventLoopLagSeconds": round(loop_lag_seconds, 6),
        "store": None
        if store is None
        else {
            "path": store.path,
            "usedBytes": store.used_bytes,
            "freeBytes": store.free_bytes,
            "flush": store.flush,
        },
        "memory": memory(node),
        "findings": _findings(node, loop_lag_seconds),
        "counters": _counter_sums(node),
        "connectionsTotal": len(connections),
        "connections": [
            {
                "address": connection.address,
                "service": connection.service,
                "sinceMs": connection.since_ms,
                "requests": connection.requests,
                "state": connection.state,
            }
            for connection in connections[:limit]
        ],
    }


def _counter_sums(node: NodeView) -> dict[str, int]:
    sums = {name: 0 for name, spec in sorted(SPECS.items()) if spec.kind == "counter"}
    for spec, _, value in node.metrics:
        if spec.kind == "counter":
            sums[spec.name] += value
    return sums


def reload(outcome: ReloadOutcome) -> Document:
    """Return what a reload did."""
    document: Document = {
        "accepted": outcome.accepted,
        "changes": list(outcome.changes),
        "warnings": list(outcome.warnings),
    }
    if not outcome.accepted:
        document["problems"] = list(outcome.problems)
    return document
