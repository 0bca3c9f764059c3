"""Many connections that do little, and one client beside many that do much."""

from __future__ import annotations

import os
import resource
import select
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.clients.load import Connection
from bench.clients.processes import ClientProcess, Kind, Target, open_loop_publish, publish_load
from bench.measures.runs import BENCH_GROUP, GROUP, LEAD_NS, TOPIC, Figures, node_config, percentiles, started
from bench.servers.processes import Cores, Node

HEAVY = 256
LIGHT_RATE = 100
PULL_LINGER_MS = 30_000
_OTHER_FILES = 500
_HEAVY_MESSAGES = 10_000_000
_HEAVY_NICE = 10


def idle(
    folder: Path, where: Cores, *, connections: int, pulls: int, seconds: float, profile: Path | None = None
) -> Figures:
    """Measure CPU and memory of a node without clients, with idle ones, and with parked pulls of 30 s besides.

    Args:
        folder: For the node's data.
        where: Its core.
        connections: How many; fewer where this process may not open as many files.
        pulls: How many of them pull.
        seconds: How long each time; pulls for 30 s at least, since each ends and is sent again within that.
        profile: File for a profile of the last time.
    """
    connections = min(connections, _files_max() - _OTHER_FILES)
    config = node_config(BENCH_GROUP).replace("  flush:", "  maxConnections: 12000\n  flush:", 1)
    held: list[Connection] = []
    with tempfile.TemporaryDirectory(dir=folder, prefix="idle-") as own:
        node = Node(Path(own), config, core=where.server, profile=profile)
        target = Target("pyddmq", node.producer, node.consumer, TOPIC.encode(), GROUP.encode())
        process = node.process
        try:
            process.wait_idle()
            shares, memory = [_share(node, seconds)], [process.memory().own]
            held = [target.connect(pull=number < pulls or number % 2 == 0) for number in range(connections)]
            process.wait_idle()
            shares.append(_share(node, seconds))
            memory.append(process.memory().own)
            if profile is not None:
                node.begin_profile()
            before, begun = process.cpu_seconds(), time.monotonic()
            _park(held[:pulls], max(seconds, PULL_LINGER_MS / 1000 if seconds >= 1 else 0))
            shares.append((process.cpu_seconds() - before) / (time.monotonic() - begun))
            memory.append(process.memory().own)
        finally:
            for each in held:
                each.socket.close()
            node.stop()
    names = ("none", "idle", "parked")
    return Figures(
        measure="idle",
        server="pyddmq",
        batch=1,
        messages=0,
        clients=connections,
        memory=dict(zip(names, memory, strict=True)),
        facts={"pulls": pulls, **dict(zip(names, shares, strict=True))},
    )


def _files_max() -> int:
    """Raise the number of files that this process may open, and return it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def _share(node: Node, seconds: float) -> float:
    before = node.process.cpu_seconds()
    time.sleep(seconds)
    return (node.process.cpu_seconds() - before) / seconds


def _park(connections: Sequence[Connection], seconds: float) -> None:
    """Pull, and pull again when nothing came."""
    poller = select.epoll()
    by_number = {each.socket.fileno(): each for each in connections}
    for number, each in by_number.items():
        each.ask(1, PULL_LINGER_MS)
        poller.register(number, select.EPOLLIN)
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        for number, _ in poller.poll(left):
            if by_number[number].pulled() is not None:
                by_number[number].ask(1, PULL_LINGER_MS)
    poller.close()


def light(kind: Kind, folder: Path, where: Cores, *, seconds: float) -> Figures:
    """Measure the publishes of a client with 100 a second, alone and beside 256 that publish without a pause."""
    count = int(LIGHT_RATE * seconds)
    with started(kind, folder, where.server) as server:
        arguments = (open_loop_publish, server.target, LIGHT_RATE, count, LEAD_NS)
        alone = ClientProcess(where.client, *arguments).result()
        heavy = ClientProcess(where.client, heavy_load, server.target)
        try:
            beside = ClientProcess(where.client, *arguments).result()
        finally:
            heavy.stop()
    found = percentiles(alone)
    return Figures(
        measure="light",
        server=kind,
        batch=1,
        messages=count,
        clients=HEAVY,
        per_second=float(LIGHT_RATE),
        ack_ms=percentiles(beside),
        facts={"alone_p50_ms": found["p50"], "alone_p99_ms": found["p99"]},
    )


def heavy_load(target: Target) -> float:
    """Publish from many connections until ended; the core that all clients share is the light client's first."""
    os.nice(_HEAVY_NICE)
    return publish_load(target, 1, _HEAVY_MESSAGES, HEAVY)
