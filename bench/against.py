"""CPU per message of this tree beside another one, or beside itself in Python: `python -m bench.against PATH | --pure`.

Both are measured in turn, so that what else the machine does hits both, and of the rounds the medians are compared: a
single run says little on a machine with other work. `--parts` measures in one process, without sockets and loop
(`bench.parts`, `bench.pull_parts`), which is what a change in a few functions needs. The other tree needs a `.venv`
of its own, and its compiled modules. Producers of these loads do not number their messages: deduplication is off.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.progress import say
from broker.runtime.accelerators import PURE_VARIABLE

ROUNDS = 5
BATCHES = (1, 8, 32)
LOADS = {"publish": "bench.parts", "pull": "bench.pull_parts"}
ROOT = Path(__file__).resolve().parents[1]
_TOGETHER = re.compile(r"^together ([\d.]+)$", re.MULTILINE)

Case = tuple[str, int]
"""Load and batch size."""


class Side(NamedTuple):
    """One of the two that are compared: a tree with its Python, and whether its accelerators run."""

    name: str
    tree: Path
    pure: bool = False

    def run(self, *arguments: str) -> str:
        """Run a module of bench/ in it; returns what it prints."""
        python = sys.executable if self.tree == ROOT else str(self.tree / ".venv" / "bin" / "python")
        environment = {**os.environ, PURE_VARIABLE: "1" if self.pure else "0"}
        done = subprocess.run(
            [python, "-m", *arguments], cwd=self.tree, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{self.name}: {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
        return done.stdout


def whole(side: Side) -> dict[Case, float]:
    """Return microseconds of a node's CPU per message, as `python -m bench` measures them."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        loads = [text for load in LOADS for text in ("--only", load)]
        side.run("bench", *loads, "--repeat", "1", "--no-redis", "--json", str(file))
        results = json.loads(file.read_text())["results"]
    return {(each["measure"], each["batch"]): each["cpu_us"] for each in results}


def parts(side: Side) -> dict[Case, float]:
    """Return microseconds of CPU per message in one process."""
    found: dict[Case, float] = {}
    for load, module in LOADS.items():
        for batch in BATCHES:
            match = _TOGETHER.search(side.run(module, "--batch", str(batch)))
            assert match is not None, f"{module} ends with what all parts take together"
            found[load, batch] = float(match[1])
    return found


def interleaved(
    sides: tuple[Side, Side], measure: Callable[[Side], dict[Case, float]], rounds: int
) -> dict[str, dict[Case, list[float]]]:
    """Return the figures of both sides, by name and case, one of each round; who begins alternates."""
    found: dict[str, dict[Case, list[float]]] = {side.name: {} for side in sides}
    for number in range(rounds):
        for side in sides if number % 2 else sides[::-1]:
            say(f"{number + 1}/{rounds} {side.name}")
            for case, value in measure(side).items():
                found[side.name].setdefault(case, []).append(value)
    return found


def table(sides: tuple[Side, Side], found: dict[str, dict[Case, list[float]]]) -> str:
    """Return a Markdown table: what the first side takes, by the second's; and the spread of each round's ratio."""
    first, second = (found[side.name] for side in sides)
    lines = [f"| load | batch | {sides[0].name} / {sides[1].name} | by round |", "| --- | --- | --- | --- |"]
    for (load, batch), values in first.items():
        others = second[load, batch]
        rounds = [one / other for one, other in zip(values, others, strict=True)]
        ratio = median(values) / median(others)
        lines.append(f"| {load} | {batch} | {ratio:.2f} | {min(rounds):.2f} to {max(rounds):.2f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.against", description=(__doc__ or "").partition(":")[0])
    other = parser.add_mutually_exclusive_group(required=True)
    other.add_argument("path", nargs="?", type=Path, help="another tree, whose CPU per message is 1")
    other.add_argument("--pure", action="store_true", help="this tree in Python, beside itself with accelerators")
    parser.add_argument("--parts", action="store_true", help="in one process, without sockets and loop")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how often both are measured ({ROUNDS})")
    options = parser.parse_args()
    here = Side("this", ROOT)
    sides = (Side("pure", ROOT, pure=True), here) if options.pure else (here, Side("other", options.path.resolve()))
    print(table(sides, interleaved(sides, parts if options.parts else whole, options.rounds)), end="")


if __name__ == "__main__":
    main()
