"""One node, and its life: its parts, what it opens, and when each begins and ends.

The command line and the simulation build a node by the same class, with other seams. Nothing here is decided per
message; its turns are those of `proxy.node.turns`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator

import structlog

from actions.registry import Registry
from broker.errors import StoreError
from broker.log.group_commit import seconds_early
from broker.opening.recovery import RecoveryProgress
from broker.retry.redrive import Redrives
from broker.runtime.bundle import Runtime
from broker.runtime.later import Repeated
from broker.runtime.metrics import Metrics
from broker.runtime.steps import run_now
from broker.scheduled.delay.retention_hold import DelayHold
from broker.scheduled.recurring.loops import Loops
from broker.scheduled.timer.retention_hold import TimerHold
from broker.store import Store
from broker.transaction.retention_hold import TransactionHold
from conf import Config, GroupConfig
from proxy.node.access import close_access, look_at_access, open_owners
from proxy.node.assembly import (
    check_settings,
    consumer_group,
    consumer_service,
    group_limits,
    open_ports,
    opening_deduplication,
    opening_progress,
    opening_store,
    opening_waiting,
    producer_handlers,
    retention_limits,
    server_limits,
    starting_servers,
)
from proxy.node.index_work import IndexWork
from proxy.node.opened import Opened
from proxy.node.parts import Parts, Seams
from proxy.node.recording import Recording
from proxy.node.retention_schedule import STEP_SECONDS, Retaining
from proxy.node.startup import Startup
from proxy.node.turns import NodeTurns
from proxy.node.vitals import Vitals
from proxy.node.yielding import Yielding
from proxy.port.connection import Connection
from proxy.port.server import ThriftServer
from proxy.recording.trace_export import EXPORT_SECONDS
from proxy.services.topic_ports import TopicPorts
from upstream.delivery.group import QUEUES_AT_ONCE
from upstream.delivery.pauses import Pauses
from upstream.embedded.expiry import Expiry
from upstream.embedded.queues import offsets_of
from upstream.progress.progress import Progress, ProgressFailed

# Work that a node does again and again, on the loop.


class PeriodicWork:
    """By name. A piece of work that raises is logged and runs again all the same."""

    def __init__(self, runtime: Runtime) -> None:
        self._scheduler = runtime.scheduler
        self._limited_log = runtime.limited_log
        self._work: dict[str, Repeated] = {}
        self.failing: dict[str, str] = {}
        """Work that raised when it ran last, by name, with what it raised."""

    def repeat(self, name: str, seconds: float, work: Callable[[], None]) -> None:
        """Run `work` `seconds` from now, and so long after each run; it replaces the work of that name."""

        def run() -> None:
            try:
                work()
                self.failing.pop(name, None)
            except Exception as error:
                self.failing[name] = f"{type(error).__name__}: {error}"
                self._limited_log.fault("periodic_work_failed", error, kind=name, work=name)

        if name in self._work:
            self._work[name].end()
        self._work[name] = Repeated(self._scheduler, seconds, run)
        self._work[name].begin()

    def stop(self) -> None:
        """Run nothing any more."""
        for work in self._work.values():
            work.end()


_log = structlog.get_logger(__name__)

SWEEP_SECONDS = 1.0


class Node:
    """One process's worth of pyddmq, without admin HTTP, signals and file watching.

    Attributes:
        parts: What it has from its making on.
        in_force: Of these, the configuration in force and the groups.
        runtime: Of these, what is shared most widely.
        opened: What it has besides from the end of its recovery on; None before that.
        recording: What it notes of itself.
        startup: How far the recovery is, while there is one.
    """

    def __init__(self, config: Config, *, seams: Seams, registry: Registry, metrics: Metrics | None = None) -> None:
        """Set up; `start` does the work.

        Args:
            config: A checked configuration.
            seams: Loop, clock, disk, randomness, network.
            registry: Where actions are found by name.
            metrics: A registry to count in; a new one when absent.

        Raises AccessUnreadable, TlsFilesUnusable, TracingUnavailable: see `Parts`.
        """
        parts = self.parts = Parts(config, seams, registry, metrics or Metrics())
        self.in_force, self.runtime = parts.in_force, parts.runtime
        self.opened: Opened | None = None
        self.recording = Recording(self.in_force, self.runtime)
        self.vitals = Vitals(self.runtime.metrics, seams.clock)
        self.started_monotonic = 0.0
        self._state = "starting"
        self.periodic = PeriodicWork(self.runtime)
        self.startup: Startup | None = None
        self.turns = NodeTurns(seams.loop, parts.servers, parts.memory, self.recording.shown_end, self.runtime)

    @property
    def state(self) -> str:
        """One of "starting", "recovering", "ready", "draining", "stopped", "failed" (the write side is down)."""
        if self._state == "ready" and self.failure is not None:
            return "failed"
        return self._state

    @property
    def failure(self) -> str | None:
        """Why nothing is acknowledged any more, or None."""
        return None if self.opened is None else self.opened.failure

    @property
    def consumer(self) -> ThriftServer:
        """The consumers' port; there from the start on."""
        return self.parts.servers[0]

    @property
    def producer(self) -> ThriftServer:
        """The producers' port; likewise."""
        return self.parts.servers[1]

    # Life.

    async def start(self, *, admin_hint: str = "") -> Opened:
        """Take the store, listen, recover in steps, start the groups. Ports answer "starting" from early on.

        Cancelling it while it recovers leaves the store as a kill would: the next start recovers again.

        Returns:
            What was opened: `opened`.

        Raises:
            StoreError: The data directory is in use, unwritable, of another geometry, newer, ...
            ListenError: A port cannot be had; raised before the recovery begins.
        """
        parts, config, seams = self.parts, self.in_force.config, self.parts.seams
        self.started_monotonic = seams.clock.monotonic()
        # The first step takes the lock and compares the sizes, so that a directory in use is reported before a port
        # opens.
        steps = opening_store(
            config.node, self.runtime, self.turns, descriptors_max=seams.descriptors_max, tracing=parts.tracing
        )
        next(steps)
        parts.audit.open(config.node.data)
        try:
            consumer, producer, held = starting_servers(
                parts, request_turn=self.turns.request, disk_at_work=self.turns.disk_at_work, admin_hint=admin_hint
            )
            parts.servers.extend((consumer, producer))
            await open_ports(config, consumer, producer, parts.tls, seams.network)
            self._state = "recovering"
            self.periodic.repeat("sweep", SWEEP_SECONDS, self._sweep)
            if parts.tls.by_service:
                self.periodic.repeat("tls", SWEEP_SECONDS, parts.tls.sweep)
            self.startup = Startup(seams.clock, self.runtime.metrics, pause_seconds=seams.step_pause_seconds)
            opened = self.opened = await self._open_storage(steps, self.startup)
            self.turns.open(opened)
            open_owners(parts.access, opened, config.node, self.runtime)
            await self.startup.run("groups", self._starting_groups(opened))
            consumer.serve(opened.consumer_service.handlers(), opened.consumer_service.line)
            producer.serve(*producer_handlers(parts, opened, state=lambda: self._state))
            opened.progress.groups_started()
            opened.start()
            self._start_waiting_on_kafka(opened.store)
            self._run_timers(opened)
            self.recording.begin(opened, parts.kafka.waiting)
            opened.consumer_service.resume(held.release())
        except BaseException:
            steps.close()
            self._close_all(orderly=False)
            raise
        self.startup = None
        self._state = "ready"
        self.turns.request()
        return opened

    async def stop(self, *, drain_seconds: float | None = None, hurry: asyncio.Event | None = None) -> None:
        """Drain, then close: nothing new is handed out, acks are taken until nothing is out or the time has passed.

        Args:
            drain_seconds: Bound of the drain; drainSeconds of the configuration when absent.
            hurry: When set, the drain ends at once; nothing that was acknowledged is lost by that.
        """
        if self._state in ("draining", "stopped"):
            return
        parts, opened, all_groups = self.parts, self.opened, self.in_force.all_groups
        self._state = "draining"
        limit = self.in_force.config.node.drain_seconds if drain_seconds is None else drain_seconds
        for server in parts.servers[1:]:
            server.stop_listening()
        for group in all_groups():
            group.begin_drain()
        deadline = self.runtime.clock.monotonic() + limit
        while self.runtime.clock.monotonic() < deadline and not (hurry is not None and hurry.is_set()):
            unsettled = parts.kafka.unsettled or (opened is not None and opened.store.unsettled)
            if not unsettled and all(each.drained for each in all_groups()):
                break
            await asyncio.sleep(0.02)
        _log.info("drained", deliveries_unanswered=sum(each.out_count for each in all_groups()))
        for server in parts.servers:
            server.stop_listening()
            for connection in list(server.connections):
                connection.eof_received()
        if opened is not None:
            self.turns.take(opened, wait=True)
        for group in all_groups():
            group.stop()
        await parts.calls.settle(lambda: hurry is not None and hurry.is_set())
        await parts.kafka_groups.end(threads=parts.threads, loop=parts.seams.loop)
        if parts.trace_export is not None:
            await parts.trace_export.flush()
        self.recording.end()
        self._close_all(orderly=True)

    def kill(self) -> None:
        """Drop everything as a killed process would: no flush, no commit, no farewell. For simulations."""
        self._state = "stopped"
        self.turns.stopped = True
        self.parts.calls.closed = True
        self._stop_working()
        for server in self.parts.servers:
            server.stop_listening()
            server.close_connections(at_once=True)
        if self.opened is not None:
            self.opened.store.abandon()

    def _stop_working(self) -> None:
        """Have nothing done in steps any more."""
        self.recording.abandon()
        if self.opened is not None:
            self.opened.stop_working()
        self.periodic.stop()

    # Parts.

    async def _open_storage(self, steps: Generator[RecoveryProgress, None, Store], startup: Startup) -> Opened:
        parts, runtime, in_force = self.parts, self.runtime, self.in_force
        node, kafka = in_force.config.node, parts.kafka
        store = await startup.open_log(steps)
        try:
            index_work = IndexWork(store.index, runtime, turns=lambda: self.turns.count.value)
            progress = await startup.run("acks", opening_progress(node, runtime, store, self.turns.request))
            waiting = Yielding(parts.seams.alarms or parts.seams.loop, lambda: store.unsettled)
            loops = Loops(store, runtime)
            delays, timers, transactions = await startup.run(
                "waiting", opening_waiting(parts, store, loops=loops, steps=waiting, offsets=offsets_of(progress))
            )
            deduplication = await startup.run("waiting", opening_deduplication(store, node, runtime))
            ports = TopicPorts(store, runtime, producer_of=kafka.producer_of, waiting_of=kafka.waiting.get)
            await startup.run("topics", ports.publishing(in_force.config))
            store.retention.holds += (
                DelayHold(delays, runtime.metrics),
                TimerHold(timers, runtime.metrics),
                TransactionHold(transactions, runtime.metrics),
                deduplication,
            )
            opened = Opened(
                store=store,
                ports=ports,
                progress=progress,
                steps=waiting,
                delays=delays,
                timers=timers,
                loops=loops,
                transactions=transactions,
                deduplication=deduplication,
                redrives=Redrives(store, disk=runtime.disk),
                pauses=Pauses.open(node.data, disk=runtime.disk, clock=runtime.clock),
                retaining=Retaining(store, Expiry(store, progress, runtime, in_force.stored_groups), runtime, in_force),
                index_work=index_work,
                consumer_service=consumer_service(parts, store, progress),
            )
            opened.retaining.begin(retention_limits(node))
            await asyncio.sleep(seconds_early(store.recovery.store_ms, runtime.clock))
        except (asyncio.CancelledError, GeneratorExit):
            # Nothing waits for it any more: as a kill, also where the loop has ended.
            store.abandon()
            raise
        except BaseException:
            store.close()
            raise
        return opened

    def _start_waiting_on_kafka(self, store: Store) -> None:
        config, clock, kafka = self.in_force.config, self.runtime.clock, self.parts.kafka
        # Of a cluster in memory the caches are, too.
        folder = "" if self.parts.seams.kafka is not None else f"{config.node.data}/pyddmq/waiting"
        kafka.start_waiting(config, lambda: store.unique_keys.take(1, clock.wall_ms())[0], folder)
        kafka.configure_checks(check_settings(config.node))

    def _starting_groups(self, opened: Opened) -> Generator[None, None, None]:
        """Make and start all groups, with a step for about QUEUES_AT_ONCE queues."""
        config, queues = self.in_force.config, 0
        for group in config.groups.values():
            made = self.in_force.groups[group.group] = consumer_group(self.parts, opened, group, config)
            yield from self.parts.kafka_groups.starting(made)
            # A group by itself takes as long as sixteen queues.
            queues += 16 + sum(map(len, made.queues_by_topic.values()))
            if queues >= QUEUES_AT_ONCE:
                queues = 0
                yield

    def reconfiguring_group(self, settings: GroupConfig) -> Generator[None, None, None]:
        """Give a group its settings, and those of the node's that hold for groups, in steps."""
        kafka, limits = self.parts.kafka_groups, group_limits(self.in_force.config.node)
        steps = self.in_force.groups[settings.group].reconfiguring(kafka.expanded(settings), limits)
        if kafka.of(settings.group) is None:
            yield from steps
        else:
            # Its topics in Kafka may change between two steps, and with them what it is given.
            run_now(steps)
        kafka.configured(settings)

    def apply_live_settings(self, opened: Opened) -> None:
        """Bring the node's live settings into force after a reload."""
        node, parts = self.in_force.config.node, self.parts
        opened.consumer_service.linger_ms_max = node.max_linger_time
        parts.calls.pool.calls_max = node.action_threads
        if retention_limits(node) != opened.retaining.waiting:
            opened.retaining.change(retention_limits(node))
        opened.transactions.settings = check_settings(node)
        parts.kafka.configure_checks(check_settings(node))
        for server in parts.servers:
            server.limits = server_limits(node, parts.seams)
        parts.memory.budget.configure(node.memory_max)
        self.periodic.repeat("commit", node.commit_interval_ms / 1000, opened.commit)

    def _run_timers(self, opened: Opened) -> None:
        """Keep checkpoint, commit and sweep going."""
        node, export = self.in_force.config.node, self.parts.trace_export
        self.periodic.repeat("checkpoint", 1.0 if node.flush == "sync" else 0.5, opened.checkpoint)
        self.periodic.repeat("commit", node.commit_interval_ms / 1000, opened.commit)
        self.periodic.repeat("sweep", SWEEP_SECONDS, self._sweep)
        self.periodic.repeat("group_lines", 60.0, self.recording.group_lines.sum_up)
        if export is not None:
            self.periodic.repeat("traces", EXPORT_SECONDS, export.export)
        self.periodic.repeat("retention", STEP_SECONDS, opened.retaining.run)

    def _sweep(self) -> None:
        parts = self.parts
        for server in parts.servers:
            server.sweep()
        parts.memory.sweep()
        look_at_access(parts.access, parts.audit, parts.servers, parts.threads)
        self.runtime.limited_log.flush()
        self.vitals.look()
        if self.opened is not None:
            self.let_drained_go(self.opened.progress)

    def let_drained_go(self, progress: Progress) -> None:
        """End the groups that were taken out and have drained."""
        in_force = self.in_force
        gone = {group: None for group in in_force.leaving if group.drained}
        if not gone:
            return
        in_force.leaving = [group for group in in_force.leaving if group not in gone]
        for group in gone:
            group.stop()
            self.parts.kafka_groups.left(group.name)
        # Consumers inside the program may have the groups from now on, at their committed offsets (D36).
        with contextlib.suppress(ProgressFailed):
            progress.commit()
        for group in gone:
            progress.let_go(group.name)

    def _close_all(self, *, orderly: bool) -> None:
        parts, opened = self.parts, self.opened
        self._stop_working()
        for group in self.in_force.all_groups():
            group.stop()
        for server in parts.servers:
            server.stop_listening()
            server.close_connections(at_once=not orderly)
        self._state = "stopped"
        self.turns.stopped = True
        self.runtime.limited_log.flush(everything=True)
        parts.audit.close()
        if opened is None:
            return
        try:
            opened.progress.close()
        except (ProgressFailed, OSError):
            _log.exception("progress_close_failed")
        try:
            close_access(parts.access)
            for part in (opened.transactions, opened.deduplication, opened.delays, opened.timers, opened.store):
                part.close()
        except (StoreError, OSError):
            _log.exception("store_close_failed")

    def connections(self) -> list[tuple[str, Connection]]:
        """Open connections with the name of their service."""
        return [(server.service, each) for server in self.parts.servers for each in server.connections]
