"""`python -m bench.access`: what rules and limits cost a node, beside itself without them (docs/performance.md).

Processor time of the server per message, publish and pull + ack, at batch 1 and 32, in turns, so that what else the
machine does falls on all alike; the ratio is the median of those of the rounds. Limits are far above what is asked, so
that they are looked at and hold nobody. Then the looks by themselves, per call.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import timeit
from collections.abc import Sequence
from pathlib import Path

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
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help="publish, pull, looks; all when left out")
    options = parser.parse_args(arguments)
    wanted = options.measures or [*MEASURES, "looks"]
    print(f"load average {os.getloadavg()[0]:.1f}, {options.repeat} rounds, us of server CPU per message")
    print(f"| measure | batch | {' | '.join(SECTIONS)} | rules / plain | both / plain |\n|{' --- |' * 7}")
    with tempfile.TemporaryDirectory(prefix="pyddmq-bench-") as name:
        for measure in MEASURES:
            for batch in options.batch or COUNTS if measure in wanted else ():
                _compare(measure, batch, Path(name), repeat=options.repeat, share=options.share)
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


if __name__ == "__main__":
    raise SystemExit(main())
