"""Where the node's time goes: one measurement with the node under cProfile, as a table of functions.

cProfile makes every call dearer, and small functions more so: the table says what to look at, the plain run says what
it costs. Times are of the clock on the wall, so a wait for the disk shows as such.
"""

from __future__ import annotations

import pstats
from pathlib import Path
from typing import Literal

from bench.measures import runs
from bench.servers.processes import Cores

ROWS = 30
_ROOT = Path(__file__).resolve().parents[2]


def run(measure: Literal["publish", "pull"], folder: Path, where: Cores, *, batch: int, count: int) -> str:
    """Profile the node through one measurement and return the table (markdown)."""
    dump = runs.profile(measure, folder, where, batch=batch, count=count)
    return table(dump, count, f"{measure}, batch {batch}, {count:,} messages")


def table(dump: Path, messages: int, title: str) -> str:
    """Return the functions that take most time of their own, per message."""
    stats: dict[tuple[str, int, str], tuple[int, int, float, float, object]] = vars(pstats.Stats(str(dump)))["stats"]
    rows = sorted(stats.items(), key=lambda row: row[1][2], reverse=True)[:ROWS]
    lines = [
        f"Profile of {title}; microseconds and calls per message, under cProfile:",
        "",
        "| own us | with callees us | calls | function |",
        "| --- | --- | --- | --- |",
    ]
    for (file, line, name), (_, calls, own, cumulative, _) in rows:
        figures = f"{own / messages * 1e6:.2f} | {cumulative / messages * 1e6:.2f} | {calls / messages:.2f}"
        lines.append(f"| {figures} | {_place(file, line, name)} |")
    return "\n".join(lines)


def _place(file: str, line: int, name: str) -> str:
    if file == "~":
        return f"`{name}`"
    path = Path(file)
    shown = path.relative_to(_ROOT) if path.is_relative_to(_ROOT) else path.name
    return f"`{shown}:{line} {name}`"
