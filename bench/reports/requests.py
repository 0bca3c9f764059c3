"""Single requests by the number of clients, the node beside rivals: two tables and a picture."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from bench.clients.processes import CONNECTIONS, Kind
from bench.measures.runs import Figures

TITLES = {"single publish": "publish", "single pull": "pull + ack"}
NAMES: dict[Kind, str] = {
    "pyddmq": "pyddmq",
    "redis": "Redis",
    "nats": "NATS",
    "nats, synced": "NATS, synced",
    "rocketmq": "RocketMQ",
}

_PANEL, _HEIGHT, _LEFT, _TOP, _LABELS = 320, 300, 56, 56, 130
_WIDTH = 2 * (_LEFT + _PANEL + _LABELS) + 20
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 }
.back { fill: #ffffff }
.grid { stroke: #d1d9e0 }
.pyddmq { --c: #0969da } .redis { --c: #cf222e } .nats { --c: #1a7f37 } .synced { --c: #9a6700 }
.rocketmq { --c: #8250df }
path { fill: none; stroke: var(--c); stroke-width: 2 } circle, .name { fill: var(--c) }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .back { fill: #0d1117 } .grid { stroke: #3d444d }
.pyddmq { --c: #58a6ff } .redis { --c: #ff7b72 } .nats { --c: #3fb950 } .synced { --c: #e3b341 }
.rocketmq { --c: #bc8cff }
.name { fill: var(--c) } }
.pyddmq path { stroke-width: 3.5 }
"""


def _runs(results: Sequence[Figures], measure: str, server: str, clients: int) -> list[Figures]:
    return [each for each in results if (each.measure, each.server, each.clients) == (measure, server, clients)]


def _servers(results: Sequence[Figures]) -> list[Kind]:
    measured = {each.server for each in results if each.measure in TITLES}
    return [kind for kind in CONNECTIONS if kind in measured]


def _clients(results: Sequence[Figures]) -> list[int]:
    return sorted({each.clients for each in results if each.measure in TITLES})


def _cpu(run: Figures) -> float:
    assert run.cpu_us is not None
    return run.cpu_us


def tables(results: Sequence[Figures], *, quiet: bool) -> str:
    """Return CPU per message, and requests per second of a busy core; empty when they were not measured.

    On a machine that is not quiet the core's time is that of other work, too, and left out.
    """
    if not _servers(results):
        return ""
    cost = _table(results, "server CPU per message, us", _cpu, "{:,.1f}")
    if not quiet:
        return cost
    return (
        cost + "\n" + _table(results, "requests per second and core", lambda run: 1e6 / (run.core_us or 1), "{:,.0f}")
    )


def _table(results: Sequence[Figures], title: str, pick: Callable[[Figures], float], form: str) -> str:
    servers = _servers(results)
    lines = [f"| {title} | clients | {' | '.join(NAMES[each] for each in servers)} | pyddmq : Redis |"]
    lines.append("| --- |" + " ---: |" * (len(servers) + 2))
    for measure, name in TITLES.items():
        for clients in _clients(results):
            values = {kind: [pick(run) for run in _runs(results, measure, kind, clients)] for kind in servers}
            cells = [name, str(clients), *(form.format(statistics.median(each)) for each in values.values())]
            lines.append(f"| {' | '.join([*cells, _ratio(values)])} |")
    return "\n".join(lines) + "\n"


def _ratio(values: dict[Kind, list[float]]) -> str:
    """The median of the rounds' ratios, and their range."""
    if "redis" not in values or "pyddmq" not in values:
        return "-"
    ratios = sorted(ours / theirs for ours, theirs in zip(values["pyddmq"], values["redis"], strict=True))
    spread = f" ({ratios[0]:.2f}-{ratios[-1]:.2f})" if len(ratios) > 1 else ""
    return f"{statistics.median(ratios):.2f}{spread}"


def picture(results: Sequence[Figures]) -> str:
    """Return CPU per message against the number of clients as SVG, readable on a light and on a dark page."""
    medians = {
        (measure, kind): [
            statistics.median(map(_cpu, _runs(results, measure, kind, clients))) for clients in _clients(results)
        ]
        for measure in TITLES
        for kind in _servers(results)
    }
    every = [value for values in medians.values() for value in values]
    low, high = 10 ** math.floor(math.log10(min(every))), 10 ** math.ceil(math.log10(max(every)))

    def y(value: float) -> float:
        return round(_TOP + _HEIGHT * (1 - math.log(value / low) / math.log(high / low)), 1)

    height = _TOP + _HEIGHT + 56
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'role="img" aria-label="Server CPU per message by number of clients">',
        f"<style>{_STYLE}</style>",
        '<rect class="back" width="100%" height="100%"/>',
    ]
    clients = _clients(results)
    ticks = [each * 10**power for power in range(int(math.log10(low)), int(math.log10(high)) + 1) for each in (1, 2, 5)]
    for panel, (measure, title) in enumerate(TITLES.items()):
        left = _LEFT + panel * (_WIDTH // 2)
        xs = [round(left + _PANEL * place / max(1, len(clients) - 1)) for place in range(len(clients))]
        parts.append(f'<text class="title" x="{left}" y="24">{title}: server CPU per message, us (log scale)</text>')
        for tick in (tick for tick in ticks if tick <= high):
            parts.append(f'<line class="grid" x1="{left}" x2="{left + _PANEL}" y1="{y(tick)}" y2="{y(tick)}"/>')
            parts.append(f'<text x="{left - 8}" y="{y(tick) + 4}" text-anchor="end">{tick:g}</text>')
        for x, number in zip(xs, clients, strict=True):
            parts.append(f'<text x="{x}" y="{_TOP + _HEIGHT + 20}" text-anchor="middle">{number}</text>')
        middle = left + _PANEL // 2
        parts.append(f'<text x="{middle}" y="{_TOP + _HEIGHT + 42}" text-anchor="middle">clients</text>')
        beside = 0.0
        for kind in sorted(_servers(results), key=lambda kind: -medians[measure, kind][-1]):
            points = [(x, y(value)) for x, value in zip(xs, medians[measure, kind], strict=True)]
            # Names of lines that end close to each other are below each other.
            beside = max(points[-1][1] + 4, beside + 16)
            path = " L".join(f"{x} {at}" for x, at in points)
            dots = "".join(f'<circle cx="{x}" cy="{at}" r="3.5"/>' for x, at in points)
            name = f'<text class="name" x="{left + _PANEL + 10}" y="{beside}">{NAMES[kind]}</text>'
            parts.append(f'<g class="{kind.split(", ")[-1]}"><path d="M{path}"/>{dots}{name}</g>')
    return "\n".join([*parts, "</svg>"]) + "\n"
