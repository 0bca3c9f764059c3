"""From a live node to what it says of its troubles."""

from __future__ import annotations

from dataclasses import replace

from broker.retry.backlog import unread_in
from broker.runtime.store_metrics import FILES_DAMAGED, INDEX_FAILED
from broker.scheduled.delay.listing import level_statuses
from broker.scheduled.timer.listing import timer_status
from conf import Config
from proxy.node.node import Node
from proxy.node.opened import Opened
from proxy.node.trouble_facts import ConfigurationView, NodeTroubles, TlsView, WaitingView
from upstream.progress.progress import ProgressFull
from upstream.progress.reconcile import JOURNAL_DAMAGE

CHECKS_UNANSWERED = 4
"""Checks of a half without a decision after which it is a finding."""


def troubles_of(node: Node, configuration: ConfigurationView) -> NodeTroubles:
    """Return what a node says of its troubles; what is not open yet has none."""
    vitals, runtime, parts, opened = node.vitals, node.runtime, node.parts, node.opened
    clock, fault, step = runtime.clock, runtime.limited_log.last_fault, vitals.clock_step
    forward = step if step is not None and step.seconds > 0 else None
    common = NodeTroubles(
        risen=vitals.risen(),
        uptime_seconds=clock.monotonic() - node.started_monotonic,
        configuration=configuration,
        failing=dict(node.periodic.failing),
        faults=runtime.limited_log.faults,
        last_fault="" if fault is None else f"{fault.event}: {fault.text}",
        last_fault_ago=0.0 if fault is None else clock.monotonic() - fault.at,
        clock_forward_seconds=0.0 if forward is None else forward.seconds,
        clock_forward_ago=0.0 if forward is None else forward.ago,
        clock_behind_seconds=vitals.clock_behind_seconds,
        kafka=parts.kafka_groups.troubles(),
        kafka_unreachable=parts.kafka_groups.unreachable(node.in_force.config),
        kafka_producers=parts.kafka.producer_troubles(),
        kafka_topics=parts.kafka_groups.topic_troubles(),
        kafka_classic=parts.kafka_groups.classic(),
        kafka_waiting=parts.kafka.waiting_troubles(),
        limited=parts.limiter.held_now(),
        lag_webhook=node.recording.recorder.verdicts.trouble,
        tls=TlsView(
            refused=parts.tls.refused,
            refused_ms=parts.tls.refused_ms,
            expiring=parts.tls.expiring(),
            crls_expiring=parts.tls.crls_expiring(),
        ),
    )
    return common if opened is None else _of_store(node, opened, common)


def _of_store(node: Node, opened: Opened, common: NodeTroubles) -> NodeTroubles:
    store, retaining, metrics = opened.store, opened.retaining, node.runtime.metrics
    return replace(
        common,
        clock_behind_seconds=max(common.clock_behind_seconds, store.arrivals.ahead_seconds(store.store_ms)),
        stamps_ahead_seconds=store.arrivals.ahead_seconds(store.store_ms),
        sync_seconds=store.commit.longest_sync_seconds,
        acks_refused=isinstance(opened.progress.failed, ProgressFull),
        publishes_refused=store.segment_space.refuses,
        file_bytes=store.options.segment_bytes,
        reserve_missing=not store.segment_space.reserve_bytes,
        damage=store.damage.left(store.min_offset),
        files_damaged=sorted({labels[0] for _, labels, count in metrics.some((FILES_DAMAGED,)) if count}),
        acks_damaged=metrics.value(JOURNAL_DAMAGE),
        index_failed=bool(metrics.value(INDEX_FAILED)),
        waiting=_waiting(opened, node.runtime.clock.wall_ms()),
        retention_blocked=store.retention.blocked,
        retries_unread=_retries_unread(node.in_force.config, opened),
        retention_waits=None if retaining.waiting is None else dict(retaining.losses),
    )


def _retries_unread(config: Config, opened: Opened) -> dict[str, int]:
    """Messages of retry topics, by topic, that neither a group nor a consumer inside the program reads."""
    store = opened.store
    readers = {group.group for group in config.groups.values() if any(topic.retry_topic for topic in group.topics)}
    unread = unread_in(store, opened.progress.offsets.get, readers=readers)
    return {each.topic: each.count for each in unread if store.queue_locks.owner(each.group, (each.topic, 0)) is None}


def _waiting(opened: Opened, now_ms: int) -> WaitingView:
    """What waits for its moment, and what is wrong with that."""
    levels = level_statuses(opened.delays)
    timers = timer_status(opened.timers)
    late_ms = max([each.late_ms for each in levels], default=0)
    if timers.next_due_ms is not None:
        late_ms = max(late_ms, now_ms - timers.next_due_ms)
    refused = [refused.reason for level in opened.delays.levels.values() for refused in level.refused.values()]
    refused += [refused.reason for refused in opened.timers.due.refused.values()]
    settings, undecided = opened.transactions.settings, opened.transactions.halves.states.undecided
    oldest_ms = opened.transactions.oldest_ms() if undecided else None
    return WaitingView(
        late_ms=late_ms,
        refused=len(refused),
        refused_because=refused[0] if refused else "",
        paused=[each.stage for each in timers.stages if each.paused],
        undecided=undecided,
        undecided_ms=0 if oldest_ms is None else max(0, now_ms - oldest_ms),
        checked_ms=settings.timeout_ms + CHECKS_UNANSWERED * settings.interval_ms,
    )
