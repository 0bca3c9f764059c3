"""Shrinking: a failing run becomes a few events, and still fails in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation.deeds import SUCCESS, Deeds, Send
from tests.simulation.ledger import PromiseBroken
from tests.simulation.mutants import named
from tests.simulation.plan import Plan, draw, run_plan
from tests.simulation.shrink import ddmin, keep, kept, shrink

# Any change of the code makes another run of a seed, so these leave room: the longest that was seen had half of it.
EVENTS_MAX = 15
LINES_MAX = 60
FAULTS_MAX = 3


def test_ddmin_keeps_what_is_needed() -> None:
    """Two pieces far apart that only fail together are what is left."""
    assert ddmin(range(100), lambda kept: {7, 61} <= set(kept)) == [7, 61]
    assert ddmin([1, 2, 3], lambda kept: True) == []


def test_events_of_a_small_driver_shrink_to_those_that_fail_in_their_order() -> None:
    """A queue that loses what is put after a restart and before a read: three events of three hundred."""
    events = [("put", number) for number in range(100)] + [("restart", 0), ("read", 0)]
    events += [("put", number) for number in range(100, 200)] + [("read", 1), ("put", 200)]

    def loses(kept: Sequence[tuple[str, int]]) -> bool:
        restarted, pending = False, 0
        for event, _ in kept:
            pending = 0 if event == "restart" else pending + (event == "put")
            restarted = restarted or event == "restart"
            if event == "read" and restarted and pending:
                return True
        return False

    assert [event for event, _ in ddmin(events, loses)] == ["restart", "put", "read"]


def test_a_run_of_a_list_does_what_the_list_has() -> None:
    """What was written down is done again, and nothing else."""
    drawn = Deeds()
    assert [drawn.may_send(Send(1, call)) for call in range(3)] == [True] * 3
    assert [drawn.answer("g", "1.0.0", draw) for draw in (lambda: "failed", lambda: SUCCESS)] == ["failed", SUCCESS]
    again = Deeds(frozenset(drawn.sent[1:]), frozenset(drawn.answered))
    assert [again.may_send(Send(1, call)) for call in range(3)] == [False, True, True]
    assert [again.answer("g", "1.0.0", lambda: "silent") for _ in range(2)] == ["failed", SUCCESS]


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("the next of a key is released early", 2),
        pytest.param("publishes are answered before they are written", 0, marks=pytest.mark.long),
    ],
)
def test_failing_run_of_a_broken_node_shrinks_to_a_few_events(name: str, first: int, tmp_path: Path) -> None:
    """Out of thousands of events come the few that break the promise; kept, they fail with the fault alone."""
    mutant = named(name)
    monkeypatch = pytest.MonkeyPatch()
    make_node = mutant.apply(monkeypatch)
    for seed in range(first, 20):
        try:
            run_plan(_plan(seed), make_node=make_node)
        except PromiseBroken:
            break
    shrunk = shrink(_plan(seed), make_node=make_node)
    monkeypatch.undo()
    print(f"\n{shrunk.text()}")
    assert isinstance(shrunk.error, PromiseBroken)
    assert shrunk.error.promise in mutant.promises
    assert len(shrunk.plan.steps) <= FAULTS_MAX
    assert shrunk.events <= EVENTS_MAX < shrunk.drawn / 10
    assert len(shrunk.history) <= LINES_MAX
    times = [time for time, _ in shrunk.history]
    assert times == sorted(times)
    keep(tmp_path / "kept.json", shrunk, broken=name)
    assert kept(tmp_path / "kept.json") == (shrunk.plan, name)
    run_plan(shrunk.plan)


def _plan(seed: int) -> Plan:
    """Without waits, which have nothing to do with these faults."""
    return replace(draw(seed), wait_share=0.0)


def test_run_that_does_not_fail_is_refused() -> None:
    """There is nothing to shrink."""
    with pytest.raises(ValueError, match="does not fail"):
        shrink(draw(3, faults=1))
