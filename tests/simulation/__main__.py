"""`python -m tests.simulation --seed N` replays one seed; `--seeds COUNT` runs that many from it on.

The first that fails is made small, and its history printed. `--timers`: the runs that are about timers; `--unsynced`:
those under `flush: async`; `--changes`: those about changes of the configuration.

`python -m tests.simulation shrink --seed N` makes a failing seed small and writes `kept/seed-N.json`, which the tests
run from then on; `--broken NAME` does so with a broken build (`mutants.py`), `--keep` names another file.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from pathlib import Path

import pytest

from proxy.node.node import Node
from tests.simulation.mutants import named
from tests.simulation.plan import Plan, draw, draw_changes, draw_timers, draw_unsynced, run_plan
from tests.simulation.shrink import KEPT, keep, shrink

COMMAND = "python -m tests.simulation --seed"


def main() -> int:
    """Run the seeds; 1 when one of them broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("run", "shrink"), default="run")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--timers", action="store_true", help="runs that are about timers")
    parser.add_argument("--unsynced", action="store_true", help="runs under `flush: async`")
    parser.add_argument("--changes", action="store_true", help="runs about changes of the configuration")
    parser.add_argument("--quiet", action="store_true", help="no line per seed")
    parser.add_argument("--broken", default="", help="shrink: the name of a broken build")
    parser.add_argument("--keep", type=Path, help="shrink: the file to write")
    options = parser.parse_args()
    kinds = {"timers": draw_timers, "unsynced": draw_unsynced, "changes": draw_changes}
    kind = next((each for each in kinds if getattr(options, each)), "")
    drawn = kinds.get(kind, draw)
    if options.what == "shrink":
        name = f"{kind or 'seed'}-{options.seed}.json"
        return _shrink(drawn(options.seed), options.broken, options.keep or KEPT / name)
    failed = 0
    faults: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.seeds):
        try:
            report = run_plan(drawn(seed))
        except Exception as error:
            failed += 1
            if options.seeds == 1:
                traceback.print_exc()
            what = f" --{kind}" if kind else ""
            print(f"seed {seed}: {type(error).__name__}: {error}\n  replay: {COMMAND} {seed}{what}", flush=True)
            if failed == 1:
                print(shrink(drawn(seed)).text(), flush=True)
            continue
        faults.update(report.faults)
        if not options.quiet:
            print(
                f"seed {seed}: {report.published} acknowledged, {report.events['delivered']} delivered, "
                f"{report.seconds:.1f} s in {report.turns} turns; {dict(report.faults)}",
                flush=True,
            )
    print(f"{options.seeds} seeds, {failed} failed; faults: {dict(sorted(faults.items()))}")
    return 1 if failed else 0


def _shrink(plan: Plan, broken: str, path: Path) -> int:
    """Make a failing run small and keep it; 1 when it does not fail."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            shrunk = shrink(plan, make_node=named(broken).apply(patch) if broken else Node)
        except ValueError as error:
            print(f"seed {plan.seed}: {error}", file=sys.stderr)
            return 1
    keep(path, shrunk, broken=broken)
    print(f"{shrunk.text()}\nkept in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
