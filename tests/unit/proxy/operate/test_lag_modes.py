"""Lag by Burrow's rules and by DDMQ's thresholds."""

from __future__ import annotations

from conf import loads
from lag.rules.ddmq import DdmqThresholds
from lag.samples import QueueSample
from proxy.operate.lookups.lag import group_of
from proxy.operate.lookups.lag_modes import as_burrow, as_ddmq, thresholds_of
from tests.lag_answers import lag_queue

YAML = """
topics:
  orders: {}
groups:
  - group: billing
    alarmGroup: [ops, alice]
    committedLagThreshold: 7
    topics:
      - topic: orders
        committedLagThreshold: 5
        delayTimeThreshold: 9000
"""


def samples(commits: list[tuple[int, int]]) -> list[QueueSample]:
    """Return samples with a commit each: offset and lag."""
    return [
        QueueSample(time_ms=number * 10_000, moved_ms=number * 10_000, start=0, end=offset + lag, committed=offset)
        for number, (offset, lag) in enumerate(commits, start=1)
    ]


def test_burrow_judges_by_commits_alone() -> None:
    """A tiny lag that never falls is WARN there, and OK here."""
    found = as_burrow(lag_queue(), samples([(number, 1) for number in range(10)]), 101_000)
    assert (found.status, found.level, found.cause) == ("WARN", "WARN", None)
    assert found.evidence == "10 commits of 10 in the window, lag 1 at the first and 1 at the last"
    found = as_burrow(lag_queue(), samples([(5, 1 + number) for number in range(10)]), 101_000)
    assert (found.status, found.level) == ("STALL", "ERR")
    assert (as_burrow(lag_queue(), [], 0).status, as_burrow(lag_queue(), [], 0).level) == ("NOTFOUND", "UNKNOWN")


def test_burrow_looks_at_a_clock_of_whole_seconds() -> None:
    """The last commit is as long ago as the window is wide until the second is over."""
    window = samples([(1, 5), (2, 5)])
    assert as_burrow(lag_queue(), window, 30_999).status == "WARN"
    assert as_burrow(lag_queue(), window, 31_000).status == "STOP"


def test_burrow_group_is_the_worst_and_its_stops_are_errors() -> None:
    """As in its own evaluator."""
    queues = [as_burrow(lag_queue(), samples([(5, 1)] * 3), 41_000), as_burrow(lag_queue(), samples([(1, 0)]), 11_000)]
    found = group_of("billing", queues, "burrow")
    assert (found.status, found.level) == ("ERR", "ERR")
    assert group_of("billing", [], "burrow").status == "NOTFOUND"


def test_ddmq_alarms_above_its_thresholds() -> None:
    """And tells whom."""
    limits = DdmqThresholds(committed_lag_threshold=5, delay_time_threshold=9_000, alarm_group=("ops", "alice"))
    found = as_ddmq(lag_queue(lag=6, time_lag_low_ms=9_001, advice="Look."), limits)
    assert (found.status, found.level) == ("ALARM", "ERR")
    assert found.evidence == "a lag of 6 messages is above 5; a time lag of 9001 ms is above 9000"
    assert found.advice == "Tell ops, alice (alarmGroup). Look."
    assert as_ddmq(lag_queue(lag=5, time_lag_low_ms=9_000), limits).status == "OK"
    assert group_of("billing", [found], "ddmq").status == "ALARM"


def test_ddmq_takes_nothing_known_for_no_lag_of_minus_one() -> None:
    """Unlike its monitor; and `enableAlarm: false` is silent."""
    unknown = lag_queue(lag=None, time_lag_low_ms=None, status="UNKNOWN")
    found = as_ddmq(unknown, DdmqThresholds())
    assert (found.status, found.level) == ("UNKNOWN", "UNKNOWN")
    assert group_of("billing", [found], "ddmq").level == "UNKNOWN"
    silent = as_ddmq(unknown, DdmqThresholds(enable_alarm=False))
    assert (silent.status, silent.evidence) == ("OK", "its alarms are switched off (enableAlarm)")


def test_thresholds_are_those_of_the_subscription_else_of_the_group() -> None:
    """A retry topic has none of its own."""
    group = loads(YAML, file="x.yaml").config.groups["billing"]
    found = thresholds_of(group, "orders")
    assert (found.committed_lag_threshold, found.delay_time_threshold) == (5, 9_000)
    assert found.alarm_group == ("ops", "alice")
    assert thresholds_of(group, "%RETRY%billing").committed_lag_threshold == 7
    assert thresholds_of(None, "orders") == DdmqThresholds()
