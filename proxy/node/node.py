"""One node: store, progress, groups, both services, and its life.

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
from broker.scheduled.recurring.loops import Loops
from broker.store import Store
from conf import Config, GroupConfig
from proxy.node.access import close_access, flush_everything, look_at_access, open_owners
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
    retention_holds,
    retention_limits,
    server_limits,
    starting_servers,
)
from proxy.node.index_work import IndexWork
from proxy.node.parts import Opened, Parts, Seams
from proxy.node.retention_schedule import STEP_SECONDS, Retaining
from proxy.node.startup import Startup
from proxy.node.turns import NodeTurns
from proxy.node.vitals import Vitals
from proxy.node.yielding import Yielding
from proxy.port.connection import Connection
from proxy.recording.trace_export import EXPORT_SECONDS
from proxy.services.topic_ports import TopicPorts
from upstream.delivery.group import QUEUES_AT_ONCE, ConsumerGroup
from upstream.delivery.pauses import Pauses
from upstream.embedded.expiry import Expiry
from upstream.embedded.queues import offsets_of
from upstream.progress.progress import ProgressFailed

# Work that a node does again and again, on the loop.


class PeriodicWork:
    """By name. A piece of work that raises is told of in the log and runs again all the same."""

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


class Node(Parts):
    """One process's worth of pyddmq, without admin HTTP, signals and file watching."""

    def __init__(self, config: Config, *, seams: Seams, registry: Registry, metrics: Metrics | None = None) -> None:
        """Set up; `start` does the work.

        Args:
            config: A checked configuration.
            seams: Loop, clock, disk, randomness, network.
            registry: Where actions are found by name.
            metrics: A registry to count in; a new one when absent.

        Raises AccessUnreadable, TlsFilesUnusable: see `Parts`.
        """
        super().__init__(config, seams=seams, registry=registry, metrics=metrics)
        self.vitals = Vitals(self.metrics, seams.clock)
        self.started_monotonic = 0.0
        self._state = "starting"
        self.periodic = PeriodicWork(self.runtime)
        self.startup: Startup | None = None
        """How far the recovery is, while there is one."""
        self.turns = NodeTurns(seams.loop, self.servers, self.memory, self.shown_end, self.runtime)

    @property
    def state(self) -> str:
        """One of "starting", "recovering", "ready", "draining", "stopped", "failed" (the write side is down)."""
        if self._state == "ready" and self.failure is not None:
            return "failed"
        return self._state

    # Life.

    async def start(self, *, admin_hint: str = "") -> None:
        """Take the store, listen, recover in steps, start the groups. Ports answer "starting" from early on.

        Cancelling it while it recovers leaves the store as a kill would: the next start recovers again.

        Raises:
            StoreError: The data directory is in use, unwritable, of another geometry, newer, ...
            ListenError: A port cannot be had; told before the recovery begins.
        """
        node, seams = self.config.node, self.seams
        self.started_monotonic = seams.clock.monotonic()
        # The first step takes the lock and compares the sizes, so that a directory in use is told before a port opens.
        steps = opening_store(
            node, self.runtime, self.turns, descriptors_max=seams.descriptors_max, tracing=self.tracing
        )
        next(steps)
        self.audit.open(node.data)
        try:
            consumer, producer, held = starting_servers(self, request_turn=self.turns.request, admin_hint=admin_hint)
            self.servers += (consumer, producer)
            await open_ports(self.config, consumer, producer, self.tls, seams.network)
            self._state = "recovering"
            self.periodic.repeat("sweep", SWEEP_SECONDS, self._sweep)
            if self.tls.by_service:
                self.periodic.repeat("tls", SWEEP_SECONDS, self.tls.sweep)
            self.startup = Startup(seams.clock, self.metrics, pause_seconds=seams.step_pause_seconds)
            opened = self._opened = await self._open_storage(steps, self.startup)
            self.turns.open(opened)
            open_owners(self.access, opened, node, self.runtime)
            await self.startup.run("groups", self._starting_groups())
            consumer.serve(opened.consumer_service.handlers(), opened.consumer_service.line)
            producer.serve(*producer_handlers(self, state=lambda: self._state))
            opened.progress.groups_started()
            for part in (opened.delays, opened.timers, opened.transactions):
                part.start()
            self._start_waiting_on_kafka(opened.store)
            self._run_timers()
            opened.consumer_service.resume(held.release())
        except BaseException:
            steps.close()
            self._close_all(orderly=False)
            raise
        self.startup = None
        self._state = "ready"
        self.turns.request()

    async def stop(self, *, drain_seconds: float | None = None, hurry: asyncio.Event | None = None) -> None:
        """Drain, then close: nothing new is handed out, acks are taken until nothing is out or the time has passed.

        Args:
            drain_seconds: Bound of the drain; drainSeconds of the configuration when absent.
            hurry: When set, the drain ends at once; nothing that was acknowledged is lost by that.
        """
        if self._state in ("draining", "stopped"):
            return
        self._state = "draining"
        limit = self.config.node.drain_seconds if drain_seconds is None else drain_seconds
        self.producer.stop_listening()
        for group in self.all_groups():
            group.begin_drain()
        deadline = self.seams.clock.monotonic() + limit
        while self.seams.clock.monotonic() < deadline and not (hurry is not None and hurry.is_set()):
            if not (self.store.unsettled or self.kafka.unsettled) and all(each.drained for each in self.all_groups()):
                break
            await asyncio.sleep(0.02)
        _log.info("drained", deliveries_unanswered=sum(each.stats().in_flight_total for each in self.all_groups()))
        self.consumer.stop_listening()
        for server in self.servers:
            for connection in list(server.connections):
                connection.eof_received()
        self.turns.take(self.opened, wait=True)
        for group in self.all_groups():
            group.stop()
        await self.calls.settle(lambda: hurry is not None and hurry.is_set())
        await self.kafka_groups.end(threads=self.threads, loop=self.seams.loop)
        if self.trace_export is not None:
            await self.trace_export.flush()
        self.end_recording()
        self._close_all(orderly=True)

    def kill(self) -> None:
        """Drop everything as a killed process would: no flush, no commit, no farewell. For simulations."""
        self._state = "stopped"
        self.turns.stopped = True
        self.calls.closed = True
        self._stop_working()
        self.periodic.stop()
        for server in self.servers:
            server.stop_listening()
            server.close_connections(at_once=True)
        if self._opened is not None:
            self._opened.store.abandon()

    def _stop_working(self) -> None:
        """Have nothing done in steps any more."""
        self.abandon_recording()
        if self._opened is not None:
            self._opened.index_work.stop()
            for part in (self._opened.retaining, self.delays, self.timers, self.transactions):
                part.stop()

    # Parts.

    async def _open_storage(self, steps: Generator[RecoveryProgress, None, Store], startup: Startup) -> Opened:
        node, runtime = self.config.node, self.runtime
        store = await startup.open_log(steps)
        try:
            index_work = IndexWork(store.index, runtime, turns=lambda: self.turns.count.value)
            progress = await startup.run("acks", opening_progress(node, runtime, store, self.turns.request))
            waiting = Yielding(self.seams.alarms or self.seams.loop, lambda: store.unsettled)
            loops = Loops(store, runtime)
            delays, timers, transactions = await startup.run(
                "waiting", opening_waiting(self, store, loops=loops, steps=waiting, offsets=offsets_of(progress))
            )
            deduplication = await startup.run("waiting", opening_deduplication(store, node, runtime))
            ports = TopicPorts(store, runtime, producer_of=self.kafka.producer_of, waiting_of=self.kafka.waiting.get)
            await startup.run("topics", ports.making(self.config))
            ports.publish(self.config)
            store.retention.holds += retention_holds(delays, timers, transactions, deduplication, self.metrics)
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
                retaining=Retaining(
                    store, Expiry(store, progress, runtime, self.stored_groups), runtime, lambda: self.config
                ),
                index_work=index_work,
                consumer_service=consumer_service(self, store, progress, leaving=self._leaving_group),
            )
            opened.retaining.begin(retention_limits(node))
            await asyncio.sleep(seconds_early(store.recovery.store_ms, runtime.clock))
        except (asyncio.CancelledError, GeneratorExit):
            # Nobody waits for it any more: as a kill, also where the loop has gone meanwhile.
            store.abandon()
            raise
        except BaseException:
            store.close()
            raise
        return opened

    def _start_waiting_on_kafka(self, store: Store) -> None:
        clock = self.runtime.clock
        # Of a cluster in memory the caches are, too.
        folder = "" if self.seams.kafka is not None else f"{self.config.node.data}/pyddmq/waiting"
        self.kafka.start_waiting(self.config, lambda: store.unique_keys.take(1, clock.wall_ms())[0], folder)
        self.kafka.configure_checks(check_settings(self.config.node))

    def _starting_groups(self) -> Generator[None, None, None]:
        """Make and start all groups, with a step for about QUEUES_AT_ONCE queues."""
        queues = 0
        for group in self.config.groups.values():
            made = self.groups[group.group] = consumer_group(self, group, self.config)
            yield from self.kafka_groups.starting(made)
            # A group by itself takes as long as sixteen queues.
            queues += 16 + sum(map(len, made.queues_by_topic.values()))
            if queues >= QUEUES_AT_ONCE:
                queues = 0
                yield

    def _leaving_group(self, name: str) -> ConsumerGroup | None:
        return next((group for group in self.leaving if group.name == name), None)

    def reconfigure_group(self, settings: GroupConfig) -> None:
        """Give a group its settings, and those of the node's that hold for groups, from the configuration in force."""
        self.groups[settings.group].reconfigure(self.kafka_groups.expanded(settings), group_limits(self.config.node))
        self.kafka_groups.configured(settings)

    def apply_live_settings(self) -> None:
        """Bring the node's live settings into force after a reload."""
        node = self.config.node
        self.opened.consumer_service.linger_ms_max = node.max_linger_time
        self.calls.pool.calls_max = node.action_threads
        if retention_limits(node) != self.opened.retaining.waiting:
            self.opened.retaining.change(retention_limits(node))
        self.transactions.settings = check_settings(node)
        self.kafka.configure_checks(check_settings(node))
        for server in self.servers:
            server.limits = server_limits(node, self.seams)
        self.budget.configure(node.memory_max)
        self.periodic.repeat("commit", node.commit_interval_ms / 1000, self._commit)

    def _run_timers(self) -> None:
        """Keep checkpoint, commit and sweep going."""
        node = self.config.node
        self.periodic.repeat("checkpoint", 1.0 if node.flush == "sync" else 0.5, self._checkpoint)
        self.periodic.repeat("commit", node.commit_interval_ms / 1000, self._commit)
        self.periodic.repeat("sweep", SWEEP_SECONDS, self._sweep)
        self.periodic.repeat("group_lines", 60.0, self.group_lines.sum_up)
        if self.trace_export is not None:
            self.periodic.repeat("traces", EXPORT_SECONDS, self.trace_export.export)
        self.periodic.repeat("retention", STEP_SECONDS, self.opened.retaining.run)
        self.begin_recording()

    def _checkpoint(self) -> None:
        self.store.checkpoint()
        self.deduplication.tick()

    def _commit(self) -> None:
        with contextlib.suppress(ProgressFailed):
            # The failure has its line in the log and shows in readiness.
            self.progress.begin_commit()

    def _sweep(self) -> None:
        for part in (self.consumer, self.producer, self.memory):
            part.sweep()
        look_at_access(self.access, self.audit, self.servers, self.threads)
        self.limited_log.flush()
        self.vitals.look()
        self.let_drained_go()

    def let_drained_go(self) -> None:
        """End the groups that were taken out and have drained."""
        gone = [group for group in self.leaving if group.drained]
        if not gone:
            return
        self.leaving = [group for group in self.leaving if group not in gone]
        for group in gone:
            group.stop()
            self.kafka_groups.left(group.name)
        # Consumers inside the program may have the groups from now on, at their committed offsets (D36).
        with contextlib.suppress(ProgressFailed):
            self.progress.commit()
        for group in gone:
            self.progress.let_go(group.name)

    def _close_all(self, *, orderly: bool) -> None:
        self._stop_working()
        self.periodic.stop()
        for group in self.all_groups():
            group.stop()
        for server in self.servers:
            server.stop_listening()
            server.close_connections(at_once=not orderly)
        self._state = "stopped"
        self.turns.stopped = True
        flush_everything(self.limited_log, self.audit)
        if not self.is_open:
            return
        try:
            self.progress.close()
        except (ProgressFailed, OSError):
            _log.exception("progress_close_failed")
        try:
            close_access(self.access)
            for part in (self.transactions, self.deduplication, self.delays, self.timers, self.store):
                part.close()
        except (StoreError, OSError):
            _log.exception("store_close_failed")

    def connections(self) -> list[tuple[str, Connection]]:
        """Open connections with the name of their service."""
        return [(server.service, each) for server in self.servers for each in server.connections]
