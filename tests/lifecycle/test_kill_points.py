"""Every table of states has a run that goes along all its rows; ended at any change of the disk it breaks nothing."""

from __future__ import annotations

from random import Random

import pytest

from tests.lifecycle.kills import every, met, run, some, whole
from tests.lifecycle.mutants import MUTANTS, Mutant
from tests.lifecycle.registry import ELSEWHERE, SCENARIOS
from tests.lifecycle.scenario import Scenario
from tests.lifecycle.tables import all_tables, read_tables
from tests.lifecycle.walk import NotInTable, Walk

WAYS = [(kind, beside) for kind in SCENARIOS for beside in (False, True)]
KINDS = pytest.mark.parametrize(
    ("kind", "beside"), WAYS, ids=[f"{kind.__name__}{'-beside' if beside else ''}" for kind, beside in WAYS]
)
"""Each run with every sync made at once, and with syncs and file writes beside the loop."""
POINTS = 16
LEAST_MET = 20
PARTS = 4


def test_every_table_of_states_has_its_run() -> None:
    """A page that tells states is a promise; one without a run would be none."""
    tables, walked = set(all_tables()), {kind.table for kind in SCENARIOS}
    assert walked <= tables
    assert tables - walked == set(ELSEWHERE)


def test_table_is_read_as_it_is_meant() -> None:
    """States are the first words of a cell; a new row, or one that nothing goes along, is missed."""
    text = """## States
| state | event | next |
| --- | --- | --- |
| | put | waiting, for long |
| waiting | due | done, for good |
| waiting | lost \\| gone | put again: waiting |
"""
    [table] = read_tables(text, "p.md")
    walk = Walk(table)
    walk.saw("x", "waiting")
    walk.went("x", "waiting", "lost")
    assert (table.name, [row.event for row in walk.missing()]) == ("p.md: States", ["due"])
    with pytest.raises(NotInTable):
        walk.saw("y", "done")


@KINDS
def test_run_goes_along_every_row(kind: type[Scenario], *, beside: bool) -> None:
    """No row of the page is out of reach, and nothing happens that no row tells."""
    walk, _, broken = whole(kind, 1, beside=beside)
    assert walk.missing() == []
    assert broken == []


@KINDS
@pytest.mark.parametrize("seed", range(1))
def test_kill_at_some_changes_breaks_nothing(kind: type[Scenario], seed: int, *, beside: bool) -> None:
    """Kills and power losses spread over the run, files gone after them, days without a process."""
    _, changes, _ = whole(kind, seed, beside=beside)
    for point in some(kind, changes, POINTS, Random(seed)):
        assert run(kind, seed, point, beside=beside) == [], point


@pytest.mark.parametrize("kind", SCENARIOS, ids=lambda kind: kind.__name__)
def test_kill_points_lie_within_flushes_and_file_writes(kind: type[Scenario]) -> None:
    """Runs beside the loop are worth something: many a change of the disk comes while a sync is under way."""
    found = met(kind, 1)
    print(kind.__name__, dict(found))
    assert sum(count for under_way, count in found.items() if "flush" in under_way) >= LEAST_MET
    if kind.saves:
        assert sum(count for under_way, count in found.items() if "writing" in under_way) >= LEAST_MET


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_broken_build_is_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run of its table shows what is wrong: by what was seen on the way, or at a kill point."""
    _, changes, _ = whole(mutant.kind, 1, beside=mutant.beside)
    mutant.apply(monkeypatch)
    points = [each for each in every(mutant.kind, changes) if each.again < 0]
    for point in Random(1).sample(points, len(points)):
        try:
            found = run(mutant.kind, 1, point, beside=mutant.beside)
        except AssertionError as error:
            if mutant.said in str(error):
                return
            # Off the table for another reason: the promise that this one breaks shows at another point.
            continue
        if found:
            assert any(mutant.said in each for each in found), found
            return
    pytest.fail("no kill point shows it")


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@KINDS
def test_kill_at_every_change_breaks_nothing(kind: type[Scenario], part: int, *, beside: bool) -> None:
    """All of them, by a kill and by a power loss, each with every loss and every downtime in turn."""
    _, changes, _ = whole(kind, 1, beside=beside)
    points = [point for point in every(kind, changes) if point.changes % PARTS == part]
    broken = {point: found for point in points if (found := run(kind, 1, point, beside=beside))}
    print(f"{kind.__name__}{' beside' if beside else ''}: {len(points)} kill points, {changes} changes")
    assert broken == {}
