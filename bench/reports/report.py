"""Results as a table for people and as JSON: medians over the repetitions, the spread beside them."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.measures.runs import Figures
from bench.reports import growth, requests, timer_report
from bench.servers.processes import BenchError, Cores, redis_version
from broker.runtime.accelerators import AcceleratorState, states

_MIB = 1024 * 1024
_LEFT_OUT = ("server_core", "client_core", "kernel", "isal", "uvloop", "leaves_compiled")
"""Facts for the file of figures alone."""
LOAD_MAX = 0.5
RIVALS = ("redis", "nats", "rocketmq")
"""Load before a run from which on the report says that other work was in its way."""


def environment(folder: Path, where: Cores) -> dict[str, Any]:
    """Return what the figures depend on: machine, file system, versions."""
    return {
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "server_core": where.server,
        "client_core": where.client,
        # Of everything else on the machine, and best below 0.1: a busy machine makes every figure worse.
        "load_before": f"{os.getloadavg()[0]:.2f}",
        "kernel": platform.release(),
        "file_system": _file_system(folder),
        "python": platform.python_version(),
        "uvloop": _version("uvloop"),
        "isal": _version("isal"),
        "leaves_compiled": _leaves_compiled(),
        "pyddmq": _version("pyddmq"),
        "redis": redis_version(),
    }


def _leaves_compiled() -> str:
    """Return how many leaves a node runs compiled here, of how many that it has."""
    import_module("proxy.node.assembly")
    return f"{sum(state is AcceleratorState.COMPILED for state in states.values())} of {len(states)}"


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(folder: Path) -> str:
    """Return the type of the file system that holds `folder`."""
    path = str(folder.resolve())
    best, found = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, found = mount, kind
    return found


def sections(results: Sequence[Figures], facts: dict[str, Any]) -> dict[str, str]:
    """Return the tables of what was measured, by the name of their marks in the document."""
    found = {
        "requests": requests.tables(results, quiet=load_before(facts) <= LOAD_MAX),
        "batches": _throughput(results),
        "latency": _latency(results),
        "idle": _idle(results),
        "light": _light(results),
        "hostile": _hostile(results),
        "push": _push(results),
        "actions": _actions(results),
        "memory": _memory(results),
        "timers": timer_report.tables(results),
        "growth": growth.table(results),
    }
    return {name: f"{text}\n{machine(_about(facts, text))}\n" for name, text in found.items() if text}


def _about(facts: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the facts without the versions of rivals that a table does not name."""
    named = text.lower()
    return {name: value for name, value in facts.items() if name not in RIVALS or name in named}


def load_before(facts: dict[str, Any]) -> float:
    """Return the machine's load before the run."""
    return float(facts.get("load_before", 0))


def machine(facts: dict[str, Any]) -> str:
    """Return a sentence on what was measured, and on which machine; it warns of other work on it."""
    shown = {name: value for name, value in facts.items() if value is not None and name not in _LEFT_OUT}
    text = f"Measured on: {', '.join(f'{name} {value}' for name, value in shown.items())}."
    load = load_before(facts)
    if load > LOAD_MAX:
        text += f" **The machine was busy (load {load:.2f}).**"
    return text


def put_between(document: str, name: str, text: str) -> str:
    """Return the document with `text` between the comments `<!-- name -->` and `<!-- /name -->`.

    Raises:
        BenchError: The marks are not there.
    """
    opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found, rest = document.partition(opening)
    _, found_too, after = rest.partition(closing)
    if not (found and found_too):
        raise BenchError(f"the document has no {opening} and {closing} to put the table between")
    return f"{before}{opening}\n\n{text.strip()}\n\n{closing}{after}"


def _group(results: Iterable[Figures], measure: str) -> dict[tuple[int, str], list[Figures]]:
    grouped: dict[tuple[int, str], list[Figures]] = {}
    for each in results:
        if each.measure == measure:
            grouped.setdefault((each.batch, each.server), []).append(each)
    return grouped


def _median(runs: Sequence[Figures], pick: Callable[[Figures], float | None]) -> float:
    return statistics.median(value for run in runs if (value := pick(run)) is not None)


def _throughput(results: Sequence[Figures]) -> str:
    rows = []
    for measure, title in (("publish", "publish"), ("pull", "pull + ack")):
        grouped = _group(results, measure)
        for batch in sorted({batch for batch, _ in grouped}):
            rows.append(_throughput_row(title, batch, grouped))
    if not rows:
        return ""
    head = (
        "| | batch | pyddmq CPU us/msg | Redis CPU us/msg | pyddmq : Redis "
        "| pyddmq core us/msg | Redis core us/msg | pyddmq : Redis | pyddmq msg/s | Redis msg/s |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
    )
    return head + "".join(rows)


def _throughput_row(title: str, batch: int, grouped: dict[tuple[int, str], list[Figures]]) -> str:
    ours, theirs = grouped.get((batch, "pyddmq"), []), grouped.get((batch, "redis"), [])
    cells = [title, str(batch)]
    for pick in (_cpu, _core):
        cells += [_spread(ours, pick), _spread(theirs, pick), _ratio(ours, theirs, pick)]
    return f"| {' | '.join([*cells, _rate(ours), _rate(theirs)])} |\n"


def _cpu(run: Figures) -> float | None:
    return run.cpu_us


def _core(run: Figures) -> float | None:
    return run.core_us


def _ratio(ours: Sequence[Figures], theirs: Sequence[Figures], pick: Callable[[Figures], float | None]) -> str:
    if not all(any(pick(run) for run in runs) for runs in (ours, theirs)):
        return "-"
    return f"{_median(ours, pick) / _median(theirs, pick):.2f}"


def _spread(runs: Sequence[Figures], pick: Callable[[Figures], float | None]) -> str:
    values = sorted(value for run in runs if (value := pick(run)) is not None)
    if not values:
        return "-"
    spread = f" ({values[0]:.1f}-{values[-1]:.1f})" if len(values) > 1 else ""
    return f"{statistics.median(values):.1f}{spread}"


def _rate(runs: Sequence[Figures]) -> str:
    return f"{_median(runs, lambda run: run.per_second):,.0f}" if runs else "-"


def _latency(results: Sequence[Figures]) -> str:
    grouped = _group(results, "latency")
    if not grouped:
        return ""
    head = (
        "| received after it was due, ms | rate | p50 | p99 | p99.9 | max | publish answered p50 | p99 |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |\n"
    )
    rates = sorted({run.per_second or 0 for runs in grouped.values() for run in runs})
    rows = (
        _latency_row(server, [run for run in runs if run.per_second == rate])
        for rate in rates
        for (_, server), runs in sorted(grouped.items())
    )
    return head + "".join(rows)


def _latency_row(name: str, runs: Sequence[Figures], *more: str) -> str:
    cells = [name, f"{_median(runs, lambda run: run.per_second):,.0f}/s"]
    for rank in ("p50", "p99", "p99.9", "max"):
        cells.append(f"{statistics.median(run.latency_ms[rank] for run in runs):.2f}")
    for rank in ("p50", "p99"):
        cells.append(f"{statistics.median(run.ack_ms[rank] for run in runs):.2f}")
    return f"| {' | '.join([*cells, *more])} |\n"


def _hostile(results: Sequence[Figures]) -> str:
    rows = []
    for measure in ("quiet", "busy", "hostile"):
        for runs in _group(results, measure).values():
            own = statistics.median(run.memory["own_end"] for run in runs) / _MIB
            rows.append(_latency_row(measure, runs, f"{own:.1f}"))
    if not rows:
        return ""
    head = (
        "| among hostile, ms | rate | p50 | p99 | p99.9 | max | publish answered p50 | p99 | own memory, MiB |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
    )
    return head + "".join(rows)


def _idle(results: Sequence[Figures]) -> str:
    """CPU and memory of a node whose clients do little."""
    runs = [each for each in results if each.measure == "idle"]
    if not runs:
        return ""
    clients, pulls = runs[0].clients, runs[0].facts["pulls"]
    names = {"none": "no clients", "idle": f"{clients:,} connections", "parked": f"{pulls:,.0f} of them pull for 30 s"}
    lines = ["| the node has | CPU, % of a core | own memory, MiB |", "| --- | ---: | ---: |"]
    for name, title in names.items():
        share = statistics.median(run.facts[name] for run in runs)
        memory = statistics.median(run.memory[name] for run in runs) / _MIB
        lines.append(f"| {title} | {share:.2%} | {memory:.1f} |".replace("%", ""))
    return "\n".join(lines) + "\n"


def _light(results: Sequence[Figures]) -> str:
    """Latency of a client's publishes alone and beside others."""
    lines = [
        "| publish answered, ms | alone p50 | p99 | beside 256 clients p50 | p99 | p99 beside : alone |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (_, server), runs in _group(results, "light").items():
        alone = [statistics.median(run.facts[f"alone_{rank}_ms"] for run in runs) for rank in ("p50", "p99")]
        beside = [statistics.median(run.ack_ms[rank] for run in runs) for rank in ("p50", "p99")]
        cells = [f"{value:.2f}" for value in (*alone, *beside, beside[1] / alone[1])]
        lines.append(f"| {' | '.join([server, *cells])} |")
    return "\n".join(lines) + "\n" if len(lines) > 2 else ""


def _push(results: Sequence[Figures]) -> str:
    runs = [each for each in results if each.measure == "push"]
    if not runs:
        return ""
    ours = statistics.median(each.cpu_us or 0.0 for each in runs)
    bare = statistics.median(each.facts["bare_us"] for each in runs)
    ratios = sorted(each.facts["ratio"] for each in runs)
    return (
        "| push, CPU per message | messages | node, us | bare aiohttp client, us | ratio |\n"
        "| --- | --- | --- | --- | --- |\n"
        f"| 1 KiB, 64 at a time | {runs[0].messages:,} | {ours:.0f} | {bare:.0f} | "
        f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f}) |\n"
    )


def _actions(results: Sequence[Figures]) -> str:
    """A row for each number of keys: the time of all, and how many times faster than one after the other."""
    runs: dict[tuple[float, float, int], list[Figures]] = {}
    for each in results:
        if each.measure == "actions":
            runs.setdefault((1 - each.facts["ordered"], each.facts["poison"], each.batch), []).append(each)
    if not runs:
        return ""
    rows = [
        "| async action, 0-5 ms each, one queue | messages | s | times serial | p99 done, s | CPU per message, us |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
    ]
    for (unordered, poison, keys), each_run in sorted(runs.items()):
        name = "unordered" if unordered else f"{keys:,} keys" + (", one of them fails always" if poison else "")
        seconds = statistics.median(each.facts["seconds"] for each in each_run)
        p99 = statistics.median(each.facts["p99"] for each in each_run)
        cpu = statistics.median(each.cpu_us or 0.0 for each in each_run)
        times = each_run[0].facts["serial"] / seconds
        rows.append(f"| {name} | {each_run[0].messages:,} | {seconds:.2f} | {times:.0f} | {p99:.2f} | {cpu:.0f} |\n")
    return "".join(rows)


def _memory(results: Sequence[Figures]) -> str:
    grouped = _group(results, "memory")
    if not grouped:
        return ""
    head = (
        "| memory, MiB | messages | own, start | own, after a tenth | own, end | own, most | mapped files, most |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
    )
    rows = []
    for (_, server), runs in sorted(grouped.items()):
        cells = [server, f"{runs[0].messages:,}"]
        for name in ("own_start", "own_tenth", "own_end", "own_max", "files_max"):
            cells.append(f"{statistics.median(run.memory[name] for run in runs) / _MIB:.1f}")
        rows.append(f"| {' | '.join(cells)} |\n")
    return head + "".join(rows)
