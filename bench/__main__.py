"""`python -m bench`: measure a node with a rival beside it; docs/performance.md explains what and how."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import profile, report, runs
from bench.hostile import ATTACK, TINY_ATTACK, hostile
from bench.processes import BenchError, Cores, cores, redis_version
from bench.runs import Figures, Kind
from bench.timers import TimerPlan, timers

MEASURES = ("publish", "pull", "latency", "memory", "timers")
ON_REQUEST = ("hostile",)
"""Measured when asked for: it needs 13,500 open files."""
ON_REQUEST_STEPS = ("quiet", "hostile")
ALONE = ("timers", *ON_REQUEST_STEPS)
"""Measured without the rival."""
BATCHES = (1, 8, 32)


class Plan(NamedTuple):
    """How much is measured: messages by batch size, latency at a rate, memory, how often all of it, and timers."""

    messages: dict[int, int]
    latency_rate: int
    latency_seconds: float
    memory_messages: int
    repeat: int
    timers: TimerPlan


FULL = Plan({1: 12_000, 8: 48_000, 32: 96_000}, 1_000, 10.0, 1_000_000, 3, TimerPlan(1_000_000, 5_000, 10.0, 100_000))
QUICK = Plan({1: 2_000, 8: 8_000, 32: 16_000}, 1_000, 2.0, 50_000, 1, TimerPlan(50_000, 2_000, 3.0, 10_000))
TINY = Plan({32: 640}, 200, 0.5, 960, 1, TimerPlan(640, 200, 0.5, 320))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; returns the exit code."""
    options = _parser().parse_args(arguments)
    plan = TINY if options.tiny else QUICK if options.quick else FULL
    if options.repeat is not None:
        plan = plan._replace(repeat=options.repeat)
    # A terminated benchmark still ends its servers and removes their data.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    where = cores()
    # This process only waits; it must not wait on the server's core.
    os.sched_setaffinity(0, {where.client})
    try:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="pyddmq-bench-") as folder:
            if options.profile:
                count = plan.messages.get(options.batch, 640)
                table = profile.run(options.profile, Path(folder), where, batch=options.batch, count=count)
                _show(table + "\n", f"profile {options.profile}", options.document)
                return 0
            return _measure(options, plan, Path(folder), where)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1


def _measure(options: argparse.Namespace, plan: Plan, folder: Path, where: Cores) -> int:
    kinds: list[Kind] = ["pyddmq"]
    if options.redis and redis_version() is None:
        print("redis-server is not installed: the node is measured without it", file=sys.stderr)
    elif options.redis:
        kinds.append("redis")
    facts = report.environment(folder, where)
    results: list[Figures] = []
    for number in range(plan.repeat):
        for name, step in _steps(options.only or MEASURES, plan, folder, where):
            # The rival runs right after the node, so that a noisy neighbour hits both.
            for kind in kinds if name not in ALONE else kinds[:1]:
                print(f"{number + 1}/{plan.repeat} {name} {kind}", file=sys.stderr, flush=True)
                results += step(kind)
    if options.json:
        document = {"environment": facts, "results": [each.document() for each in results]}
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n")
    _show(report.markdown(results, facts), "results", options.document)
    return 0


def _show(text: str, name: str, document: str | None) -> None:
    print(text, end="")
    if document:
        path = Path(document)
        path.write_text(report.put_between(path.read_text(), name, text))


Step = tuple[str, Callable[[Kind], list[Figures]]]


def _steps(measures: Sequence[str], plan: Plan, folder: Path, where: Cores) -> list[Step]:
    steps: list[Step] = []
    for measure, run in (("publish", runs.publish), ("pull", runs.pull)):
        if measure in measures:
            steps += [
                (f"{measure} batch {batch}", _throughput(run, plan, folder, where, batch)) for batch in plan.messages
            ]
    if "latency" in measures:
        rate, seconds = plan.latency_rate, plan.latency_seconds
        steps.append(("latency", lambda kind: [runs.latency(kind, folder, where, rate=rate, seconds=seconds)]))
    if "memory" in measures:
        steps.append(("memory", lambda kind: [runs.memory(kind, folder, where, count=plan.memory_messages)]))
    if "timers" in measures:
        steps.append(("timers", lambda _: timers(folder, where, plan.timers)))
    if "hostile" in measures:
        attack = TINY_ATTACK if plan is TINY else ATTACK
        for name, kinds in zip(ON_REQUEST_STEPS, ((), attack), strict=True):
            steps.append((name, _hostile(plan, folder, where, kinds)))
    return steps


def _hostile(plan: Plan, folder: Path, where: Cores, attack: tuple[str, ...]) -> Callable[[Kind], list[Figures]]:
    rate, seconds = plan.latency_rate, plan.latency_seconds
    return lambda _: [hostile(folder, where, rate=rate, seconds=seconds, attack=attack)]


def _throughput(
    run: Callable[..., Figures], plan: Plan, folder: Path, where: Cores, batch: int
) -> Callable[[Kind], list[Figures]]:
    return lambda kind: [run(kind, folder, where, batch=batch, count=plan.messages[batch])]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").partition(";")[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="fewer messages, once")
    size.add_argument("--tiny", action="store_true", help="hardly any messages: does everything still work?")
    parser.add_argument("--repeat", type=int, help="how often to measure everything")
    parser.add_argument(
        "--only", action="append", choices=(*MEASURES, *ON_REQUEST), help="measure this; may be given several times"
    )
    parser.add_argument("--no-redis", dest="redis", action="store_false", help="leave the rival out")
    parser.add_argument("--json", metavar="FILE", help="write all figures to FILE as well")
    parser.add_argument("--document", metavar="FILE", help="put the tables into FILE, between its marks for them")
    parser.add_argument("--folder", help="where the servers keep their data; must be on the disk to be measured")
    parser.add_argument("--profile", choices=("publish", "pull"), help="run the node under cProfile instead")
    parser.add_argument("--batch", type=int, choices=BATCHES, default=32, help="batch size of --profile")
    return parser


if __name__ == "__main__":
    sys.exit(main())
