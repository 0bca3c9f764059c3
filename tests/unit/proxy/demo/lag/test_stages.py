"""What the demo of lag stages: paces, the poisoned case, and a configuration that a node takes."""

from __future__ import annotations

import pytest

from actions.registry import Registry
from conf import loads
from lag.rules import causes, statuses
from proxy.cli.demo.demo_lag_command import LagStage
from proxy.demo.events import load_events
from proxy.demo.lag.stages import (
    AWAY,
    EVENTS_PER_SECOND,
    QUICK,
    SECONDS,
    STAGES,
    configuration,
    is_poisoned,
    pace_of,
    poison_case,
)

END = SECONDS - 1


def test_statuses_and_causes_are_those_of_the_rules() -> None:
    """And each stage can be left out."""
    for stage in STAGES:
        assert stage.status in statuses.BY_NAME
        assert stage.cause is None or stage.cause in causes.BY_NAME
    assert [each.value for each in LagStage] == [stage.group for stage in STAGES]


@pytest.mark.parametrize(
    ("group", "seconds", "pace"),
    [("well", END, QUICK), ("behind", 0, QUICK), ("back", 0, QUICK), ("back", 300, AWAY), ("back", END, QUICK)],
)
def test_paces(group: str, seconds: float, pace: float) -> None:
    """By moment; with its staging left out, a group is as good as any."""
    assert pace_of(group, seconds) == pace
    assert pace_of(group, seconds, ["behind", "back"]) == QUICK


def test_slow_groups_are_slower_than_events_come() -> None:
    """Else they would not fall behind; `well` does so when that it keeps up is left out."""
    assert all(0 < pace_of(group, END) < EVENTS_PER_SECOND for group in ("behind", "reset"))
    assert pace_of("well", END, ["well"]) == AWAY


def test_poisoned_case_goes_on_behind_its_first_failure() -> None:
    """Some events fail, and others of the case were worked off before; too few events are refused."""
    events = load_events(SECONDS * EVENTS_PER_SECOND)
    case = poison_case(events)
    assert sum(is_poisoned(event, case) for event in events) > 2
    with pytest.raises(ValueError, match="10 events end before a case can fail"):
        poison_case(events[:10])


def test_configuration_is_taken() -> None:
    """With a group per stage."""
    loaded = loads(configuration("/data"), file="demo.yaml", actions=Registry())
    assert [*loaded.config.groups] == [stage.group for stage in STAGES]
    assert not loaded.warnings
