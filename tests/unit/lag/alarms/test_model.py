"""Ids, rules and events of alarms."""

from __future__ import annotations

import pytest

from lag.alarms.model import DEFAULT_STATUSES, SILENT, Alarm, AlarmRule, AlarmState, alarm_id, event_of


def test_id_is_of_cluster_group_status_and_moment_alone() -> None:
    """Written down: another version must come to the same, or an alarm would open twice."""
    assert alarm_id("c", "g", "STOP", 1_700_000_000_000) == "98523E57C815536DCEB3"


def test_rule_fits_groups_by_pattern_and_a_silent_node_always() -> None:
    """`*` and `?`, with upper and lower case apart."""
    rule = AlarmRule(groups=("orders-*", "b?"))
    assert [rule.fits(group, "STOP") for group in ("orders-x", "b1", "B1", "other", "")] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert not rule.fits("b1", "WARN")
    assert {"STOP", "DATA_LOSS", SILENT} <= DEFAULT_STATUSES
    assert "WARN" not in DEFAULT_STATUSES


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"statuses": frozenset({"STOPPED"})}, "no status 'STOPPED'"),
        ({"for_ms": -1}, "0 or more"),
        ({"sinks": ("mail",)}, "file, topic, webhook"),
    ],
)
def test_rule_that_is_none_is_refused(wrong: dict[str, object], what: str) -> None:
    """With a sentence that says what would be right."""
    with pytest.raises(ValueError, match=what):
        AlarmRule(**wrong)  # type: ignore[arg-type]  # that is what is tested


def test_event_says_what_its_alarm_is() -> None:
    """With a key of its own, and the severity of the status."""
    alarm = Alarm(cluster="c", node="n", group="g", status="WARN", since_ms=1, opened_ms=2, told=3)
    event = event_of(alarm, "repeated", 9, ("on-call",))
    assert (event["key"], event["number"]) == (f"{alarm.id}-repeated-3", 3)
    assert (event["severity"], event["timeMs"], event["alarmGroup"]) == ("warning", 9, ["on-call"])
    assert event_of(alarm, "closed", 9)["key"] == f"{alarm.id}-closed"


def test_event_waits_until_each_of_its_places_took_it() -> None:
    """One place does not wait for another."""
    state = AlarmState(outbox=[({"key": "a"}, ("file", "webhook")), ({"key": "b"}, ("file",))])
    assert state.took("file", frozenset({"a", "b"}))
    assert not state.took("file", frozenset({"a"}))
    assert state.waiting("webhook") == [{"key": "a"}]
    assert state.took("webhook", frozenset({"a"}))
    assert state.outbox == []
