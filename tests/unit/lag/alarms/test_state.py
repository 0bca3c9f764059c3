"""The alarm state as a file: what is read back is what was written, or is not believed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.runtime.state_file import SealedFile
from lag.alarms.model import AlarmRule, AlarmState, Mute
from lag.alarms.rounds import take_round
from lag.alarms.state import FOLDER, NAME, AlarmFile, plain_state, state_of
from pyddmq.testing import SimDisk
from tests.unit.lag.alarms.test_rounds import judged, policy


def some_state() -> AlarmState:
    """Return a state with one of everything."""
    state = AlarmState(mutes={"other": Mute(until_ms=50, reason="why")}, marks={"batch": 7}, dropped=1)
    take_round(state, judged(10, "STOP", "WARN"), policy(AlarmRule(sinks=("file", "webhook"))))
    return state


def test_state_comes_back_as_it_was() -> None:
    """Over a file, too."""
    disk, state = SimDisk(), some_state()
    AlarmFile(disk, FOLDER).load()
    AlarmFile(disk, FOLDER).save(state)
    assert AlarmFile(disk, FOLDER).load() == state


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("form",), 2),
        (("alarms", 0, "status"), "BAD"),
        (("alarms", 0, "since_ms"), "0"),
        (("alarms", 0, "told"), True),
        (("mutes", "other", "until_ms"), None),
        (("marks", "batch"), 1.5),
        (("outbox", 0, "sinks"), [1]),
        (("outbox", 0, "event", "key"), ""),
        (("outbox", 0, "event", "event"), "gone"),
        (("outbox",), {}),
    ],
)
def test_state_that_somebody_changed_is_not_believed(path: tuple[Any, ...], value: object) -> None:
    """With a right sum, too: each value is looked at."""
    data = json.loads(json.dumps(plain_state(some_state())))
    inner = data
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    disk = SimDisk()
    disk.make_folder(FOLDER)
    SealedFile(disk, f"{FOLDER}/{NAME}").save(data)
    file = AlarmFile(disk, FOLDER)
    assert file.load() == AlarmState()
    assert file.trouble is not None


def nested(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Return lists and mappings of what is given."""
    names = st.sampled_from(["form", "alarms", "mutes", "outbox", "marks", "dropped"])
    return st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=6)


@settings(max_examples=100, deadline=None)
@given(data=st.recursive(st.none() | st.integers() | st.text(max_size=3), nested))
def test_anything_else_is_refused_with_a_sentence(data: object) -> None:
    """Never with another error."""
    with pytest.raises(ValueError, match=r"\w"):
        state_of(data)
