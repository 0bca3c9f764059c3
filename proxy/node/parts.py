"""What a node has from its making to its end: what it is given, and the parts that it shares out."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from functools import partial
from typing import Literal

from actions.registry import Registry
from actions.sinks.local_state import Keep
from broker.runtime.bundle import Runtime
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import Clock, Disk, Scheduler, Syncs
from conf import Config
from conf.sections import access_files
from conf.sections.kafka import KafkaClusterConfig
from proxy.access.access import OPEN as ACCESS_OPEN
from proxy.access.access import Access
from proxy.access.access import Files as AccessFiles
from proxy.access.audit import Audit
from proxy.limits.limiter import Limiter
from proxy.node.kafka import KafkaClients, KafkaGroups, MakeKafkaClient
from proxy.port.memory import MemoryWatch
from proxy.port.network import DESCRIPTORS_UNBOUNDED, Network
from proxy.port.server import ThriftServer
from proxy.recording.in_force import InForce
from proxy.recording.trace_export import Send, TraceExport, otlp_sender
from proxy.services.access.denials import Denials
from proxy.services.access.guard import Guard
from proxy.tls.files import RealTlsFiles, TlsLoader
from proxy.tls.ports import TlsPorts
from upstream.calls.loop_threads import LoopThreads
from upstream.calls.node_calls import NodeCalls
from upstream.calls.seams import Threads
from upstream.figures.tracing import Tracing
from upstream.kafka.link import KafkaClient

AccessMode = Literal["rules", "open", "loopback"]
"""What says who may do what: the section `access`; or none, and the ports are, or are not, of the loopback."""


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


class Parts:
    """The parts; see the module. None of these is replaced while the node lives.

    Attributes:
        in_force: The configuration in force and the groups; a reload changes them.
        runtime: What its parts share.
        calls: Makes the calls of actions that await or block.
        access: The rules; None without any, where everything is allowed.
        limiter: What each client may take.
        audit: What is kept of who changed what, and who was denied what.
        guard: Looks at that.
        kafka: The ways to the clusters of Kafka.
        threads: Where what blocks is run.
        servers: The consumers' port and the producers', once they are made.
        tls: The encrypted ports.
        tracing: Makes spans of messages; None where nothing is traced.
        trace_export: Sends them; likewise.
    """

    def __init__(self, config: Config, seams: Seams, registry: Registry, metrics: Metrics) -> None:
        """Make the parts; nothing is opened.

        Raises:
            AccessUnreadable: A file that the section `access` names cannot be used.
            TlsFilesUnusable: A file of an encrypted port cannot be used.
            TracingUnavailable: What `node.tracing` needs is not installed.
        """
        clock, limited_log = seams.clock, RateLimitedLog(seams.clock)
        self.seams = seams
        self.registry = registry
        in_force = self.in_force = InForce(config)
        runtime = self.runtime = Runtime(
            clock=clock,
            disk=seams.disk,
            random=seams.randomness,
            metrics=metrics,
            limited_log=limited_log,
            scheduler=seams.loop,
            alarms=seams.alarms or seams.loop,
            syncs=seams.syncs,
        )
        self.access: Access | None = None
        if config.access is not None:
            files = seams.access_files or access_files
            self.access = Access(config.access, clock=clock, limited_log=limited_log, files=files)
        metrics.counter(ACCESS_OPEN).value = int(self.access_mode == "open")
        self.limiter = Limiter(config.limits, clock=clock, metrics=metrics, limited_log=limited_log)
        self.audit = Audit(runtime, lambda: in_force.config.admin)
        self.guard = Guard(self.access, Denials(seams.loop, metrics, limited_log, self.audit))
        threads = self.threads = seams.threads or LoopThreads(seams.loop)
        self.calls = NodeCalls(
            clock=clock,
            scheduler=seams.loop,
            tasks=seams.loop,
            threads=threads,
            calls_max=config.node.action_threads,
        )
        keep = Keep(seams.disk, config.node.data, threads=threads, tasks=seams.loop)
        self.make_actions = partial(registry.make, keep=keep)
        self.tracing: Tracing | None = None
        self.trace_export: TraceExport | None = None
        if (tracing := config.node.tracing) is not None:
            send = seams.send_spans or otlp_sender(tracing, config.node.broker_name)
            self.tracing = Tracing(tracing, runtime)
            self.trace_export = TraceExport(self.tracing, send, threads, runtime)
        make_client = seams.kafka or partial(_librdkafka_client, config, seams)
        self.kafka = KafkaClients(config.kafka, make_client, runtime, self.tracing)
        self.servers: list[ThriftServer] = []
        self.memory = MemoryWatch(
            config.node.memory_max, groups=in_force.all_groups, servers=self.servers, runtime=runtime
        )
        self.kafka_groups = KafkaGroups(self.kafka, runtime, self.memory.budget)
        self.tls = TlsPorts(config.tls, seams.tls or RealTlsFiles(), runtime)

    @property
    def access_mode(self) -> AccessMode:
        """What says who may do what."""
        return "rules" if self.access is not None else self.in_force.config.node.access


def _librdkafka_client(config: Config, seams: Seams, cluster: str, settings: KafkaClusterConfig) -> KafkaClient:
    # Cold: the package is an extra.
    from upstream.kafka_client.client import LibrdkafkaClient

    name = f"pyddmq-{config.node.broker_name}"
    return LibrdkafkaClient(cluster, settings, client_id=name, loop=seams.loop, clock=seams.clock)
