"""What a node is put together from: the seams, and each part as the configuration wants it.

`proxy.node.node` decides when a part is made and how parts meet; this module has only how one is made.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial

from broker.deduplication.deduplication import Deduplication, WindowLimits
from broker.deduplication.writes import WriteLedger
from broker.errors import StoreUnwritable
from broker.features import features
from broker.log.group_commit import CommitDriver
from broker.log.shared_walk import together
from broker.opening.reading import geometry_of
from broker.opening.recovery import RecoveryProgress
from broker.options import StoreOptions
from broker.queues.offsets import ConsumerOffsets
from broker.retention import RetentionLimits
from broker.runtime.bundle import Runtime
from broker.runtime.seams import Scheduler
from broker.scheduled.delay.delays import Delays
from broker.scheduled.recurring.loops import Loops
from broker.scheduled.recurring.resumed_loops import returning
from broker.scheduled.timer.names import TimerOptions
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from broker.transaction.settings import CheckSettings
from broker.transaction.transactions import Transactions
from conf import Config, GroupConfig, NodeConfig
from conf.tls_checks import tls_host
from proxy.node.kafka import kafka_sends, qid_prefix_of
from proxy.node.opened import Opened
from proxy.node.parts import Parts, Seams
from proxy.port.accepting import ServerLimits
from proxy.port.calls_pass import PassLine
from proxy.port.network import DESCRIPTORS_UNBOUNDED, Network
from proxy.port.server import Commons, Handler, ThriftServer
from proxy.port.shares import Shares
from proxy.services.access.methods import check_handlers
from proxy.services.access.sign_in import SignIn
from proxy.services.consumer_service import ConsumerService
from proxy.services.delay_service import DelayService
from proxy.services.fetch_service import FetchService
from proxy.services.kafka.halves import KafkaHalves
from proxy.services.keyed_sends import KeyedSends
from proxy.services.limited_sends import LimitedSends
from proxy.services.message_checks import MessageChecks
from proxy.services.producer_service import ProducerService
from proxy.services.publishing import Publishing
from proxy.services.results.ack_syncs import AckSyncs
from proxy.services.results.held_calls import HeldCalls
from proxy.services.starting_service import StartingService
from proxy.services.stations import Stations
from proxy.services.transaction_service import TransactionService
from proxy.services.write_service import WriteService
from proxy.tls.ports import TlsPorts
from upstream.delivery.group import ConsumerGroup
from upstream.embedded.broker import EmbeddedBroker
from upstream.embedded.queues import EmbeddedQueues
from upstream.embedded.store_traces import traced_appends
from upstream.figures.endings import EndingHook
from upstream.figures.tracing import GroupTraces, Tracing
from upstream.group_parts import GroupLimits, NodeSeams
from upstream.kafka.broker import KafkaBroker
from upstream.progress.ack_writer import Driver
from upstream.progress.progress import Progress, ProgressFailed, ProgressFull
from upstream.waiting.buffer import BufferLimits


def opening_store(
    node: NodeConfig,
    runtime: Runtime,
    driver: CommitDriver | None,
    *,
    descriptors_max: int = DESCRIPTORS_UNBOUNDED,
    tracing: Tracing | None = None,
) -> Generator[RecoveryProgress, None, Store]:
    """Open the store and recover it, in steps; with `tracing` appends are traced. Raises StoreError."""
    options = StoreOptions(
        # Of the descriptors that connections leave free, half: the log, the index and all else need theirs.
        queue_files_max=min(StoreOptions().queue_files_max, descriptors_max // 2),
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
    try:
        found = geometry_of(node.data, disk=runtime.disk, default=options)
    except OSError as error:
        # Read before the lock is taken: a store of another user, or mounted for reading.
        raise StoreUnwritable(node.data, error) from error
    if found is not None:
        # Not configured: RocketMQ's index files continue in their size, and are no others for it afterwards.
        options = replace(options, index_slots=found.index_slots, index_entries=found.index_entries)
    return (
        yield from Store.opening(
            node.data,
            options=options,
            features=given,
            runtime=runtime,
            driver=driver,
            traced=None if tracing is None else partial(traced_appends, tracing),
        )
    )


def opening_progress(
    node: NodeConfig, runtime: Runtime, store: Store, request_turn: Callable[[], None]
) -> Generator[None, None, Progress]:
    """Open trackers and ack journal of a store that has just been opened, in steps. Raises StoreError.

    What is staged in it asks for a turn, and its failure is the store's.
    """
    steps = Progress.opening(
        node.data,
        queues=EmbeddedQueues(store),
        runtime=runtime,
        ack_flush=node.ack_flush,
        segment_bytes=node.ack_segment_bytes,
        file_writes=store.file_writes,
        driver=Driver(request_turn, store.writes.fail),
    )
    try:
        return (yield from steps)
    except ProgressFull as error:
        # That acks are taken again by themselves is said of a node that runs; this one cannot begin.
        raise StoreUnwritable(node.data, error.cause) from error


def check_settings(node: NodeConfig) -> CheckSettings:
    """When undecided transactions are checked and discarded."""
    return CheckSettings(
        timeout_ms=node.transaction_time_out,
        interval_ms=node.transaction_check_interval,
        checks_max=node.transaction_check_max,
        age_seconds_max=node.transaction_discard_hours * 3600,
    )


def opening_waiting(
    parts: Parts, store: Store, *, loops: Loops, steps: Scheduler, offsets: ConsumerOffsets
) -> Generator[None, None, tuple[Delays, Timers, Transactions]]:
    """Find out what is pending in a store that has just been opened, with one walk of the log, in steps.

    Args:
        parts: The node's; while its ports are asked steps are small.
        store: The store.
        loops: Knows those among the timers.
        steps: Schedules the steps in which they are delivered.
        offsets: The table of committed offsets.

    Raises:
        OSError: A file cannot be read.
    """
    runtime, settings = parts.runtime, check_settings(parts.in_force.config.node)
    beside = replace(runtime, scheduler=steps, requests=lambda: sum([server.requests for server in parts.servers]))
    delays, timers, transactions = yield from together(
        store,
        Delays.reading_of(store, beside),
        Timers.reading_of(store, beside, follower=loops),
        Transactions.reading_of(store, beside, offsets=offsets, settings=settings),
    )
    yield from returning(store, disk=runtime.disk)
    return delays, timers, transactions


def opening_deduplication(store: Store, node: NodeConfig, runtime: Runtime) -> Generator[None, None, Deduplication]:
    """Find out which messages of deduplicating producers a store has that was just opened, in steps. Raises OSError."""
    limits = WindowLimits(
        silence_ms=node.deduplication_sec * 1000,
        messages=node.deduplication_messages,
        producers=node.deduplication_producers,
    )
    return Deduplication.opening(store, runtime, limits)


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
        write_seconds_max=node.write_timeout / 1000,
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
    parts: Parts, *, request_turn: Callable[[], None], disk_at_work: Callable[[], bool], admin_hint: str
) -> tuple[ThriftServer, ThriftServer, HeldCalls]:
    """Make the consumers' and the producers' port, answering that the node is starting, and what they hold.

    Args:
        parts: The node's.
        request_turn: As in `Commons`.
        disk_at_work: As in `Commons`.
        admin_hint: As in `Commons`.
    """
    runtime, guard, limits = parts.runtime, parts.guard, server_limits(parts.in_force.config.node, parts.seams)
    starting = StartingService(runtime, guard)
    commons = Commons(
        runtime=runtime,
        request_turn=request_turn,
        disk_at_work=disk_at_work,
        admin_hint=admin_hint,
        budget=parts.memory.budget,
        relieve=parts.memory.relieve,
        shares=Shares(runtime),
        access=guard.access,
        limiter=parts.limiter,
    )
    sign_in = SignIn(guard.access, guard.denials, runtime.metrics).handlers()
    check_handlers({**starting.consumer_handlers(), **starting.producer_handlers(), **sign_in})
    consumer = ThriftServer("consumer", {**starting.consumer_handlers(), **sign_in}, limits=limits, commons=commons)
    producer = ThriftServer("producer", {**starting.producer_handlers(), **sign_in}, limits=limits, commons=commons)
    return consumer, producer, starting.held


async def open_ports(
    config: Config, consumer: ThriftServer, producer: ThriftServer, tls: TlsPorts, network: Network
) -> None:
    """Listen for consumers and producers, plain, by TLS, or both.

    Raises:
        ListenError: An address cannot be had.
    """
    node = config.node
    for server, plain in ((consumer, node.consumer_port), (producer, node.producer_port)):
        if plain is not None:
            await server.listen(network, node.host, plain, backlog=node.backlog)
        encrypted = tls.by_service.get(server.service)
        if encrypted is not None:
            host, port = tls_host(server.service, config.tls, node), config.tls.listeners()[server.service].port
            await server.listen_tls(network, encrypted, host, port, backlog=node.backlog)


def producer_handlers(parts: Parts, opened: Opened, *, state: Callable[[], str]) -> tuple[dict[str, Handler], PassLine]:
    """Make what answers producers of a node that is open; `state` returns that of its life."""
    runtime, guard, in_force = parts.runtime, parts.guard, parts.in_force
    node, store, ports = in_force.config.node, opened.store, opened.ports
    checks = MessageChecks(
        ports.by_name,
        store=store,
        runtime=runtime,
        body_bytes_max=node.max_message_bytes,
        auto_create=lambda name: ports.auto_create(name, in_force.config),
        disabled=lambda name: name in in_force.config.topics and not in_force.config.topics[name].enabled,
    )
    publishing = Publishing(store=store, runtime=runtime, state=state, budget=parts.memory.budget)
    limited = LimitedSends(
        runtime, budget=parts.memory.budget, waiting_max=lambda: in_force.config.node.limiter_failure_retry_queue_size
    )
    names = {"qid_prefix": f"{node.broker_cluster}_{node.broker_name}_", "broker_name": node.broker_name}
    keyed = KeyedSends(opened.deduplication, store=store, **names)
    kafka = kafka_sends(in_force.config, publishing, keyed.in_kafka, runtime, store.unique_keys.take)
    parts.kafka.sends = kafka
    writes = WriteService(WriteLedger(store, runtime, opened.deduplication.window), publishing, guard)
    stations = Stations(checks, publishing, keyed, limited, kafka, guard)
    sends = ProducerService(stations, writes=writes, **names)
    transactions = TransactionService(
        stations,
        opened.transactions,
        KafkaHalves(parts.kafka.waiting, runtime.clock),
        runtime=runtime,
        state=state,
        settings=lambda: in_force.config.node,
    )
    interval_max = node.timer_max_delay_sec
    delays = DelayService(stations, opened.loops, opened.timers, runtime=runtime, interval_max=interval_max)
    sign_in = SignIn(guard.access, guard.denials, runtime.metrics)
    handlers = {**transactions.handlers(), **delays.handlers(), **sign_in.handlers()}
    check_handlers({**handlers, **dict.fromkeys(sends.line.methods)})
    return handlers, sends.line


def node_seams(
    parts: Parts, opened: Opened, group: str, kafka: KafkaBroker | None, *, awaits_durability: bool
) -> NodeSeams:
    """What a node gives to a group: its share of a Kafka cluster where there is one, and else the store.

    `awaits_durability`: Answers wait until results are durable (`ackFlush: sync`).
    """
    runtime, calls = parts.runtime, parts.calls
    endings = EndingHook()
    if parts.tracing is not None:
        traces = GroupTraces(group, parts.tracing)
        endings = EndingHook(acted=traces.acted, failed=traces.failed)
        endings.put("traces", traces)
    if kafka is None:
        broker = EmbeddedBroker(opened.store, runtime)
        return NodeSeams(
            broker=broker,
            retry_queues=broker,
            stretches=broker,
            progress=opened.progress,
            runtime=runtime,
            endings=endings,
            calls=calls,
        )
    return NodeSeams(
        broker=kafka,
        progress=kafka.progress,
        runtime=runtime,
        endings=endings,
        calls=calls,
        may_hand_out=kafka.may_hand_out,
        when_durable=kafka.when_durable if awaits_durability else None,
        awaits_partitions=kafka.awaits_partitions,
    )


def consumer_group(parts: Parts, opened: Opened, group: GroupConfig, config: Config) -> ConsumerGroup:
    """Make one group, with those of the node's settings that hold for groups; it consumes from its `start` on.

    Raises KafkaFailure: There can be no client of its cluster.
    """
    kafka = parts.kafka_groups.broker(config, group)
    return ConsumerGroup(
        group,
        node=node_seams(parts, opened, group.group, kafka, awaits_durability=config.node.ack_flush == "sync"),
        make_actions=parts.make_actions,
        qid_prefix=qid_prefix_of(config, group),
        limits=group_limits(config.node),
        budget=parts.memory.budget,
        paused=partial(opened.pauses.of, group.group),
        client_id=f"proxy@{config.node.broker_name}",
    )


def consumer_service(parts: Parts, store: Store, progress: Progress) -> ConsumerService:
    """Make what answers consumers of a node that is being opened."""
    runtime, guard, in_force = parts.runtime, parts.guard, parts.in_force
    node = in_force.config.node

    def acks_refused() -> ProgressFailed | None:
        return progress.failed

    sign_in = SignIn(guard.access, guard.denials, runtime.metrics)
    fetches = FetchService(
        in_force.groups,
        runtime=runtime,
        settings=lambda: in_force.config.node,
        acks=AckSyncs(progress, store.file_writes, runtime.scheduler),
        acks_refused=acks_refused,
        budget=parts.memory.budget,
        guard=guard,
        leaving=in_force.leaving_group,
    )
    return ConsumerService(
        in_force.groups,
        runtime=runtime,
        linger_ms_max=node.max_linger_time,
        acks_refused=acks_refused,
        budget=parts.memory.budget,
        guard=guard,
        fetch_handlers={**fetches.handlers(), **sign_in.handlers()},
        leaving=in_force.leaving_group,
        awaits_durability=node.ack_flush == "sync",
        awaits_partitions=bool(in_force.config.kafka),
    )
