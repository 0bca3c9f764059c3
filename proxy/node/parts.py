"""What a node has: what it is given, and the parts that it is made of."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Literal

from actions.registry import Registry
from actions.sinks.local_state import Keep
from broker.deduplication.deduplication import Deduplication
from broker.retry.redrive import Redrives
from broker.runtime.bundle import Runtime
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import Clock, Disk, Scheduler, Syncs
from broker.scheduled.delay.delays import Delays
from broker.scheduled.recurring.loops import Loops
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from broker.transaction.transactions import Transactions
from conf import Config
from conf.sections import access_files
from conf.sections.kafka import KafkaClusterConfig
from proxy.access.access import OPEN as ACCESS_OPEN
from proxy.access.access import Access
from proxy.access.access import Files as AccessFiles
from proxy.access.audit import Audit
from proxy.limits.limiter import Limiter
from proxy.node.index_work import IndexWork
from proxy.node.kafka import KafkaClients, KafkaGroups, MakeKafkaClient
from proxy.node.retention_schedule import Retaining
from proxy.node.yielding import Yielding
from proxy.port.memory import MemoryWatch
from proxy.port.network import DESCRIPTORS_UNBOUNDED, Network
from proxy.port.server import ThriftServer
from proxy.recording.ack_logs import AckLogs
from proxy.recording.message_lines import GroupLines
from proxy.recording.recorder import Recorder
from proxy.recording.trace_export import Send, TraceExport, otlp_sender
from proxy.recording.visible_end import ShownEnd
from proxy.services.access.denials import Denials
from proxy.services.access.guard import Guard
from proxy.services.consumer_service import ConsumerService
from proxy.services.topic_ports import TopicPorts
from proxy.tls.files import RealTlsFiles, TlsLoader
from proxy.tls.ports import TlsPorts
from upstream.calls.node_calls import NodeCalls
from upstream.calls.seams import ThreadLoop, Threads
from upstream.delivery.group import ConsumerGroup
from upstream.delivery.pauses import Pauses
from upstream.embedded.broker import EmbeddedBroker
from upstream.embedded.queues import EmbeddedQueues
from upstream.figures.tracing import Tracing
from upstream.kafka.link import KafkaClient
from upstream.kafka.waiting.cluster import KafkaWaiting
from upstream.progress.progress import Progress
from upstream.source import Times

# The threads in which blocking actions run.
#
# They are made as they are needed and kept. None of them keeps the process from ending: a call that hangs cannot be
# stopped, and `concurrent.futures` would wait for it at exit, which is why it is not used here.

_Order = tuple[Callable[[], object], Callable[[object], None]]


class LoopThreads:
    """`upstream.calls.seams.Threads` beside a running event loop. Called from the loop's thread alone."""

    def __init__(self, loop: ThreadLoop) -> None:
        self._loop = loop
        self._idle: list[SimpleQueue[_Order]] = []
        self._made = 0

    def run(self, work: Callable[[], object], done: Callable[[object], None]) -> None:
        """Run `work` in an idle thread, or in a new one."""
        if not self._idle:
            orders: SimpleQueue[_Order] = SimpleQueue()
            self._made += 1
            threading.Thread(target=self._live, args=(orders,), daemon=True, name=f"action-{self._made}").start()
        else:
            orders = self._idle.pop()
        orders.put((work, done))

    def _live(self, orders: SimpleQueue[_Order]) -> None:
        while True:
            work, done = orders.get()
            result = work()
            # A loop that is closed has nobody who waits for it.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._done, orders, done, result)
            # Nothing of the call is kept alive by an idle thread.
            del work, done, result

    def _done(self, orders: SimpleQueue[_Order], done: Callable[[object], None], result: object) -> None:
        self._idle.append(orders)
        done(result)


AccessMode = Literal["rules", "open", "loopback"]
"""What says who may do what: the section `access`; or nobody does, and the ports are, or are not, of the loopback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """What a node takes from the outside world.

    Attributes:
        descriptors_max: As in `ServerLimits`.
        step_pause_seconds: Time left to others between two steps of a recovery; 0 is one turn of the loop.
        alarms: Makes the calls whose lateness counts; the loop, when absent.
        syncs: Makes syncs in the background; without it they are made at once.
        threads: Runs blocking actions; threads beside the loop, when absent.
        kafka: Makes the client of a Kafka cluster; confluent-kafka, when absent.
        access_files: Reads what the section `access` names; the files, when absent.
        tls: Reads the files of TLS ports; the operating system's, when absent.
        send_spans: Sends traces to the collector; OTLP over HTTP, when absent.
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
    threads: Threads | None = None
    kafka: MakeKafkaClient | None = None
    access_files: AccessFiles | None = None
    tls: TlsLoader | None = None
    send_spans: Send | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What a node has from the end of its recovery on.

    Attributes:
        steps: Schedules what waits in the store: it is delivered in steps.
        retaining: Has log files deleted.
        index_work: Has the index built.
    """

    store: Store
    ports: TopicPorts
    progress: Progress
    steps: Yielding
    delays: Delays
    timers: Timers
    loops: Loops
    transactions: Transactions
    deduplication: Deduplication
    redrives: Redrives
    pauses: Pauses
    retaining: Retaining
    index_work: IndexWork
    consumer_service: ConsumerService


class Parts:
    """The parts of one node.

    What stands below `opened` is there once the store is open, the servers once it starts: see `proxy.node.node`.

    Attributes:
        config: The configuration in force; a reload puts another one there.
        runtime: What its parts share.
        calls: Makes the calls of actions that await or block.
        access: Who may do what; None where everybody may do everything.
        limiter: What each client may take.
        audit: What is kept of who changed what, and who was denied what.
        guard: Looks at that.
        kafka: The ways to the clusters of Kafka.
        threads: Where what blocks is run.
        leaving: Groups that a reload took out and that still drain.
        servers: The consumers' port and the producers', once they are made.
        recorder: Notes where the groups stand.
        ack_logs: Notes what becomes of single messages.
        group_lines: Writes that into the log, and sums it up once a minute.
        shown_end: Tells others up to where they may read the store.
        tls: The encrypted ports.
        tracing: Makes spans of messages; None where nothing is traced.
        trace_export: Sends them; likewise.
    """

    def __init__(self, config: Config, *, seams: Seams, registry: Registry, metrics: Metrics | None = None) -> None:
        """Set up; nothing is opened.

        Args:
            config: A checked configuration.
            seams: Loop, clock, disk, randomness, network.
            registry: Where actions are found by name.
            metrics: A registry to count in; a new one when absent.

        Raises:
            AccessUnreadable: A file that the section `access` names cannot be used.
            TlsFilesUnusable: A file of an encrypted port cannot be used.
            TracingUnavailable: What `node.tracing` needs is not installed.
        """
        self.config = config
        self.seams = seams
        self.registry = registry
        self.metrics = metrics or Metrics()
        self.limited_log = RateLimitedLog(seams.clock)
        self.runtime = Runtime(
            clock=seams.clock,
            disk=seams.disk,
            random=seams.randomness,
            metrics=self.metrics,
            limited_log=self.limited_log,
            scheduler=seams.loop,
            alarms=seams.alarms or seams.loop,
            syncs=seams.syncs,
        )
        self.access: Access | None = None
        if config.access is not None:
            files = seams.access_files or access_files
            self.access = Access(config.access, clock=seams.clock, limited_log=self.limited_log, files=files)
        self.limiter = Limiter(config.limits, clock=seams.clock, metrics=self.metrics, limited_log=self.limited_log)
        self.metrics.counter(ACCESS_OPEN).value = int(self.access_mode == "open")
        self.audit = Audit(self.runtime, lambda: self.config.admin)
        self.guard = Guard(self.access, Denials(seams.loop, self.metrics, self.limited_log, self.audit))
        threads = seams.threads or LoopThreads(seams.loop)
        self.calls = NodeCalls(
            clock=seams.clock,
            scheduler=seams.loop,
            tasks=seams.loop,
            threads=threads,
            calls_max=config.node.action_threads,
        )
        self.threads = threads
        keep = Keep(seams.disk, config.node.data, threads=threads, tasks=seams.loop)
        self.make_actions = partial(registry.make, keep=keep)
        self.tracing: Tracing | None = None
        self.trace_export: TraceExport | None = None
        if (tracing := config.node.tracing) is not None:
            send = seams.send_spans or otlp_sender(tracing, config.node.broker_name)
            self.tracing = Tracing(tracing, self.runtime)
            self.trace_export = TraceExport(self.tracing, send, threads, self.runtime)
        self.kafka = KafkaClients(config.kafka, seams.kafka or self._kafka_client, self.runtime, self.tracing)
        self.kafka_groups = KafkaGroups(self.kafka, self.runtime)
        self.groups: dict[str, ConsumerGroup] = {}
        self.leaving: list[ConsumerGroup] = []
        self.servers: list[ThriftServer] = []
        self.memory = MemoryWatch(
            config.node.memory_max, groups=self.all_groups, servers=self.servers, runtime=self.runtime
        )
        self.budget = self.kafka_groups.budget = self.memory.budget
        self.recorder = Recorder(self, self.runtime)
        self.ack_logs = AckLogs(lambda: self.config, self.all_groups, self.runtime)
        self.group_lines = GroupLines(lambda: self.config, self.all_groups, self.runtime)
        self.shown_end = ShownEnd(self.runtime)
        self.tls = TlsPorts(config.tls, seams.tls or RealTlsFiles(), self.runtime)
        self._opened: Opened | None = None

    def _kafka_client(self, cluster: str, config: KafkaClusterConfig) -> KafkaClient:
        # Cold: the package is an extra.
        from upstream.kafka_client.client import LibrdkafkaClient

        name = f"pyddmq-{self.config.node.broker_name}"
        return LibrdkafkaClient(cluster, config, client_id=name, loop=self.seams.loop, clock=self.seams.clock)

    @property
    def access_mode(self) -> AccessMode:
        """What says who may do what."""
        return "rules" if self.access is not None else self.config.node.access

    @property
    def is_open(self) -> bool:
        """Whether store and progress have been opened and recovered."""
        return self._opened is not None

    @property
    def failure(self) -> str | None:
        """Why nothing is acknowledged any more, or None."""
        if self._opened is None:
            return None
        failed = self._opened.store.failed or self._opened.progress.failed
        return None if failed is None else str(failed)

    @property
    def failed_at_ms(self) -> int:
        """When the write side failed, wall clock; 0 while it has not."""
        failed = None if self._opened is None else self._opened.store.failed
        return 0 if failed is None else failed.at_ms

    @property
    def opened(self) -> Opened:
        """What there is since then."""
        assert self._opened is not None, "the node is not open yet"
        return self._opened

    @property
    def consumer(self) -> ThriftServer:
        """The consumers' port."""
        return self.servers[0]

    @property
    def producer(self) -> ThriftServer:
        """The producers' port."""
        return self.servers[1]

    @property
    def store(self) -> Store:
        """The store."""
        return self.opened.store

    @property
    def progress(self) -> Progress:
        """Trackers, ack journal and committed offsets."""
        return self.opened.progress

    @property
    def waiting_on_kafka(self) -> Mapping[str, KafkaWaiting]:
        """What waits on Kafka, by cluster."""
        return self.kafka.waiting

    @property
    def delays(self) -> Delays:
        """Delivers delayed messages."""
        return self.opened.delays

    @property
    def timers(self) -> Timers:
        """Delivers timed ones."""
        return self.opened.timers

    @property
    def transactions(self) -> Transactions:
        """Halves and their decisions."""
        return self.opened.transactions

    @property
    def deduplication(self) -> Deduplication:
        """Messages of deduplicating producers."""
        return self.opened.deduplication

    @property
    def pauses(self) -> Pauses:
        """Which groups are paused."""
        return self.opened.pauses

    def progress_of(self, group: str) -> Progress:
        """Return the trackers of a group: of one that reads from Kafka its own, of all others the store's."""
        kafka = self.kafka_groups.of(group)
        return self.progress if kafka is None else kafka.progress

    def times_of(self, group: str) -> Times:
        """Return the queues of a group, and when their messages were stored; likewise."""
        return self.kafka_groups.of(group) or EmbeddedQueues(self.store)

    @property
    def qid_prefix(self) -> str:
        """Text in front of the queue number in every qid (W35: made in one place)."""
        return f"{self.config.node.broker_cluster}_{self.config.node.broker_name}_"

    def begin_recording(self) -> None:
        """Begin to note what reports are made from, once all is open."""
        self.shown_end.open(self.store.root, self.store.end)
        self.recorder.start(self.opened.steps)
        self.ack_logs.configure()
        self.group_lines.configure()

    def end_recording(self) -> None:
        """Note that the node stops."""
        self.recorder.close()
        self.ack_logs.close()
        self.shown_end.close()

    def abandon_recording(self) -> None:
        """Note nothing any more, as a kill; harmless after `end_recording`."""
        self.recorder.stop()
        self.ack_logs.abandon()
        self.shown_end.abandon()

    def stored_groups(self) -> list[ConsumerGroup]:
        """Return those of all groups that read the node's own store: what retention of its log files concerns."""
        return [each for each in self.all_groups() if isinstance(each.node.broker, EmbeddedBroker)]

    def all_groups(self) -> list[ConsumerGroup]:
        """Return the configured groups and those that leave."""
        return [*self.groups.values(), *self.leaving]
