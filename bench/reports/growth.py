"""Growth as a table: what a node costs by what grows, and how far each cost is from linear."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.measures.growth import GROWING, PAGES
from bench.measures.runs import Figures

COLUMNS = (
    "start, CPU s",
    "after a kill",
    "after a stop",
    "reload",
    "publish beside it, ms",
    "idle, %",
    "memory, MB",
    "files",
    "`/metrics`, CPU s",
    "pages",
    "longest step, ms",
)
SERVING = ("fill", "settling", "idle", "reload", *PAGES)
"""Whose steps delay clients; those of a start do not."""
LEAST = 0.05
"""A cost above the smallest one from which on a ratio means something: seconds, or hundreds of megabytes."""
_COSTS: dict[str, Callable[[Figures], float | None]] = {
    "start, CPU s": lambda run: run.facts["start_seconds"],
    "after a kill": lambda run: run.facts["killed_seconds"],
    "after a stop": lambda run: run.facts["stopped_seconds"],
    "reload": lambda run: run.facts.get("reload_seconds"),
    "memory, MB": lambda run: run.memory["own"] / 1e8,
    "`/metrics`, CPU s": lambda run: run.facts["metrics_seconds"],
    "pages": lambda run: _pages(run.facts),
}


def table(results: Sequence[Figures]) -> str:
    """Return the table (markdown) of what was measured; "" of nothing."""
    lines = []
    for what in GROWING:
        runs = [each for each in results if each.measure == f"growth {what}"]
        lines += [f"| {run.messages:,} {what} | {' | '.join(_cells(run))} |" for run in runs]
        if len(runs) > 2 and any(ratios := _ratios(runs)):
            lines.append(f"| × linear, to {runs[-1].messages:,} {what} | {' | '.join(ratios)} |")
    if not lines:
        return ""
    return "\n".join([f"| | {' | '.join(COLUMNS)} |", "| --- " * (len(COLUMNS) + 1) + "|", *lines, ""])


def _cells(run: Figures) -> list[str]:
    facts = run.facts
    step, name = max((facts.get(f"{each}_step_ms", 0.0), each) for each in SERVING)
    reload = facts.get("reload_seconds")
    return [
        *(f"{facts[f'{each}_seconds']:.1f}" for each in ("start", "killed", "stopped")),
        "" if reload is None else f"{reload:.1f}",
        "" if reload is None else f"{facts['publish_ms']:.0f}",
        f"{facts['idle_share'] * 100:.1f}",
        f"{run.memory['own'] / 1e6:.0f}",
        str(facts["files"]),
        f"{facts['metrics_seconds']:.2f}",
        f"{_pages(facts):.2f}",
        f"{step:.0f} ({name})",
    ]


def _pages(facts: dict[str, float]) -> float:
    """Return the processor time of the dearest page."""
    return max(facts[f"{name}_seconds"] for name in PAGES if name != "metrics")


def _ratios(runs: Sequence[Figures]) -> list[str]:
    """Return each cost of one more at the last count, as a multiple of what it is at the count before."""
    least, middle, most = runs[0], runs[-2], runs[-1]
    growth = (most.messages - least.messages) / (middle.messages - least.messages)
    cells = []
    for column in COLUMNS:
        cost = _COSTS.get(column)
        first, second, last = (None if cost is None else cost(run) for run in (least, middle, most))
        if first is None or second is None or last is None or second - first < LEAST:
            cells.append("")
        else:
            cells.append(f"{(last - first) / (second - first) / growth:.1f}")
    return cells
