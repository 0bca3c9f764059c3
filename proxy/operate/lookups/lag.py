"""Consumption lag of a running node: its last samples, judged by `lag.rules`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lag.alarms.windows import Place
from lag.rules.limits import Limits
from lag.rules.queue_rules import QueueLag
from lag.rules.statuses import BY_NAME, worst
from lag.samples import QueueSample
from proxy.node.node import Node
from proxy.operate.views.lag import LagAnswer, LagGroup, LagQueue

FIGURES = (
    "lag",
    "unfinished",
    "filtered_lag",
    "in_flight",
    "time_lag_ms",
    "time_lag_low_ms",
    "time_lag_high_ms",
    "time_lag_method",
    "produce_rate",
    "consume_rate",
    "velocity",
    "catch_up_s",
    "retention_ratio",
    "loss_eta_s",
    "lost",
    "samples",
)
_WORSE = ("OK", "WARN", "UNKNOWN", "ERR")


def lag_of(node: Node, *, limit: int, group: str | None = None) -> LagAnswer | None:
    """Return where groups stand, or None when a name is given and no group has it."""
    if group is not None and group not in node.groups:
        return None
    recorder, config = node.recorder, node.config.lag
    now_ms = node.seams.clock.wall_ms()
    queues = [_queue(*each) for each in recorder.windows.judged(now_ms, lambda *of: limits_of(node, *of), group)]
    groups = [
        group_of(name, [each for each in queues if each.group == name])
        for name in sorted(node.groups if group is None else [group])
    ]
    return LagAnswer(
        now_ms=now_ms,
        enabled=config.enabled,
        every_ms=config.every_ms,
        trouble=recorder.trouble,
        level=worst_level(each.level for each in groups),
        groups=groups,
        queues_total=len(queues),
        queues=queues[:limit],
    )


def limits_of(node: Node, group: str, topic: str) -> Limits:
    """Return the thresholds of a group on a topic: its `delayTimeThreshold`, and the rules' own."""
    usual = Limits()
    found = node.groups.get(group)
    config = None if found is None else next((each for each in found.config.topics if each.topic == topic), None)
    target_ms = usual.target_ms if config is None else config.delay_time_threshold
    return Limits(target_ms=target_ms, floor_ms=min(usual.floor_ms, target_ms))


def worst_level(levels: Iterable[str]) -> str:
    """Return what several groups are together: what is not known is worse than a warning, and no error."""
    return max(levels, key=_WORSE.index, default="OK")


def _queue(place: Place, verdict: QueueLag, sample: QueueSample) -> LagQueue:
    group, topic, queue = place
    figures: dict[str, Any] = {}
    for name in FIGURES:
        value = verdict.figures.get(name, getattr(sample, name, None))
        figures[name] = round(value, 3) if isinstance(value, float) else value
    return LagQueue(
        group=group,
        topic=topic,
        queue=queue,
        time_ms=verdict.time_ms,
        status=verdict.status,
        level=verdict.level,
        cause=verdict.cause,
        evidence=verdict.evidence,
        advice=verdict.advice,
        committed=sample.committed,
        end=sample.end,
        held_key=sample.held_key,
        **figures,
    )


def group_of(name: str, queues: Sequence[LagQueue]) -> LagGroup:
    """Return what the queues of a group are together."""
    status = worst([each.status for each in queues]) if queues else "UNKNOWN"
    lags = [each.lag for each in queues if each.lag is not None]
    left = [each.unfinished for each in queues if each.unfinished is not None]
    return LagGroup(
        group=name,
        status=status,
        level=BY_NAME[status].level.name if status in BY_NAME else "UNKNOWN",
        lag=sum(lags) if lags else None,
        unfinished=sum(left) if left else None,
        time_lag_ms=max((each.time_lag_ms for each in queues if each.time_lag_ms is not None), default=None),
    )
