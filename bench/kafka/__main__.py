"""`python -m bench.kafka`: what a message over Kafka costs a node, as processor time, with one node, two and four.

Each run has a topic of its own, empty at first. When all members have joined and are at rest, a plain producer sends
the messages; clients pull them from every node and answer. Beside it, by the same messages: a plain loop over a
confluent-kafka consumer that commits every 100 ms, Confluent's parallel consumer (Java) in the order of keys, and a
node's own store (published before, pulled in the measure). How it is counted stands in `bench.kafka.costs`.

Whether a message costs the same with more nodes is asked at a rate for each node (`--rate`) at which the cores stay
idle for the most part, each node with partitions and clients of its own: the same messages over more nodes, all at
once, are fewer for each, and where cores are short batches grow; both change what a message costs.

Where Kafka is: `PYDDMQ_KAFKA=host:port`, or one is started (Java).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.kafka.costs import Cost, Load
from bench.kafka.nodes import measure_embedded, measure_nodes
from bench.kafka.rivals import WARM_MESSAGES, compiled, measure_parallel, measure_plain
from bench.progress import say
from bench.servers.kafka import running_kafka
from bench.servers.maven import JarsMissing, Programs

BUSY_MAX = 0.6
"""Beyond it a rate is too high for what is asked of it."""


def parallel(folder: Path) -> Programs | None:
    """Return the parallel consumer's program; None where it cannot be had."""
    try:
        return compiled(folder)
    except JarsMissing as error:
        say(f"without the parallel consumer: {error}")
        return None


def turn(
    asked: argparse.Namespace, address: str, folder: Path, programs: Programs | None
) -> Iterator[tuple[str, Cost]]:
    """Measure everything once."""
    load = Load(address, asked.partitions, asked.messages, asked.rate, asked.rest)
    for nodes in asked.nodes:
        its = load
        if asked.rate:
            # Each node gets as many in the same time, by as many partitions: of fewer its commits would cost less.
            its = Load(address, load.partitions * nodes, load.messages * nodes, load.rate * nodes, load.rest)
        yield f"{nodes} node{'s' * (nodes > 1)}", measure_nodes(its, nodes, folder)
    if asked.nodes_only:
        return
    yield "plain, 500 at once", measure_plain(load, 500)
    yield "plain, one by one", measure_plain(load, 1)
    if programs is not None:
        yield "parallel consumer", measure_parallel(load, programs, folder, asked.warm)
    if not asked.rate:
        yield "own store", measure_embedded(load, folder)


def print_table(found: dict[str, list[Cost]]) -> None:
    """Print medians, and how far apart turns were."""
    base = statistics.median(each.alone for each in next(iter(found.values())))
    print("us of processor time a message, without what is needed at rest; with it; messages a second; cores in use")
    for name, costs in found.items():
        alone, in_all, per_second, busy = (statistics.median(each) for each in zip(*costs, strict=True))
        values = [each.alone for each in costs]
        spread = (max(values) - min(values)) / alone * 100
        print(
            f"{name:20} {alone:8.1f} {alone / base:6.2f} of the first ({spread:3.0f} % apart)"
            f" {in_all:8.1f} {per_second:8.0f}/s {busy * 100:4.0f} %"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table and a line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.kafka", description=__doc__)
    parser.add_argument("--messages", type=int, default=40_000, help="with a rate so many for each node")
    parser.add_argument("--nodes", type=lambda text: [int(each) for each in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second for each node (0: all at once)")
    parser.add_argument("--partitions", type=int, default=12, help="of the topic; with a rate so many for each node")
    parser.add_argument("--rest", type=float, default=10.0, help="seconds for which processes are looked at at rest")
    parser.add_argument("--warm", type=int, default=WARM_MESSAGES, help="messages that the JVM gets before")
    parser.add_argument("--nodes-only", action="store_true", help="leave out what stands beside them")
    asked = parser.parse_args(arguments)
    found: dict[str, list[Cost]] = {}
    with tempfile.TemporaryDirectory(prefix="pyddmq-bench-") as scratch, running_kafka(Path(scratch)) as address:
        programs = None if asked.nodes_only else parallel(Path(scratch))
        for number in range(asked.repeat):
            say(f"turn {number + 1} of {asked.repeat}, load {os.getloadavg()[0]:.1f}")
            for name, cost in turn(asked, address, Path(scratch), programs):
                found.setdefault(name, []).append(cost)
                say(f"{name}: {cost.alone:.1f} us, {cost.per_second:.0f}/s, cores {cost.busy * 100:.0f} %")
                if asked.rate and cost.busy > BUSY_MAX:
                    say(f"the cores were more than {BUSY_MAX * 100:.0f} % busy: a lower rate says more")
    print_table(found)
    costs = {name: [[round(each, 3) for each in cost] for cost in costs] for name, costs in found.items()}
    print(json.dumps({"messages": asked.messages, "rate": asked.rate, "costs": costs}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
