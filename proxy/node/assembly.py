"""What a node is put together from: the seams, and each part as the configuration wants it.

`proxy.node.node` decides when a part is made and how parts meet; here stands only how one is made.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial

from broker.deduplication.deduplication import Deduplication, WindowLimits
from broker.features import features
from broker.log.shared_walk import together
from broker.opening.recovery import RecoveryProgress
from broker.retention import Keeper, RetentionLimits
from broker.runtime.metrics import Metrics
from broker.scheduled.delay.delays import Delays
from broker.scheduled.delay.keeper import DelayKeeper
from broker.scheduled.recurring.cancel import DelayCancels
from broker.scheduled.recurring.loops import Loops
from broker.scheduled.recurring.returning import returning
from broker.scheduled.timer.keeper import TimerKeeper
from broker.scheduled.timer.names import TimerOptions
from broker.scheduled.timer.timers import Timers
from broker.store import Store, StoreOptions, StoreUnwritable
from broker.store_seams import StoreSeams
from broker.tools.interchange import geometry_of
from broker.transaction.keeper import TransactionKeeper
from broker.transaction.settings import CheckSettings
from broker.transaction.transactions import Transactions
from conf import GroupConfig, NodeConfig
from proxy.node.parts import Parts, Seams
from proxy.port.accepting import ServerLimits
from proxy.port.server import Commons, Handler, ThriftServer
from proxy.port.shares import Shares
from proxy.services.consumer_service import ConsumerService
from proxy.services.delay_service import DelayService
from proxy.services.held_calls import HeldCalls
from proxy.services.keyed_sends import KeyedSends
from proxy.services.limited_sends import LimitedSends
from proxy.services.message_checks import MessageChecks
from proxy.services.producer_service import ProducerService
from proxy.services.publishing import Publishing
from proxy.services.starting_service import StartingService
from proxy.services.transaction_service import TransactionService
from upstream.delivery.buffer import BufferLimits
from upstream.delivery.group import ConsumerGroup
from upstream.delivery.group_parts import GroupLimits, Runtime
from upstream.expiry import Expiry
from upstream.progress.progress import Progress, ProgressFull


def opening_store(node: NodeConfig, seams: Seams, metrics: Metrics) -> Generator[RecoveryProgress, None, Store]:
    """Open the store and recover it, in steps. Raises StoreError."""
    options = StoreOptions(
        segment_bytes=node.segment_bytes,
        queue_file_units=node.queue_file_units,
        flush=node.flush,
        message_bytes_max=node.max_message_bytes,
    )
    given = features(
        delay_levels=node.message_delay_level,
        timers=TimerOptions(
            delay_ms_max=node.timer_max_delay_sec * 1000,
            slot_messages_max=node.timer_congest_num_each_slot,
            log_file_bytes=node.timer_log_file_bytes,
        ),
    )
    found = geometry_of(node.data, disk=seams.disk, default=options)
    if found is not None:
        # Not configured: RocketMQ's index files go on in their size, and are no others for it afterwards.
        options = replace(options, index_slots=found.index_slots, index_entries=found.index_entries)
    return (
        yield from Store.opening(
            node.data,
            options=options,
            features=given,
            disk=seams.disk,
            clock=seams.clock,
            random=seams.randomness,
            metrics=metrics,
        )
    )


def opening_progress(node: NodeConfig, seams: Seams, metrics: Metrics, store: Store) -> Generator[None, None, Progress]:
    """Open trackers and ack journal of a store that has just been opened, in steps. Raises StoreError."""
    steps = Progress.opening(
        node.data,
        store=store,
        disk=seams.disk,
        clock=seams.clock,
        metrics=metrics,
        scheduler=seams.loop,
        ack_flush=node.ack_flush,
        segment_bytes=node.ack_segment_bytes,
        savings=store.savings,
    )
    try:
        return (yield from steps)
    except ProgressFull as error:
        # That acks are taken again by themselves is said of a node that runs; this one cannot begin.
        raise StoreUnwritable(node.data, error.cause) from error


def check_settings(node: NodeConfig) -> CheckSettings:
    """When undecided transactions are checked and given up."""
    return CheckSettings(
        timeout_ms=node.transaction_time_out,
        interval_ms=node.transaction_check_interval,
        checks_max=node.transaction_check_max,
        age_seconds_max=node.transaction_discard_hours * 3600,
    )


def opening_waiting(parts: Parts) -> Generator[None, None, tuple[Delays, Timers, Transactions]]:
    """Find out what is pending in a store that has just been opened, with one walk of the log, in steps.

    Raises OSError.
    """
    store = parts.store
    seams: StoreSeams = {
        "disk": parts.seams.disk,
        "clock": parts.seams.clock,
        "scheduler": parts.steps,
        "metrics": parts.metrics,
        "notices": parts.notices,
    }
    delays, timers, transactions = yield from together(
        store,
        Delays.reading(store, **seams),
        Timers.reading(store, **seams),
        Transactions.reading(
            store, offsets=parts.progress.offsets, settings=check_settings(parts.config.node), **seams
        ),
    )
    for pace in (delays.due.pace, timers.entering.pace, timers.due.pace, transactions.pace):
        pace.requests = lambda: parts.consumer.requests + parts.producer.requests
    yield from returning(store, disk=parts.seams.disk)
    return delays, timers, transactions


def opening_deduplication(parts: Parts) -> Generator[None, None, Deduplication]:
    """Find out which messages of deduplicating producers a store has that was just opened, in steps. Raises OSError."""
    config = parts.config.node
    limits = WindowLimits(
        silence_ms=config.deduplication_sec * 1000,
        messages=config.deduplication_messages,
        producers=config.deduplication_producers,
    )
    return Deduplication.opening(parts.store, disk=parts.seams.disk, metrics=parts.metrics, limits=limits)


def loops(parts: Parts) -> Loops:
    """Make what knows the loops among the timers, and have the timers ask it."""
    made = Loops(parts.store, clock=parts.seams.clock, metrics=parts.metrics, notices=parts.notices)
    parts.timers.due.follower = made
    return made


def retention_keepers(parts: Parts) -> list[Keeper]:
    """Make those who put elsewhere what they need of a log file before it goes."""
    return [
        DelayKeeper(parts.delays, parts.metrics),
        TimerKeeper(parts.timers, parts.metrics),
        TransactionKeeper(parts.transactions, parts.metrics),
        parts.deduplication,
    ]


def retention_limits(node: NodeConfig) -> RetentionLimits:
    """When log files go; 0 is no limit, like null."""
    return RetentionLimits(
        age_ms=int(node.retention_hours * 3_600_000) if node.retention_hours else None,
        log_bytes=node.retention_bytes or None,
        disk_ratio=node.retention_disk_ratio or None,
        disk_ratio_forced=node.retention_disk_ratio_forced or None,
    )


def server_limits(node: NodeConfig, seams: Seams) -> ServerLimits:
    """What the configuration allows one server's peers."""
    return ServerLimits(
        frame_bytes_max=node.max_read_buffer_bytes,
        output_bytes_max=node.output_buffer_bytes,
        outstanding_max=node.max_outstanding_per_connection,
        connections_max=node.max_connections,
        address_connections_max=node.max_connections_per_address or -(-node.max_connections * 3 // 4),
        idle_seconds=node.idle_timeout / 1000,
        frame_seconds_max=node.frame_timeout / 1000,
        descriptors_max=seams.descriptors_max,
    )


def group_limits(node: NodeConfig) -> GroupLimits:
    """What the configuration allows one group."""
    return GroupLimits(
        buffer=BufferLimits(reply_bytes_max=node.max_recv_msgs_length, parked_max=node.max_parked_pulls),
        waiting_max=node.max_waiting_per_topic,
        drain_seconds=node.drain_seconds,
    )


def starting_servers(
    parts: Parts, *, request_turn: Callable[[], None], admin_hint: str
) -> tuple[ThriftServer, ThriftServer, HeldCalls]:
    """Make the consumers' and the producers' port, answering that the node is starting, and what they hold.

    Args:
        parts: The node's.
        request_turn: As in `Commons`.
        admin_hint: As in `Commons`.
    """
    starting = StartingService(parts.metrics, parts.notices)
    limits = server_limits(parts.config.node, parts.seams)
    commons = Commons(
        clock=parts.seams.clock,
        scheduler=parts.seams.loop,
        metrics=parts.metrics,
        request_turn=request_turn,
        admin_hint=admin_hint,
        budget=parts.budget,
        relieve=parts.memory.relieve,
        notices=parts.notices,
        shares=Shares(parts.seams.clock, parts.seams.loop, parts.metrics),
    )
    consumer = ThriftServer("consumer", starting.consumer_handlers(), limits=limits, commons=commons)
    producer = ThriftServer("producer", starting.producer_handlers(), limits=limits, commons=commons)
    return consumer, producer, starting.held


def consumer_service(parts: Parts) -> ConsumerService:
    """Make what answers consumers, over the node's groups."""
    return ConsumerService(
        parts.groups,
        store=parts.store,
        clock=parts.seams.clock,
        scheduler=parts.seams.loop,
        metrics=parts.metrics,
        linger_ms_max=parts.config.node.max_linger_time,
        acks_refused=lambda: parts.progress.failed,
        budget=parts.budget,
        notices=parts.notices,
        leaving=lambda name: next((group for group in parts.leaving if group.name == name), None),
    )


def message_checks(parts: Parts) -> MessageChecks:
    """Make what asks every message that is sent, over the node's ports."""
    return MessageChecks(
        parts.ports.by_name,
        store=parts.store,
        clock=parts.seams.clock,
        randomness=parts.seams.randomness,
        body_bytes_max=parts.config.node.max_message_bytes,
        auto_create=lambda name: parts.ports.auto_create(name, parts.config),
        disabled=lambda name: name in parts.config.topics and not parts.config.topics[name].enabled,
    )


def producer_handlers(parts: Parts, *, state: Callable[[], str]) -> dict[str, Handler]:
    """Make what answers producers; `state` is that of the node's life."""
    checks = message_checks(parts)
    publishing = Publishing(
        store=parts.store,
        clock=parts.seams.clock,
        metrics=parts.metrics,
        state=state,
        budget=parts.budget,
        notices=parts.notices,
    )
    limited = LimitedSends(
        scheduler=parts.seams.loop,
        budget=parts.budget,
        metrics=parts.metrics,
        waiting_max=lambda: parts.config.node.limiter_failure_retry_queue_size,
    )
    names = {"qid_prefix": parts.qid_prefix, "broker_name": parts.config.node.broker_name}
    keyed = KeyedSends(parts.deduplication, store=parts.store, publishing=publishing, **names)
    sends = ProducerService(checks, publishing, keyed, limited, **names)
    transactions = TransactionService(
        parts.transactions,
        checks,
        publishing,
        keyed,
        scheduler=parts.seams.loop,
        metrics=parts.metrics,
        state=state,
        budget=parts.budget,
        settings=lambda: parts.config.node,
    )
    delays = DelayService(
        checks,
        publishing,
        keyed,
        limited,
        parts.loops,
        DelayCancels(parts.store, parts.timers),
        clock=parts.seams.clock,
        scheduler=parts.seams.loop,
        metrics=parts.metrics,
        interval_max=parts.config.node.timer_max_delay_sec,
    )
    return {**sends.handlers(), **transactions.handlers(), **delays.handlers()}


def consumer_group(parts: Parts, config: GroupConfig, settings: NodeConfig) -> ConsumerGroup:
    """Make one group, with those of the node's settings that hold for groups; it consumes from its `start` on."""
    return ConsumerGroup(
        config,
        runtime=Runtime(
            store=parts.store,
            progress=parts.progress,
            clock=parts.seams.clock,
            scheduler=parts.seams.loop,
            metrics=parts.metrics,
            notices=parts.notices,
        ),
        make_actions=parts.registry.make,
        qid_prefix=parts.qid_prefix,
        limits=group_limits(settings),
        budget=parts.budget,
        paused=partial(parts.pauses.of, config.group),
        client_id=f"proxy@{settings.broker_name}",
    )


def expiry(parts: Parts) -> Expiry:
    """Make what keeps and gives up messages when log files go."""
    return Expiry(
        store=parts.store,
        progress=parts.progress,
        clock=parts.seams.clock,
        metrics=parts.metrics,
        notices=parts.notices,
        groups=parts.all_groups,
    )
