"""One node: store, progress, groups, both services, its life, and the turn that ties them together.

The command line and the simulation build a node by the same class, with other seams. Nothing here is decided per
message; see docs/architecture.md for the turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator

import structlog

from actions.registry import Registry
from broker.log.landed import seconds_early
from broker.opening.recovery import RecoveryProgress
from broker.retry.redrive import Redrives
from broker.runtime.metrics import Metrics, declare
from broker.store import Store, StoreError
from conf import Config, GroupConfig
from proxy.node.assembly import (
    check_settings,
    consumer_group,
    consumer_service,
    expiry,
    group_limits,
    loops,
    opening_deduplication,
    opening_progress,
    opening_store,
    opening_waiting,
    producer_handlers,
    retention_keepers,
    retention_limits,
    server_limits,
    starting_servers,
)
from proxy.node.index_work import IndexWork
from proxy.node.parts import Parts, Seams
from proxy.node.periodic import PeriodicWork
from proxy.node.retaining import STEP_SECONDS, Retaining
from proxy.node.startup import Startup
from proxy.node.vitals import Vitals
from proxy.port.connection import Connection
from proxy.services.topic_ports import TopicPorts
from upstream.delivery.group import ConsumerGroup
from upstream.delivery.pauses import Pauses
from upstream.progress.progress import ProgressFailed

_log = structlog.get_logger(__name__)

TURNS = declare("pyddmq_turns_total", "Turns of the loop in which something was flushed")

_FLUSH_ROUNDS_MAX = 8
"""Flushes of one turn: what a flush makes (dead letters) is flushed too, but a turn ends."""

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
        """
        super().__init__(config, seams=seams, registry=registry, metrics=metrics)
        self.vitals = Vitals(self.metrics, seams.clock)
        self.started_monotonic = 0.0
        self._state = "starting"
        self._turn_asked = False
        self.periodic = PeriodicWork(seams.loop, self.notices)
        self.is_open = False
        """Whether store and progress have been opened and recovered."""
        self.startup: Startup | None = None
        """How far the recovery is, while there is one."""
        self._turns = self.metrics.counter(TURNS)
        self._index_work: IndexWork
        self.retaining: Retaining

    @property
    def state(self) -> str:
        """One of "starting", "recovering", "ready", "draining", "stopped", "failed" (the write side is down)."""
        if self._state == "ready" and self.failure is not None:
            return "failed"
        return self._state

    @property
    def failure(self) -> str | None:
        """Why nothing is acknowledged any more, or None."""
        if not self.is_open:
            return None
        failed = self.store.failed or self.progress.failed
        return None if failed is None else str(failed)

    @property
    def failed_at_ms(self) -> int:
        """When the write side failed, wall clock; 0 while it has not."""
        failed = None if self._state == "starting" else self.store.failed
        return 0 if failed is None else failed.at_ms

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
        steps = opening_store(node, seams, self.metrics)
        next(steps)
        try:
            self.consumer, self.producer, held = starting_servers(
                self, request_turn=self.request_turn, admin_hint=admin_hint
            )
            self.memory.servers = (self.consumer, self.producer)
            await self.consumer.listen(seams.network, node.host, node.consumer_port, backlog=node.backlog)
            await self.producer.listen(seams.network, node.host, node.producer_port, backlog=node.backlog)
            self._state = "recovering"
            self.periodic.repeat("sweep", SWEEP_SECONDS, self._sweep)
            self.startup = Startup(seams.clock, self.metrics, pause_seconds=seams.step_pause_seconds)
            await self._open_storage(steps, self.startup)
            self.consumer_service = consumer_service(self)
            self.consumer.serve(self.consumer_service.handlers())
            self.producer.serve(producer_handlers(self, state=lambda: self._state))
            for group in self.config.groups.values():
                self.groups[group.group] = consumer_group(self, group, node)
            for each in self.groups.values():
                each.start()
            self.progress.groups_started()
            self.delays.start()
            self.timers.start()
            self.transactions.start()
            self._run_timers()
            self.consumer_service.resume(held.release())
        except BaseException:
            steps.close()
            self._close_all(orderly=False)
            raise
        self.startup = None
        self._state = "ready"
        self.request_turn()

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
            if all(group.drained for group in self.all_groups()) and not self.store.unsettled:
                break
            await asyncio.sleep(0.02)
        left = sum(group.stats().in_flight_total for group in self.all_groups())
        _log.info("drained", deliveries_unanswered=left)
        self.consumer.stop_listening()
        for server in (self.consumer, self.producer):
            for connection in list(server.connections):
                connection.eof_received()
        self._take_turn(wait=True)
        await asyncio.sleep(0)
        self._close_all(orderly=True)

    def kill(self) -> None:
        """Drop everything as a killed process would: no flush, no commit, no farewell. For simulations."""
        self._state = "stopped"
        if self.is_open:
            self._index_work.stop()
            self.retaining.stop()
            self.delays.stop()
            self.timers.stop()
            self.transactions.stop()
        self.periodic.stop()
        for server in (self.consumer, self.producer):
            server.stop_listening()
            server.close_connections(at_once=True)
        self.store.abandon()

    # The turn.

    def request_turn(self) -> None:
        """Have the turn end after everything that arrived with it."""
        if not self._turn_asked:
            self._turn_asked = True
            self.seams.loop.call_soon(self._turn if self.is_open else self._answer)

    def _answer(self) -> None:
        """End a turn before there is a store: what was asked is refused."""
        self._turn_asked = False
        self.consumer.flush()
        self.producer.flush()
        self.budget.flushed()
        self._settle_memory()

    def _settle_memory(self) -> None:
        """Take what has left off the account."""
        if self.budget.level:
            self.budget.settle()
            self.memory.relieve()

    def _turn(self) -> None:
        """Begin to make durable what came, and answer what is. Nothing leaves before what it promises is written."""
        if self._state == "stopped":
            self._turn_asked = False
            return
        self._take_turn(wait=self.store.syncs is None)

    def _take_turn(self, *, wait: bool) -> None:
        """Flush and answer; with `wait` the loop waits for the disk, else the flush is begun."""
        # What the flushes lead to (replies, deliveries) leaves with this turn and needs no other one.
        self._turn_asked = True
        self._turns.value += 1
        flushed = False
        if wait:
            flushed = self._flush()
        else:
            self._begin_flush()
        self._turn_asked = False
        if wait and self.store.pending:
            self.request_turn()
        self._answer_all(flushed=flushed)

    def _flush(self) -> bool:
        """Write, sync and settle; whether there was anything."""
        store = self.store
        flushed = False
        for _ in range(_FLUSH_ROUNDS_MAX):
            if not store.unsettled:
                break
            flushed = True
            try:
                store.flush()
            except Exception as error:
                # A fault in one callback must not keep the replies of all others from going out.
                self.notices.fault("turn_callback_failed", error, kind="flush")
            self.budget.end(len(self.budget.begun))
        return flushed

    def _begin_flush(self) -> None:
        """Have the disk begin with what is staged, unless it is at work: then that follows when it has ended."""
        if self.store.begin_flush():
            self.vitals.sync_began()
            self.budget.begin()

    def _durable(self) -> None:
        """What was begun is durable: begin the next flush, so that the disk does not wait for us; then answer."""
        asked, self._turn_asked = self._turn_asked, True
        self.vitals.sync_ended()
        self.budget.end(self.store.landed.count)
        self._begin_flush()
        try:
            self.store.settle()
        except Exception as error:
            self.notices.fault("turn_callback_failed", error, kind="settle")
        # What came of it, where nothing was staged before.
        self._begin_flush()
        self._turn_asked = asked
        self._answer_all(flushed=True)

    def _answer_all(self, *, flushed: bool) -> None:
        """Send what may leave, and do what follows a flush."""
        try:
            self.progress.flush()
        except ProgressFailed:
            # Acks that cannot be kept must not be answered as if they were (D5): those clients see a broken
            # connection and keep their results. No message leaves either: it may follow from an ack or a failed
            # attempt that a restart would not know. What remains are refusals, which say why.
            self.consumer.abort_unkept()
        self.consumer.flush()
        self.producer.flush()
        if not self.store.unsettled:
            self.budget.flushed()
        self._settle_memory()
        if flushed:
            self.steps.synced()
            # Acks become durable with the log (D9), but nobody waits for that: the replies are on their way.
            with contextlib.suppress(ProgressFailed):
                self.progress.sync_after_log()
            self._index_work.stored()

    def settle(self) -> None:
        """End the turn now and make all that it changed durable: for changes that show only once they are kept.

        Everybody waits for the disk; others wait in their request alone (`proxy.operate.change_steps.durable`).

        Raises:
            StoreError: It could not be written; it may be undone by a restart.
        """
        self._take_turn(wait=True)
        if self.store.failed is not None:
            raise self.store.failed
        self.progress.sync()

    # Parts.

    async def _open_storage(self, steps: Generator[RecoveryProgress, None, Store], startup: Startup) -> None:
        node, seams = self.config.node, self.seams
        self.store = await startup.open_log(steps)
        self.store.on_pending = self.request_turn
        self.store.landed.on_shown = self._durable
        if node.flush == "sync":
            self.store.syncs = seams.syncs
            self.store.landed.alarms, self.store.landed.on_early = seams.alarms or seams.loop, self._begin_flush
        self.store.savings.syncs = seams.syncs
        self._index_work = IndexWork(
            self.store.index, scheduler=seams.loop, notices=self.notices, turns=lambda: self._turns.value
        )
        try:
            acks = opening_progress(node, seams, self.metrics, self.store)
            self.progress = await startup.replay_acks(acks)
            self.progress.on_pending = self.request_turn
            self.progress.on_failed(self.store.fail)
            self.delays, self.timers, self.transactions = await startup.find_waiting(opening_waiting(self))
            self.deduplication = await startup.find_waiting(opening_deduplication(self))
            self.loops = loops(self)
            self.redrives = Redrives(self.store, disk=seams.disk)
            self.pauses = Pauses.open(node.data, disk=seams.disk, clock=seams.clock)
            self.ports = TopicPorts(self.store, seams.clock, self.metrics)
            self.ports.publish(self.config)
            self.store.retention.limits = retention_limits(node)
            self.store.retention.keepers += retention_keepers(self)
            self.retaining = Retaining(self.store, expiry(self), seams.loop)
            await asyncio.sleep(seconds_early(self.store.recovery.store_ms, seams.clock))
        except (asyncio.CancelledError, GeneratorExit):
            # Nobody waits for it any more: as a kill, also where the loop has gone meanwhile.
            self.store.abandon()
            raise
        except BaseException:
            self.store.close()
            raise
        self.is_open = True

    def reconfigure_group(self, group: ConsumerGroup, settings: GroupConfig) -> None:
        """Give a group its settings, and those of the node's that hold for groups, from the configuration in force."""
        node = self.config.node
        group.reconfigure(settings, group_limits(node))

    def apply_live_settings(self) -> None:
        """Bring the node's live settings into force after a reload."""
        node = self.config.node
        self.consumer_service.linger_ms_max = node.max_linger_time
        self.store.retention.limits = retention_limits(node)
        self.transactions.settings = check_settings(node)
        for server in (self.consumer, self.producer):
            server.limits = server_limits(node, self.seams)
        self.budget.configure(node.memory_max)
        self.periodic.repeat("commit", node.commit_interval_ms / 1000, self._commit)

    def _run_timers(self) -> None:
        """Keep checkpoint, commit and sweep going."""
        node = self.config.node
        self.periodic.repeat("checkpoint", 1.0 if node.flush == "sync" else 0.5, self._checkpoint)
        self.periodic.repeat("commit", node.commit_interval_ms / 1000, self._commit)
        self.periodic.repeat("sweep", SWEEP_SECONDS, self._sweep)
        self.periodic.repeat("retention", STEP_SECONDS, self.retaining.run)

    def _checkpoint(self) -> None:
        self.store.checkpoint()
        self.deduplication.tick()

    def _commit(self) -> None:
        with contextlib.suppress(ProgressFailed):
            # The failure has its line in the log and shows in readiness.
            self.progress.begin_commit()

    def _sweep(self) -> None:
        self.consumer.sweep()
        self.producer.sweep()
        self.memory.sweep()
        self.notices.flush()
        self.vitals.look()
        self.let_drained_go()

    def let_drained_go(self) -> None:
        """End the groups that were taken out and have drained."""
        self.leaving = [group for group in self.leaving if not self._left(group)]

    def _left(self, group: ConsumerGroup) -> bool:
        """Stop a removed group once it has drained."""
        if group.drained:
            group.stop()
            # Consumers inside the program may have the group from now on, at its committed offsets (D36).
            with contextlib.suppress(ProgressFailed):
                self.progress.commit()
            self.progress.let_go(group.name)
            return True
        return False

    def _close_all(self, *, orderly: bool) -> None:
        if self.is_open:
            self._index_work.stop()
            self.retaining.stop()
            self.delays.stop()
            self.timers.stop()
            self.transactions.stop()
        self.periodic.stop()
        for group in self.all_groups():
            group.stop()
        for server in (self.consumer, self.producer):
            server.stop_listening()
            server.close_connections(at_once=not orderly)
        self._state = "stopped"
        self.notices.flush(everything=True)
        if not self.is_open:
            return
        try:
            self.progress.close()
        except (ProgressFailed, OSError):
            _log.exception("progress_close_failed")
        try:
            self.transactions.close()
            self.deduplication.close()
            self.delays.close()
            self.timers.close()
            self.store.close()
        except (StoreError, OSError):
            _log.exception("store_close_failed")

    def connections(self) -> list[tuple[str, Connection]]:
        """Open connections with the name of their service."""
        return [(server.service, each) for server in (self.consumer, self.producer) for each in server.connections]


__all__ = ["Node", "Seams"]
