"""`python -m tests.mutants`: every fault put back, each caught by the tests that are named for it.

Ends with 1 if a fault goes unnoticed, or if a named test fails without any.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.run import copy_tree, judge, run_tests


def main() -> int:
    """Run the chosen mutants and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutants with one of these in name, row, file or test")
    parser.add_argument("--no-baseline", action="store_true", help="do not run the tests without any fault first")
    parser.add_argument("--show", action="store_true", help="print what the tests printed")
    given = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if _is_chosen(mutant, given.words)]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        if not given.no_baseline and not _holds_without(tree, chosen):
            return 1
        unnoticed = 0
        began = time.monotonic()
        for mutant in chosen:
            verdict = judge(tree, mutant)
            unnoticed += not verdict.caught
            print(f"{'caught' if verdict.caught else 'MISSED'}  {mutant.name}", flush=True)
            for test in verdict.missed:
                print(f"        by {test}")
            if given.show or not verdict.caught:
                print(verdict.output)
    seconds = time.monotonic() - began
    print(f"{len(chosen) - unnoticed} of {len(chosen)} faults caught by every test named for them, in {seconds:.0f} s")
    return 1 if unnoticed or not chosen else 0


def _is_chosen(mutant: Mutant, words: list[str]) -> bool:
    """Whether a mutant is among those that were asked for."""
    facts = (mutant.name, mutant.file, *mutant.rows, *mutant.caught_by)
    return not words or any(word in fact for word in words for fact in facts)


def _holds_without(tree: Path, chosen: list[Mutant]) -> bool:
    """Whether the named tests pass where no fault is."""
    tests = sorted({test for mutant in chosen for test in mutant.caught_by})
    print(f"{len(tests)} tests without any fault ...", flush=True)
    code, output = run_tests(tree, tests, seconds_max=3600)
    if code != 0:
        print(output)
        print("tests fail without any fault: nothing can be said of the faults")
    return code == 0


if __name__ == "__main__":
    sys.exit(main())
