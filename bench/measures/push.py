"""Pushes: the node's CPU per message, beside a bare client of aiohttp that posts as much to the same receiver."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from bench.clients.processes import ClientProcess, Target, publish_load
from bench.clients.push_peer import TOLD_EACH
from bench.measures.runs import GROUP, TOPIC, Figures, node_config
from bench.servers.processes import BenchError, Cores, Node, bound_to

CONCURRENCY = 64
BODY_BYTES = 1024
_GROUP = """\
  - group: %s
    topics:
      - topic: %s
        orderKey: KEY
        actions: [Async, AsyncHttp]
        timeout: 60000
        urls: ["%s"]
        options: {AsyncHttp: {connections: %d}}
"""


def push(folder: Path, where: Cores, *, count: int) -> Figures:
    """Measure pushes of messages that are stored already; `count` is cut to whole hundreds."""
    count -= count % TOLD_EACH
    peer = [sys.executable, "-m", "bench.clients.push_peer"]
    receiver = subprocess.Popen([*bound_to(where.client), *peer, "receiver"], stdout=subprocess.PIPE, text=True)
    assert receiver.stdout is not None
    try:
        url = f"http://127.0.0.1:{int(receiver.stdout.readline())}/hook"
        own = f"{count} {CONCURRENCY} {BODY_BYTES}".split()
        bare = subprocess.run(
            [*bound_to(where.server), *peer, "bare", url, *own], stdout=subprocess.PIPE, text=True, check=True
        )
        _until(receiver, count)
        with tempfile.TemporaryDirectory(dir=folder) as data:
            node = Node(Path(data), node_config(), core=where.server)
            try:
                target = Target("pyddmq", node.producer, node.consumer, TOPIC.encode(), GROUP.encode())
                ClientProcess(where.client, publish_load, target, 32, count - count % 32 + 32).result()
                node.process.wait_idle()
                before = node.process.cost()
                node.reconfigure(node_config(_GROUP % (GROUP, TOPIC, url, CONCURRENCY)))
                _until(receiver, 2 * count)
                cost = node.process.cost().since(before)
            finally:
                node.process.stop()
    finally:
        receiver.kill()
        receiver.wait()
        receiver.stdout.close()
    bare_us = float(bare.stdout) / count * 1e6
    ours_us = cost.process / count * 1e6
    return Figures(
        measure="push",
        server="pyddmq",
        batch=1,
        messages=count,
        cpu_us=ours_us,
        facts={"bare_us": bare_us, "ratio": ours_us / bare_us},
    )


def _until(receiver: subprocess.Popen[str], count: int) -> None:
    """Return when the receiver had so many requests; it tells each hundredth."""
    assert receiver.stdout is not None
    while line := receiver.stdout.readline():
        if int(line) >= count:
            return
    raise BenchError("the receiver of pushes has ended")
