"""What holds the node's loop up: `python -m bench.stalls [--load latency|timers] [--seconds N] [--folder DIR]`.

A node under the load of the latency measurement (1,000 messages a second, one parked pull) or with timers that fall due
(5,000 a second), and every callback of its loop that takes longer than half a millisecond. Noting costs some
microseconds per call to the system. Beside it what the disk takes for the same writes by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.clients.processes import ClientProcess, Target, open_loop_publish, parked_pull
from bench.measures.runs import BENCH_GROUP, GROUP, LEAD_NS, TOPIC, node_config
from bench.measures.timer_figures import wall_ms
from bench.measures.timers import publish_timers, pull_timers
from bench.servers.processes import Cores, Node, cores, wait_for

PARTS_MAX = 5
"""Parts of a callback that the table names."""
PART_MS = 0.02
"""Parts that take less on average are left out, unless callbacks that take less are asked for, too."""
_TIMERS_PER_SECOND = 5_000
_RATE = 1_000
_RECORD_BYTES = 1_300


def messages(node: Node, where: Cores, seconds: float) -> list[float]:
    """Publish on an open schedule beside a parked pull; returns milliseconds from due to the pull's answer."""
    target = _target(node)
    count = int(_RATE * seconds)
    puller = ClientProcess(where.client, parked_pull, target, count)
    publisher = ClientProcess(where.client, open_loop_publish, target, _RATE, count, LEAD_NS)
    publisher.result()
    return [nanoseconds / 1e6 for nanoseconds in puller.result()]


def timers(node: Node, where: Cores, seconds: float) -> list[float]:
    """Have timers fall due; returns milliseconds from when each was due to its receipt."""
    target = _target(node)
    count = int(_TIMERS_PER_SECOND * seconds)
    puller = ClientProcess(where.client, pull_timers, target, count)
    begin = wall_ms() + 2_000 + count // 2
    ClientProcess(where.client, publish_timers, target, count, begin, 1_000 / _TIMERS_PER_SECOND).result()
    return [(at - due) / 1e6 for due, at in sorted(puller.result())]


def _target(node: Node) -> Target:
    return Target("pyddmq", node.producer, node.consumer, TOPIC.encode(), GROUP.encode())


LOADS = {"latency": messages, "timers": timers}


def disk_alone(folder: Path, seconds: float) -> list[float]:
    """Write a record into a preallocated file and sync it, at the rate of the load; milliseconds of each."""
    taken = []
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        os.posix_fallocate(file.fileno(), 0, 64 << 20)
        os.fsync(file.fileno())
        record = os.urandom(_RECORD_BYTES)
        begun = time.perf_counter()
        for number in range(int(_RATE * seconds)):
            time.sleep(max(0.0, begun + number / _RATE - time.perf_counter()))
            before = time.perf_counter()
            os.pwrite(file.fileno(), record, number * _RECORD_BYTES)
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - before) * 1e3)
    return taken


def run(load: str, folder: Path, where: Cores, seconds: float, least_ms: float) -> str:
    """Measure; returns the table (markdown) of the callbacks that took so long."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="stalls-") as own:
        file = Path(own) / "stalls.json"
        node = Node(Path(own), node_config(BENCH_GROUP, queues=1), core=where.server, stalls=file)
        try:
            node.begin_profile()
            late = LOADS[load](node, where, seconds)
            os.kill(node.process.pid, signal.SIGUSR2)
            wait_for(lambda: file.exists() and file.stat().st_size > 0, "the node did not tell what held it up")
        finally:
            node.stop()
        found = json.loads(file.read_text())
    late = late[len(late) // 10 :]
    alone = disk_alone(folder, min(seconds, 5.0))
    return "\n".join(
        [*table(found, least_ms), "", f"To the client {_spread(late)}; a write and sync alone {_spread(alone)}.", ""]
    )


Callback = tuple[str, float, float, list[tuple[str, float]]]
"""Name, seconds, processor seconds, and the parts with their seconds."""


def table(found: dict[str, Any], least_ms: float) -> list[str]:
    """Return the lines that say what took long, in which callback, and what was in it."""
    callbacks: list[Callback] = found["callbacks"]
    seconds = found["seconds"]
    busy = sum(took for _, took, _, _ in callbacks) / seconds
    stalls = [each for each in callbacks if each[1] >= least_ms / 1e3]
    lines = [
        f"{len(callbacks):,} callbacks in {seconds:.1f} s, {busy:.0%} of the time;"
        f" {len(stalls):,} took {least_ms:g} ms or more:",
        "",
        "| callback | per s | p50 ms | p99 | max | CPU ms | of it, ms |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, own in sorted(_kinds(stalls).items(), key=lambda each: -sum(took for took, _, _ in each[1])):
        took = sorted(took * 1e3 for took, _, _ in own)
        cpu = sum(cpu for _, cpu, _ in own) / len(own) * 1e3
        parts: defaultdict[str, float] = defaultdict(float)
        for _, _, inside in own:
            for part, spent in inside:
                parts[part] += spent / len(own) * 1e3
        largest = sorted(parts.items(), key=lambda each: -each[1])[:PARTS_MAX]
        shown = ", ".join(f"{part} {spent:.2f}" for part, spent in largest if spent >= min(PART_MS, least_ms))
        figures = (
            f"{len(own) / seconds:.2f} | {_at(took, 0.5):.2f} | {_at(took, 0.99):.2f} | {took[-1]:.2f} | {cpu:.2f}"
        )
        lines.append(f"| `{name}` | {figures} | {shown} |")
    return lines


def _kinds(stalls: Sequence[Callback]) -> dict[str, list[Any]]:
    """Sort by callback, and by what it synced besides the log: a turn that rolls a file over is no usual turn."""
    kinds: defaultdict[str, list[Any]] = defaultdict(list)
    for name, took, cpu, parts in stalls:
        heavy = {part for part, _ in parts if part.startswith(("f", "gc", "replace", "posix"))}
        kinds[" + ".join([name, *sorted(heavy)[:2], *(["..."] if len(heavy) > 2 else [])])].append((took, cpu, parts))
    return kinds


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _spread(values: Sequence[float]) -> str:
    ordered = sorted(values)
    p50, p99, p999 = (_at(ordered, share) for share in (0.5, 0.99, 0.999))
    return f"p50 {p50:.2f}, p99 {p99:.2f}, p99.9 {p999:.2f}, max {ordered[-1]:.2f} ms"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", choices=tuple(LOADS), default="latency")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the data goes")
    parser.add_argument("--least-ms", type=float, default=0.5, help="leave out callbacks that take less")
    options = parser.parse_args()
    where = cores()
    os.sched_setaffinity(0, {where.client})
    print(run(options.load, options.folder, where, options.seconds, options.least_ms))


if __name__ == "__main__":
    main()
