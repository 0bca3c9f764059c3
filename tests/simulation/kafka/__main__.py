"""`python -m tests.simulation.kafka --seed N` replays one seed; `--seeds COUNT` runs that many from it on.

`--waiting`: runs with timers, delays, loops, cancels and transactions; `--big`: some messages of a megabyte.
`--opening`: actions take seconds to open. `--shrink`: leaves faults out as long as a seed fails in the same way;
`--faults 1,4` makes only these again.
"""

from __future__ import annotations

import argparse
import sys
import traceback

from tests.simulation.kafka.plan import run_big_seed, run_opening_seed, run_seed, run_waiting_seed, shrink, way_of


def main() -> int:
    """Run the seeds; 1 when one of them broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.kafka", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--waiting", action="store_true", help="runs in which messages wait")
    parser.add_argument("--big", action="store_true", help="runs in which messages wait, some of a megabyte")
    parser.add_argument("--opening", action="store_true", help="runs in which actions are slow to open and close")
    parser.add_argument("--shrink", action="store_true", help="leave out faults as long as the seed fails")
    parser.add_argument("--faults", default="", help="make only these of a seed, by number")
    options = parser.parse_args()
    kept = list(map(int, options.faults.split(","))) if options.faults else None
    kinds = {"waiting": run_waiting_seed, "big": run_big_seed, "opening": run_opening_seed}
    run = next((kinds[each] for each in kinds if getattr(options, each)), run_seed)
    if options.shrink:
        left, error = shrink(lambda faults: run(options.seed, kept=faults))
        numbers = ",".join(map(str, left))
        print(f"seed {options.seed} fails with --faults {numbers or '-1'}: {error}\n  {way_of(options.seed)}")
        return 1
    failed = 0
    for seed in range(options.seed, options.seed + options.seeds):
        try:
            report = run(seed, kept=kept)
        except Exception as error:
            failed += 1
            if options.seeds == 1:
                traceback.print_exc()
            print(f"seed {seed}: {type(error).__name__}: {error}\n  {way_of(seed)}", flush=True)
            continue
        print(
            f"seed {seed}: {report.published} messages, {report.events['delivered']} delivered, "
            f"{report.events['again']} again, {report.seconds:.1f} s; {dict(report.faults)}",
            flush=True,
        )
    print(f"{options.seeds} seeds, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
