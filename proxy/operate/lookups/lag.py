"""Consumption lag of a running node: its last samples, judged by `lag.rules`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from broker.runtime.steps import run_now
from conf import GroupConfig, LagRules
from lag.rules.limits import Limits
from lag.rules.queue_rules import QueueLag
from lag.rules.statuses import BY_NAME, worst
from lag.samples import QueueSample
from lag.verdicts.windows import Place, Windows
from proxy.node.node import Node
from proxy.operate.views.lag import LagAnswer, LagGroup, LagQueue
from proxy.recording.limits import limits_of_config

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
    """Answer at once, as `lag_steps` does in steps."""
    return run_now(lag_steps(node, limit=limit, group=group))


def lag_steps(node: Node, *, limit: int, group: str | None = None) -> Generator[None, None, LagAnswer | None]:
    """Find out where groups stand, in steps of some tenths of a millisecond.

    Args:
        node: The node.
        limit: Queues that are told of, at most.
        group: Only this one.

    Returns:
        The answer, or None when a name is given and no group has it.
    """
    if group is not None and group not in node.groups:
        return None
    recorder, config = node.recorder, node.config.lag
    asked = Asked(
        now_ms=node.seams.clock.wall_ms(),
        group=group,
        limit=limit,
        groups=list(node.groups) if group is None else [group],
        config_of=lambda name: _config(node, name),
        rules=node.config.lag.rules,
    )
    answer = yield from answer_steps(recorder.windows, asked)
    return replace(answer, enabled=config.enabled, every_ms=config.every_ms, trouble=recorder.trouble)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked of windows.

    Attributes:
        now_ms: The moment that is judged.
        group: Only this one; None: all.
        limit: Queues that are told of, at most.
        groups: Those that are told of although no queue of theirs is known.
        config_of: Configuration of a group; None: it has none.
        rules: Thresholds of the node; None: the defaults.
    """

    now_ms: int
    group: str | None
    limit: int
    groups: Sequence[str]
    config_of: Callable[[str], GroupConfig | None]
    rules: LagRules | None = None


def answer_steps(windows: Windows, asked: Asked) -> Generator[None, None, LagAnswer]:
    """Judge what windows hold, in steps."""
    now_ms = asked.now_ms
    judged = yield from windows.judging(
        now_ms, lambda name, topic: limits_of_config(asked.config_of(name), topic, asked.rules), asked.group
    )
    queues = [_queue(*each) for each in judged]
    by_group: dict[str, list[LagQueue]] = {name: [] for name in asked.groups}
    for each in queues:
        by_group.setdefault(each.group, []).append(each)
    groups = [group_of(name, by_group[name]) for name in sorted(by_group)]
    return LagAnswer(
        now_ms=now_ms,
        enabled=True,
        every_ms=0,
        trouble=None,
        level=worst_level(each.level for each in groups),
        groups=groups,
        queues_total=len(queues),
        queues=queues[: asked.limit],
    )


def _config(node: Node, group: str) -> GroupConfig | None:
    found = node.groups.get(group)
    return None if found is None else found.config


def limits_of(node: Node, group: str, topic: str) -> Limits:
    """Return the thresholds of a group on a topic: its `delayTimeThreshold`, and the rules' own."""
    return limits_of_config(_config(node, group), topic, node.config.lag.rules)


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
        level=BY_NAME[status].level.name,
        lag=sum(lags) if lags else None,
        unfinished=sum(left) if left else None,
        time_lag_ms=max((each.time_lag_ms for each in queues if each.time_lag_ms is not None), default=None),
    )
