"""The tables of timers: lateness, what those cost that are pending, and a burst; the node's row beside RocketMQ's."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from bench.measures.runs import Figures

_MIB = 1024 * 1024
_RANKS = ("p50", "p99", "p99.9", "max")


def tables(results: Sequence[Figures]) -> str:
    """Return the tables, empty when timers were not measured."""
    steady, burst = _rows(results, "timers"), _rows(results, "timer burst")
    if not steady or not burst:
        return ""
    return "\n".join((_lateness(steady), _pending(steady), _burst(burst)))


def name_of(run: Figures) -> str:
    """Who delivered: the node, or RocketMQ with the width of its slots."""
    precision = run.facts.get("precision_ms")
    return run.server if precision is None else f"{run.server}, timerPrecisionMs {precision:.0f}"


def _rows(results: Sequence[Figures], measure: str) -> dict[str, list[Figures]]:
    rows: dict[str, list[Figures]] = {}
    for each in results:
        if each.measure == measure:
            rows.setdefault(name_of(each), []).append(each)
    return rows


def _median(runs: Sequence[Figures], pick: Callable[[Figures], float]) -> float:
    return statistics.median(pick(run) for run in runs)


def _fact(runs: Sequence[Figures], name: str) -> float:
    return _median(runs, lambda run: run.facts[name])


def _lateness(rows: dict[str, list[Figures]]) -> str:
    lines = [
        "| timers, ms late | pending | due per second | p50 | p99 | p99.9 | max | early |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, runs in rows.items():
        cells = [name, f"{_fact(runs, 'pending'):,.0f}", f"{_median(runs, lambda run: run.per_second or 0):,.0f}"]
        for rank in _RANKS:
            cells.append(f"{statistics.median(run.latency_ms[rank] for run in runs):,.2f}")
        cells.append(f"{sum(run.facts['early'] for run in runs):,.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _pending(rows: dict[str, list[Figures]]) -> str:
    lines = [
        "| timers pending | how many | published per second | own MiB before | after | bytes each "
        "| ready s after SIGKILL, CPU s | with nothing stored | difference per million | lost by it |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, runs in rows.items():
        cells = [name, f"{_fact(runs, 'pending'):,.0f}", f"{_fact(runs, 'published_per_second'):,.0f}"]
        for point in ("own_start", "own_end"):
            cells.append(f"{statistics.median(run.memory[point] for run in runs) / _MIB:.1f}")
        cells.append(f"{_fact(runs, 'bytes_per_pending'):.1f}")
        for start in ("restart_{}seconds", "empty_restart_{}seconds", "reload_{}seconds_per_million"):
            cells.append(", ".join(f"{_fact(runs, start.format(kind)):.2f}" for kind in ("", "cpu_")))
        cells.append(f"{sum(run.facts['lost'] for run in runs):,.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _burst(rows: dict[str, list[Figures]]) -> str:
    lines = [
        "| timers due in one ms | how many | drained in s | other topic, ms: publish p99 | without burst "
        "| pull p99 | without burst |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, runs in rows.items():
        values = (
            _fact(runs, "drain_seconds"),
            _median(runs, lambda run: run.ack_ms["p99"]),
            _fact(runs, "quiet_publish_p99_ms"),
            _median(runs, lambda run: run.latency_ms["p99"]),
            _fact(runs, "quiet_pull_p99_ms"),
        )
        cells = [name, f"{runs[0].messages:,}", *(f"{value:.2f}" for value in values)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
