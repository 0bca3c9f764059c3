"""What a request of one message costs a server, by the number of clients: all servers run, and take turns."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.clients.load import RedisConnection
from bench.clients.nats import NatsConnection
from bench.clients.processes import ClientProcess, Kind, Target, publish_load, pull_load
from bench.clients.remoting import RocketConnection
from bench.measures.runs import Figures, group_config, node_config
from bench.progress import say
from bench.rocketmq.jars import JARS
from bench.rocketmq.processes import Broker, NameServer
from bench.rocketmq.timers import JVM
from bench.servers.maven import Programs
from bench.servers.processes import (
    IDLE_SHARE,
    Address,
    Cores,
    Cost,
    Nats,
    Node,
    Redis,
    core_seconds,
    process_cpu_seconds,
    wait_idle,
)

_WARM_UP = 12_000
_JVM_IDLE_SHARE = 0.1


class Contender(NamedTuple):
    """A running server.

    Attributes:
        kind: Which.
        pid: Its process.
        publish_address, pull_address: Its ports.
        create: Makes a topic for a number of clients, and its group where that costs nothing by itself.
        subscribe: Makes the group, at the first message; returns what this costs apart from messages.
        warm_up: Messages to begin with.
        idle_share: What it uses of its core without clients, at most.
    """

    kind: Kind
    pid: int
    publish_address: Address
    pull_address: Address
    create: Callable[[Target, int], None]
    subscribe: Callable[[Target], Cost] = lambda _: Cost(0.0, 0.0)
    warm_up: int = 1_600
    idle_share: float = IDLE_SHARE

    def target(self, case: Case) -> Target:
        """Where the clients of a case go."""
        name = case.topic.encode()
        return Target(self.kind, self.publish_address, self.pull_address, name, name)

    def publish(self, case: Case, where: Cores) -> Figures:
        """Measure the publishes of a case."""
        with self._awake():
            self.create(self.target(case), case.clients)
            wait_idle(self.pid, self.idle_share)
            return self._figures("publish", case, where, self._cost(where), publish_load)

    def pull(self, case: Case, where: Cores) -> Figures:
        """Measure the pulls of what was published."""
        with self._awake():
            before, group = self._cost(where), self.subscribe(self.target(case))
            before = Cost(before.process + group.process, before.core + group.core)
            return self._figures("pull", case, where, before, pull_load)

    @contextlib.contextmanager
    def _awake(self) -> Iterator[None]:
        """Stop a server that is never idle while the others have their turns on its core."""
        if self.idle_share == IDLE_SHARE:
            yield
            return
        os.kill(self.pid, signal.SIGCONT)
        yield
        os.kill(self.pid, signal.SIGSTOP)

    def _figures(self, measure: str, case: Case, where: Cores, before: Cost, load: Callable[..., float]) -> Figures:
        seconds = ClientProcess(where.client, load, self.target(case), 1, case.messages, case.clients).result()
        wait_idle(self.pid, self.idle_share)
        cost = self._cost(where).since(before)
        return Figures(
            measure=f"single {measure}",
            server=self.kind,
            batch=1,
            clients=case.clients,
            messages=case.messages,
            cpu_us=cost.process / case.messages * 1e6,
            core_us=cost.core / case.messages * 1e6,
            per_second=case.messages / seconds,
        )

    def _cost(self, where: Cores) -> Cost:
        return Cost(process_cpu_seconds(self.pid), core_seconds(where.server))


class Case(NamedTuple):
    """A row of the table in one round; its topic and group are its own."""

    round: int
    clients: int
    messages: int

    @property
    def topic(self) -> str:
        """Name of both."""
        return f"single-{self.round}-{self.clients}"


def requests(
    folder: Path, where: Cores, kinds: Sequence[Kind], *, count: int, clients: Sequence[int], rounds: int
) -> list[Figures]:
    """Measure publishes of one message, and pulls of one with the acknowledgement of the one before.

    Args:
        folder: For the servers' data.
        where: Their core, and the clients'.
        kinds: The servers.
        count: Messages of a case; more for many clients.
        clients: How many at once, case by case.
        rounds: How often.
    """
    cases = [Case(number, n, max(count, n * max(1, count // 75)) // n * n) for number in range(rounds) for n in clients]
    figures = []
    with contextlib.ExitStack() as stack:
        own = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder, prefix="requests-")))
        first = Case(rounds, 16, 1_600)
        running = [stack.enter_context(_started(kind, own, where, [first, *cases])) for kind in kinds]
        for each in running:
            warm_up = first._replace(messages=min(each.warm_up, 4 * count) // 16 * 16)
            each.publish(warm_up, where)
            each.pull(warm_up, where)
        for number, case in enumerate(cases):
            say(f"  {case.round + 1}/{rounds} {case.clients} clients")
            # Who begins changes.
            turn = number % len(running)
            order = running[turn:] + running[:turn]
            figures += [each.publish(case, where) for each in order]
            figures += [each.pull(case, where) for each in order]
    return figures


@contextlib.contextmanager
def _started(kind: Kind, folder: Path, where: Cores, cases: Sequence[Case]) -> Iterator[Contender]:
    own = folder / kind.replace(", ", "-")
    own.mkdir()
    if kind == "rocketmq":
        with _rocketmq(own, where) as contender:
            yield contender
        return
    if kind == "pyddmq":
        node = _NodeOfCases(own, where, cases)
        process = node.node.process
        ports = node.node.producer, node.node.consumer
        contender = Contender(kind, process.pid, *ports, lambda *_: None, node.subscribe)
    else:
        server = (
            Redis(own, core=where.server) if kind == "redis" else Nats(own, core=where.server, synced=kind != "nats")
        )
        process = server.process
        contender = Contender(kind, process.pid, server.address, server.address, _make_group)
    try:
        yield contender
    finally:
        process.stop()


def _make_group(target: Target, _: int) -> None:
    connection = target.connect(pull=True)
    assert isinstance(connection, RedisConnection | NatsConnection)
    connection.make_group()
    connection.socket.close()


class _NodeOfCases:
    """A node with a topic for each case, and ever more groups."""

    def __init__(self, folder: Path, where: Cores, cases: Sequence[Case]) -> None:
        self._topics = ["idle", *(case.topic for case in cases)]
        self._groups: list[str] = []
        self.node = Node(folder, self._config(), core=where.server)

    def _config(self) -> str:
        return node_config(*self._groups, topics=self._topics)

    def subscribe(self, target: Target) -> Cost:
        """Add the group. That of an idle topic, which is added before, costs the same without messages."""
        process, name = self.node.process, target.topic.decode()
        before = process.cost()
        self._groups.append(group_config(f"idle-{name}", "idle"))
        self.node.reconfigure(self._config())
        process.wait_idle()
        reload = process.cost().since(before)
        self._groups.append(group_config(name, name))
        self.node.reconfigure(self._config())
        return Cost(2 * reload.process, 2 * reload.core)


@contextlib.contextmanager
def _rocketmq(folder: Path, where: Cores) -> Iterator[Contender]:
    programs = Programs(JARS.fetch(), folder)
    store = {"storePathRootDir": str(folder / "store"), "storePathCommitLog": str(folder / "store" / "commitlog")}
    namesrv = NameServer(folder / "namesrv", programs, core=where.client)
    try:
        # A broker that shares its core refuses nothing because a request has waited.
        patience = {f"waitTimeMillsIn{name}Queue": "60000" for name in ("Send", "Pull")}
        patience["osPageCacheBusyTimeOutMills"] = "60000"
        settings = {**store, **patience, "flushDiskType": "SYNC_FLUSH"}
        with Broker(folder / "broker", programs, namesrv.address, settings, options=JVM, core=where.server) as broker:
            host, port = broker.address.split(":")
            address = host, int(port)

            def create(target: Target, clients: int) -> None:
                connection = target.connect(pull=False)
                assert isinstance(connection, RocketConnection)
                connection.make_topic(clients)
                connection.socket.close()

            pid = broker.process.pid
            yield Contender("rocketmq", pid, address, address, create, warm_up=_WARM_UP, idle_share=_JVM_IDLE_SHARE)
    finally:
        namesrv.kill()
