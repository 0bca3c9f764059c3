"""What healthy clients wait among thousands of hostile ones, and among a few that ask without end; and without them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.clients.processes import ClientProcess, Target, open_loop_publish, parked_pull
from bench.measures.runs import BENCH_GROUP, GROUP, LEAD_NS, TOPIC, Figures, node_config, percentiles
from bench.servers.processes import BenchError, Cores, Node

ATTACK = ("idle", "10000", "drip", "1000", "bomb", "1000", "slow_header", "200")
BUSY_ATTACK = ("stats", "4", "unknown", "4", "offsets", "4", "slow_post", "300")
"""Clients that ask for much without end; a few of them use all that the node gives."""
TINY_ATTACK = ("idle", "20", "drip", "20", "bomb", "20")
_ROOT = Path(__file__).parents[2]


def hostile(folder: Path, where: Cores, *, rate: int, seconds: float, attack: tuple[str, ...]) -> Figures:
    """Measure the latency as `runs.latency` does, with an attack on both ports; an empty one is the quiet node."""
    warm_up = rate // 2
    count = warm_up + int(rate * seconds)
    config = node_config(BENCH_GROUP, queues=1).replace("  flush:", "  maxConnections: 12000\n  flush:", 1)
    with tempfile.TemporaryDirectory(dir=folder, prefix="hostile-") as own:
        node = Node(Path(own), config, core=where.server)
        target = Target("pyddmq", node.producer, node.consumer, TOPIC.encode(), GROUP.encode())
        try:
            with _attack(node, where.client, attack):
                puller = ClientProcess(where.client, parked_pull, target, count)
                publisher = ClientProcess(where.client, open_loop_publish, target, rate, count, LEAD_NS)
                acks, pulls = publisher.result(), puller.result()
                memory = node.process.memory().own
        finally:
            node.stop()
    return Figures(
        measure="busy" if attack == BUSY_ATTACK else "hostile" if attack else "quiet",
        server="pyddmq",
        batch=1,
        messages=count - warm_up,
        per_second=float(rate),
        latency_ms=percentiles(pulls[warm_up:]),
        ack_ms=percentiles(acks[warm_up:]),
        memory={"own_end": memory},
    )


@contextlib.contextmanager
def _attack(node: Node, core: int, kinds: tuple[str, ...]) -> Iterator[None]:
    """Let hostile clients work from a process of their own, on the clients' core."""
    if not kinds:
        yield
        return
    command = [sys.executable, "-m", "tests.hostile.attacker", json.dumps(node.addresses), *kinds]
    process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        os.sched_setaffinity(process.pid, {core})
        assert process.stdout is not None
        if not process.stdout.readline():
            raise BenchError("the hostile clients did not get going")
        yield
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
