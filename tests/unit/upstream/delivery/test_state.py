"""The table of a job's life."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.upstream_world import Client, World
from upstream.state import TABLE, JobEvent, JobState, move, next_state


def test_table_names_every_state_and_reaches_all_of_them() -> None:
    """Every state has a row, and every state but the first can be reached."""
    assert set(TABLE) == set(JobState)
    reached = {target for row in TABLE.values() for target in row.values()}
    assert reached == set(JobState) - {JobState.READ}


def test_every_state_leads_to_an_end() -> None:
    """No state is a trap: from each one FINISHED and ABANDONED can be reached, and these two have no way out."""
    assert TABLE[JobState.FINISHED] == TABLE[JobState.ABANDONED] == {}
    for state in set(JobState) - {JobState.FINISHED, JobState.ABANDONED}:
        seen, todo = {state}, [state]
        while todo:
            for target in TABLE[todo.pop()].values():
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        assert {JobState.FINISHED, JobState.ABANDONED} <= seen


def test_step_outside_the_table_trips_an_assertion() -> None:
    """A finished job cannot be finished a second time: that is a bug, not an outcome (W36)."""
    world = World()
    world.publish("a")
    client = Client()
    job = world.pull_all(client)[0]
    world.answer(client, job)
    with pytest.raises(AssertionError):
        move(job, JobEvent.SUCCEED)
    with pytest.raises(KeyError):
        next_state(JobState.FINISHED, JobEvent.TAKE)


def test_picture_of_the_states_shows_nothing_else() -> None:
    """Each arrow of docs/architecture.md's picture is a step of the table, and each state is in it."""
    text = (Path(__file__).parents[4] / "docs" / "architecture.md").read_text(encoding="utf-8")
    picture = text.partition("stateDiagram-v2")[2].partition("```")[0]
    arrows = re.findall(r"^ +(\w+) --> (\w+): ([\w ]+)$", picture, re.MULTILINE)
    assert {state for arrow in arrows for state in arrow[:2]} == {state.value for state in JobState}
    for state, target, event in arrows:
        assert next_state(JobState(state), JobEvent(event)) is JobState(target)
