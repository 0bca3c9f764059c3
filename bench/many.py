"""What very many topics, queues and groups cost one node: `python -m bench.many [--topics N] [--groups N]`.

Per case: seconds, the processor's share of them, the longest turn of the loop in processor time, and memory added.
`topics` reloads a node to N topics, `widen` gives each of them two queues more, `create` publishes first to N topics,
`wide` starts 100 groups on one topic of 1,024 queues, `idle` starts N groups on a topic of one queue and lets them be
for 60 s, `scrape` reads `/metrics` then.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import multiprocessing
import random
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import structlog

from actions.registry import Registry
from broker.log.put import Put
from broker.runtime.disk import RealDisk
from broker.runtime.disks.linux_aio import syncs_of
from broker.runtime.seams import SystemClock
from conf.loader import loads
from proxy.admin.exposition import Exposition
from proxy.node.alarms import alarms_of
from proxy.node.node import Node
from proxy.node.parts import Seams
from proxy.node.reload import Reloader
from proxy.operate.live_node import LiveNode
from proxy.port.network import AsyncioNetwork
from tests.insides import opened_of

PAGE_BYTES = 4096
WIDE_GROUPS, WIDE_QUEUES = 100, 1024
IDLE_SECONDS = 60


def yaml(data: Path, topics: int, *, queues: int = 2, groups: int = 0) -> str:
    """A configuration; all groups read the first topic."""
    head = [f"node: {{data: {data}, producerPort: 0, consumerPort: 0, autoCreateTopics: true, segmentBytes: 4194304}}"]
    lines = [f"  t{number}: {{queues: {queues}}}" for number in range(topics)]
    read = [f"  - {{group: g{number}, topics: [{{topic: t0}}]}}" for number in range(groups)]
    return "\n".join([*head, "topics:", *lines, *(["groups:", *read] if groups else [])])


def memory_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


async def measured(name: str, work: Callable[[], Awaitable[Any]], *, count: int = 0) -> None:
    """Run and print; `count`: what the memory is divided by."""
    turns: list[float] = []

    async def watch() -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            turns.append(now - last)
            last = now

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.01)
    before, began, cpu_began = memory_bytes(), time.perf_counter(), time.process_time()
    await work()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    await asyncio.sleep(0.01)
    watching.cancel()
    added = memory_bytes() - before
    each = f"{added / count:10,.0f}" if count else " " * 10
    print(f"{name:16}{seconds:10.2f}{cpu:8.2f}{max(turns) * 1000:12.0f}{added / 1e6:10.0f}{each}", flush=True)


class Bench:
    """One node over a folder of its own."""

    def __init__(self, data: Path, text: str) -> None:
        loop, clock, disk = asyncio.get_running_loop(), SystemClock(), RealDisk()
        self.text = text
        registry = Registry()
        alarms, self._end_alarms = alarms_of(loop, clock)
        syncs, self._end_syncs = syncs_of(loop, disk)
        seams = Seams(
            loop=loop,
            clock=clock,
            disk=disk,
            randomness=random.Random(1),
            network=AsyncioNetwork(),
            alarms=alarms,
            syncs=syncs,
        )
        self.node = Node(loads(text, actions=registry).config, seams=seams, registry=registry)
        self.reloader = Reloader(self.node, lambda: loads(self.text, actions=registry))

    async def reload(self, text: str) -> None:
        """Reload."""
        self.text = text
        result = await self.reloader.reload()
        assert result.accepted, result.problems

    async def create(self, topics: int) -> None:
        """Publish first to many topics, 64 in a turn."""
        ports, store = opened_of(self.node).ports, opened_of(self.node).store
        for number in range(topics):
            ports.auto_create(f"new{number}", self.node.in_force.config)
            store.append([Put(store.topics[f"new{number}"], 0, b"x", b"")], born_ms=1, born_host=bytes(8))
            if number % 64 == 63:
                await asyncio.sleep(0)
        store.flush()

    async def scrape(self) -> None:
        """Read the metrics."""
        exposition = Exposition(LiveNode(self.node, self.reloader), "bench")
        text, _ = await exposition.rendered("")
        print(f"                {len(text) / 1e6:.1f} MB, {text.count(10):,} lines")

    async def end(self) -> None:
        """Stop the node."""
        await self.node.stop(drain_seconds=0)
        self._end_alarms()
        self._end_syncs()


async def topics_case(data: Path, topics: int) -> None:
    """Add, widen and make topics."""
    bench = Bench(data, yaml(data, 1))
    await bench.node.start()
    await measured("topics", lambda: bench.reload(yaml(data, topics)), count=topics)
    await measured("widen", lambda: bench.reload(yaml(data, topics, queues=4)))
    await measured("create", lambda: bench.create(topics))
    await bench.end()


async def wide_case(data: Path, groups: int) -> None:
    """Start groups with many queues."""
    bench = Bench(data, yaml(data, 1, queues=WIDE_QUEUES, groups=groups))
    await measured("wide", bench.node.start, count=groups * WIDE_QUEUES)
    await bench.end()


async def idle_case(data: Path, groups: int) -> None:
    """Start many groups and let them be."""
    bench = Bench(data, yaml(data, 1, queues=1, groups=groups))
    await measured("start", bench.node.start, count=groups)
    await measured("idle", lambda: asyncio.sleep(IDLE_SECONDS))
    await measured("scrape", bench.scrape)
    await bench.end()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=4_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--folder", help="where the data goes; a temporary folder by default")
    options = parser.parse_args()
    print(f"{'':16}{'seconds':>10}{'CPU':>8}{'turn ms':>12}{'MB':>10}{'each':>10}", flush=True)
    cases = ((topics_case, options.topics), (wide_case, WIDE_GROUPS), (idle_case, options.groups))
    for case, count in cases:
        # A process for each: memory that one gave back would be taken by the next.
        process = multiprocessing.get_context("spawn").Process(target=run, args=(case, count, options.folder))
        process.start()
        process.join()


def run(case: Callable[[Path, int], Coroutine[Any, Any, None]], count: int, folder: str | None) -> None:
    """Run one case in a folder of its own."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    # As `pyddmq serve` has it.
    gc.set_threshold(2_000, 1_250, 1_000)
    root = Path(tempfile.mkdtemp(prefix="pyddmq-many-", dir=folder))
    try:
        asyncio.run(case(root, count))
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
