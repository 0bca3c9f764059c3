"""Small runs that failed once, each a file that `python -m tests.simulation shrink` wrote: none fails any more.

A file that was made of a broken build fails with that build still.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.ledger import PromiseBroken
from tests.simulation.mutants import named
from tests.simulation.plan import run_plan
from tests.simulation.shrink import KEPT, kept


@pytest.mark.parametrize("path", sorted(KEPT.glob("*.json")), ids=lambda path: path.stem)
def test_a_kept_run_fails_with_its_fault_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was mended stays mended, and the file still shows what was wrong."""
    plan, broken = kept(path)
    run_plan(plan)
    if broken:
        make_node = named(broken).apply(monkeypatch)
        with pytest.raises(PromiseBroken):
            run_plan(plan, make_node=make_node)
