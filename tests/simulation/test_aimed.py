"""Faults that come in the middle of what they hardly ever met: the ten most likely that no seed had tried.

See docs/tried.md: publishes and numbered sends are under way for a few milliseconds, and faults came at any moment.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.faults import FAULTS
from tests.simulation.plan import AIMED_SHARE, GROUPS, ClientPlan, Plan, Step, draw, run_plan
from tests.simulation.world import OPERATIONS
from tests.tried import Tried, add

PAIRS = (
    ("publishes", "lose_power"),
    ("publishes", "reset_connections"),
    ("publishes", "reload_limits"),
    ("publishes", "operate"),
    ("publishes", "attack"),
    ("publishes", "reload_refused"),
    ("publishes", "step_clock"),
    ("publishes", "kill_twice"),
    ("publishes", "fill_disk"),
    ("numbered", "lose_power"),
)
CLIENTS = (
    *(ClientPlan(number, compact=number == 0) for number in range(2)),
    *(ClientPlan(2 + number, group) for number, group in enumerate(GROUPS)),
)


@pytest.mark.parametrize(("operation", "fault"), PAIRS, ids="-".join)
def test_a_fault_in_the_middle_breaks_no_promise(
    operation: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice each, and the account says that it was tried."""
    monkeypatch.setenv("PYDDMQ_TRIED", str(tmp_path / "tried.jsonl"))
    steps = tuple(Step(fault, f"{operation} {fault} {number}", 0.2, during=operation) for number in range(2))
    run_plan(Plan(seed=3, clients=CLIENTS, begin=0.3, steps=steps, good=True))
    found: Counter[Tried] = Counter()
    add([tmp_path / "tried.jsonl"], found)
    assert any(each.operation == operation and each.fault == fault for each in found), found


def test_seeds_aim_half_of_their_faults() -> None:
    """At each operation; the others, and those that only some seeds have, come at any moment."""
    steps = [step for seed in range(100) for step in draw(seed).steps if step.fault in FAULTS]
    aimed = [step.during for step in steps if step.during]
    assert set(aimed) == set(OPERATIONS)
    assert abs(len(aimed) / len(steps) - AIMED_SHARE) < AIMED_SHARE / 5
