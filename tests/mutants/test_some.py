"""Some mutants in every run of the suite: a fault that is put back is noticed. `make mutants` runs all of them."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.run import copy_tree, judge

QUICK = tuple(mutant for mutant in MUTANTS if all(test.startswith("tests/unit/") for test in mutant.caught_by))
COUNT = 2


def _some() -> list[Mutant]:
    """Others in each run; the same in continuous integration."""
    return random.Random(1 if os.environ.get("CI") else None).sample(QUICK, COUNT)


def test_faults_put_back_are_caught_by_the_tests_named_for_them(tmp_path: Path) -> None:
    """Each of a few mutants makes every test that is named for it fail."""
    copy_tree(tmp_path)
    for mutant in _some():
        verdict = judge(tmp_path, mutant)
        assert verdict.caught, f"{mutant.name}: {verdict.missed} did not fail\n{verdict.output}"


def test_a_change_that_breaks_nothing_is_not_called_caught(tmp_path: Path) -> None:
    """The judge can say no: a harmless change is missed by the very tests that catch the fault."""
    copy_tree(tmp_path)
    mutant = QUICK[0]
    line = "from __future__ import annotations"
    verdict = judge(tmp_path, mutant._replace(old=line, new=f"{line}  # nothing is different"))
    assert verdict.missed == mutant.caught_by, verdict.output
