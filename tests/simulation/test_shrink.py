"""Shrinking: a failing run becomes a few events, and still fails in the same way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.ledger import PromiseBroken
from tests.simulation.mutants import MUTANTS
from tests.simulation.plan import Plan, draw, run_plan
from tests.simulation.shrink import ddmin, shrink

# Any change of the code makes another run of a seed, so these leave room: the longest that was seen had half of it.
EVENTS_MAX = 160
FAULTS_MAX = 3


def test_ddmin_keeps_what_is_needed() -> None:
    """Two pieces far apart that only fail together are what is left."""
    assert ddmin(range(100), lambda kept: {7, 61} <= set(kept)) == [7, 61]
    assert ddmin([1, 2, 3], lambda kept: True) == []


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("the next of a key is released early", 2),
        pytest.param("publishes are answered before they are written", 0, marks=pytest.mark.long),
    ],
)
def test_failing_run_of_a_broken_node_shrinks_to_a_few_events(
    name: str, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of thousands of events come the few that break the promise, in order, and a line that says which."""
    [mutant] = [mutant for mutant in MUTANTS if mutant.name == name]
    make_node = mutant.apply(monkeypatch)
    for seed in range(first, 20):
        try:
            run_plan(_plan(seed), make_node=make_node)
        except PromiseBroken:
            break
    shrunk = shrink(_plan(seed), make_node=make_node)
    print(f"\n{shrunk.text()}")
    assert isinstance(shrunk.error, PromiseBroken)
    assert shrunk.error.promise in mutant.promises
    assert len(shrunk.plan.steps) <= FAULTS_MAX
    assert len(shrunk.history) <= EVENTS_MAX
    times = [time for time, _ in shrunk.history]
    assert times == sorted(times)


def _plan(seed: int) -> Plan:
    """Without waits, which have nothing to do with these faults."""
    return replace(draw(seed), wait_share=0.0)


def test_run_that_does_not_fail_is_refused() -> None:
    """There is nothing to shrink."""
    with pytest.raises(ValueError, match="does not fail"):
        shrink(draw(3, faults=1))
