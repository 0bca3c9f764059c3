"""`python -m bench.access`: what rules and limits cost a node, beside itself without them (docs/performance.md).

Processor time of the server per message, publish and pull + ack, at batch 1 and 32, in turns, so that what else the
machine does falls on all alike; the ratio is the median of those of the rounds. Limits are far above what is asked, so
that they are looked at and hold nobody. Then the looks by themselves, per call. And `cycles`: publish, pull and
acknowledge one message at a time at three nodes of one process over simulated network and disk, in turns of some
milliseconds: what the difference is in microseconds is told there on a busy machine, too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
import timeit
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from actions.registry import Registry
from bench.measures import runs
from bench.progress import say
from bench.servers.processes import cores
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import SystemClock
from conf.loader import loads
from proxy.access.rights import Rights
from proxy.access.rules import Rules
from proxy.limits.limiter import Limiter
from proxy.node.node import Node
from proxy.node.parts import Seams
from proxy.wire.call import COMPACT
from pyddmq.testing import NetworkFaults, SimDisk, SimNetwork, VirtualClock, VirtualLoop
from tests.fakes.codec import encode_call

COUNTS = {1: 6_000, 32: 48_000}
MEASURES = {"publish": runs.publish, "pull": runs.pull}
_RULES = """
access:
  networks: [{cidr: 127.0.0.0/8, principal: bench}]
  rules:
    - {principals: [shop, legacy], produce: [orders, "orders-*"]}
    - {principals: ["b*"], produce: ["b*", idle], consume: ["bench-*"]}
"""
_LIMITS = """
limits:
  share: 4
  principals:
    - {principals: ["*"], connections: 1000, parkedPulls: 1000, requestsPerSecond: 1000000,
       bytesInPerSecond: 100000000000, bytesOutPerSecond: 100000000000}
  addresses:
    - {networks: [127.0.0.0/8], connections: 1000, parkedPulls: 1000, requestsPerSecond: 1000000}
"""
SECTIONS = {"plain": "", "rules": _RULES, "rules and limits": _RULES + _LIMITS}
CALLS = 200_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.access", description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="rounds, of which the median counts")
    parser.add_argument("--share", type=float, default=1.0, help="part of the messages")
    parser.add_argument("--batch", type=int, action="append", choices=COUNTS, help="of these sizes alone")
    parser.add_argument(
        "measures", nargs="*", metavar="MEASURE", help="publish, pull, cycles, looks; all when left out"
    )
    options = parser.parse_args(arguments)
    wanted = options.measures or [*MEASURES, "cycles", "looks"]
    print(f"load average {os.getloadavg()[0]:.1f}, {options.repeat} rounds, us of server CPU per message")
    print(f"| measure | batch | {' | '.join(SECTIONS)} | rules / plain | both / plain |\n|{' --- |' * 7}")
    with tempfile.TemporaryDirectory(prefix="pyddmq-bench-") as name:
        for measure in MEASURES:
            for batch in options.batch or COUNTS if measure in wanted else ():
                _compare(measure, batch, Path(name), repeat=options.repeat, share=options.share)
    if "cycles" in wanted:
        plain_us, *more_us = cycles_us()
        for kind, us in zip([*SECTIONS][1:], more_us, strict=True):
            print(f"\na cycle of two calls: {plain_us:.1f} us; with {kind} {us:+.2f} us ({us / plain_us:+.1%})")
    if "looks" in wanted:
        rules_us, limits_us = looks_us()
        print(f"\nthe looks alone, of a call that goes on: rules {rules_us:.2f} us, limits {limits_us:.2f} us")
    return 0


def _compare(measure: str, batch: int, folder: Path, *, repeat: int, share: float) -> None:
    found: dict[str, list[float]] = {kind: [] for kind in SECTIONS}
    for number in range(repeat):
        # Each kind is first in turn, so that none has always the same neighbour.
        kinds = [*SECTIONS][number % len(SECTIONS) :] + [*SECTIONS][: number % len(SECTIONS)]
        for kind in kinds:
            say(f"{measure} batch {batch} {kind} {number + 1}")
            count = int(COUNTS[batch] * share)
            figures = MEASURES[measure]("pyddmq", folder, cores(), batch=batch, count=count, section=SECTIONS[kind])
            found[kind].append(figures.cpu_us or 0.0)
    medians = [f"{statistics.median(found[kind]):.1f}" for kind in SECTIONS]
    ratios = [
        f"{statistics.median([mine / plain for mine, plain in zip(found[kind], found['plain'], strict=True)]):.3f}"
        for kind in SECTIONS
        if kind != "plain"
    ]
    print(f"| {measure} | {batch} | {' | '.join(medians)} | {' | '.join(ratios)} |", flush=True)


def looks_us(calls: int = CALLS) -> tuple[float, float]:
    """Return what the look at a right that was decided before takes, and that at the limits of a connection."""
    config = loads(_RULES + _LIMITS).config
    assert config.access is not None, "it has rules"
    rights = Rights("bench", Rules(config.access), way="network")
    rights.may_consume("bench-pullers")
    clock = SystemClock()
    limiter = Limiter(config.limits, clock=clock, metrics=Metrics(), limited_log=RateLimitedLog(clock))
    quota = limiter.enter("127.0.0.1", "consumer")
    limiter.identify(quota, rights, "consumer")

    def look_at_rules() -> bool:
        return "bench-pullers" in rights.consumes

    def look_at_limits() -> None:
        _, meter, _ = quota.wait(clock.monotonic())
        if meter is None:
            quota.charge(200)
        quota.sent(1_100)

    return tuple(
        min(timeit.repeat(look, number=calls, repeat=5)) / calls * 1e6 for look in (look_at_rules, look_at_limits)
    )  # type: ignore[return-value]


_CYCLE_NODE = """
node: {segmentBytes: 67108864, producerPort: 9613, consumerPort: 9713}
topics: {bench: {queues: 1}}
groups: [{group: bench-pullers, topics: [{topic: bench}]}]
"""
CYCLES = 25
"""Of one turn of a node."""


class _Line(asyncio.Protocol):
    """A client's end of a connection to one port; counts answers."""

    def __init__(self) -> None:
        self.answers = 0
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.answers += 1


class _Simulated:
    """A node with one more section, and a client that sends, pulls and acknowledges."""

    def __init__(self, section: str) -> None:
        self._loop = loop = VirtualLoop()
        network = SimNetwork(loop, Random(1), NetworkFaults(delay_ms_max=0.0, fragment_share=0.0))
        seams = Seams(loop=loop, clock=VirtualClock(loop), disk=SimDisk(), randomness=Random(2), network=network)
        self._node = Node(loads(_CYCLE_NODE + section, actions=Registry()).config, seams=seams, registry=Registry())
        loop.run(loop.create_task(self._node.start()).done, seconds=60)
        self._producer, self._consumer = _Line(), _Line()
        network.connect(self._producer, ("127.0.0.1", 9613), host="127.0.0.1")
        network.connect(self._consumer, ("127.0.0.1", 9713), host="127.0.0.1")
        loop.run(None, seconds=0.1)
        self._offset = 0

    def cycles(self, count: int) -> float:
        """Make so many cycles; the seconds of processor time that they took."""
        message = {"topic": "bench", "key": "k", "hashId": 0, "partitionId": -1, "body": b"x" * 1024}
        send = encode_call(COMPACT, "sendSync", 1, {"message": message, "timeout": 1000})
        context = {"groupId": "bench-pullers", "topic": "bench", "qid": "pyddmq_broker-0_0"}
        pulls = []
        for offset in range(self._offset, self._offset + count):
            result = {"context": context, "successOffsets": [offset - 1], "failOffsets": []} if offset else None
            request = {"groupId": "bench-pullers", "maxBatchSize": 1, "maxLingerTime": 50, "result": result}
            pulls.append(encode_call(COMPACT, "pull", 1, {"request": request}))
        self._offset += count
        began = time.process_time()
        for pull in pulls:
            self._call(self._producer, send)
            self._call(self._consumer, pull)
        return time.process_time() - began

    def _call(self, line: _Line, frame: bytes) -> None:
        seen = line.answers
        line.transport.write(frame)
        self._loop.run(lambda: line.answers > seen, seconds=5)


def cycles_us(rounds: int = 150) -> list[float]:
    """Return what a cycle takes without any section, and how much more with each of the others; medians of rounds."""
    nodes = [_Simulated(section) for section in SECTIONS.values()]
    for node in nodes:
        node.cycles(CYCLES)
    plain: list[float] = []
    more: list[list[float]] = [[] for _ in nodes[1:]]
    for _ in range(rounds):
        took = [node.cycles(CYCLES) / CYCLES * 1e6 for node in nodes]
        plain.append(took[0])
        for each, us in zip(more, took[1:], strict=True):
            each.append(us - took[0])
    return [statistics.median(plain), *(statistics.median(each) for each in more)]


if __name__ == "__main__":
    raise SystemExit(main())
