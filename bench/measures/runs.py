"""The measurements: each starts a server of its own on an empty folder, loads it, and returns figures."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench.clients.load import RedisConnection
from bench.clients.processes import ClientProcess, Kind, Target, open_loop_publish, parked_pull, publish_load, pull_load
from bench.servers.processes import Cores, Cost, Memory, Node, Redis, ServerProcess

TOPIC = "bench"
GROUP = "bench-pullers"
WARM_UP_MESSAGES = 2_000
LEAD_NS = 1_000_000_000

_NODE = """\
node:
  producerPort: 0
  consumerPort: 0
  adminPort: 0
  flush: sync
  logLevel: warning
  maxLingerTime: 30000
topics:
%s
groups:
"""
_GROUP = """\
  - group: %s
    topics:
      - topic: %s
        orderKey: KEY
        actions: [Async, PullServer]
        maxPullBatchSize: 32
        concurrency: 4096
        timeout: 60000
"""


def node_config(*groups: str, queues: int = 8, topics: Sequence[str] = (TOPIC, "idle")) -> str:
    """Return the node's configuration with these topics and groups."""
    listed = "\n".join(f"  {topic}: {{queues: {queues}}}" for topic in topics)
    return _NODE % listed + ("".join(groups) or "  []\n")


def group_config(group: str, topic: str) -> str:
    """Return the part of a group that pulls from a topic, in order per key."""
    return _GROUP % (group, topic)


_TLS = """
tls:
  certificate: {0}/node.crt
  key: {0}/node.key
  producer: {{port: 0}}
  consumer: {{port: 0}}
"""

BENCH_GROUP = group_config(GROUP, TOPIC)
IDLE_GROUP = group_config("bench-idle", "idle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one measurement gave. Figures that it does not have are None.

    Attributes:
        measure: Its name, such as publish.
        server: The node or a rival.
        batch: Messages per request.
        messages: How many were measured.
        cpu_us: Server CPU (user and system) per message in microseconds.
        core_us: Busy time of the server's core per message in microseconds, that of the kernel and of others included.
        per_second: Messages per second that the client saw.
        latency_ms: Percentile name -> milliseconds, from when the publish was due to the pull's answer.
        ack_ms: The same, to the publish's answer.
        memory: Point -> bytes: own at the start, after a tenth, at the end, at most; mapped files at most.
        facts: What else a measurement gives, by name.
        clients: How many at once.
    """

    measure: str
    server: Kind
    batch: int
    messages: int
    clients: int = 1
    cpu_us: float | None = None
    core_us: float | None = None
    per_second: float | None = None
    latency_ms: dict[str, float] = field(default_factory=dict)
    ack_ms: dict[str, float] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    facts: dict[str, float] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the figures as JSON takes them."""
        return {name: value for name, value in asdict(self).items() if value not in (None, {})}


class _Server:
    """A server that was started for one measurement, and how clients reach it."""

    def __init__(
        self,
        kind: Kind,
        folder: Path,
        core: int,
        config: str,
        profile: Path | None = None,
        *,
        tls: Path | None = None,
        section: str = "",
    ) -> None:
        self.kind = kind
        self._section = section + ("" if tls is None else _TLS.format(tls))
        ca = None if tls is None else str(tls / "ca.crt")
        self.node: Node | None = None
        topic, group = TOPIC.encode(), GROUP.encode()
        if kind == "pyddmq":
            self.node = Node(folder, config + self._section, core=core, profile=profile)
            self.process: ServerProcess = self.node.process
            self.target = Target("pyddmq", self.node.producer, self.node.consumer, topic, group, ca)
        else:
            redis = Redis(folder, core=core, tls=tls)
            self.process = redis.process
            self.target = Target("redis", redis.address, redis.address, topic, group, ca)

    def make_group(self) -> Cost:
        """Have the group start at the first message; returns what this cost apart from any message.

        The node reads the configuration again, which costs about as much as reading it for another, idle group: that
        one is added first and measured. So everything that is done for the measured group's messages counts.
        """
        if self.node is None:
            connection = self.target.connect(pull=True)
            assert isinstance(connection, RedisConnection)
            connection.make_group()
            connection.finish()
            return Cost(0.0, 0.0)
        before = self.process.cost()
        self.node.reconfigure(node_config(IDLE_GROUP) + self._section)
        self.process.wait_idle()
        cost = self.process.cost().since(before)
        self.node.reconfigure(node_config(IDLE_GROUP, BENCH_GROUP) + self._section)
        return cost


@contextlib.contextmanager
def started(
    kind: Kind,
    folder: Path,
    core: int,
    *,
    group: bool = False,
    queues: int = 8,
    tls: Path | None = None,
    section: str = "",
) -> Iterator[_Server]:
    """Start a server on an empty folder, and stop it at the end; a node with `section` in its configuration, too."""
    config = node_config(BENCH_GROUP, queues=queues) if group else node_config()
    with tempfile.TemporaryDirectory(dir=folder, prefix=f"{kind}-") as own:
        server = _Server(kind, Path(own), core, config, tls=tls, section=section)
        try:
            if group and kind == "redis":
                server.make_group()
            yield server
        finally:
            server.process.stop()


def publish(
    kind: Kind, folder: Path, where: Cores, *, batch: int, count: int, tls: Path | None = None, section: str = ""
) -> Figures:
    """Measure publishing: server CPU until idle again, and rate.

    With `tls`, a folder of `pyddmq tls dev`, by TLS; `section` as for `started`.
    """
    count -= count % batch
    with started(kind, folder, where.server, tls=tls, section=section) as server:
        ClientProcess(where.client, publish_load, server.target, 32, WARM_UP_MESSAGES).result()
        server.process.wait_idle()
        before = server.process.cost()
        seconds = ClientProcess(where.client, publish_load, server.target, batch, count).result()
        server.process.wait_idle()
        cost = server.process.cost().since(before)
    return Figures(
        measure="publish",
        server=kind,
        batch=batch,
        messages=count,
        cpu_us=cost.process / count * 1e6,
        core_us=cost.core / count * 1e6,
        per_second=count / seconds,
    )


def pull(
    kind: Kind, folder: Path, where: Cores, *, batch: int, count: int, tls: Path | None = None, section: str = ""
) -> Figures:
    """Measure pull and acknowledge of what was stored before; for the node in order per key. Else as `publish`."""
    count -= count % 32
    with started(kind, folder, where.server, tls=tls, section=section) as server:
        ClientProcess(where.client, publish_load, server.target, 32, count).result()
        server.process.wait_idle()
        before = server.process.cost()
        group = server.make_group()
        seconds = ClientProcess(where.client, pull_load, server.target, batch, count).result()
        server.process.wait_idle()
        cost = server.process.cost().since(before)
        cost = Cost(cost.process - 2 * group.process, cost.core - 2 * group.core)
    return Figures(
        measure="pull",
        server=kind,
        batch=batch,
        messages=count,
        cpu_us=cost.process / count * 1e6,
        core_us=cost.core / count * 1e6,
        per_second=count / seconds,
    )


def latency(kind: Kind, folder: Path, where: Cores, *, rate: int, seconds: float) -> Figures:
    """Measure how long after it was due a message reaches a parked pull, publishes on an open schedule."""
    warm_up = rate // 2
    count = warm_up + int(rate * seconds)
    # A reply carries messages of one queue, and the rival's stream is one: so is the queue here.
    with started(kind, folder, where.server, group=True, queues=1) as server:
        puller = ClientProcess(where.client, parked_pull, server.target, count)
        publisher = ClientProcess(where.client, open_loop_publish, server.target, rate, count, LEAD_NS)
        acks, pulls = publisher.result(), puller.result()
    return Figures(
        measure="latency",
        server=kind,
        batch=1,
        messages=count - warm_up,
        per_second=float(rate),
        latency_ms=percentiles(pulls[warm_up:]),
        ack_ms=percentiles(acks[warm_up:]),
    )


def memory(kind: Kind, folder: Path, where: Cores, *, count: int) -> Figures:
    """Watch the server's memory while `count` messages pass through it, published and pulled at the same time."""
    count -= count % 32
    with started(kind, folder, where.server, group=True) as server:
        seen = [server.process.memory()]
        begun = time.monotonic()
        clients = [
            ClientProcess(where.client, publish_load, server.target, 32, count),
            ClientProcess(where.client, pull_load, server.target, 32, count),
        ]
        while any(client.running for client in clients):
            time.sleep(0.05)
            seen.append(server.process.memory())
        seconds = time.monotonic() - begun
        for client in clients:
            client.result()
    return Figures(
        measure="memory",
        server=kind,
        batch=32,
        messages=count,
        per_second=count / seconds,
        memory=_points(seen),
    )


def profile(measure: Literal["publish", "pull"], folder: Path, where: Cores, *, batch: int, count: int) -> Path:
    """Run the node under cProfile through one measurement; returns the file with the profile.

    The profiler is switched on when everything is prepared, so the profile is of the measured requests alone.
    """
    count -= count % 32
    dump = folder / "node.prof"
    server = _Server("pyddmq", folder, where.server, node_config(), dump)
    assert server.node is not None
    try:
        stored = WARM_UP_MESSAGES if measure == "publish" else count
        ClientProcess(where.client, publish_load, server.target, 32, stored).result()
        server.process.wait_idle()
        if measure == "pull":
            # All that is done for the group's messages is wanted, so the profiler is on before the group is there.
            server.node.reconfigure(node_config(IDLE_GROUP))
            server.node.begin_profile()
            server.node.reconfigure(node_config(IDLE_GROUP, BENCH_GROUP))
            load = pull_load
        else:
            server.node.begin_profile()
            load = publish_load
        ClientProcess(where.client, load, server.target, batch, count).result()
    finally:
        server.process.stop()
    return dump


def _points(seen: Sequence[Memory]) -> dict[str, int]:
    return {
        "own_start": seen[0].own,
        "own_tenth": seen[len(seen) // 10].own,
        "own_end": seen[-1].own,
        "own_max": max(each.own for each in seen),
        "files_max": max(each.files for each in seen),
    }


def percentiles(nanoseconds: Sequence[int]) -> dict[str, float]:
    """Return p50, p99, p99.9 and max in milliseconds (nearest rank)."""
    ordered = sorted(nanoseconds)
    ranks = {"p50": 0.50, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    return {name: ordered[max(0, -int(-share * len(ordered) // 1) - 1)] / 1e6 for name, share in ranks.items()}
