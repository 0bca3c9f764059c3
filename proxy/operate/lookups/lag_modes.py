"""Lag judged as another monitor would: by Burrow's rules, or by the thresholds of DDMQ's subscriptions.

The figures stay those of `lag.rules`; status, level, evidence and advice are the mode's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from conf import GroupConfig
from lag.rules.burrow import DEFAULTS, BurrowStatus, commits_of, group_status, judge
from lag.rules.ddmq import DdmqThresholds, alarms
from lag.samples import QueueSample
from proxy.operate.text import amount
from proxy.operate.views.lag import LagQueue, Mode

ALARM = "ALARM"
"""Status of a queue that is over a threshold of DDMQ's."""
_LEVELS = {BurrowStatus.NOTFOUND: "UNKNOWN", BurrowStatus.OK: "OK", BurrowStatus.WARN: "WARN"}
_BURROW_ADVICE = {
    BurrowStatus.NOTFOUND: "Nothing was committed in the window: start the consumers, or wait for their first commit.",
    BurrowStatus.OK: "Nothing.",
    BurrowStatus.WARN: "The lag never falls: add consumers, or make them faster.",
    BurrowStatus.STOP: "No commit comes any more: look whether the consumers run.",
    BurrowStatus.STALL: "Commits come and do not move: look at the failures of the consumers.",
    BurrowStatus.REWIND: "The offset went back: find out who set it.",
}


def as_burrow(queue: LagQueue, samples: Sequence[QueueSample], now_ms: int) -> LagQueue:
    """Return the queue as Burrow would judge it by the commits of its window.

    Args:
        queue: What our own rules say.
        samples: Its samples, oldest first.
        now_ms: The moment that is judged.
    """
    status = judge(samples, whole_second(now_ms))
    commits = commits_of(samples)
    evidence = f"{amount(len(commits), 'commit')} of {DEFAULTS.intervals} in the window"
    if commits:
        evidence += f", lag {commits[0].lag} at the first and {commits[-1].lag} at the last"
    level = _LEVELS.get(status, "ERR")
    return _judged(queue, status.name, level, evidence, _BURROW_ADVICE[status])


def whole_second(now_ms: int) -> int:
    """Return the moment that Burrow judges: it looks at a clock of whole seconds."""
    return now_ms // 1000 * 1000


def as_ddmq(queue: LagQueue, thresholds: DdmqThresholds) -> LagQueue:
    """Return the queue as the thresholds of its subscription have it."""
    figures = {"lag": queue.lag, "time_lag_low_ms": queue.time_lag_low_ms}
    found = alarms(figures, queue.status, thresholds)
    if not found:
        said = "" if thresholds.enable_alarm else "its alarms are switched off (enableAlarm)"
        return _judged(queue, "OK", "OK", said, "Nothing.")
    is_unknown = all(each.kind == "unknown" for each in found)
    whom = ", ".join(thresholds.alarm_group)
    todo = f"Tell {whom} (alarmGroup). {queue.advice}" if whom else queue.advice
    status, level = ("UNKNOWN", "UNKNOWN") if is_unknown else (ALARM, "ERR")
    return _judged(queue, status, level, "; ".join(each.text for each in found), todo)


def thresholds_of(group: GroupConfig | None, topic: str) -> DdmqThresholds:
    """Return the thresholds of a subscription; of a topic that the group does not subscribe, its own.

    Args:
        group: The group's configuration; None: it has none any more.
        topic: The topic.
    """
    if group is None:
        return DdmqThresholds()
    found = next((each for each in group.topics if each.topic == topic), None) or group
    return DdmqThresholds(
        committed_lag_threshold=found.committed_lag_threshold,
        delay_time_threshold=found.delay_time_threshold,
        enable_alarm=group.enable_alarm and found.enable_alarm,
        alarm_group=tuple(group.alarm_group or ()),
    )


def status_in_mode(mode: Mode, queues: Iterable[LagQueue]) -> tuple[str, str]:
    """Return status and level of a group in a mode other than our own, by its queues."""
    statuses = [each.status for each in queues]
    if mode == "burrow":
        status = group_status(BurrowStatus[each] for each in statuses)
        return status.name, _LEVELS.get(status, "ERR")
    if ALARM in statuses:
        return ALARM, "ERR"
    return ("UNKNOWN", "UNKNOWN") if "UNKNOWN" in statuses or not statuses else ("OK", "OK")


def _judged(queue: LagQueue, status: str, level: str, evidence: str, advice: str) -> LagQueue:
    return replace(queue, status=status, level=level, cause=None, evidence=evidence, advice=advice)
