"""DDMQ's thresholds: off, above, and what its monitor kept quiet about."""

from __future__ import annotations

import pytest

from lag.rules.ddmq import DdmqThresholds, alarms
from lag.rules.queue_rules import judge
from tests.unit.lag.rules.cases import CASES

_BY_NAME = {case.name: case for case in CASES}


def kinds(name: str, thresholds: DdmqThresholds) -> list[str]:
    """Return the alarms of a case."""
    case = _BY_NAME[name]
    verdict = judge(case.samples, case.now_ms)
    return [alarm.kind for alarm in alarms(verdict.figures, verdict.status, thresholds)]


def test_alarm_is_above_the_threshold_and_not_at_it() -> None:
    """Lag is 1000 and time lag 120 s."""
    name = "late, and neither better nor worse"
    assert kinds(name, DdmqThresholds()) == []
    assert kinds(name, DdmqThresholds(committed_lag_threshold=1000, delay_time_threshold=120_000)) == []
    assert kinds(name, DdmqThresholds(committed_lag_threshold=999, delay_time_threshold=119_999)) == ["lag", "delay"]
    assert kinds(name, DdmqThresholds(committed_lag_threshold=-1, delay_time_threshold=-1)) == []
    assert kinds(name, DdmqThresholds(committed_lag_threshold=-1, delay_time_threshold=1)) == ["delay"]


def test_what_is_not_known_is_an_alarm() -> None:
    """A lower bound alarms; a queue that cannot be read, or that nobody reads, does without a figure."""
    assert kinds("older than the window", DdmqThresholds(delay_time_threshold=299_999)) == ["delay"]
    assert kinds("the queue cannot be read", DdmqThresholds()) == ["unknown"]
    assert kinds("nobody ever read it", DdmqThresholds()) == ["not consumed"]


def test_alarms_are_silenced_and_addressed() -> None:
    """`enableAlarm` holds for all kinds, and `alarmGroup` says for whom they are."""
    assert kinds("the queue cannot be read", DdmqThresholds(enable_alarm=False)) == []
    case = _BY_NAME["late, and neither better nor worse"]
    verdict = judge(case.samples, case.now_ms)
    [alarm] = alarms(verdict.figures, verdict.status, DdmqThresholds(committed_lag_threshold=10, alarm_group=("ops",)))
    assert (alarm.text, alarm.alarm_group) == ("a lag of 1000 messages is above 10", ("ops",))


def test_threshold_below_off_is_refused() -> None:
    """The text has the name of DDMQ's configuration."""
    with pytest.raises(ValueError, match="committedLagThreshold is -2"):
        DdmqThresholds(committed_lag_threshold=-2)
