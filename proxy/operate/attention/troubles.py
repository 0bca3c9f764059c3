"""From a live node to what it says of its troubles."""

from __future__ import annotations

from dataclasses import replace

from broker.retry.backlog import unread_in
from broker.runtime.store_metrics import FILES_DAMAGED, INDEX_FAILED
from broker.scheduled.delay.listing import level_statuses
from broker.scheduled.timer.listing import timer_status
from proxy.node.node import Node
from proxy.node.trouble_facts import ConfigurationView, NodeTroubles, TlsView, WaitingView
from upstream.progress.progress import ProgressFull
from upstream.progress.reconcile import JOURNAL_DAMAGE

CHECKS_UNANSWERED = 4
"""Checks of a half without a decision after which it is a finding."""


def troubles_of(node: Node, configuration: ConfigurationView) -> NodeTroubles:
    """Return what a node says of its troubles; what is not open yet has none."""
    vitals, clock = node.vitals, node.seams.clock
    fault, step = node.limited_log.last_fault, vitals.clock_step
    forward = step if step is not None and step.seconds > 0 else None
    common = NodeTroubles(
        risen=vitals.risen(),
        uptime_seconds=clock.monotonic() - node.started_monotonic,
        configuration=configuration,
        failing=dict(node.periodic.failing),
        faults=node.limited_log.faults,
        last_fault="" if fault is None else f"{fault.event}: {fault.text}",
        last_fault_ago=0.0 if fault is None else clock.monotonic() - fault.at,
        clock_forward_seconds=0.0 if forward is None else forward.seconds,
        clock_forward_ago=0.0 if forward is None else forward.ago,
        clock_behind_seconds=vitals.clock_behind_seconds,
        kafka=node.kafka_groups.troubles(),
        kafka_producers=node.kafka.producer_troubles(),
        kafka_topics=node.kafka_groups.topic_troubles(),
        kafka_classic=node.kafka_groups.classic(),
        kafka_waiting=node.kafka.waiting_troubles(),
        limited=node.limiter.held_now(),
        lag_webhook=node.recorder.verdicts.trouble,
        tls=TlsView(
            refused=node.tls.refused,
            refused_ms=node.tls.refused_ms,
            expiring=node.tls.expiring(),
            crls_expiring=node.tls.crls_expiring(),
        ),
    )
    return _of_store(node, common) if node.is_open else common


def _of_store(node: Node, common: NodeTroubles) -> NodeTroubles:
    store, retaining = node.store, node.opened.retaining
    return replace(
        common,
        clock_behind_seconds=max(common.clock_behind_seconds, store.arrivals.ahead_seconds(store.store_ms)),
        stamps_ahead_seconds=store.arrivals.ahead_seconds(store.store_ms),
        sync_seconds=store.commit.longest_sync_seconds,
        acks_refused=isinstance(node.progress.failed, ProgressFull),
        publishes_refused=store.segment_space.refuses,
        file_bytes=store.options.segment_bytes,
        reserve_missing=not store.segment_space.reserve_bytes,
        damage=store.damage.left(store.min_offset),
        files_damaged=sorted({labels[0] for _, labels, count in node.metrics.some((FILES_DAMAGED,)) if count}),
        acks_damaged=node.metrics.value(JOURNAL_DAMAGE),
        index_failed=bool(node.metrics.value(INDEX_FAILED)),
        waiting=_waiting(node),
        retention_blocked=store.retention.blocked,
        retries_unread=_retries_unread(node),
        retention_waits=None if retaining.waiting is None else dict(retaining.losses),
    )


def _retries_unread(node: Node) -> dict[str, int]:
    """Messages of retry topics, by topic, that neither a group nor a consumer inside the program reads."""
    store = node.store
    readers = {group.group for group in node.config.groups.values() if any(topic.retry_topic for topic in group.topics)}
    unread = unread_in(store, node.progress.offsets.get, readers=readers)
    return {each.topic: each.count for each in unread if store.queue_locks.owner(each.group, (each.topic, 0)) is None}


def _waiting(node: Node) -> WaitingView:
    """What waits for its moment, and what is wrong with that."""
    now_ms = node.seams.clock.wall_ms()
    levels = level_statuses(node.delays)
    timers = timer_status(node.timers)
    late_ms = max([each.late_ms for each in levels], default=0)
    if timers.next_due_ms is not None:
        late_ms = max(late_ms, now_ms - timers.next_due_ms)
    refused = [refused.reason for level in node.delays.levels.values() for refused in level.refused.values()]
    refused += [refused.reason for refused in node.timers.due.refused.values()]
    settings, undecided = node.transactions.settings, node.transactions.halves.states.undecided
    oldest_ms = node.transactions.oldest_ms() if undecided else None
    return WaitingView(
        late_ms=late_ms,
        refused=len(refused),
        refused_because=refused[0] if refused else "",
        paused=[each.stage for each in timers.stages if each.paused],
        undecided=undecided,
        undecided_ms=0 if oldest_ms is None else max(0, now_ms - oldest_ms),
        checked_ms=settings.timeout_ms + CHECKS_UNANSWERED * settings.interval_ms,
    )
