"""From the windows of a node to one judged round."""

from __future__ import annotations

from collections.abc import Callable, Generator

from lag.alarms.model import Finding, JudgedRound
from lag.alarms.windows import Windows
from lag.rules.limits import Limits

LimitsOf = Callable[[str, str], Limits]
"""Thresholds of a group and topic."""
Wanted = Callable[[str, str], bool]
"""Whether a group wants alarms about a topic (DDMQ's `enableAlarm`)."""


def everything(_group: str, _topic: str) -> bool:
    """Want all."""
    return True


def judging(
    windows: Windows, time_ms: int, *, whose: tuple[str, str], limits_of: LimitsOf, wanted: Wanted = everything
) -> Generator[None, None, JudgedRound]:
    """Judge what the windows have, in steps.

    Args:
        windows: The node's, with the round in them.
        time_ms: The round's moment, which is what is judged.
        whose: Cluster and node.
        limits_of: Thresholds.
        wanted: What is left out is as if it were not there.
    """
    judged = yield from windows.judging(time_ms, limits_of)
    found = []
    for (group, topic, queue), verdict, _sample in judged:
        if not wanted(group, topic):
            continue
        late = verdict.figures["time_lag_low_ms"]
        found.append(
            Finding(
                group=group,
                topic=topic,
                queue=queue,
                status=verdict.status,
                cause=verdict.cause,
                evidence=verdict.evidence,
                advice=verdict.advice,
                lag=verdict.figures["lag"],
                time_lag_ms=None if late is None else round(late),
            )
        )
    return JudgedRound(cluster=whose[0], node=whose[1], time_ms=time_ms, findings=tuple(found))
