"""What a node is put together from: the seams, and each part as the configuration wants it.

`proxy.node` decides when a part is made and how parts meet; here stands only how one is made.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from broker.deduplication.deduplication import Deduplication, WindowLimits
from broker.delay.delays import Delays
from broker.delay.keeper import DelayKeeper
from broker.interchange import geometry_of
from broker.loop.cancel import DelayCancels
from broker.loop.loops import Loops
from broker.loop.returning import returning
from broker.metrics import Metrics
from broker.recovery import RecoveryProgress
from broker.retention import Keeper, RetentionLimits
from broker.seams import Clock, Disk, Scheduler, Syncs
from broker.shared_walk import together
from broker.store import Store, StoreOptions, StoreUnwritable
from broker.store_seams import StoreSeams
from broker.timer.keeper import TimerKeeper
from broker.timer.names import TimerOptions
from broker.timer.timers import Timers
from broker.transaction.keeper import TransactionKeeper
from broker.transaction.settings import CheckSettings
from broker.transaction.transactions import Transactions
from conf import GroupConfig, NodeConfig
from proxy.accepting import ServerLimits
from proxy.consumer_service import ConsumerService
from proxy.delay_service import DelayService
from proxy.held_calls import HeldCalls
from proxy.keyed_sends import KeyedSends
from proxy.limited_sends import LimitedSends
from proxy.message_checks import MessageChecks
from proxy.network import DESCRIPTORS_UNBOUNDED, Network
from proxy.producer_service import ProducerService
from proxy.publishing import Publishing
from proxy.server import Handler, ThriftServer
from proxy.shares import Shares
from proxy.starting_service import StartingService
from proxy.transaction_service import TransactionService
from upstream.buffer import BufferLimits
from upstream.expiry import Expiry
from upstream.group import ConsumerGroup
from upstream.group_parts import GroupLimits, Runtime
from upstream.progress import Progress, ProgressFull

if TYPE_CHECKING:
    from proxy.node import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """What a node takes from the outside world.

    Attributes:
        descriptors_max: As in `ServerLimits`.
        step_pause_seconds: Time left to others between two steps of a recovery; 0 is one turn of the loop.
        alarms: Makes the calls whose lateness counts; the loop, when absent.
        syncs: Makes syncs in the background; without it they are made at once.
    """

    loop: asyncio.AbstractEventLoop
    clock: Clock
    disk: Disk
    randomness: random.Random
    network: Network
    descriptors_max: int = DESCRIPTORS_UNBOUNDED
    step_pause_seconds: float = 0.0
    alarms: Scheduler | None = None
    syncs: Syncs | None = None


def opening_store(node: NodeConfig, seams: Seams, metrics: Metrics) -> Generator[RecoveryProgress, None, Store]:
    """Open the store and recover it, in steps. Raises StoreError."""
    options = StoreOptions(
        segment_bytes=node.segment_bytes,
        queue_file_units=node.queue_file_units,
        flush=node.flush,
        message_bytes_max=node.max_message_bytes,
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
            node.data, options=options, disk=seams.disk, clock=seams.clock, random=seams.randomness, metrics=metrics
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


def opening_waiting(node: Node) -> Generator[None, None, tuple[Delays, Timers, Transactions]]:
    """Find out what is pending in a store that has just been opened, with one walk of the log, in steps.

    Raises OSError.
    """
    store = node.store
    seams: StoreSeams = {
        "disk": node.seams.disk,
        "clock": node.seams.clock,
        "scheduler": node.steps,
        "metrics": node.metrics,
        "notices": node.notices,
    }
    delays, timers, transactions = yield from together(
        store,
        Delays.reading(store, **seams),
        Timers.reading(store, **seams),
        Transactions.reading(store, offsets=node.progress.offsets, settings=check_settings(node.config.node), **seams),
    )
    for pace in (delays.pace, timers.entering.pace, timers.due.pace, transactions.pace):
        pace.requests = lambda: node.consumer.requests + node.producer.requests
    yield from returning(store, disk=node.seams.disk)
    return delays, timers, transactions


def opening_deduplication(node: Node) -> Generator[None, None, Deduplication]:
    """Find out which messages of deduplicating producers a store has that was just opened, in steps. Raises OSError."""
    config = node.config.node
    limits = WindowLimits(
        silence_ms=config.deduplication_sec * 1000,
        messages=config.deduplication_messages,
        producers=config.deduplication_producers,
    )
    return Deduplication.opening(node.store, disk=node.seams.disk, metrics=node.metrics, limits=limits)


def loops(node: Node) -> Loops:
    """Make what knows the loops among the timers, and have the timers ask it."""
    made = Loops(node.store, clock=node.seams.clock, metrics=node.metrics, notices=node.notices)
    node.timers.due.follower = made
    return made


def retention_keepers(node: Node) -> list[Keeper]:
    """Make those who put elsewhere what they need of a log file before it goes."""
    return [
        DelayKeeper(node.delays, node.metrics),
        TimerKeeper(node.timers, node.metrics),
        TransactionKeeper(node.transactions, node.metrics),
        node.deduplication,
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


def starting_servers(node: Node, admin_hint: str) -> tuple[ThriftServer, ThriftServer, HeldCalls]:
    """Make the consumers' and the producers' port, answering that the node is starting, and what they hold."""
    starting = StartingService(node.metrics, node.notices)
    shares = Shares(node.seams.clock, node.seams.loop, node.metrics)

    def server(service: str, handlers: dict[str, Handler]) -> ThriftServer:
        return ThriftServer(
            service,
            handlers,
            limits=server_limits(node.config.node, node.seams),
            clock=node.seams.clock,
            scheduler=node.seams.loop,
            metrics=node.metrics,
            request_turn=node.request_turn,
            admin_hint=admin_hint,
            budget=node.budget,
            relieve=node.memory.relieve,
            notices=node.notices,
            shares=shares,
        )

    consumer = server("consumer", starting.consumer_handlers())
    return consumer, server("producer", starting.producer_handlers()), starting.held


def consumer_service(node: Node) -> ConsumerService:
    """Make what answers consumers, over the node's groups."""
    return ConsumerService(
        node.groups,
        store=node.store,
        clock=node.seams.clock,
        scheduler=node.seams.loop,
        metrics=node.metrics,
        linger_ms_max=node.config.node.max_linger_time,
        acks_refused=lambda: node.progress.failed,
        budget=node.budget,
        notices=node.notices,
        leaving=lambda name: next((group for group in node.leaving if group.name == name), None),
    )


def message_checks(node: Node) -> MessageChecks:
    """Make what asks every message that is sent, over the node's ports."""
    return MessageChecks(
        node.ports.by_name,
        store=node.store,
        clock=node.seams.clock,
        randomness=node.seams.randomness,
        body_bytes_max=node.config.node.max_message_bytes,
        auto_create=lambda name: node.ports.auto_create(name, node.config),
        disabled=lambda name: name in node.config.topics and not node.config.topics[name].enabled,
    )


def producer_handlers(node: Node, *, state: Callable[[], str]) -> dict[str, Handler]:
    """Make what answers producers; `state` is that of the node's life."""
    checks = message_checks(node)
    publishing = Publishing(
        store=node.store,
        clock=node.seams.clock,
        metrics=node.metrics,
        state=state,
        budget=node.budget,
        notices=node.notices,
    )
    limited = LimitedSends(
        scheduler=node.seams.loop,
        budget=node.budget,
        metrics=node.metrics,
        waiting_max=lambda: node.config.node.limiter_failure_retry_queue_size,
    )
    names = {"qid_prefix": node.qid_prefix, "broker_name": node.config.node.broker_name}
    keyed = KeyedSends(node.deduplication, store=node.store, publishing=publishing, **names)
    sends = ProducerService(checks, publishing, keyed, limited, **names)
    transactions = TransactionService(
        node.transactions,
        checks,
        publishing,
        keyed,
        scheduler=node.seams.loop,
        metrics=node.metrics,
        state=state,
        budget=node.budget,
        settings=lambda: node.config.node,
    )
    delays = DelayService(
        checks,
        publishing,
        keyed,
        limited,
        node.loops,
        DelayCancels(node.store, node.timers),
        clock=node.seams.clock,
        scheduler=node.seams.loop,
        metrics=node.metrics,
        interval_max=node.config.node.timer_max_delay_sec,
    )
    return {**sends.handlers(), **transactions.handlers(), **delays.handlers()}


def consumer_group(node: Node, config: GroupConfig, settings: NodeConfig) -> ConsumerGroup:
    """Make one group, with those of the node's settings that hold for groups; it consumes from its `start` on."""
    return ConsumerGroup(
        config,
        runtime=Runtime(
            store=node.store,
            progress=node.progress,
            clock=node.seams.clock,
            scheduler=node.seams.loop,
            metrics=node.metrics,
            notices=node.notices,
        ),
        make_actions=node.registry.make,
        qid_prefix=node.qid_prefix,
        limits=group_limits(settings),
        budget=node.budget,
        paused=partial(node.pauses.of, config.group),
        client_id=f"proxy@{settings.broker_name}",
    )


def expiry(node: Node) -> Expiry:
    """Make what keeps and gives up messages when log files go."""
    return Expiry(
        store=node.store,
        progress=node.progress,
        clock=node.seams.clock,
        metrics=node.metrics,
        notices=node.notices,
        groups=node.all_groups,
    )
