"""Makes docs/tried.md: what campaigns have tried and what they never did, from what `tests.tried` has added up."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import product
from pathlib import Path
from typing import NamedTuple

SUM = Path(__file__).parents[1] / "tests" / "tried.json"
SHOWN = 10
WIDE = 25
"""More operations than this are not a table's rows."""


class Combination(NamedTuple):
    """An operation, a state and a fault."""

    operation: str
    state: str
    fault: str


def never(known: dict[str, list[str]], counts: Counter[Combination]) -> list[Combination]:
    """Return what was never tried, the most likely first: by how often each part of it was tried with others."""
    parts = [Counter[str](), Counter[str](), Counter[str]()]
    for each, count in counts.items():
        for part, name in zip(parts, each, strict=True):
            part[name] += count
    kinds = ("operations", "states", "faults")
    names = [sorted({*known[kind], *part}) for kind, part in zip(kinds, parts, strict=True)]
    left = [found for each in product(*names) if (found := Combination(*each)) not in counts]
    likely = {each: parts[0][each.operation] * parts[1][each.state] * parts[2][each.fault] for each in left}
    return sorted(left, key=lambda each: (-likely[each], each))


def render() -> str:
    """Return the page."""
    content = json.loads(SUM.read_text(encoding="utf-8"))
    counts: dict[str, Counter[Combination]] = defaultdict(Counter)
    for campaign, *names, count in content["tried"]:
        counts[campaign][Combination(*names)] = count
    lines = [
        "# What the campaigns have tried",
        "",
        "Each fault of the [campaigns](testing.md), with the operations under way and the state of the node. The runs",
        "write it down (`PYDDMQ_TRIED=FILE`), `python -m tests.tried FILE...` adds it up, `make docs` makes this page.",
    ]
    for campaign, known in content["known"].items():
        lines += _section(campaign, known, counts[campaign])
    return "\n".join(lines) + "\n"


def _section(campaign: str, known: dict[str, list[str]], counts: Counter[Combination]) -> list[str]:
    left = never(known, counts)
    lines = ["", f"## {campaign[:1].upper()}{campaign[1:]}", ""]
    lines += [f"{len(counts):,} combinations of operation, state and fault were tried, {len(left):,} never."]
    operations = sorted({*known["operations"], *(each.operation for each in counts)})
    if counts and len(operations) <= WIDE:
        by_fault: Counter[tuple[str, str]] = Counter()
        for each, count in counts.items():
            by_fault[each.fault, each.operation] += count
        faults = sorted({*known["faults"], *(each.fault for each in counts)})
        lines += ["", f"| fault | {' | '.join(operations)} |", f"| --- {'| --- ' * len(operations)}|"]
        for fault in faults:
            lines.append(f"| {fault} | {' | '.join(f'{by_fault[fault, each]:,}' for each in operations)} |")
    if left:
        lines += ["", "Never tried, the most likely first:" if len(left) > SHOWN else "Never tried:", ""]
        lines += [f"- {each.fault} during {each.operation}, {each.state}" for each in left[:SHOWN]]
    return lines
